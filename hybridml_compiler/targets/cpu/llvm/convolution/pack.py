"""Packing weights of a convolution into panels: [row][feature], where a row is a tap and a channel.

Weights may have any order in memory. Where features are contiguous, rows are copied; else squares of some features and
of the contiguous axis are turned in registers, and the rows of the panel have the order of the memory.
"""

from __future__ import annotations

from typing import Any

from .....record import record
from .....schedule.kernels.convolution import Convolution, Pretranspose
from .. import ir
from ..gemm.tile import Vectors, i64, least, repeat
from ..types import I64, PTR, VOID

TURN_TYPE = ir.FunctionType(VOID, [PTR, I64, PTR, I64, I64, I64])

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


def emit_pack(
    v: Vectors, c: Convolution, columns: int, panel: Panel, weights: Any, target: Any, number: Any, turn: str
) -> None:
    """Packs one panel of the weights of a group, with a function `turn` (see `emit_turn`)."""
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
            _turn(v, c, columns, panel.run, source, feature, place, turn)
        else:
            _copy(v, c, columns, source, feature, place)

    over(panel.outer, v.element(weights, i64(panel.lowest)), i64(0))


def emit_rows(
    v: Vectors, c: Convolution, columns: int, weights: Any, target: Any, panels: int, panel_size: int
) -> None:
    """Packs the channels of a tap to all panels, row by row: one panel alone would read 128 bytes of each page of
    memory."""
    b = v.b

    def row(k: Any) -> None:
        source, place = v.element(weights, b.mul(k, i64(c.w.strides[3]))), v.element(target, b.mul(k, i64(columns)))

        def panel(j: Any) -> None:
            _copy(v, c, columns, source, b.mul(j, i64(columns)), v.element(place, b.mul(j, i64(panel_size))))

        repeat(b, i64(0), i64(panels), 1, panel)

    repeat(b, i64(0), i64(c.channels), 1, row)


def _copy(v: Vectors, c: Convolution, columns: int, source: Any, feature: Any, target: Any) -> None:
    """Copies one row: as many features of a panel as exist."""
    live = v.b.sub(i64(c.features), feature)
    row = v.element(source, feature)
    for j in range(columns // v.lanes):
        mask = v.mask(live, j) if c.features % columns else None
        at = i64(j * v.lanes)
        v.store(v.load(v.element(row, at), mask), v.element(target, at))


def emit_turn(module: ir.Module, name: str, turn: Pretranspose) -> ir.Function:
    """`void turn(ptr source, i64 step, ptr target, i64 to, i64 lines, i64 live)`: lines made columns.

    Element j of line i, at source[i * step + j], goes to target[j * to + i], for i below `lines`, j below `live`, and
    no more than there are lanes. It is expensive to compile ([Note: Compile time]), so it is one function, without
    masks. Parts of a square are slow: callers let the last squares overlap.
    """
    function = ir.Function(module, TURN_TYPE, name)
    function.attributes.add("nounwind")
    b = function.build()
    source, step, target, to, lines, live = function.args
    v, at, side = Vectors(b, turn.dtype, turn.lanes), range(turn.lanes), i64(turn.lanes)

    def one(i: Any) -> None:
        def element(j: Any) -> None:
            value = v.scalar(v.element(source, b.add(b.mul(step, i), j)))
            b.store(value, v.element(target, b.add(b.mul(to, j), i)))

        repeat(b, i64(0), least(b, live, side), 1, element)

    whole = b.and_(b.icmp_signed("<=", side, lines), b.icmp_signed("<=", side, live))
    with b.if_else(whole) as (square, part):
        with square:
            rows = v.transpose([v.load(v.element(source, b.mul(step, i64(i)))) for i in at])
            for j, row in enumerate(rows):
                v.store(row, v.element(target, b.mul(to, i64(j))))
        with part:
            repeat(b, i64(0), least(b, lines, side), 1, one)
    b.ret_void()
    return function


def emit_planes_of_row(module: ir.Module, name: str, c: Convolution, lanes: int, pitch: int, turn: str) -> ir.Function:
    """`void planes(ptr row, ptr out, i64 live)`: a row of the result, [pixel][pitch], to planes of `live` features."""
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, I64]), name)
    function.linkage = "internal"
    function.attributes.update(("nounwind", "noinline"))
    b = function.build()
    source, target, live = function.args
    v, width, square_of = Vectors(b, c.dtype, lanes), c.out_size[1], declared_turn(module, turn)
    plane = i64(c.out_size[0] * width)

    def group(first: Any) -> None:
        here, place = v.element(source, first), v.element(target, b.mul(first, plane))

        def square(k: Any) -> None:
            k = within(v, k, width)
            line = v.element(here, b.mul(k, i64(pitch)))
            b.call(square_of, [line, i64(pitch), v.element(place, k), plane, b.sub(i64(width), k), b.sub(live, first)])

        repeat(b, i64(0), i64(width), lanes, square)

    repeat(b, i64(0), least(b, live, i64(pitch)), lanes, group)
    b.ret_void()
    return function


def within(v: Vectors, start: Any, size: int) -> Any:
    """Start of a square that begins at `start`, moved so that the square ends within `size`."""
    return least(v.b, start, i64(size - v.lanes)) if size >= v.lanes else start


def declared_turn(module: ir.Module, name: str) -> ir.Function:
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, TURN_TYPE, name)


def _turn(
    v: Vectors, c: Convolution, columns: int, run: int, source: Any, feature: Any, target: Any, turn: str
) -> None:
    """`run` rows that follow each other, of features that do not, in squares."""
    b, function, step = v.b, declared_turn(v.b.module, turn), i64(c.w.strides[4])

    def group(first: Any) -> None:
        number = b.add(feature, first)
        lines, start = b.sub(i64(c.features), number), v.element(source, b.mul(number, step))

        def square(k: Any) -> None:
            k = within(v, k, run)
            place = v.element(target, b.add(b.mul(k, i64(columns)), first))
            b.call(function, [v.element(start, k), step, place, i64(columns), lines, b.sub(i64(run), k)])

        repeat(b, i64(0), i64(run), v.lanes, square)

    repeat(b, i64(0), i64(columns), v.lanes, group)
