"""Winograd's minimal filtering F(2x2, rxr): (r + 1)^2 matrix products instead of 4 r^2 multiplications a square.

With d a square of the image and w the taps, a 2x2 square of the result is A [(G w G') * (B d B')] A', where the bracket
is summed over channels (Lavin and Gray, 2016). `schedule.winograd.transforms` gives the matrices; for r = 3 they are

    B = | -1  0  1  0 |   G = | -1    0    0   |   A = | 1  1  1  0 |
        |  0  1  1  0 |       |  1/2  1/2  1/2 |       | 0  1 -1  1 |
        |  0 -1  1  0 |       |  1/2 -1/2  1/2 |
        |  0 -1  0  1 |       |  0    0    1   |

Error: sums over channels are as long as the channels, not r^2 times that, and transforms add a few terms. Measured on
normal data whose results are of size 1, largest of 25,000 results (root mean square), against the direct sum:

    3x3,  64 channels  1.2e-6 (2.5e-7), direct 3.7e-6 (3.9e-7)     5x5,  64  7.1e-6 (1.1e-6), direct 5.8e-6 (6.0e-7)
    3x3, 512 channels  3.9e-6 (6.6e-7), direct 9.8e-6 (1.1e-6)     5x5, 192  1.3e-5 (1.9e-6), direct 8.6e-6 (1.0e-6)

F(4x4, 3x3) would be 1e-5 to 2e-5, and is not used. The bound is for squares, not for elements: a value far larger than
its neighbours leaves its rounding error, and an infinite one nan, in all results of its squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..... import dtypes
from .....record import replace
from .....schedule.kernels.convolution import Convolution, Pair
from ...kernels.conv_winograd import (
    VECTORS,
    Backward,
    Forward,
    Matrix,
    Winograd,
    panels_of,
    row_of,
    rows_of_squares,
    squares,
    transforms,
    turns,
)
from ...kernels.conv_winograd import parts as parts_of
from .. import ir
from ..gemm.kernel import call_epilogue
from ..gemm.tile import AS_EMITTED, Tile, Vectors, emit_tile, i64, least, repeat, share
from ..kernel import KERNEL_TYPE
from ..types import I1, I64, PTR, VOID, constant
from .pack import declared_turn, emit_pack, emit_planes_of_row, panel_of, within

Square = list[list[Any]]


class _Emission:
    """The state that both functions of a convolution share."""

    def __init__(self, module: ir.Module, name: str, convolution: Convolution, winograd: Winograd) -> None:
        self.module, self.name, self.convolution, self.winograd = module, name, convolution, winograd
        self.function = ir.Function(module, KERNEL_TYPE, name)
        self.function.attributes.update(AS_EMITTED)
        self.table, self.lo, self.hi = self.function.args
        self.b = self.function.build()
        self.v = Vectors(self.b, convolution.dtype, winograd.lanes)
        self.panels = panels_of(convolution, winograd)
        self.panel_size = winograd.numbers * convolution.channels * winograd.columns

    def memory(self, size: int) -> Any:
        return self.b.memory(self.v.scalar_type, size, ir.LINE)

    def buffer(self, number: int) -> Any:
        return self.b.load(self.b.gep(self.table, [i64(number)], source_etype=PTR), typ=PTR)

    def helper(self, name: str, arguments: Sequence[Any]) -> tuple[ir.Function, ir.IRBuilder, Vectors]:
        function = ir.Function(self.module, ir.FunctionType(VOID, list(arguments)), f"{self.name}_{name}")
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        b = function.build()
        return function, b, Vectors(b, self.convolution.dtype, self.winograd.lanes)


def _applied(v: Vectors, matrix: Matrix, x: Sequence[Any]) -> list[Any]:
    """The matrix times a column of vectors."""
    b = v.b
    found = []
    for row in matrix:
        terms = sorted(((k, f) for k, f in enumerate(row) if f), key=lambda term: term[1] < 0)  # positive ones first
        total = None
        for k, factor in terms:
            if total is None:
                total = x[k] if factor == 1 else b.fmul(x[k], constant(float(factor), v.dtype, v.lanes))
            elif abs(factor) == 1:
                total = b.fadd(total, x[k]) if factor > 0 else b.fsub(total, x[k])
            else:
                total = v.fma(x[k], constant(float(factor), v.dtype, v.lanes), total)
        found.append(total)
    return found


def _twice(transform: Callable[[Sequence[Any]], list[Any]], square: Square) -> Square:
    """transform of columns, then of rows: T s T'."""
    columns = [transform(list(column)) for column in zip(*square, strict=True)]
    return [transform(list(row)) for row in zip(*columns, strict=True)]


