"""A matrix product with its epilogue as a kernel of CUDA C.

A block computes a tile of the result. Its operands come to shared memory some steps ahead, asynchronously where their
elements are as wide as the hardware copies; threads or tensor cores multiply them; the sums pass through the same
memory once more, so that neighbours are stored side by side, each through the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .... import config, dtypes
from ....loops.ir import Buffer, Expr, Kernel, Store, expressions, perfect_nest, statements
from ....record import record, replace
from ....schedule.fusion.epilogue import Fused
from ....schedule.kernels.gemm import Matrix, Product
from ..emit.functions import DeviceFunctions
from ..emit.kernel import ENTRY, KernelWriter, Source
from ..emit.scalars import C
from ..emit.types import c_type
from .multiply import Multiplication, multiplication
from .operands import COPY, HALF, Operand, load_function, operand
from .tiles import Tile, stages, tile_for

_COMMIT = """\
static __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
"""
_WAIT = """\
static __device__ __forceinline__ void wait() {{ asm volatile("cp.async.wait_group {0};" ::: "memory"); }}
"""


# Of plain products from this size on a library is the better choice: an epilogue is what it does not have, and below
# this launches take longer than products.
_LIBRARY_FLOPS = 1 << 27


def is_left_to_library(spec: Product | Fused) -> bool:
    """Whether a library computes the product rather than a kernel of ours."""
    return isinstance(spec, Product) and spec.flops >= _LIBRARY_FLOPS


@record
class CallSource(Source):
    """The source of a library call: its launch is given these operands, and the iterations are tiles of the result."""

    operands: tuple[Buffer, ...] = ()
    total: int = 1


def emit_product(spec: Product | Fused, *, wide: bool = True) -> CallSource:
    """The source of a product, and of the loop nest after it; unless it is `wide`, elements are copied one by one,
    wherever operands begin."""
    call, epilogue = (spec.call, spec.epilogue) if isinstance(spec, Fused) else (spec, None)
    assert isinstance(call, Product)
    tile = tile_for(call, tf32=config.read().tf32)
    return source_of(call, epilogue, tile, wide=wide)


def source_of(call: Product, epilogue: Kernel | None, tile: Tile, *, wide: bool = True) -> CallSource:
    """The source with this tile."""
    a, b = _sides(call, tile, wide)
    steps = -(-call.k // tile.depth)
    ahead = stages(a.nbytes + b.nbytes, steps)
    functions = DeviceFunctions()
    finish, results = _finish(call, epilogue, functions)
    pointers = ", ".join(x.name for x in results)
    given = [_operand_buffer("a", a, call, call.a), _operand_buffer("b", b, call, call.b)]
    operands = (*given, *results)
    total = call.matrices * tile.blocks(call)
    multiply = multiplication(call.dtype, tile, a, b)
    copies = {f"copy_{side.width * side.stored.itemsize}" for side in (a, b) if side.is_asynchronous}
    texts = [COPY[name] for name in sorted(copies)]
    texts += [HALF] * any(s.stored is dtypes.float16 and s.value is not s.stored for s in (a, b))
    texts += [_COMMIT, _WAIT.format(ahead - 2)] * bool(copies)
    texts += [load_function(side, tile.threads) for side in (a, b)]
    texts += [multiply.functions, functions.text(), finish]
    parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in operands]
    head = f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{"
    lines = [
        f"// {call}, in tiles of {tile.rows}x{tile.columns}x{tile.depth}",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1)',
        head,
        *_shared(a, b, ahead),
        *multiply.setup,
        "for (long long tile = lo + blockIdx.x; tile < hi; tile += gridDim.x) {",
        *(f"  {line}" for line in _tile(call, tile, a, b, steps, ahead, bool(copies), multiply, pointers)),
        "}",
    ]
    body = "\n".join([*lines[:3], *(f"  {line}" for line in lines[3:]), "}\n"])
    text = "\n".join(part for part in [*texts, body] if part)
    alignment = max(side.width * side.stored.itemsize for side in (a, b))
    return CallSource(text, False, tile.threads, 1, alignment, operands, total)


def _sides(call: Product, tile: Tile, wide: bool) -> tuple[Operand, Operand]:
    stored = call.stored or (call.dtype, call.dtype)
    values = stored if tile.tensor else (call.dtype, call.dtype)
    turned = replace(call.b, row=call.b.column, column=call.b.row)  # its columns along the rows
    a = operand("a", call.a, call.m, call.k, stored[0], values[0], tile.rows, tile.depth, tile.tensor, wide)
    b = operand("b", turned, call.n, call.k, stored[1], values[1], tile.columns, tile.depth, tile.tensor, wide)
    return a, b


def _operand_buffer(name: str, side: Operand, call: Product, matrix: Matrix) -> Buffer:
    """The memory that the product reads, up to its last element."""
    last = matrix.offset + (side.size - 1) * side.along + (side.depth - 1) * side.down
    last += sum((n - 1) * step for n, step in zip(call.batch, matrix.batch, strict=True))
    return Buffer(name, side.stored, last + 1, "in")


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


def _tile(call: Product, tile: Tile, a: Operand, b: Operand, steps: int, ahead: int, copies: bool,
          multiply: Multiplication, pointers: str) -> list[str]:  # fmt: skip
    """The lines of one tile: operands some steps ahead, products, and the way of the sums to the result."""
    across, blocks = -(-call.n // tile.columns), tile.blocks(call)
    matrix = "tile" if blocks == 1 else f"tile / {blocks}"
    place = "0" if blocks == 1 else f"(int)(tile % {blocks})"
    down = f"place / {across} * {tile.rows}" if across > 1 else f"place * {tile.rows}"
    lines = [
        f"const long long matrix = {matrix};",
        f"const int place = {place}, row = {down}, column = {f'place % {across} * {tile.columns}' if across > 1 else '0'};",
        f"const {c_type(a.stored)}* const a_tile = {_start('a', call, call.a, f'row * {a.along}LL')};",
        f"const {c_type(b.stored)}* const b_tile = {_start('b', call, call.b, f'column * {b.along}LL')};",
    ]
    load = [
        f"load_a(a_tiles[{{0}} % {ahead}], a_tile + {{0}} * {tile.depth * a.down}LL, {call.m} - row, {call.k} - {{0}} * {tile.depth});",
        f"load_b(b_tiles[{{0}} % {ahead}], b_tile + {{0}} * {tile.depth * b.down}LL, {call.n} - column, {call.k} - {{0}} * {tile.depth});",
    ]
    commit = ["commit();"] * copies
    lines += multiply.sums
    for step in range(ahead - 1):
        lines += [line.format(step) for line in load if step < steps] + commit
    later = f"step + {ahead - 1}"
    lines += [
        "#pragma unroll 1",
        f"for (int step = 0; step < {steps}; ++step) {{",
        *["  wait();"] * copies,
        "  __syncthreads();",
        f"  const int next = {later};",
        f"  if (next < {steps}) {{",
        *(f"    {line.format('next')}" for line in load),
        "  }",
        *(f"  {line}" for line in commit),
        f"  const int stage = step % {ahead};",
        *(f"  {line}" for line in multiply.step),
        "}",
    ]
    return lines + _results(call, tile, ahead * (a.nbytes + b.nbytes), multiply, pointers)


def _start(name: str, call: Product, matrix: Matrix, first: str) -> str:
    """The address of a tile's first element at k = 0."""
    return " + ".join([name, *_batch(call.batch, matrix.batch), first, *([str(matrix.offset)] if matrix.offset else [])])


