"""Loop nests that combine updates with elements at indices, as launches whose work is about linear, in the same order
([Note: GPU scatters]).

    for m < 16384 { for j < 64 { y[i[m]*64 + j] = y[i[m]*64 + j] + u[m*64 + j] } }

    keys      count the updates of each row; the count so far is the slot of an update among those of its row
    places    each row that has some takes as much of one array
    members   updates are put there, at their slots: those of a row are side by side
    ranks     an update that k others of its row come before is number k of them, whatever its slot was
    searches  where that would take long, a block looks for the updates of a row among all, in order
    walk      each row is read, combined with its updates one after the other, and written (walk.py)
    crowds    a row with many updates has a block: some of its warps read what another one combines

Atomic updates are of integers that say where things are put, so results have the bits of the loop nest's, which the CPU
runs. There is less to do where the order does not matter, in integers: one launch makes atomic updates of the result.
And where the last update is all that stays, the greatest number of an update is kept for each row, and a second launch
makes these updates alone.
"""

from __future__ import annotations

import re

from .... import dtypes
from ....loops.ir import Buffer
from ..code import Clear, RegionSource, Step
from ..contraction.kernel import CallSource
from .form import Scatter
from .walk import COUNTS, EACH, THREADS, WORDS, atomic, crowds, keys, last, source, walk

CROWD = 256  # updates of a row that are more than a thread walks along
LONG = 2048  # that are too many to be ranked
_WARPS = 32  # of a block that looks for them


def scratch_of(found: Scatter) -> tuple[Buffer, ...]:
    """The arrays that the launches work in, of which the first is zero at the start."""
    if found.atomic:
        return ()
    names = ("keys",) if found.sets else ("keys", "slots", "starts", "lengths", "members", "runs", "crowded")
    counters = Buffer("counters", dtypes.int32, WORDS + found.rows, "inout")
    return (counters, *(Buffer(name, dtypes.int32, found.count, "inout") for name in names))


def scatter_steps(found: Scatter, *, wide: bool = True) -> RegionSource:
    """The launches, in order."""
    scratch = scratch_of(found)
    number = {x.name: k for k, x in enumerate((*found.kernel.operands, *scratch))}
    steps: list[Step] = [(Clear(int(x.nbytes)), (number[x.name],)) for x in scratch[:1]]
    steps += [(source, tuple(number[x.name] for x in source.operands)) for source in _sources(found, wide)]
    return RegionSource(tuple(steps), tuple(int(x.nbytes) for x in scratch))


def _sources(found: Scatter, wide: bool) -> list[CallSource]:
    if found.atomic:
        return [atomic(found)]
    arrays = {x.name: x for x in scratch_of(found)}
    if found.sets:
        return [keys(found, arrays, "atomicMax(counts + key, i + 1);"), last(found, arrays, wide=wide)]
    sources = [keys(found, arrays, "slots[i] = atomicAdd(counts + key, 1);")]
    sources += [_plain(found, lines) for lines in (_PLACES, _MEMBERS, _RANKS)]
    if found.count > LONG:
        sources.append(_plain(found, _SEARCHES, threads=32 * _WARPS, per_block=LONG))
    if found.count <= CROWD or found.update is None:
        return [*sources, walk(found, arrays, found.count, wide=wide)]
    return [*sources, walk(found, arrays, CROWD, wide=wide), crowds(found, arrays, CROWD)]


# ---- launches that know nothing of the values: their text is the same for all

# Thousands of atomic additions to one number take a microsecond for each thousand: a warp makes one.
_PLACES = f"""\
{COUNTS}
const int lane = threadIdx.x % 32;
for (long long base = lo + blockIdx.x * {THREADS}LL; base < hi; base += gridDim.x * {THREADS}LL) {{
  const int i = (int)(base + threadIdx.x);
  const bool is_first = i < hi && slots[i] == 0;
  int* const counter = counts + (is_first ? keys[i] : 0);
  const int length = is_first ? *counter : 0;
  int end = length, start = 0;
  for (int step = 1; step < 32; step *= 2) {{
    const int before = __shfl_up_sync(0xffffffffu, end, step);
    if (lane >= step) end += before;
  }}
  if (lane == 31) start = atomicAdd(counters, end);
  start = __shfl_sync(0xffffffffu, start, 31);
  if (!is_first) continue;
  starts[i] = start + end - length;
  lengths[i] = length;
  *counter = i;  // which the other updates of the row find it by
  if (length > CROWD) crowded[atomicAdd(counters + 1, 1)] = i;
}}"""
_MEMBERS = f"""\
{COUNTS}
{EACH}
  const int i = (int)at, first = counts[keys[i]], place = starts[first] + slots[i];
  members[place] = i;
  runs[place] = i == first ? lengths[i] : 0;
}}"""
_RANKS = f"""\
{COUNTS}
int* const order = slots;  // which nobody needs any more
{EACH}
  const int i = (int)at, first = counts[keys[i]], start = starts[first], length = lengths[first];
  if (length > LONG) continue;
  int before = 0;
  #pragma unroll 4
  for (int k = 0; k < length; ++k) before += members[start + k] < i;
  order[start + before] = i;
}}"""
# Each warp has a part of all updates: it counts those of the row, then it writes them behind those of the warps before.
_SEARCHES = f"""\
__shared__ int found[{_WARPS}];
int* const order = slots;
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = (int)hi;
const int part = (count + {32 * _WARPS - 1}) / {32 * _WARPS} * 32, from = warp * part, to = min(from + part, count);
for (int row = blockIdx.x; row < counters[1]; row += gridDim.x) {{
  const int first = crowded[row], key = keys[first];
  if (lengths[first] <= LONG) continue;
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
    lines = text.replace("LONG", str(LONG)).replace("CROWD", str(CROWD)).splitlines()
    return source("", arrays, False, lines, found.count, threads=threads, per_block=per_block)
