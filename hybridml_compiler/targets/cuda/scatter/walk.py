"""The launches of a scatter (scatter.py) that have the loop nest's values: the rows of updates, and the updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .... import dtypes
from ....loops.builder import LoopBuilder, identity
from ....loops.ir import Buffer, Expr, extent, perfect_nest
from ....loops.transforms import split
from ....record import record
from ..contraction.kernel import CallSource
from ..emit.kernel import ENTRY, KernelWriter
from ..emit.scalars import C
from ..emit.types import c_type, literal
from ..vectors import lanes_of
from .form import Scatter, count_of, scatter_of

THREADS = 256  # of a block
WORDS = 4  # counters in front of those of the rows: of places taken, of crowded rows
COUNTS = f"int* const counts = counters + {WORDS};"
EACH = f"for (long long at = lo + blockIdx.x * {THREADS}LL + threadIdx.x; at < hi; at += gridDim.x * {THREADS}LL) {{"
_AT_ONCE, _REST = 16, 4  # updates that a thread has under way at the same time, and when fewer are left
_MOST_VALUES = 24  # of the expression of an update, for so many
_OWN_BYTES, _OWN_UPDATES = 16 << 10, 16  # of a result that each block has one of; updates of an element of it
_OWN_TURNS = 32  # updates of each thread of such a block
_NAMES = {"atomicAdd": "add", "atomicMin": "min", "atomicMax": "max"}
_WARP = 32


def source(
    functions: str,
    operands: Sequence[Buffer],
    checked: bool,
    body: Sequence[str],
    total: int,
    *,
    alignment: int = 1,
    threads: int = THREADS,
    per_block: int = THREADS,
) -> CallSource:
    parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in operands]
    parameters += ["long long* status"] * checked + ["long long lo", "long long hi"]
    head = f'extern "C" __global__ void __launch_bounds__({threads}, 1)\n{ENTRY}({", ".join(parameters)}) {{'
    text = "\n".join([head, *(f"  {line}" for line in body), "}\n"])
    return CallSource(f"{functions}{text}", checked, threads, per_block, alignment, tuple(operands), total)


def _numbers(variables: Sequence[Expr], name: str, most: int) -> list[str]:
    """The lines that define variables by the number of an iteration, one of fewer than so many."""
    lines, size = [], count_of(variables)
    kind = "unsigned int" if most < 1 << 32 else "unsigned long long"
    for k, var in enumerate(variables):
        size //= int(extent(var))
        text = f"({kind})({name})" + f" / {size}" * (size > 1) + f" % {extent(var)}" * (k > 0)
        lines.append(f"const long long {_name(var)} = {text};")
    return lines


def _name(var: Expr) -> str:
    return f"v{str(var.attr).lstrip('%')}"


def _names(variables: Sequence[Expr]) -> dict[Expr, C]:
    return {var: C(_name(var), dtypes.int64) for var in variables}


def keys(found: Scatter, arrays: Mapping[str, Buffer], counted: str) -> CallSource:
    """The launch that finds the row of each update."""
    writer = KernelWriter(found.kernel)
    lines, key = writer.value(_names(found.updates), found.key)
    body = [
        COUNTS,
        EACH,
        "  const int i = (int)at;",
        *(f"  {line}" for line in _numbers(found.updates, "i", found.count)),
        *lines,
        f"  const int key = (int)({key});",
        "  keys[i] = key;",
        f"  {counted}",
        "}",
    ]
    used = [x for name, x in arrays.items() if name in ("counters", "keys") or name in counted]
    operands = (*found.kernel.operands, *used)
    return source(writer.functions.text(), operands, found.kernel.checked, body, found.count)


def atomic(found: Scatter) -> CallSource:
    """The launch of atomic updates: of the result, or, where that is small, of one for each block, which is added to
    the result in the end."""
    writer = KernelWriter(found.kernel)
    store, variables = found.store, [loop.var for loop in perfect_nest(found.kernel.body)[0]]
    total, size, kind = found.count * found.width, int(store.buffer.size), c_type(store.buffer.dtype)
    block = writer.open(variables)
    writer.names.update(_names(variables))
    assert found.update is not None
    place, value = writer.index(store.index), writer.expression(found.update)
    writer.close(block)
    if kind == "long long" and found.atomic == "atomicAdd":  # there is one of unsigned numbers, which wrap the same
        kind = "unsigned long long"
    own = store.buffer.nbytes <= _OWN_BYTES and total >= _OWN_UPDATES * size
    result = f"({kind}*){store.buffer.name}"
    lines = [
        EACH,
        *(f"  {line}" for line in _numbers(variables, "at", total)),
        *block.lines,
        f"  {found.atomic}({'own' if own else result} + {place}, ({kind})({value}));",
        "}",
    ]
    if own:
        each = f"for (int k = threadIdx.x; k < {size}; k += {THREADS})"
        start = literal(identity(_NAMES[found.atomic], store.buffer.dtype), store.buffer.dtype)
        lines = [
            f"__shared__ {kind} own[{size}];",
            f"{each} own[k] = ({kind}){start};",
            "__syncthreads();",
            *lines,
            "__syncthreads();",
            f"{each} if (own[k] != ({kind}){start}) {found.atomic}({result} + k, own[k]);",
        ]
    texts, operands, checked = writer.functions.text(), found.kernel.operands, found.kernel.checked
    return source(texts, operands, checked, lines, total, per_block=THREADS * (_OWN_TURNS if own else 1))


@record(eq=False)
class _Writing:
    """A scatter whose rows are written by neighbours of so many `lanes`; `inner` is the variable of these."""

    found: Scatter
    writer: KernelWriter
    inner: Expr | None
    lanes: int

    @property
    def along(self) -> tuple[Expr, ...]:
        """The variables along a row that number what a thread writes."""
        return tuple(var for var in self.found.along if var is not self.inner)

    @property
    def width(self) -> int:
        """The number of threads of a row."""
        return self.found.width // self.lanes

    @property
    def kind(self) -> str:
        """The type of what a thread writes."""
        dtype = self.found.store.buffer.dtype
        return c_type(dtype) if self.inner is None else self.writer.functions.vector(dtype, self.lanes)

    def source(self, lines: Sequence[str], arrays: Sequence[Buffer]) -> CallSource:
        """The source of a launch with these arrays that does the lines for each thread `at` of each update."""
        kernel, body = self.found.kernel, [EACH, *(f"  {line}" for line in lines), "}"]
        texts, total = self.writer.functions.text(), self.found.count * self.width
        operands, alignment = (*kernel.operands, *arrays), self.writer.alignment
        return source(texts, operands, kernel.checked, body, total, alignment=alignment)

    def place(self, key: str) -> list[str]:
        """The lines that find the thread's element of the row with this key."""
        zero = {} if self.inner is None else {self.inner: C("0", dtypes.int64)}
        lines, place = self.writer.value(_names(self.along) | zero, self.found.elsewhere)
        name, kind = self.found.store.buffer.name, self.kind
        return [
            *_numbers(self.along, f"at % {self.width}", self.width),
            *(line.strip() for line in lines),
            f"{kind}* const element = ({kind}*)&{name}[{self.found.step}LL * {key} + ({place})];",
        ]


