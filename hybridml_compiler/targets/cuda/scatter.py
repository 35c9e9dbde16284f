"""Loop nests that combine updates with elements at indices, as launches whose work is about linear, in the same order.

    for m < 16384 { for j < 64 { y[i[m]*64 + j] = y[i[m]*64 + j] + u[m*64 + j] } }

    keys      count the updates of each row; the count so far is the slot of an update among those of its row
    places    each row that has some takes as much of one array
    members   updates are put there, at their slots: those of a row are side by side
    ranks     an update that k others of its row come before is number k of them, whatever its slot was
    walk      each row is read, combined with its updates one after the other, and written

Atomic updates are of integers that say where things are put, so results have the bits of the loop nest's, which the CPU
runs. A row with many updates would be long in ranking them: a block looks for them among all, in order. There is less to
do where the order does not matter, in integers: one launch makes atomic updates of the result; and where the last update
is all that stays: the greatest number of an update is kept for each row, and a second launch makes these updates alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ... import dtypes
from ...loops.builder import LoopBuilder
from ...loops.ir import Buffer, Expr, extent, perfect_nest
from ...loops.transforms import split
from ...record import record
from .contraction.kernel import CallSource
from .emit.kernel import ENTRY, KernelWriter
from .emit.scalars import C
from .emit.types import c_type
from .scatter_form import Scatter, count_of, scatter_of
from .vectors import lanes_of

THREADS = 256  # of a block
LONG = 2048  # updates of a row from which on a block looks for them among all
_WARPS = 32  # of such a block
_AT_ONCE, _REST = 16, 4  # updates that a thread has under way at the same time, and when fewer are left
_MOST_VALUES = 24  # of the expression of an update, for so many
_WORDS = 4  # counters in front of those of the rows: of places taken, of long rows


def scratch_of(found: Scatter) -> tuple[Buffer, ...]:
    """The arrays that the launches work in, of which the first is zero at the start."""
    if found.atomic:
        return ()
    names = ("keys",) if found.sets else ("keys", "slots", "starts", "lengths", "members", "runs", "long_rows")
    counters = Buffer("counters", dtypes.int32, _WORDS + found.rows, "inout")
    return (counters, *(Buffer(name, dtypes.int32, found.count, "inout") for name in names))


def launches_of(found: Scatter, *, wide: bool = True) -> list[tuple[CallSource, list[int]]]:
    """The sources of the launches, in order, and the numbers of their operands, where the arrays of `scratch_of` follow
    those of the loop nest."""
    number = {x.name: k for k, x in enumerate((*found.kernel.operands, *scratch_of(found)))}
    return [(source, [number[x.name] for x in source.operands]) for source in _sources(found, wide)]


def _sources(found: Scatter, wide: bool) -> list[CallSource]:
    if found.atomic:
        return [_atomic(found)]
    if found.sets:
        return [_keys(found, "atomicMax(counts + key, i + 1);", ()), _last(found, wide=wide)]
    sources = [_keys(found, "slots[i] = atomicAdd(counts + key, 1);", ("slots",))]
    sources += [_plain(found, lines) for lines in (_PLACES, _MEMBERS, _RANKS)]
    if found.count > LONG:
        sources.append(_plain(found, _LONG_ROWS, threads=32 * _WARPS, per_block=LONG))
    return [*sources, _walk(found, wide=wide)]


# ---- launches that know nothing of the values: their text is the same for all

_COUNTS = f"int* const counts = counters + {_WORDS};"
_EACH = f"for (long long at = lo + blockIdx.x * {THREADS}LL + threadIdx.x; at < hi; at += gridDim.x * {THREADS}LL) {{"
_PLACES = f"""\
{_COUNTS}
{_EACH}
  const int i = (int)at;
  if (slots[i] != 0) continue;
  int* const counter = counts + keys[i];
  const int length = *counter;
  starts[i] = atomicAdd(counters, length);
  lengths[i] = length;
  *counter = i;  // which the other updates of the row find it by
  if (length > LONG) long_rows[atomicAdd(counters + 1, 1)] = i;
}}"""
_MEMBERS = f"""\
{_COUNTS}
{_EACH}
  const int i = (int)at, first = counts[keys[i]], place = starts[first] + slots[i];
  members[place] = i;
  runs[place] = i == first ? lengths[i] : 0;
}}"""
_RANKS = f"""\
{_COUNTS}
int* const order = slots;  // which nobody needs any more
{_EACH}
  const int i = (int)at, first = counts[keys[i]], start = starts[first], length = lengths[first];
  if (length > LONG) continue;
  int before = 0;
  #pragma unroll 4
  for (int k = 0; k < length; ++k) before += members[start + k] < i;
  order[start + before] = i;
}}"""
# Each warp has a part of all updates: it counts those of the row, then it writes them behind those of the warps before.
_LONG_ROWS = f"""\
__shared__ int found[{_WARPS}];
int* const order = slots;
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = (int)hi;
const int part = (count + {32 * _WARPS - 1}) / {32 * _WARPS} * 32, from = warp * part, to = min(from + part, count);
for (int row = blockIdx.x; row < counters[1]; row += gridDim.x) {{
  const int first = long_rows[row], key = keys[first];
  int total = 0;
  for (int i = from + lane; i < to; i += 32) total += keys[i] == key;
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  if (lane == 0) found[warp] = total;
  __syncthreads();
  int place = starts[first];
  for (int other = 0; other < warp; ++other) place += found[other];
  for (int base = from; base < to; base += 32) {{
    const bool is_own = base + lane < to && keys[base + lane] == key;
    const unsigned int all = __ballot_sync(0xffffffffu, is_own);
    if (is_own) order[place + __popc(all & ((1u << lane) - 1))] = base + lane;
    place += __popc(all);
  }}
  __syncthreads();
}}"""


def _plain(found: Scatter, text: str, *, threads: int = THREADS, per_block: int = THREADS) -> CallSource:
    arrays = [x for x in scratch_of(found) if re.search(rf"\b{x.name}\b", text)]
    lines = text.replace("LONG", str(LONG)).splitlines()
    return _source("", arrays, False, lines, found.count, threads=threads, per_block=per_block)


def _source(
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


# ---- launches with the loop nest's values


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


def _with(found: Scatter, *names: str) -> list[Buffer]:
    """The operands of the loop nest and these arrays."""
    return [*found.kernel.operands, *(x for x in scratch_of(found) if x.name in names)]


def _keys(found: Scatter, counted: str, arrays: Sequence[str]) -> CallSource:
    """The launch that finds the row of each update."""
    writer = KernelWriter(found.kernel)
    lines, key = writer.value(_names(found.updates), found.key)
    body = [
        _COUNTS,
        _EACH,
        "  const int i = (int)at;",
        *(f"  {line}" for line in _numbers(found.updates, "i", found.count)),
        *lines,
        f"  const int key = (int)({key});",
        "  keys[i] = key;",
        f"  {counted}",
        "}",
    ]
    operands = _with(found, "counters", "keys", *arrays)
    return _source(writer.functions.text(), operands, found.kernel.checked, body, found.count)


def _atomic(found: Scatter) -> CallSource:
    writer = KernelWriter(found.kernel)
    store, variables = found.store, [loop.var for loop in perfect_nest(found.kernel.body)[0]]
    total = found.count * found.width
    block = writer.open(variables)
    writer.names.update(_names(variables))
    place, value = writer.index(store.index), writer.expression(found.update)
    writer.close(block)
    kind = c_type(store.buffer.dtype)
    if kind == "long long" and found.atomic == "atomicAdd":  # there is one of unsigned numbers, which wrap the same
        kind = "unsigned long long"
    lines = [
        _EACH,
        *(f"  {line}" for line in _numbers(variables, "at", total)),
        *block.lines,
        f"  {found.atomic}(({kind}*){store.buffer.name} + {place}, ({kind})({value}));",
        "}",
    ]
    return _source(writer.functions.text(), found.kernel.operands, found.kernel.checked, lines, total)


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

    def source(self, lines: Sequence[str], *arrays: str) -> CallSource:
        """The source of a launch with these arrays that does the lines for each thread `at` of each update."""
        found, texts, alignment = self.found, self.writer.functions.text(), self.writer.alignment
        body = [_EACH, *(f"  {line}" for line in lines), "}"]
        total, checked = found.count * self.width, found.kernel.checked
        return _source(texts, _with(found, *arrays), checked, body, total, alignment=alignment)

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


def _last(found: Scatter, *, wide: bool) -> CallSource:
    """The launch that makes the last update of each element."""
    w = _writing(found, wide=wide)
    step = _step(w)
    over = f" / {w.width}" * (w.width > 1)
    lines = [
        f"const int i = (int)(at{over}), key = keys[i];",
        f"if (counters[{_WORDS} + key] != i + 1) continue;  // there is a later one",
        *w.place("key"),
        f"{w.kind} total;",
        *step,
        "*element = total;",
    ]
    return w.source(lines, "counters", "keys")


def _walk(found: Scatter, *, wide: bool) -> CallSource:
    """The launch that makes the updates of each element one after the other."""
    w = _writing(found, wide=wide)
    step = _step(w)
    at_once = _AT_ONCE if len(w.found.kernel.expressions) <= _MOST_VALUES else _REST
    over = f" / {w.width}" * (w.width > 1)
    lines = [
        f"const int p = (int)(at{over}), run = runs[p];",
        "if (run == 0) continue;  // not the first update of a row",
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
    return w.source(lines, "keys", "slots", "runs")


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
