"""A matrix product or convolution with its epilogue as a kernel of CUDA C.

A block computes a tile of the result. Its operands come to shared memory some steps ahead, asynchronously where their
elements are as wide as the hardware copies; threads or tensor cores multiply them; the sums pass through the same
memory once more, so that neighbours are stored side by side, each through the epilogue.

A small result of a long k has few tiles: k is divided among blocks, whose sums a second kernel adds, in their order:

    convolution 64x32x32x1x64 by 32x32 -> 3x3x64     9 tiles of 64x64, each the work of 56 blocks
"""

from __future__ import annotations

from collections.abc import Sequence

from .... import config, dtypes
from ....loops.builder import LoopBuilder
from ....loops.ir import Buffer, Expr, Kernel, KernelSpec, Store, expressions, perfect_nest, statements
from ....record import record, replace
from ....schedule.fusion.epilogue import Fused
from ....schedule.kernels.convolution import Convolution
from ....schedule.kernels.gemm import Product
from ..code import RegionSource
from ..emit.functions import DeviceFunctions
from ..emit.kernel import ENTRY, KernelWriter, Source, emit
from ..emit.scalars import C
from ..emit.types import c_type
from ..schedule import schedule
from .contraction import Contraction, contraction_of, offset
from .multiply import Multiplication, multiplication
from .operands import COPY, HALF, Operand, load_function, operand
from .tiles import Tile, stages, tile_for

COMMIT = """\
static __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
"""
WAIT = """\
static __device__ __forceinline__ void wait() {{ asm volatile("cp.async.wait_group {0};" ::: "memory"); }}
"""


@record
class CallSource(Source):
    """The source of a library call: its launch is given these operands, and the iterations are tiles of the result."""

    operands: tuple[Buffer, ...] = ()
    total: int = 1


def nest_source(s: LoopBuilder, nest: Kernel, wide: bool) -> CallSource:
    """The source of a loop nest beside a call, which is scheduled here."""
    nest = schedule(s, nest)
    x = emit(nest, wide=wide)
    return CallSource(x.text, x.checked, x.block, x.per_block, x.alignment, nest.operands, int(nest.total))


def emit_call(spec: KernelSpec, *, wide: bool = True) -> list[CallSource]:
    """The source of a call and of the loop nest after it; unless it is `wide`, elements are copied one by one, wherever
    operands begin. Where there are two, the last operand of the first is new memory, which the second begins with."""
    call, epilogue = (spec.call, spec.epilogue) if isinstance(spec, Fused) else (spec, None)
    assert isinstance(call, Product | Convolution)
    return sources_of(call, epilogue, tile_for(contraction_of(call), tf32=config.field("tf32")), wide=wide)


def call_steps(spec: KernelSpec, wide: bool) -> RegionSource:
    """The launches of a call and of the loop nest after it, by kernels of ours."""
    first, *more = emit_call(spec, wide=wide)
    if not more:
        return RegionSource(((first, tuple(range(len(first.operands)))),))
    (second,) = more
    count = len(second.operands) + 1  # operands of the spec: those of both but the sums
    sums = first.operands[-1]
    return RegionSource(((first, (0, 1, count)), (second, (count, *range(2, count)))), (int(sums.nbytes),))


def sources_of(
    call: Product | Convolution, epilogue: Kernel | None, tile: Tile, *, wide: bool = True
) -> list[CallSource]:
    """The sources with this tile."""
    functions = DeviceFunctions()
    finish, results = finish_function("finish", call, epilogue, functions)
    if tile.parts == 1:
        return [_products(call, tile, wide, "\n".join([functions.text(), finish]), results)]
    form = contraction_of(call)
    sums = Buffer("partial", form.dtype, form.matrices * tile.parts * form.m * form.n, "out")
    return [
        _products(call, tile, wide, _KEEP.format(type=c_type(form.dtype), m=form.m, n=form.n), [sums]),
        _additions(form, tile, "\n".join([functions.text(), finish]), replace(sums, role="in"), results),
    ]


