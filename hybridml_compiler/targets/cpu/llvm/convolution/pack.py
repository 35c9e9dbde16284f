"""Packing for convolutions: weights to panels, images to words, and rows of a result to planes.

A panel is [row][feature], where a row is a tap and a channel, or a word of channels. Weights may have any order in
memory. Where features are contiguous, rows are copied; else squares of some features and of the contiguous axis are
turned in registers, and the rows of the panel have the order of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....record import record
from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_tiling import Tiling, panel_size, word_rows
from ...kernels.low_precision import Format, shifted
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import divide, i64, least, repeat
from ..contraction.packing import TURN_TYPE, Packer, PanelPacker, turn_lines
from ..contraction.words import Words
from ..types import I64, PTR

Axis = tuple[int, int]  # size, stride in the weights


@record
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


def weight_packer(
    e: Emission[Any, Any], convolution: Convolution, how: Format, columns: int, size: int, symbols: Sequence[str]
) -> PanelPacker:
    """The packer of features to panels."""
    c = convolution
    words = Words(e.b, c.dtype if c.stored is None else c.stored[1], how, e.v.lanes)
    return PanelPacker(words, c.channels, symbols, c.features, columns, size)


def pack_runs(packer: PanelPacker, c: Convolution, panel: Panel, weights: Any, target: Any, number: Any) -> None:
    """Packs one panel of the weights of a group, of features that do not follow each other."""
    b, v = packer.b, packer.v
    panels = number, b.add(number, i64(1))

    def over(axes: tuple[Axis, ...], source: Any, row: Any) -> None:
        if not axes:
            place = v.at(target, (row, panel.run * packer.columns))
            packer.pack(source, 1, c.w.strides[4], panels, i64(panel.run), place)
            return
        (size, stride), *rest = axes

        def once(k: Any) -> None:
            over(tuple(rest), v.at(source, (k, stride)), b.add(b.mul(row, i64(size)), k))

        repeat(b, i64(0), i64(size), 1, once)

    over(panel.outer, v.element(weights, i64(panel.lowest)), i64(0))


def emit_packed(
    module: ir.Module, name: str, convolution: Convolution, tiling: Tiling, symbols: Sequence[str]
) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)`: weights to the panels that the kernel reads.

    The units are those of `Tiling.prepared`, panels [group][panel][row of taps][tap, word][column]. If the image is
    read as x + 128, each row of taps begins with -128 times the sums of its columns.
    """
    c, g, panel = convolution, tiling, panel_of(convolution)
    in_runs = c.stored is None and panel.run > 0
    # Rows are copied in the function itself, and words packed; squares are turned in another one.
    e = Emission(module, name, c, g, optimized=not in_runs)
    b, v, size, columns = e.b, e.v, panel_size(c, g), g.columns
    packer = weight_packer(e, c, g.how, columns, size, symbols)
    (to_y, to_x, to_group, to_channel, to_feature), (source, target) = c.w.strides, e.buffers(2)
    source, rows = packer.words.element(source, i64(c.w.offset)), word_rows(c, g)
    starts, panels = c.stored is not None and shifted(c, g.how), (i64(0), i64(g.panels))

    def one_panel(index: Any) -> None:
        group, number = divide(b, index, g.panels)
        pack_runs(packer, c, panel, v.at(source, (group, to_group)), v.at(target, (index, size)), number)

    def tap(group: Any, ky: Any, kx: Any) -> None:
        here = packer.words.at(source, (group, to_group), (ky, to_y), (kx, to_x))
        row = b.add(b.mul(kx, i64(packer.count)), i64(int(starts)))
        there = v.at(target, (group, g.panels * size), (ky, rows * columns), (row, columns))
        packer.pack(here, to_channel, to_feature, panels, i64(c.channels), there)

    def one_tap(index: Any) -> None:
        group, at = divide(b, index, c.kernel[0] * c.kernel[1])
        tap(group, *divide(b, at, c.kernel[1]))

    def row_of_taps(index: Any) -> None:
        group, ky = divide(b, index, c.kernel[0])
        repeat(b, i64(0), i64(c.kernel[1]), 1, lambda kx: tap(group, ky, kx))
        if starts:
            first = v.at(target, (group, g.panels * size), (ky, rows * columns), (1, columns))
            packer.start(g.how, panels, i64(rows - 1), first)

    return e.over_units(row_of_taps if c.stored is not None else one_panel if in_runs else one_tap)


def emit_pixels(module: ir.Module, name: str, c: Convolution, tiling: Tiling, symbols: Sequence[str]) -> ir.Function:
    """`void pixels(ptr buffers, i64 lo, i64 hi)` over rows of images: to [image][row][pixel][group][word]."""
    assert c.stored is not None
    e = Emission(module, name, c, tiling, optimized=True)
    b, v, (source, target) = e.b, e.v, e.buffers(2)
    words = Words(b, c.stored[0], tiling.how, tiling.lanes)
    packer = Packer(words, c.channels, symbols)
    (height, width), (to_image, to_row, to_pixel, to_group, to_channel) = c.size, c.a.strides
    source, pixel = words.element(source, i64(c.a.offset)), c.groups * packer.count

    def row(index: Any) -> None:
        image, y = divide(b, index, height)
        from_row, place = words.at(source, (image, to_image), (y, to_row)), v.at(target, (index, width * pixel))

        def group(k: Any) -> None:
            here, there = words.at(from_row, (k, to_group)), v.at(place, (k, packer.count))
            if to_channel == 1 and c.channels > 1:
                packer.along(here, to_pixel, i64(width), i64(c.channels), there, pixel)
            elif to_pixel == 1:
                packer.squares(here, to_channel, i64(width), there, pixel)
            else:
                packer.scattered(here, to_pixel, to_channel, i64(width), i64(c.channels), there, pixel, 1)

        repeat(b, i64(0), i64(c.groups), 1, group)

    return e.over_units(row)


def emit_planes_of_row(e: Emission[Any, Any], c: Convolution, pitch: int, turn: str, whole: bool = True) -> ir.Function:
    """`void planes(ptr row, ptr out, i64 live)`: a row of the result, [pixel][pitch], to planes of `live` features;
    its number of pixels is one more argument where the row is not `whole`."""
    function, b, v = e.helper("planes", [PTR, PTR, I64, *[I64] * (not whole)])
    (source, target, live, *pixels), (height, width) = function.args, c.out_size
    turning, features, [lines] = e.module.function(turn, TURN_TYPE), least(b, live, i64(pitch)), pixels or [i64(width)]
    turn_lines(v, turning, source, pitch, lines, target, height * width, features, lines_first=False)
    b.ret_void()
    return function
