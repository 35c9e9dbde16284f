"""Packing for convolutions: weights to panels, images to words, and rows of a result to planes.

A panel is [row][feature], where a row is a tap and a channel, or a word of channels. Weights may have any order in
memory. Where features are contiguous, rows are copied; else squares of some features and of the contiguous axis are
turned in registers, and the rows of the panel have the order of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_tiling import Tiling, panel_size, word_rows
from ...kernels.low_precision import FLOATS, shifted
from .. import ir
from ..contraction.emission import Emission, declared
from ..contraction.loops import divide, i64, least, loop, repeat
from ..contraction.packing import TURN_TYPE, Packer, turn_lines
from ..contraction.words import SIGNS, Words, multiply_add
from ..types import I64, PTR, Literal

Axis = tuple[int, int]  # size, stride in the weights


@dataclass(frozen=True)
class Panel:
    """Layout of a panel: tap (ky, kx), channel c is row first + ky * steps[0] + kx * steps[1] + c * steps[2]."""

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


def packer_of(e: Emission, convolution: Convolution, turn: str) -> Packer:
    """The packer of weights that are stored as they are multiplied."""
    return Packer(Words(e.b, convolution.dtype, FLOATS, e.v.lanes), convolution.channels, turn)


def emit_pack(
    packer: Packer, c: Convolution, columns: int, panel: Panel, weights: Any, target: Any, number: Any
) -> None:
    """Packs one panel of the weights of a group, of features that do not follow each other."""
    b, v, step = packer.b, packer.v, c.w.strides[4]
    feature = b.mul(number, i64(columns))
    lines = least(b, i64(columns), b.sub(i64(c.features), feature))

    def over(axes: tuple[Axis, ...], source: Any, row: Any) -> None:
        if not axes:
            place = v.at(target, (row, panel.run * columns))
            packer.turned(v.at(source, (feature, step)), step, lines, i64(panel.run), place, columns)
            return
        (size, stride), *rest = axes

        def once(k: Any) -> None:
            over(tuple(rest), v.at(source, (k, stride)), b.add(b.mul(row, i64(size)), k))

        repeat(b, i64(0), i64(size), 1, once)

    over(panel.outer, v.element(weights, i64(panel.lowest)), i64(0))


def emit_packed(module: ir.Module, name: str, convolution: Convolution, tiling: Tiling, turn: str) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)`: weights to the panels that the kernel reads, see `pack_units`."""
    c, g, panel = convolution, tiling, panel_of(convolution)
    if c.stored is not None:
        return emit_word_panels(module, name, c, g, turn)
    e = Emission(module, name, c.dtype, g.lanes, optimized=not panel.run)  # rows are copied here, squares are not
    b, v, packer, size = e.b, e.v, packer_of(e, c, turn), panel_size(c, g)
    (to_y, to_x, to_group, to_channel, _), (source, target) = c.w.strides, e.buffers(2)
    source = v.element(source, i64(c.w.offset))

    def one_panel(index: Any) -> None:
        group, number = divide(b, index, g.panels)
        emit_pack(packer, c, g.columns, panel, v.at(source, (group, to_group)), v.at(target, (index, size)), number)

    def one_tap(index: Any) -> None:
        """The channels of a tap to all panels, row by row: one panel alone would read 128 bytes of each page."""
        group, tap = divide(b, index, c.kernel[0] * c.kernel[1])
        ky, kx = divide(b, tap, c.kernel[1])
        weights = v.at(source, (group, to_group), (ky, to_y), (kx, to_x))
        start = v.at(target, (group, g.panels * size), (tap, c.channels * g.columns))

        def row(k: Any) -> None:
            here, there = v.at(weights, (k, to_channel)), v.at(start, (k, g.columns))

            def one(j: Any) -> None:
                feature = b.mul(j, i64(g.columns))
                masks = v.masks(b.sub(i64(c.features), feature), g.vectors, c.features % g.columns != 0)
                packer.across([v.element(here, feature)], v.at(there, (j, size)), masks)

            repeat(b, i64(0), i64(g.panels), 1, one)

        repeat(b, i64(0), i64(c.channels), 1, row)

    return e.over_units(one_panel if panel.run else one_tap)


