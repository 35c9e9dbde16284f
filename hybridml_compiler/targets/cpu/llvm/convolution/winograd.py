"""Winograd's minimal filtering F(2x2, rxr): (r + 1)^2 matrix products instead of 4 r^2 multiplications a square.

With d a square of the image and w the taps, a 2x2 square of the result is A [(G w G') * (B d B')] A', where the bracket
is summed over channels (Lavin and Gray, 2016). `conv_winograd.transforms` gives the matrices; for r = 3 they are

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

from collections.abc import Sequence
from typing import Any

from ..... import dtypes
from .....record import record, replace
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
from ...kernels.low_precision import FLOATS
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import divide, i64, least, offset, repeat, share
from ..contraction.packing import TURN_TYPE, turn_lines
from ..contraction.vectors import Vectors
from ..gemm.tile import Tile, emit_tile
from ..kind import Kind
from ..types import I1, I64, PTR, VOID, constant
from .pack import emit_planes_of_row, pack_runs, panel_of, weight_packer

Square = list[list[Any]]


def panel_size(convolution: Convolution, winograd: Winograd) -> int:
    """Elements of the transformed weights of a panel."""
    return winograd.numbers * convolution.channels * winograd.columns


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


def _twice(v: Vectors, matrix: Matrix, square: Square) -> Square:
    """The matrix applied to columns, then to rows: T s T'."""
    columns = [_applied(v, matrix, column) for column in zip(*square, strict=True)]
    return [_applied(v, matrix, row) for row in zip(*columns, strict=True)]