def emit_winograd_weights(
    module: ir.Module, name: str, convolution: Convolution, winograd: Winograd, turn: str
) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)`: weights to [panel][number][channel][column]; units of channels."""
    e = _Emission(module, name, convolution, winograd)
    b, v, c, g = e.b, e.v, convolution, winograd
    part = replace(c, channels=g.chunk)
    panel = panel_of(part)
    source, target = v.element(e.buffer(0), i64(c.w.offset)), e.buffer(1)
    chunks = c.channels // g.chunk
    # Where features are contiguous, taps are read in place; else they are packed, a chunk of channels after another.
    steps, start, next_channel = (c.w.strides[0], c.w.strides[1]), 0, c.w.strides[3]
    if panel.run:
        packed = e.memory(panel.rows * g.columns)
        to_y, to_x, to_c = (step * g.columns for step in panel.steps)
        steps, start, next_channel = (to_y, to_x), panel.first * g.columns, to_c
    transform = _weight_transform(e, steps)

    def unit(index: Any) -> None:
        inner = chunks if panel.run else e.panels  # the next in memory comes next
        slow, fast = b.udiv(index, i64(inner)), b.urem(index, i64(inner))
        number, part_number = (slow, fast) if panel.run else (fast, slow)
        first, feature = b.mul(part_number, i64(g.chunk)), b.mul(number, i64(g.columns))
        weights = v.element(source, b.mul(first, i64(c.w.strides[3])))
        if panel.run:
            emit_pack(v, part, g.columns, panel, weights, packed, number, turn)
        taps = v.element(packed, i64(start)) if panel.run else v.element(weights, feature)
        out = v.element(target, b.add(b.mul(number, i64(e.panel_size)), b.mul(first, i64(g.columns))))
        live = b.sub(i64(c.features), feature)

        def channel(k: Any) -> None:
            here, place = v.element(taps, b.mul(k, i64(next_channel))), v.element(out, b.mul(k, i64(g.columns)))
            b.call(transform, [here, place, live])

        repeat(b, i64(0), i64(g.chunk), 1, channel)

    repeat(b, e.lo, e.hi, 1, unit)
    b.ret_void()
    return e.function


def _weight_transform(e: _Emission, steps: Pair) -> ir.Function:
    """`void transform(ptr taps, ptr out, i64 live)`: the taps of a channel in a panel, `steps` from one to the next."""
    c, g = e.convolution, e.winograd
    function, b, v = e.helper("transform", [PTR, PTR, I64])
    taps, out, live = function.args
    for vector in range(VECTORS):
        mask, at = v.mask(live, vector) if c.features % g.columns else None, vector * g.lanes
        rows, columns = range(c.kernel[0]), range(c.kernel[1])
        square = [[v.load(v.element(taps, i64(y * steps[0] + x * steps[1] + at)), mask) for x in columns] for y in rows]
        for i, row in enumerate(_twice(partial(_applied, v, transforms(c.kernel[0])[1]), square)):
            for j, value in enumerate(row):
                v.store(value, v.element(out, i64((g.size * i + j) * c.channels * g.columns + at)))
    b.ret_void()
    return function


def emit_winograd(
    module: ir.Module,
    name: str,
    convolution: Convolution,
    winograd: Winograd,
    epilogue: ir.Function | None = None,
    turn: str = "",
    parts: Sequence[str] = (),
) -> ir.Function:
    """`void convolution(ptr buffers, i64 lo, i64 hi)`; the buffers are image, transformed weights and result.

    `parts` are the names of the functions of `schedule.winograd.parts`.
    """
    return _Main(module, name, convolution, winograd, epilogue, turn, parts).emit()


FORWARD_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I64])
BACKWARD_TYPE = ir.FunctionType(VOID, [PTR, PTR, I64, I1, I1])


def _called(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, kind, name)


def emit_forward(module: ir.Module, name: str, part: Forward) -> ir.Function:
    """`void forward(ptr pixel, ptr zeros, ptr v, i64 row, i64 column)`: a square of the image, over channels."""
    function = ir.Function(module, FORWARD_TYPE, name)
    function.attributes.update(("nounwind", "noinline"))
    b = function.build()
    v, side = Vectors(b, part.dtype, part.lanes), range(part.taps + 1)
    x, zeros, target, row, column = function.args

    def inside(start: Any, size: int) -> list[Any]:
        return [b.icmp_unsigned("<", b.add(start, i64(k)), i64(size)) for k in side]

    rows, columns = inside(row, part.image[0]), inside(column, part.image[1])
    places = [
        [
            b.select(b.and_(here, there), v.element(x, i64(i * part.steps[0] + j * part.steps[1])), zeros)
            for j, there in enumerate(columns)
        ]
        for i, here in enumerate(rows)
    ]

    def channels(k: Any) -> None:
        values = [[v.load(v.element(place, k)) for place in line] for line in places]
        square = _twice(partial(_applied, v, transforms(part.taps)[0]), values)
        for number, value in enumerate(value for line in square for value in line):
            v.store(value, v.element(target, b.add(k, i64(number * part.plane))))

    repeat(b, i64(0), i64(part.channels), part.lanes, channels)
    b.ret_void()
    return function


def emit_backward(module: ir.Module, name: str, part: Backward) -> ir.Function:
    """`void backward(ptr m, ptr y, i64 live, i1 second row, i1 second column)`: a square of the result."""
    function = ir.Function(module, BACKWARD_TYPE, name)
    function.attributes.update(("nounwind", "noinline"))
    b = function.build()
    v, side = Vectors(b, part.dtype, part.lanes), part.taps + 1
    source, y, live, *second = function.args

    for vector in range(VECTORS):
        first = vector * part.lanes
        at = [[(side * i + j) * part.plane + first for j in range(side)] for i in range(side)]
        values = [[v.load(v.element(source, i64(x))) for x in line] for line in at]
        mask = v.mask(live, vector) if part.partial else None
        for i, line in enumerate(_twice(partial(_applied, v, transforms(part.taps)[2]), values)):
            for j, value in enumerate(line):
                place = v.element(y, i64(i * part.steps[0] + j * part.steps[1] + first))
                wanted = [there for there, n in zip(second, (i, j), strict=True) if n]
                if not any(odd for odd, n in zip(part.odd, (i, j), strict=True) if n):
                    v.store(value, place, mask)
                    continue
                with b.if_then(wanted[0] if len(wanted) == 1 else b.and_(*wanted)):
                    v.store(value, place, mask)
    b.ret_void()
    return function


class _Main(_Emission):
    def __init__(
        self,
        module: ir.Module,
        name: str,
        convolution: Convolution,
        winograd: Winograd,
        epilogue: ir.Function | None,
        turn: str,
        parts: Sequence[str],
    ) -> None:
        super().__init__(module, name, convolution, winograd)
        self.epilogue = epilogue
        c, g = convolution, winograd
        self.down, self.across = squares(c)
        self.lines = c.batch * self.down
        forward, backward = parts_of(c, g)
        self.forward = _called(module, parts[0], FORWARD_TYPE)
        self.backward = _called(module, parts[1], BACKWARD_TYPE)
        self.most, self.v_row = rows_of_squares(c, g), row_of(c, g)
        self.transformed = self.memory(g.numbers * self.most * self.v_row)
        self.products = self.memory(g.numbers * self.most * g.columns)
        self.zeros = self.memory(c.channels)
        self.x_row, self.x_pixel = forward.steps
        self.y_row, self.y_pixel = backward.steps
        if turns(c):
            self.rows = self.memory(g.size * self.x_row)
            self.turn = self._turn(turn)
        if c.channels_first:
            self.strip = self.memory(2 * self.y_row)
            self.planes = emit_planes_of_row(module, f"{name}_planes", c, g.lanes, g.columns, turn)
        tile = Tile(c.dtype, g.lanes, g.rows, VECTORS, self.v_row, 1, g.columns, g.columns, False, False, False)
        self.tile = emit_tile(module, f"{name}_tile", tile)

    def _turn(self, turn: str) -> ir.Function:
        """`void turn(ptr row, ptr out)`: a row of [channel][pixel] to [pixel][channel]."""
        c, g = self.convolution, self.winograd
        function, b, v = self.helper("turn", [PTR, PTR])
        source, target = function.args
        square, step = declared_turn(self.module, turn), i64(c.a.strides[4])

        def channels(first: Any) -> None:
            line = v.element(source, b.mul(first, step))

            def pixels(at: Any) -> None:
                at = within(v, at, c.size[1])
                place = v.element(target, b.add(b.mul(at, i64(c.channels)), first))
                live = b.sub(i64(c.size[1]), at)
                b.call(square, [v.element(line, at), step, place, i64(c.channels), i64(g.lanes), live])

            repeat(b, i64(0), i64(c.size[1]), g.lanes, pixels)

        repeat(b, i64(0), i64(c.channels), g.lanes, channels)
        b.ret_void()
        return function

    def emit(self) -> ir.Function:
        b, v, c, g = self.b, self.v, self.convolution, self.winograd
        x, weights, y = v.element(self.buffer(0), i64(c.a.offset)), self.buffer(1), self.buffer(2)
        repeat(b, i64(0), i64(c.channels), g.lanes, lambda k: v.store(v.zero, v.element(self.zeros, k)))

        def unit(index: Any) -> None:
            line = b.mul(b.udiv(index, i64(g.panel_parts)), i64(g.lines))
            lines = (line, least(b, b.add(line, i64(g.lines)), i64(self.lines)))
            panels = share(b, b.urem(index, i64(g.panel_parts)), i64(g.panel_parts), i64(self.panels))
            repeat(b, *lines, 1, lambda at: self._line_forward(x, at, b.sub(at, line)))
            count = b.mul(b.sub(lines[1], lines[0]), i64(self.across))

            def one_panel(j: Any) -> None:
                self._products(v.element(weights, b.mul(j, i64(self.panel_size))), count)
                feature = b.mul(j, i64(g.columns))
                repeat(b, *lines, 1, lambda at: self._line_backward(y, feature, at, b.sub(at, line)))

            repeat(b, *panels, 1, one_panel)

        repeat(b, self.lo, self.hi, 1, unit)
        b.ret_void()
        return self.function

    def _line_forward(self, x: Any, line: Any, number: Any) -> None:
        b, v, c, g = self.b, self.v, self.convolution, self.winograd
        image, row = b.udiv(line, i64(self.down)), b.urem(line, i64(self.down))
        row = b.sub(b.mul(row, i64(2)), i64(c.padding[0]))
        start = v.element(x, b.add(b.mul(image, i64(c.a.strides[0])), b.mul(row, i64(c.a.strides[1]))))
        if turns(c):
            for i in range(g.size):
                with b.if_then(b.icmp_unsigned("<", b.add(row, i64(i)), i64(c.size[0]))):
                    here = v.element(start, i64(i * c.a.strides[1]))
                    b.call(self.turn, [here, v.element(self.rows, i64(i * self.x_row))])
            start = self.rows
        target = v.element(self.transformed, b.mul(number, i64(self.across * self.v_row)))

        def square(k: Any) -> None:
            column = b.sub(b.mul(k, i64(2)), i64(c.padding[1]))
            pixel = v.element(start, b.mul(column, i64(self.x_pixel)))
            b.call(self.forward, [pixel, self.zeros, v.element(target, b.mul(k, i64(self.v_row))), row, column])

        repeat(b, i64(0), i64(self.across), 1, square)

    def _products(self, weights: Any, count: Any) -> None:
        """[squares, channels] by [channels, columns], for every number of a square."""
        b, v, c, g = self.b, self.v, self.convolution, self.winograd

        def one(k: Any) -> None:
            right = v.element(weights, b.mul(k, i64(c.channels * g.columns)))
            left = v.element(self.transformed, b.mul(k, i64(self.most * self.v_row)))
            out = v.element(self.products, b.mul(k, i64(self.most * g.columns)))

            def tile(row: Any) -> None:
                a_at = v.element(left, b.mul(row, i64(self.v_row)))
                c_at = v.element(out, b.mul(row, i64(g.columns)))
                b.call(self.tile, [a_at, right, c_at, i64(c.channels), i64(g.columns), constant(True, dtypes.bool_)])

            repeat(b, i64(0), count, g.rows, tile)

        repeat(b, i64(0), i64(g.numbers), 1, one)

    def _line_backward(self, y: Any, feature: Any, line: Any, number: Any) -> None:
        b, v, c, g = self.b, self.v, self.convolution, self.winograd
        height, width = c.out_size
        image, row = b.udiv(line, i64(self.down)), b.mul(b.urem(line, i64(self.down)), i64(2))
        first = b.add(b.mul(image, i64(height)), row)
        start = self.strip if c.channels_first else v.element(y, b.add(b.mul(first, i64(self.y_row)), feature))
        source = v.element(self.products, b.mul(number, i64(self.across * g.columns)))
        live = b.sub(i64(c.features), feature)
        second_row = b.icmp_signed("<", b.add(row, i64(1)), i64(height))

        def square(k: Any) -> None:
            column = b.mul(k, i64(2))
            second_column = b.icmp_signed("<", b.add(column, i64(1)), i64(width))
            at = v.element(start, b.mul(column, i64(self.y_pixel)))
            m = v.element(source, b.mul(k, i64(g.columns)))
            b.call(self.backward, [m, at, live, second_row, second_column])

        repeat(b, i64(0), i64(self.across), 1, square)
        end = b.select(second_row, i64(2), i64(1))
        features = (feature, least(b, b.add(feature, i64(g.columns)), i64(c.features)))
        pixels = (b.mul(first, i64(width)), b.mul(b.add(first, end), i64(width)))
        if c.channels_first:
            channels = b.mul(image, i64(c.features))
            target = v.element(y, b.add(b.mul(b.add(channels, feature), i64(height * width)), b.mul(row, i64(width))))

            def one_row(k: Any) -> None:
                here = v.element(self.strip, b.mul(k, i64(self.y_row)))
                place = v.element(target, b.mul(k, i64(width)))
                b.call(self.planes, [here, place, live])

            repeat(b, i64(0), end, 1, one_row)
            pixels = (b.mul(row, i64(width)), b.mul(b.add(row, end), i64(width)))
            features = (b.add(channels, features[0]), b.add(channels, features[1]))
        if self.epilogue is not None:
            rows, columns = (features, pixels) if c.channels_first else (pixels, features)
            call_epilogue(b, self.epilogue, self.table, rows, columns)