def _writing(found: Scatter, *, wide: bool) -> _Writing:
    """The scatter in vectors, where the elements of a row are neighbours in memory."""
    kernel, last = found.kernel, perfect_nest(found.kernel.body)[0][-1].var
    lanes = lanes_of(kernel, last, (found.store,)) if wide and last in found.along else 1
    if lanes == 1:
        return _Writing(found, KernelWriter(kernel), None, 1)
    kernel, _, inner = split(LoopBuilder(), kernel, last, lanes)
    again = scatter_of(kernel)
    assert again is not None
    return _Writing(again, KernelWriter(kernel), inner, lanes)


def last(found: Scatter, arrays: Mapping[str, Buffer], *, wide: bool) -> CallSource:
    """The launch that makes the last update of each element."""
    w = _writing(found, wide=wide)
    step = _step(w)
    over = f" / {w.width}" * (w.width > 1)
    lines = [
        f"const int i = (int)(at{over}), key = keys[i];",
        f"if (counters[{WORDS} + key] != i + 1) continue;  // there is a later one",
        *w.place("key"),
        f"{w.kind} total;",
        *step,
        "*element = total;",
    ]
    return w.source(lines, [arrays["counters"], arrays["keys"]])


def walk(found: Scatter, arrays: Mapping[str, Buffer], most: int, *, wide: bool) -> CallSource:
    """The launch that makes the updates of each element one after the other, where a row has no more than `most`."""
    w = _writing(found, wide=wide)
    step = _step(w)
    at_once = _AT_ONCE if len(w.found.kernel.expressions) <= _MOST_VALUES else _REST
    over = f" / {w.width}" * (w.width > 1)
    lines = [
        f"const int p = (int)(at{over}), run = runs[p];",
        f"if (run == 0 || run > {most}) continue;  // not the first update of a row, or one of a crowd",
        *w.place("keys[slots[p]]"),
        f"{w.kind} total = *element;",
        "int k = 0;",
        f"for (; k + {at_once} <= run; k += {at_once}) {{",
        "  #pragma unroll",
        f"  for (int u = 0; u < {at_once}; ++u) {{",
        "    const int i = slots[p + k + u];",
        *(f"    {line}" for line in step),
        "  }",
        "}",
        f"for (; k < run; k += {_REST}) {{",
        "  #pragma unroll",
        f"  for (int u = 0; u < {_REST}; ++u) {{  // the last one again, rather than one load after the other",
        f"    const {w.kind} before = total;",
        "    const int i = slots[p + min(k + u, run - 1)];",
        *(f"    {line}" for line in step),
        "    if (k + u >= run) total = before;",
        "  }",
        "}",
        "*element = total;",
    ]
    return w.source(lines, [arrays["keys"], arrays["slots"], arrays["runs"]])