def emit_word_panels(module: ir.Module, name: str, c: Convolution, tiling: Tiling, turn: str) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)` over rows of taps: to [group][panel][row of taps][tap, word][column].

    If the image is read as x + 128, each row of taps begins with -128 times the sums of its columns.
    """
    assert c.stored is not None
    e = Emission(module, name, c.dtype, tiling.lanes, optimized=True)
    b, v, (source, target) = e.b, e.v, e.buffers(2)
    words = Words(b, c.stored[1], tiling.how, tiling.lanes)
    packer = Packer(words, c.channels, turn)
    to_row, to_tap, to_group, to_channel, to_feature = c.w.strides
    start, columns, rows = int(shifted(c, tiling.how)), tiling.columns, word_rows(c, tiling)
    source = words.element(source, i64(c.w.offset))

    def unit(index: Any) -> None:
        group, ky = divide(b, index, c.kernel[0])
        from_row = words.at(source, (group, to_group), (ky, to_row))
        panels = v.at(target, (group, tiling.panels * panel_size(c, tiling)), (ky, rows * columns))

        def vector(feature: Any) -> None:
            panel, column = divide(b, feature, columns)
            top = v.at(panels, (panel, panel_size(c, tiling)), (column, 1))
            left = least(b, b.sub(i64(c.features), feature), i64(tiling.lanes))

            def tap(kx: Any) -> None:
                here = words.at(from_row, (feature, to_feature), (kx, to_tap))
                row = b.add(b.mul(kx, i64(packer.count)), i64(start))
                packer.pack(here, to_feature, to_channel, left, v.at(top, (row, columns)), 1, columns)

            repeat(b, i64(0), i64(c.kernel[1]), 1, tap)
            if start:
                v.store(b.neg(sums_of(top)), top)

        repeat(b, i64(0), i64(c.features), tiling.lanes, vector)

    def sums_of(top: Any) -> Any:
        shift = Literal(words.type, SIGNS)

        def add(row: Any, sums: list[Any]) -> list[Any]:
            return [multiply_add(b, tiling.how, shift, v.load(v.at(top, (row, columns))), sums[0])]

        return loop(b, i64(1), i64(rows), 1, [v.zero], add)[0]

    return e.over_units(unit)


def emit_pixels(module: ir.Module, name: str, c: Convolution, tiling: Tiling, turn: str) -> ir.Function:
    """`void pixels(ptr buffers, i64 lo, i64 hi)` over rows of images: to [image][row][pixel][group][word]."""
    assert c.stored is not None
    e = Emission(module, name, c.dtype, tiling.lanes, optimized=True)
    b, v, (source, target) = e.b, e.v, e.buffers(2)
    words = Words(b, c.stored[0], tiling.how, tiling.lanes)
    packer = Packer(words, c.channels, turn)
    (height, width), (to_image, to_row, to_pixel, to_group, to_channel) = c.size, c.a.strides
    source, pixel = words.element(source, i64(c.a.offset)), c.groups * packer.count

    def row(index: Any) -> None:
        image, y = divide(b, index, height)
        here, there = words.at(source, (image, to_image), (y, to_row)), v.at(target, (index, width * pixel))

        def group(k: Any) -> None:
            place = v.at(there, (k, packer.count))
            packer.pack(words.at(here, (k, to_group)), to_pixel, to_channel, i64(width), place, pixel, 1)

        repeat(b, i64(0), i64(c.groups), 1, group)

    return e.over_units(row)


def emit_planes_of_row(e: Emission, c: Convolution, pitch: int, turn: str) -> ir.Function:
    """`void planes(ptr row, ptr out, i64 live)`: a row of the result, [pixel][pitch], to planes of `live` features."""
    function, b, v = e.helper("planes", [PTR, PTR, I64])
    (source, target, live), (height, width) = function.args, c.out_size
    turning, features = declared(e.module, turn, TURN_TYPE), least(b, live, i64(pitch))
    turn_lines(v, turning, source, pitch, i64(width), target, height * width, features, lines_first=False)
    b.ret_void()
    return function
