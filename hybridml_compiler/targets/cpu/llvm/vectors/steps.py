"""Loads of every second, third or fourth element, or backwards: whole vectors, of which the lanes are picked.

    b[p], b[p + 2], ..., b[p + 2*(n - 1)]     n lanes
->  even lanes of b[p .. p + n - 1], odd lanes of b[p + n - 1 .. p + 2*n - 2]

The last vector ends with the last element, so that no memory is read beyond what the lanes ask for. A gather loads lane
by lane, and takes five times as long on Zen 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import ir
from ..types import Literal

Load = Callable[[int, ir.Value | None], ir.Value]


def in_steps(b: ir.IRBuilder, load: Load, lanes: int, step: int, parts: int, mask: ir.Value | None) -> ir.Value:
    """The elements at 0, `step`, 2 * `step`, ... from an address, of so many parts each; zeros where the mask is off.

    `load` is called with elements from that address to those of a vector, and its mask.
    """
    every = abs(step)
    reach = every * (lanes - 1)
    first = reach if step < 0 else 0  # of the address, in memory order
    starts = [min(k * lanes, reach - lanes + 1) for k in range(every)]
    wanted = [first + step * lane for lane in range(lanes)]
    homes = [min(at // lanes, every - 1) for at in wanted]
    found: ir.Value | None = None
    for k, start in enumerate(starts):
        taken = [at - start if home == k else None for at, home in zip(wanted, homes, strict=True)]
        vector = load(start - first, None if mask is None else _spread(b, mask, taken, lanes))
        found = _picked(b, found, vector, taken, lanes, parts)
    assert found is not None
    return found


def _spread(b: ir.IRBuilder, mask: ir.Value, taken: Sequence[int | None], lanes: int) -> ir.Value:
    """The mask of a vector's elements, of which lane i of the result takes the `taken[i]`-th."""
    of = {at: lane for lane, at in enumerate(taken) if at is not None}
    off = Literal(mask.type, "zeroinitializer")
    return b.shuffle_vector(mask, off, _order([of.get(at, lanes) for at in range(lanes)]))


def _picked(
    b: ir.IRBuilder, found: ir.Value | None, vector: ir.Value, taken: Sequence[int | None], lanes: int, parts: int
) -> ir.Value:
    """The lanes that are taken of a vector, beside those that were found before."""
    before = found or vector
    picks = [(lane if at is None else lanes + at) if found is not None else at or 0 for lane, at in enumerate(taken)]
    return b.shuffle_vector(before, vector, _order([parts * pick + k for pick in picks for k in range(parts)]))


def _order(lanes: Sequence[int]) -> Literal:
    kind = ir.VectorType(ir.IntType(32), len(lanes))
    return Literal(kind, "<" + ", ".join(f"i32 {lane}" for lane in lanes) + ">")