def _step(w: _Writing) -> list[str]:
    """The lines that combine update `i` with `total`."""
    found, writer = w.found, w.writer
    variables = (*found.updates, *w.along)
    block = writer.open(variables)
    writer.names.update(_names(variables))
    total = C("total" if w.inner is None else "total.lane[lane]", found.store.buffer.dtype)
    for own in filter(found.is_own, found.kernel.expressions):
        writer.names[own] = total
        block.names.append(own)
    if w.inner is None:
        block.add(f"{total} = {writer.expression(found.store.value)};")
    else:
        lane = writer.names[w.inner] = C("lane", dtypes.int64)
        writer.neighbours((found.store,), w.inner, LoopBuilder().const(0, dtypes.int64), w.lanes, lane)
        inside = writer.open((w.inner,))
        inside.add(f"{total} = {writer.expression(found.store.value)};")
        writer.close(inside)
        block.add("#pragma unroll")
        block.add(f"for (int lane = 0; lane < {w.lanes}; ++lane) {{")
        block.nest(inside)
    writer.close(block)
    return [*_numbers(found.updates, "i", found.count), *block.lines]


def crowds(found: Scatter, arrays: Mapping[str, Buffer], least: int) -> CallSource:
    """The launch of a block for each row, or part of one, with more than `least` updates. Its first warp combines what
    the others compute into shared memory, a round ahead: more loads are under way than a thread has registers for."""
    kernel, store, width = found.kernel, found.store, found.width
    writer, kind = KernelWriter(kernel), c_type(store.buffer.dtype)
    beside = next(n for n in (1, 2, 4, 8, 16, _WARP) if n >= min(width, _WARP))  # elements of the row
    turns = max(1, _AT_ONCE * 4 // max(store.buffer.dtype.itemsize, 4))
    lines, parts = THREADS // beside, -(-width // beside)
    depth = lines * turns
    zero, variables = _names(found.along), (*found.updates, *found.along)
    elsewhere, place = writer.value(zero, found.elsewhere)
    assert found.update is not None and found.own is not None
    before, value = writer.value(_names(variables), found.update)
    names = {found.own: C("total", store.buffer.dtype), found.update: C("update", store.buffer.dtype)}
    after, combined = writer.value(names, store.value)
    text = f"""\
__shared__ {kind} tiles[2][{depth}][{beside}];
const int warp = threadIdx.x / {_WARP}, other = (int)threadIdx.x - {_WARP};
for (long long at = lo + blockIdx.x; at < hi && at / {parts} < counters[1]; at += gridDim.x) {{
  const int first = crowded[at / {parts}], start = starts[first], run = lengths[first];
  const int column = threadIdx.x % {beside}, f = min((int)(at % {parts}) * {beside} + column, {width - 1});
  FIND
  {kind}* const element = &{store.buffer.name}[{found.step}LL * keys[first] + ({place})];
  {kind} total = *element;
  for (int round = 0; round * {depth} < run + {depth}; ++round) {{
    if (warp > 0 && round * {depth} < run) {{
      #pragma unroll
      for (int turn = 0; turn < {turns}; ++turn) {{
        const int line = turn * {lines} + other / {beside}, i = slots[start + min(round * {depth} + line, run - 1)];
        COMPUTE
        tiles[round % 2][line][column] = {value};
      }}
    }} else if (threadIdx.x < {beside} && round > 0) {{
      const int count = min({depth}, run - (round - 1) * {depth});
      #pragma unroll 8
      for (int k = 0; k < count; ++k) {{
        const {kind} update = tiles[(round - 1) % 2][k][column];
        COMBINE
      }}
    }}
    __syncthreads();
  }}
  if (threadIdx.x < {beside} && (int)(at % {parts}) * {beside} + column < {width}) *element = total;
}}"""
    inserted = {
        "FIND": [*_numbers(found.along, "f", width), *(line.strip() for line in elsewhere)],
        "COMPUTE": [*_numbers(found.updates, "i", found.count), *(line.strip() for line in before)],
        "COMBINE": [*(line.strip() for line in after), f"total = {combined};"],
    }
    body: list[str] = []
    for line in text.splitlines():
        indent, word = line[: len(line) - len(line.lstrip())], line.strip()
        body += [f"{indent}{x}" for x in inserted.get(word, [word])]
    used = [arrays[name] for name in ("counters", "keys", "slots", "starts", "lengths", "crowded")]
    total = found.count // least * parts
    operands = (*kernel.operands, *used)
    return source(writer.functions.text(), operands, kernel.checked, body, total, threads=THREADS + _WARP, per_block=1)