def _batch(batch: Sequence[int], strides: Sequence[int]) -> list[str]:
    """Terms of the offset of the matrix with this number."""
    terms, below = [], 1
    for n, stride in zip(reversed(batch), reversed(strides), strict=True):
        if n > 1 and stride:
            index = f"matrix / {below}" if below > 1 else "matrix"
            whole = below * n == math.prod(batch)
            terms.append(f"{index} * {stride}" if whole else f"{index} % {n} * {stride}")
        below *= n
    return terms[::-1]


def _results(call: Product, tile: Tile, available: int, multiply: Multiplication, pointers: str) -> list[str]:
    """Sums through shared memory, in as few parts as it has room for, and through the epilogue to their places."""
    pitch = tile.columns + multiply.pad
    parts = next(n for n in (1, 2, 4) if tile.rows // n * pitch * call.dtype.itemsize <= available)
    rows, kind = tile.rows // parts, c_type(call.dtype)
    count, each = rows * tile.columns, multiply.fragments // parts
    lines = [f"{kind} (*sums_tile)[{pitch}] = ({kind} (*)[{pitch}])shared;"]
    for part in range(parts):
        guards = [f"at_row < {call.m}"] * (call.m % tile.rows != 0)
        guards += [f"at_column < {call.n}"] * (call.n % tile.columns != 0)
        where = f"if ({' && '.join(guards)}) " if guards else ""
        result = f"finish(sums_tile[line][at], matrix * {call.m} + at_row, at_column, {pointers});"
        lines += [
            "__syncthreads();",
            *(line.replace("FIRST", str(part * each)).replace("LAST", str((part + 1) * each)) for line in multiply.keep),
            "__syncthreads();",
            "#pragma unroll 2",
            f"for (int index = threadIdx.x; index < {count}; index += {tile.threads}) {{",
            f"  const int line = index / {tile.columns}, at = index % {tile.columns};",
            f"  const int at_row = row + line{f' + {part * rows}' if part else ''}, at_column = column + at;",
            f"  {where}{result}",
            "}",
        ]
    return [*lines, "__syncthreads();  // shared memory is free for the next tile"]


def _finish(
    call: Product, epilogue: Kernel | None, functions: DeviceFunctions
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
    given = [f"{c_type(call.dtype)} value", "long long row", "long long column", *parameters]
    head = f"static __device__ __forceinline__ void finish({', '.join(given)}) {{"
    return "\n".join([head, *lines, "}\n"]), buffers


def _epilogue_lines(call: Product, epilogue: Kernel, functions: DeviceFunctions) -> list[str]:
    """The body of the loops over the elements of the result, of which one is at hand as `value`."""
    loops, body = perfect_nest(epilogue.body)
    first, (rows, columns) = epilogue.operands[0], call.result
    names: dict[Expr, C] = {loop.var: C(name, dtypes.int64) for loop, name in zip(loops, ("row", "column"), strict=False)}
    names |= {e: C("value", call.dtype) for e in expressions(body) if e.op == "load" and e.attr.name == first.name}
    lines = KernelWriter(epilogue, functions).inside(names, body)
    stored = {stmt.buffer.name for stmt in statements(body) if isinstance(stmt, Store)}
    if not call.passing and first.name not in stored:
        lines = [f"  {first.name}[row * {columns} + column] = value;", *lines]
    return lines
