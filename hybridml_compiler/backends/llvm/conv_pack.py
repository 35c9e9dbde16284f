"""Packing weights of a convolution into panels: [row][feature], where a row is a tap and a channel.

Weights may lie in any order. Where features follow each other, rows are copied; else squares of some features and of
what follows each other are turned in registers, and the rows of the panel have the order of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...schedule.convolve import Convolution
from .gemm_tile import Vectors, i64, least, repeat

Axis = tuple[int, int]  # size, stride in the weights


@dataclass(frozen=True)
class Panel:
    """Where things are, in rows: tap (ky, kx) and channel c at first + ky * steps[0] + kx * steps[1] + c * steps[2]."""

    rows: int
    first: int
    steps: tuple[int, int, int]
    outer: tuple[Axis, ...]  # axes of the rows that are loops, in order
    run: int  # rows that follow each other in the weights, in the order of the panel; 0 where features do
    lowest: int  # offset in the weights of the first row of the panel


def panel_of(convolution: Convolution) -> Panel:
    (kh, kw), w = convolution.kernel, convolution.w.strides
    axes = ((kh, w[0]), (kw, w[1]), (convolution.channels, w[3]))
    inner: list[int] = []  # axes that make up the run, innermost first
    run = 1
    if w[4] != 1:
        for k in sorted(range(3), key=lambda k: abs(axes[k][1])):
            if abs(axes[k][1]) == run and axes[k][0] > 1:
                inner.append(k)
                run *= axes[k][0]
    outer = [k for k in range(3) if k not in inner]
    steps, size = [0, 0, 0], 1
    for k in (*inner, *reversed(outer)):
        steps[k] = size if k in outer or axes[k][1] > 0 else -size
        size *= axes[k][0]
    reversed_axes = [k for k in range(3) if steps[k] < 0]
    return Panel(
        rows=size,
        first=sum((axes[k][0] - 1) * -steps[k] for k in reversed_axes),
        steps=(steps[0], steps[1], steps[2]),
        outer=tuple(axes[k] for k in outer),
        run=run if w[4] != 1 else 0,
        lowest=sum((axes[k][0] - 1) * axes[k][1] for k in reversed_axes),
    )


def emit_pack(v: Vectors, c: Convolution, columns: int, panel: Panel, weights: Any, target: Any, number: Any) -> None:
    """One panel of the weights of a group. Squares that are turned are written whole, up to `lanes` rows more."""
    b = v.b
    feature = b.mul(number, i64(columns))

    def over(axes: tuple[Axis, ...], source: Any, row: Any) -> None:
        if axes:
            (size, stride), *rest = axes

            def once(k: Any) -> None:
                over(tuple(rest), v.element(source, b.mul(k, i64(stride))), b.add(b.mul(row, i64(size)), k))

            repeat(b, i64(0), i64(size), 1, once)
            return
        place = v.element(target, b.mul(row, i64(max(panel.run, 1) * columns)))
        if panel.run:
            _turn(v, c, columns, panel.run, source, feature, place)
        else:
            _copy(v, c, columns, source, feature, place)

    over(panel.outer, v.element(weights, i64(panel.lowest)), i64(0))


def _copy(v: Vectors, c: Convolution, columns: int, source: Any, feature: Any, target: Any) -> None:
    """One row: the features of a panel that there are."""
    live = v.b.sub(i64(c.features), feature)
    row = v.element(source, feature)
    for j in range(columns // v.lanes):
        mask = v.mask(live, j) if c.features % columns else None
        at = i64(j * v.lanes)
        v.store(v.load(v.element(row, at), mask), v.element(target, at))


def _turn(v: Vectors, c: Convolution, columns: int, run: int, source: Any, feature: Any, target: Any) -> None:
    """`run` rows that follow each other, of features that do not, in squares; the last feature fills the rest."""
    b = v.b

    def group(first: Any) -> None:
        features = [b.add(b.add(feature, first), i64(i)) for i in range(v.lanes)]
        if c.features % columns:
            features = [least(b, x, i64(c.features - 1)) for x in features]
        lines = [v.element(source, b.mul(x, i64(c.w.strides[4]))) for x in features]

        def square(k: Any) -> None:
            mask = v.mask(b.sub(i64(run), k), 0)
            for i, value in enumerate(v.transpose([v.load(v.element(line, k), mask) for line in lines])):
                v.store(value, v.element(target, b.add(b.mul(b.add(k, i64(i)), i64(columns)), first)))

        repeat(b, i64(0), i64(run), v.lanes, square)

    repeat(b, i64(0), i64(columns), v.lanes, group)
