"""Loops over time in tiles: a few rows of all arrays take several steps of the loop while they are in a cache.

    for t < 50 {                                  for blocks of steps t { for tiles { for t in the block {
        rows 0-1997 of b from a            ->         rows of b from a, those of the tile less 2 t
        rows 0-1997 of a from b }                     rows of a from b, those of the tile less 2 t + 1 } } }

The order is that of a skewed loop: where step t of a launch has come to some row of a tile, step t + 1 is so many rows
behind that nothing it reads is still to be written, and nothing that it writes is still to be read. How many follows
from the footprints of rows (row_footprints.py): launch k of step t does row r in the tile of place r + shifts[k] +
skew * t, and where two rows share a byte, and one of them writes it, the later one's place is not before the other's.
Launches keep their kernels, which take parts of their ranges in any order, so results have the same bits. Boundaries
are launches of one row, or of the rows of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...loops.ir import Kernel
from ...record import record, replace
from ...sizes.dims import is_symbolic
from .. import cost
from ..launch import BufferRef, Launch, Plan
from .horizontal_fusion import HorizontalFusion

if TYPE_CHECKING:
    from .row_footprints import Memory, Rows

_MOST_LAUNCHES = 32  # of a step


@record
class TimeTiles:
    """Tiles of `rows` rows and up to `steps` steps. Launch k does row r of step t, of `units[k]` iterations, at place
    r + shifts[k] + skew * t; the places of a step are `places`."""

    rows: int
    steps: int
    skew: int
    shifts: tuple[int, ...]
    units: tuple[int, ...]
    places: int
    alternates: bool  # whether a carry has two places by turns

    def __str__(self) -> str:
        return f"in tiles of {self.rows} rows and {self.steps} steps"


def tiled_in_time(
    body: Plan, consts: int, in_place: Sequence[bool], length: object, cores: int
) -> tuple[Plan, TimeTiles] | None:
    """The body of a loop with its launches as those of tiles, and the tiles; None where rows of a step need far ones of
    the step before, or where all is in a cache already."""
    arrays = [aval.nbytes for aval in (*body.inputs, *body.outputs)] + [body.arena_bytes]
    if is_symbolic(arrays) or sum(arrays) < cost.time_bytes(cores):
        return None
    if type(length) is int and length < cost.TIME_STEPS:
        return None
    launches = [own for launch in body.launches for own in _apart(launch)]
    if len(launches) > _MOST_LAUNCHES or body.constants or body.slots > 1:
        return None
    from .row_footprints import rows_of  # with the first loop that is long enough

    memory_of = _memories(consts, in_place)
    rows = rows_of(launches, memory_of)
    if rows is None:
        return None
    nbytes = _touched(rows)
    if nbytes < cost.time_bytes(cores):
        return None
    alternates = not all(in_place)
    shifts, skew = _schedule(rows, alternates)
    first = min(shifts)
    shifts = [shift - first for shift in shifts]
    places = max(shift + own.count for shift, own in zip(shifts, rows, strict=True))
    row = nbytes / max(own.count for own in rows)
    wanted = max(2 * skew * cost.TIME_MOST_STEPS * row, cost.TIME_TILE_BYTES * cores)
    fit = int(min(wanted, cost.CACHE_BYTES, nbytes / 2) / row)
    steps = min(fit // (2 * skew) if skew else cost.TIME_MOST_STEPS, cost.TIME_MOST_STEPS)
    if steps < cost.TIME_STEPS or fit < 1:
        return None
    units = tuple(own.unit for own in rows)
    tiles = TimeTiles(fit - steps * skew, steps, skew, tuple(shifts), units, places, alternates)
    return replace(body, launches=[_kept_in_cache(own.launch) for own in rows]), tiles


def _apart(launch: Launch) -> list[Launch]:
    """The launches of a region's kernels, or the launch itself."""
    if not isinstance(launch.spec, HorizontalFusion):
        return [launch]
    return [
        replace(launch, spec=stage.spec, operands=tuple(launch.operands[k] for k in stage.operands))
        for stage in launch.spec.stages
    ]


def _kept_in_cache(launch: Launch) -> Launch:
    """The launch with a kernel that does not store past the caches."""
    spec = launch.spec
    if not isinstance(spec, Kernel) or all(buffer.nbytes < cost.STREAM_BYTES for buffer in spec.operands):
        return launch
    return replace(launch, spec=spec.rescheduled(chained=True))


def _memories(consts: int, in_place: Sequence[bool]) -> Callable[[BufferRef], Memory]:
    """The memory of an operand. A carry that is not updated in place is read `from` one place, and written `into` the
    other, which the next step reads."""
    apart = [k for k, stays in enumerate(in_place) if not stays]

    def memory_of(place: BufferRef) -> Memory:
        k = place.number
        if place.base == "input" and consts <= k < consts + len(in_place):
            return "carry" if in_place[k - consts] else "from", k - consts
        if place.base == "output" and k < len(apart):
            return "into", apart[k]
        return place.base, k

    return memory_of


def _after(steps: int) -> Callable[[Memory, Memory], bool]:
    """Whether two memories are the same one, the second of them so many steps later."""

    def place(memory: Memory, step: int) -> tuple[object, ...]:
        what, number = memory
        return ("carry", number, (step + (what == "into")) % 2) if what in ("from", "into") else memory

    return lambda one, other: place(one, 0) == place(other, steps)


def _schedule(rows: Sequence[Rows], alternates: bool) -> tuple[list[int], int]:
    """(shift of each launch, skew of each step), in rows."""
    from .row_footprints import farthest

    shifts: list[int] = []
    for k, own in enumerate(rows):
        found = [_first_row(own, rows)]
        for before, shift in zip(rows[:k], shifts, strict=True):
            if (distance := farthest(before, own, _after(0))) is not None:
                found.append(shift + distance)
        shifts.append(max(found))
    skew = 0
    for steps in (1, 2) if alternates else (1,):
        for before, shift in zip(rows, shifts, strict=True):
            for own, own_shift in zip(rows, shifts, strict=True):
                if (distance := farthest(before, own, _after(steps))) is not None:
                    skew = max(skew, -(-(shift + distance - own_shift) // steps))
    return shifts, skew


def _first_row(own: Rows, rows: Sequence[Rows]) -> int:
    """The row of the arrays with which a launch begins, as far as that is told: it is done with its neighbours."""
    pitch = max(footprint.pitch for other in rows for footprint in other.footprints)
    apart = [footprint for footprint in own.footprints if footprint.memory[0] != "arena"]
    if not apart or not pitch:
        return 0
    return max(min(apart, key=lambda footprint: not footprint.written).low // pitch, 0)


def _touched(rows: Sequence[Rows]) -> int:
    """Bytes of all that a step touches."""
    spans: dict[Memory, list[tuple[int, int]]] = {}
    for own in rows:
        for x in own.footprints:
            spans.setdefault(x.memory, []).append((x.low, x.high + x.pitch * (own.count - 1)))
    total = 0
    for found in spans.values():
        end = -1
        for low, high in sorted(found):
            total += max(high - max(low, end), 0)
            end = max(end, high)
    return total