# `finish` of a part of k: `at` is that of the sums of all parts.
_KEEP = """\
static __device__ __forceinline__ void finish({type} value, long long at, long long i, long long j, {type}* partial) {{
  partial[(at * {m} + i) * {n} + j] = value;
}}
"""
_ADDING = 256  # threads


def _additions(form: Contraction, tile: Tile, finish: str, sums: Buffer, results: Sequence[Buffer]) -> CallSource:
    """The kernel of the sums of all parts, element by element."""
    operands, size, total = (sums, *results), form.m * form.n, form.matrices * form.m * form.n
    parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in operands]
    sum_of = f"{c_type(form.dtype)} value = partial[first]"
    lines = [
        f"// {form.text}, the sums of {tile.parts} parts",
        f'extern "C" __global__ void __launch_bounds__({_ADDING}, 1)',
        f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
        f"  const long long apart = gridDim.x * {_ADDING}LL;",
        f"  for (long long element = lo + blockIdx.x * {_ADDING}LL + threadIdx.x; element < hi; element += apart) {{",
        f"    const long long matrix = element / {size}, place = element % {size};",
        f"    const long long first = matrix * {tile.parts * size}LL + place;",
        f"    {sum_of};",
        "    #pragma unroll 8",
        f"    for (int part = 1; part < {tile.parts}; ++part) value += partial[first + part * {size}LL];",
        f"    finish(value, matrix, place / {form.n}, place % {form.n}, {', '.join(x.name for x in results)});",
        "  }",
        "}\n",
    ]
    return CallSource("\n".join([finish, *lines]), False, _ADDING, _ADDING, 1, operands, total)


