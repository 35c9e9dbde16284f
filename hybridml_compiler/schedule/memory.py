"""Memory plan: every intermediate gets a place in one arena, reused as soon as its last reader has run."""

from __future__ import annotations

import operator
from bisect import insort
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ..record import record, replace
from ..sizes.dims import Size, is_dim, is_symbolic

ALIGNMENT = 64  # a cache line, and the widest vector


@record
class Interval:
    """A buffer of `nbytes` that must stay intact from step `start` (written) through step `end` (last read)."""

    nbytes: Size
    start: int
    end: int


def plan_arena(intervals: Sequence[Interval], heirs: Mapping[int, int] | None = None) -> tuple[list[Size], Size]:
    """(offset of each interval, arena size in bytes): largest first, each at the lowest place free during its life.

    `heirs`: interval -> the one, of its size and dead when it is written, whose place it takes over.

    >>> plan_arena([Interval(64, 0, 1), Interval(64, 1, 2), Interval(64, 2, 3)])
    ([0, 64, 0], 128)
    >>> plan_arena([Interval(64, 0, 1), Interval(64, 1, 2), Interval(64, 2, 3)], {1: 0, 2: 1})
    ([0, 0, 0], 64)
    """
    if is_symbolic(x.nbytes for x in intervals):
        return _plan_sizes(intervals)
    if heirs:
        first = list(range(len(intervals)))
        for k in sorted(heirs, key=lambda k: intervals[k].start):
            first[k] = first[heirs[k]]
        lives = {k: replace(x) for k, x in enumerate(intervals) if first[k] == k}
        for k, x in enumerate(intervals):
            lives[first[k]] = replace(lives[first[k]], end=max(lives[first[k]].end, x.end))
        places, total = plan_arena(list(lives.values()))
        place = dict(zip(lives, places, strict=True))
        return [place[first[k]] for k in range(len(intervals))], total
    offsets: list[Size] = [0] * len(intervals)
    placed: list[tuple[int, int, int, int]] = []  # (offset, end of it, first step, last step), lowest first
    total = 0
    for k in sorted(range(len(intervals)), key=lambda k: (-intervals[k].nbytes, k)):
        mine = intervals[k]
        size = operator.index(_aligned(mine.nbytes))
        born, dies = mine.start, mine.end
        offset = 0
        for low, high, start, end in placed:
            if start <= dies and born <= end:
                if low - offset >= size:
                    break
                if high > offset:
                    offset = high
        offsets[k] = offset
        insort(placed, (offset, offset + size, born, dies))
        total = max(total, offset + size)
    return offsets, total


def held(buffers: Sequence[tuple[int, int, int, str]]) -> dict[str, int]:
    """The bytes in use at the step where they are most, by source line, most first. A buffer is (step that writes it,
    step that reads it last, bytes, line).

    >>> held([(0, 1, 64, "a"), (1, 2, 64, "b"), (2, 3, 32, "c"), (1, 1, 8, "b")])
    {'b': 72, 'a': 64}
    """
    change = [0] * (max((last for _, last, _, _ in buffers), default=0) + 2)
    for first, last, nbytes, _ in buffers:
        change[first] += nbytes
        change[last + 1] -= nbytes
    alive = [*accumulate(change)]
    worst, lines = alive.index(max(alive)), dict[str, int]()
    for first, last, nbytes, line in buffers:
        if first <= worst <= last:
            lines[line] = lines.get(line, 0) + nbytes
    return dict(sorted(lines.items(), key=lambda item: -item[1]))


def _plan_sizes(intervals: Sequence[Interval]) -> tuple[list[Size], Size]:
    """`plan_arena` where sizes come with the call: a buffer takes the memory of one of its own size that is dead by
    then. Buffers follow each other; those of known size come first."""
    known = [k for k, x in enumerate(intervals) if not is_dim(x.nbytes)]
    places, total = plan_arena([intervals[k] for k in known])
    offsets: list[Size] = [0] * len(intervals)
    for k, place in zip(known, places, strict=True):
        offsets[k] = place
    slots: dict[Size, list[tuple[int, Size]]] = {}  # of each size: (last step that uses it, where it is)
    for k in sorted(set(range(len(intervals))) - {*known}, key=lambda k: (intervals[k].start, k)):
        mine = intervals[k]
        of_size = slots.setdefault(mine.nbytes, [])
        free = next((j for j, (end, _) in enumerate(of_size) if end < mine.start), None)
        if free is None:
            of_size.append((mine.end, total))
            offsets[k], total = total, total + _aligned(mine.nbytes)
        else:
            offsets[k] = of_size[free][1]
            of_size[free] = mine.end, offsets[k]
    return offsets, total


def _aligned(nbytes: Size) -> Size:
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