def emit_winograd_weights(
    module: ir.Module, name: str, convolution: Convolution, winograd: Winograd, symbols: Sequence[str]
) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)`: weights to [panel][number][channel][column]; units of channels."""
    c, g = convolution, winograd
    e = Emission(module, name, c, g)
    b, v, panels = e.b, e.v, panels_of(c, g)
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
    transform = _weight_transform(e, c, g, steps)
    packer = weight_packer(e, part, FLOATS, g.columns, 0, symbols)

    def unit(index: Any) -> None:
        slow, fast = divide(b, index, chunks if panel.run else panels)  # the next in memory comes next
        number, part_number = (slow, fast) if panel.run else (fast, slow)
        first, feature = b.mul(part_number, i64(g.chunk)), b.mul(number, i64(g.columns))
        weights = v.at(source, (first, c.w.strides[3]))
        if panel.run:
            pack_runs(packer, part, panel, weights, packed, number)
        taps = v.element(packed, i64(start)) if panel.run else v.element(weights, feature)
        out = v.at(target, (number, panel_size(c, g)), (first, g.columns))
        live = b.sub(i64(c.features), feature)

        def channel(k: Any) -> None:
            b.call(transform, [v.at(taps, (k, next_channel)), v.at(out, (k, g.columns)), live])

        repeat(b, i64(0), i64(g.chunk), 1, channel)

    return e.over_units(unit)


def _weight_transform(e: Emission[Any, Any], c: Convolution, g: Winograd, steps: Pair) -> ir.Function:
    """`void transform(ptr taps, ptr out, i64 live)`: the taps of a channel in a panel, `steps` from one to the next."""
    function, b, v = e.helper("transform", [PTR, PTR, I64])
    taps, out, live = function.args
    for vector, mask in enumerate(v.masks(live, VECTORS, c.features % g.columns != 0)):
        rows, columns, first = range(c.kernel[0]), range(c.kernel[1]), vector * g.lanes
        square = [[v.load(v.at(taps, (y, steps[0]), (x, steps[1]), (first, 1)), mask) for x in columns] for y in rows]
        _store(v, _twice(v, transforms(c.kernel[0])[1], square), out, c.channels * g.columns, i64(first))
    b.ret_void()
    return function


def _store(v: Vectors, square: Square, target: Any, plane: int, at: Any) -> None:
    """Each number of a transformed square goes to a plane of its own."""
    for number, value in enumerate(value for row in square for value in row):
        v.store(value, v.at(target, (at, 1), (number, plane)))


FORWARD_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I64])
BACKWARD_TYPE = ir.FunctionType(VOID, [PTR, PTR, I64, I1, I1])


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
            b.select(b.and_(here, there), v.at(x, (i, part.steps[0]), (j, part.steps[1])), zeros)
            for j, there in enumerate(columns)
        ]
        for i, here in enumerate(rows)
    ]

    def channels(k: Any) -> None:
        values = [[v.load(v.element(place, k)) for place in line] for line in places]
        _store(v, _twice(v, transforms(part.taps)[0], values), target, part.plane, k)

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
        for i, line in enumerate(_twice(v, transforms(part.taps)[2], values)):
            for j, value in enumerate(line):
                place = v.at(y, (i, part.steps[0]), (j, part.steps[1]), (first, 1))
                wanted = [there for there, n in zip(second, (i, j), strict=True) if n]
                if not any(odd for odd, n in zip(part.odd, (i, j), strict=True) if n):
                    v.store(value, place, mask)
                    continue
                with b.if_then(wanted[0] if len(wanted) == 1 else b.and_(*wanted)):
                    v.store(value, place, mask)
    b.ret_void()
    return function


@record(frozen=False, eq=False)
class WinogradConvolution(Emission[Convolution, Winograd]):
    """The buffers are image, transformed weights and result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        c, g, module = self.call, self.plan, self.module
        self.down, self.across = squares(c)
        forward, backward = g.transforms(c)
        self.forward = module.function(self.symbols[0], FORWARD_TYPE)
        self.backward = module.function(self.symbols[1], BACKWARD_TYPE)
        self.most, self.v_row = rows_of_squares(c, g), row_of(c, g)
        self.transformed = self.memory(g.numbers * self.most * self.v_row)
        self.products = self.memory(g.numbers * self.most * g.columns)
        self.zeros = self.memory(c.channels)
        self.x_row, self.x_pixel = forward.steps
        self.y_row, self.y_pixel = backward.steps
        if turns(c):
            self.rows = self.memory(g.size * self.x_row)
            self.turn = self._turn()
        if c.channels_first:
            self.strip = self.memory(2 * self.y_row)
            self.planes = emit_planes_of_row(self, c, g.columns, self.symbols[2])
        tile = Tile(c.dtype, g.lanes, g.rows, VECTORS, self.v_row, 1, g.columns, g.columns)
        self.tile = emit_tile(module, f"{self.name}_tile", tile)

    def _turn(self) -> ir.Function:
        """`void turn(ptr row, ptr out)`: a row of [channel][pixel] to [pixel][channel]."""
        c = self.call
        function, b, v = self.helper("turn", [PTR, PTR])
        (source, target), turning = function.args, self.module.function(self.symbols[2], TURN_TYPE)
        turn_lines(v, turning, source, c.a.strides[4], i64(c.channels), target, c.channels, i64(c.size[1]))
        b.ret_void()
        return function

    def emit(self) -> ir.Function:
        b, v, c, g = self.b, self.v, self.call, self.plan
        x, weights, y = self.buffers(3)
        x = v.element(x, i64(c.a.offset))
        height = self.size(c.batch * self.down)  # rows of squares of all images
        repeat(b, i64(0), i64(c.channels), g.lanes, lambda k: v.store(v.zero, v.element(self.zeros, k)))

        def unit(index: Any) -> None:
            block, part = divide(b, index, g.panel_parts)
            line = b.mul(block, i64(g.lines))
            lines = (line, least(b, b.add(line, i64(g.lines)), height))
            panels = share(b, part, i64(g.panel_parts), i64(panels_of(c, g)))
            repeat(b, *lines, 1, lambda at: self._line_forward(x, at, b.sub(at, line)))
            count = b.mul(b.sub(lines[1], lines[0]), i64(self.across))

            def one_panel(j: Any) -> None:
                self._products(v.at(weights, (j, panel_size(c, g))), count)
                feature = b.mul(j, i64(g.columns))
                repeat(b, *lines, 1, lambda at: self._line_backward(y, feature, at, b.sub(at, line)))

            repeat(b, *panels, 1, one_panel)

        return self.over_units(unit)

    def _line_forward(self, x: Any, line: Any, number: Any) -> None:
        b, v, c, g = self.b, self.v, self.call, self.plan
        image, row = divide(b, line, self.down)
        row = b.sub(b.mul(row, i64(2)), i64(c.padding[0]))
        start = v.at(x, (image, c.a.strides[0]), (row, c.a.strides[1]))
        if turns(c):
            for i in range(g.size):
                with b.if_then(b.icmp_unsigned("<", b.add(row, i64(i)), i64(c.size[0]))):
                    here = v.at(start, (i, c.a.strides[1]))
                    b.call(self.turn, [here, v.at(self.rows, (i, self.x_row))])
            start = self.rows
        target = v.at(self.transformed, (number, self.across * self.v_row))

        def square(k: Any) -> None:
            column = b.sub(b.mul(k, i64(2)), i64(c.padding[1]))
            pixel = v.at(start, (column, self.x_pixel))
            b.call(self.forward, [pixel, self.zeros, v.at(target, (k, self.v_row)), row, column])

        repeat(b, i64(0), i64(self.across), 1, square)

    def _products(self, weights: Any, count: Any) -> None:
        """[squares, channels] by [channels, columns], for every number of a square."""
        b, v, c, g = self.b, self.v, self.call, self.plan

        def one(k: Any) -> None:
            right = v.at(weights, (k, c.channels * g.columns))
            left = v.at(self.transformed, (k, self.most * self.v_row))
            out = v.at(self.products, (k, self.most * g.columns))

            def tile(row: Any) -> None:
                a_at, c_at = v.at(left, (row, self.v_row)), v.at(out, (row, g.columns))
                b.call(self.tile, [a_at, right, c_at, i64(c.channels), i64(g.columns), constant(True, dtypes.bool_)])

            repeat(b, i64(0), count, g.rows, tile)

        repeat(b, i64(0), i64(g.numbers), 1, one)

    def _line_backward(self, y: Any, feature: Any, line: Any, number: Any) -> None:
        b, v, c, g = self.b, self.v, self.call, self.plan
        height, width = c.out_size
        image, row = divide(b, line, self.down)
        row = b.mul(row, i64(2))
        first = offset(b, (image, height), (row, 1))
        start = self.strip if c.channels_first else v.at(y, (first, self.y_row), (feature, 1))
        source = v.at(self.products, (number, self.across * g.columns))
        live = b.sub(i64(c.features), feature)
        second_row = b.icmp_signed("<", b.add(row, i64(1)), i64(height))

        def square(k: Any) -> None:
            column = b.mul(k, i64(2))
            second_column = b.icmp_signed("<", b.add(column, i64(1)), i64(width))
            at, m = v.at(start, (column, self.y_pixel)), v.at(source, (k, g.columns))
            b.call(self.backward, [m, at, live, second_row, second_column])

        repeat(b, i64(0), i64(self.across), 1, square)
        end = b.select(second_row, i64(2), i64(1))
        features = (feature, least(b, b.add(feature, i64(g.columns)), i64(c.features)))
        if not c.channels_first:
            self.finish((b.mul(first, i64(width)), b.mul(b.add(first, end), i64(width))), features)
            return
        channels = b.mul(image, i64(c.features))
        target = v.at(y, (b.add(channels, feature), height * width), (row, width))

        def one_row(k: Any) -> None:
            b.call(self.planes, [v.at(self.strip, (k, self.y_row)), v.at(target, (k, width)), live])

        repeat(b, i64(0), end, 1, one_row)
        low, high = (b.add(channels, of) for of in features)
        self.finish((low, high), (b.mul(row, i64(width)), b.mul(b.add(row, end), i64(width))))


FORWARD = Kind(emit=emit_forward, source=lambda spec, _: repr(spec))
BACKWARD = Kind(emit=emit_backward, source=lambda spec, _: repr(spec))