def _products(
    call: Product | Convolution, tile: Tile, wide: bool, finish: str, results: Sequence[Buffer]
) -> CallSource:
    """The kernel of the tiles, each of a part of k."""
    form = contraction_of(call)
    a, b = _sides(form, tile, wide)
    steps = -(-form.k // tile.depth)
    ahead = stages(a.nbytes + b.nbytes, -(-steps // tile.parts), tile.slices)
    given = [Buffer(x.name, x.stored, size, "in") for x, size in zip((a, b), form.sizes, strict=True)]
    operands = (*(given[::-1] if form.swapped else given), *results)
    multiply = multiplication(form.dtype, tile, a, b)
    copies = {f"copy_{side.width * side.stored.itemsize}" for side in (a, b) if side.is_asynchronous}
    texts = [COPY[name] for name in sorted(copies)]
    texts += [HALF] * any(s.stored is dtypes.float16 and s.value is not s.stored for s in (a, b))
    texts += [COMMIT, WAIT.format(ahead - 2)] * bool(copies)
    texts += [load_function(side, tile.threads) for side in (a, b)]
    texts += [*multiply.functions, finish]
    parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in operands]
    parts = _Parts(form, tile, a, b, steps, ahead, bool(copies), multiply, ", ".join(x.name for x in results))
    lines = [
        *_shared(a, b, ahead),
        *multiply.setup,
        "for (long long tile = lo + blockIdx.x; tile < hi; tile += gridDim.x) {",
        *(f"  {line}" for line in [*_tile(parts), *_results(parts)]),
        "}",
    ]
    body = [
        f"// {form.text}, in tiles of {tile.rows}x{tile.columns}x{tile.depth}",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, {_at_once(form, tile)})',
        f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
        *(f"  {line}" for line in lines),
        "}\n",
    ]
    text = "\n".join(part for part in [*texts, "\n".join(body)] if part)
    alignment = max(side.width * side.stored.itemsize for side in (a, b))
    total = form.matrices * tile.parts * tile.blocks(form)
    return CallSource(text, False, tile.threads, 1, alignment, operands, total)


def _at_once(form: Contraction, tile: Tile) -> int:
    """Blocks side by side: fewer for images, whose addresses take a thread more registers."""
    return max(tile.at_once // 2, 1) if form.a.inside or form.b.inside else tile.at_once


@record
class _Parts:
    """All that the lines of a tile are made of."""

    form: Contraction
    tile: Tile
    a: Operand
    b: Operand
    steps: int
    ahead: int  # steps of k in shared memory
    copies: bool  # whether any arrive asynchronously
    multiply: Multiplication
    pointers: str  # that the epilogue is given


def _sides(form: Contraction, tile: Tile, wide: bool) -> tuple[Operand, Operand]:
    values = form.stored if tile.tensor else (form.dtype, form.dtype)
    a = operand("a", form.a, form.stored[0], values[0], tile.rows, tile.depth, tile.tensor, wide)
    b = operand("b", form.b, form.stored[1], values[1], tile.columns, tile.depth, tile.tensor, wide)
    return a, b


def _shared(a: Operand, b: Operand, ahead: int) -> list[str]:
    """Tiles of both operands in one array, which the sums are passed through in the end."""
    size = ahead * (a.nbytes + b.nbytes)
    lines = [f"__shared__ __align__(16) unsigned char shared[{size}];"]
    offset = 0
    for side in (a, b):
        kind = c_type(side.value)
        lines.append(
            f"{kind} (*{side.name}_tiles)[{side.lines}][{side.pitch}] = "
            f"({kind} (*)[{side.lines}][{side.pitch}])(shared + {offset});"
        )
        offset += ahead * side.nbytes
    return lines


def _tile(parts: _Parts) -> list[str]:
    """The lines of one tile up to its sums: operands some steps ahead, and products."""
    form, tile, ahead, steps = parts.form, parts.tile, parts.ahead, parts.steps
    across, blocks = -(-form.n // tile.columns), tile.blocks(form)
    row, column = (f"place / {across}", f"place % {across}") if across > 1 else ("place", "0")
    each = -(-steps // tile.parts)
    matrix = f"tile{f' / {blocks}' if blocks > 1 else ''}"
    lines = [f"const long long matrix = {matrix};"]
    first, last = "0", str(steps)
    if tile.parts > 1:
        lines = [
            f"const long long sums_matrix = {matrix}, matrix = sums_matrix / {tile.parts};",
            f"const int first = (int)(sums_matrix % {tile.parts}) * {each};",
            f"const int last = min(first + {each}, {steps});",
        ]
        first, last = "first", "last"
    lines += [
        f"const int place = {f'(int)(tile % {blocks})' if blocks > 1 else '0'}, row = {row} * {tile.rows}, "
        f"column = {column} * {tile.columns};",
    ]
    lines += [matrix_of(side, side.name) for side in (parts.a, parts.b)]
    load = [
        f"load_a(a_tiles[{{0}} % {ahead}], a_matrix, row, {{0}} * {tile.depth});",
        f"load_b(b_tiles[{{0}} % {ahead}], b_matrix, column, {{0}} * {tile.depth});",
    ]
    commit = ["commit();"] * parts.copies
    lines += parts.multiply.sums
    for step in range(ahead - 1):
        if tile.parts > 1:
            lines += ["{", f"  const int next = first + {step};", "  if (next < last) {"]
            lines += [*(f"    {line.format('next')}" for line in load), "  }", "}", *commit]
        else:
            lines += [line.format(step) for line in load if step < steps] + commit
    return [
        *lines,
        "#pragma unroll 1",
        f"for (int step = {first}; step < {last}; ++step) {{",
        *["  wait();"] * parts.copies,
        "  __syncthreads();",
        f"  const int next = step + {ahead - 1};",
        f"  if (next < {last}) {{",
        *(f"    {line.format('next')}" for line in load),
        "  }",
        *(f"  {line}" for line in commit),
        f"  const int stage = step % {ahead};",
        *(f"  {line}" for line in parts.multiply.step),
        "}",
    ]


def matrix_of(side: Operand, pointer: str) -> str:
    """The line that defines where a matrix of an operand begins."""
    start = [offset("matrix", side.where.batch), str(side.where.offset) * (side.where.offset != 0)]
    return f"const {c_type(side.stored)}* const {side.name}_matrix = {' + '.join([pointer, *filter(None, start)])};"


def _results(parts: _Parts) -> list[str]:
    """Sums through shared memory, in as few parts as it has room for, and through the epilogue to their places."""
    form, tile, multiply = parts.form, parts.tile, parts.multiply
    available, pitch = parts.ahead * (parts.a.nbytes + parts.b.nbytes), tile.columns + multiply.pad
    count = next(n for n in (1, 2, 4) if tile.rows // n * pitch * form.dtype.itemsize <= available)
    rows, kind, each = tile.rows // count, c_type(form.dtype), multiply.fragments // count
    guards = [f"i < {form.m}"] * (form.m % tile.rows != 0) + [f"j < {form.n}"] * (form.n % tile.columns != 0)
    where = f"if ({' && '.join(guards)}) " if guards else ""
    lines = [*multiply.gather, f"{kind} (*sums_tile)[{pitch}] = ({kind} (*)[{pitch}])shared;"]
    matrix = "sums_matrix" if tile.parts > 1 else "matrix"
    for part in range(count):
        first, last = str(part * each), str((part + 1) * each)
        lines += [
            "__syncthreads();",
            *(line.replace("FIRST", first).replace("LAST", last) for line in multiply.keep),
            "__syncthreads();",
            "#pragma unroll 2",
            f"for (int index = threadIdx.x; index < {rows * tile.columns}; index += {tile.threads}) {{",
            f"  const int line = index / {tile.columns}, at = index % {tile.columns};",
            f"  const int i = row + line{f' + {part * rows}' if part else ''}, j = column + at;",
            f"  {where}finish(sums_tile[line][at], {matrix}, i, j, {parts.pointers});",
            "}",
        ]
    return [*lines, "__syncthreads();  // shared memory is free for the next tile"]


def finish_function(
    name: str, call: Product | Convolution, epilogue: Kernel | None, functions: DeviceFunctions
) -> tuple[str, Sequence[Buffer]]:
    """(the function that is given each element of the result, the buffers that it stores to and reads)."""
    rows, columns = call.result
    if epilogue is None:
        buffers: Sequence[Buffer] = (Buffer("out", call.dtype, rows * columns, "out"),)
        lines = [f"  out[row * {columns} + column] = value;"]
    else:
        first, *others = epilogue.operands  # the result itself, which the epilogue may only read
        buffers = (first if call.passing else replace(first, role="inout"), *others)
        lines = _epilogue_lines(call, epilogue, functions)
    parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in buffers]
    given = [f"{c_type(call.dtype)} value", "long long matrix", "long long i", "long long j", *parameters]
    head = f"static __device__ __forceinline__ void {name}({', '.join(given)}) {{"
    place = contraction_of(call).place
    where = [f"  const long long {name} = {text};" for name, text in zip(("row", "column"), place, strict=True)]
    return "\n".join([head, *where, *lines, "}\n"]), buffers


def _epilogue_lines(call: Product | Convolution, epilogue: Kernel, functions: DeviceFunctions) -> list[str]:
    """The body of the loops over the elements of the result, of which one is at hand as `value`."""
    loops, body = perfect_nest(epilogue.body)
    first, columns = epilogue.operands[0], call.result[1]
    names: dict[Expr, C] = {
        loop.var: C(name, dtypes.int64) for loop, name in zip(loops, ("row", "column"), strict=False)
    }
    names |= {e: C("value", call.dtype) for e in expressions(body) if e.op == "load" and e.attr.name == first.name}
    lines = KernelWriter(epilogue, functions).inside(names, body)
    stored = {stmt.buffer.name for stmt in statements(body) if isinstance(stmt, Store)}
    if not call.passing and first.name not in stored:
        lines = [f"  {first.name}[row * {columns} + column] = value;", *lines]
    return lines
