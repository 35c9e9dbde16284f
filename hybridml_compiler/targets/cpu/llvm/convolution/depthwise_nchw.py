"""A depthwise convolution with channels first: `void convolution(ptr buffers, i64 lo, i64 hi)` over planes.

A plane is one channel of one image. A tile is some rows of the result, one vector of pixels wide; a row of the
image is loaded once for every column of taps, and serves all rows of the tile that it meets. Rows beside the image are
read from zeros, pixels beside it are masked. Every element is one chain of fused multiply-adds over (ky, kx).
"""

from __future__ import annotations

from typing import Any

from .....record import record
from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_depthwise_nchw import Planes, borders
from ...kernels.conv_depthwise_nchw import zeros as zeros_of
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import divide, i64, least, repeat
from ..contraction.micro_kernel import MicroKernel
from ..contraction.vectors import prefix
from ..types import I64, PTR

_KEPT_TAPS = 16  # so many weights stay in registers; more are loaded where they are used


@record(frozen=False, eq=False)
class DepthwisePlanes(Emission[Convolution, Planes]):
    """The epilogue runs over a plane, when that is in L1 or L2."""

    optimized: bool = True

    def emit(self) -> ir.Function:
        b, v, c, g, (x, weights, y) = self.b, self.v, self.call, self.plan, self.buffers(3)
        tile = _emit_tile(self.module, f"{self.name}_tile", c, g)
        x, weights = v.element(x, i64(c.a.offset)), v.element(weights, i64(c.w.offset))
        before, pixels, size = max(c.padding[1], 0), c.out_size[0] * c.out_size[1], zeros_of(c, g.lanes)
        zeros = self.memory(size)
        repeat(b, i64(0), i64(size - g.lanes), g.lanes, lambda k: v.store(v.zero, v.element(zeros, k)))

        def plane(index: Any) -> None:
            image, group = divide(b, index, c.groups)
            x_at = v.at(x, (image, c.a.strides[0]), (group, c.a.strides[3]))
            w_at, y_at = v.at(weights, (group, c.w.strides[2])), v.at(y, (index, pixels))

            def rows(start: Any) -> None:
                row = least(b, start, i64(c.out_size[0] - g.rows))
                b.call(tile, [x_at, w_at, y_at, v.element(zeros, i64(before)), row])

            repeat(b, i64(0), i64(c.out_size[0]), g.rows, rows)
            self.finish((index, b.add(index, i64(1))), (i64(0), i64(pixels)))

        return self.over_units(plane)


def _emit_tile(module: ir.Module, name: str, c: Convolution, planes: Planes) -> ir.Function:
    """`void tile(ptr x, ptr weights, ptr y, ptr zeros, i64 row)`: rows from `row` on of a plane of the result."""
    g = planes
    t = MicroKernel(module, name, [PTR, PTR, PTR, PTR, I64], c.dtype, g.lanes)
    b, v, (x, weights, y, zeros, row) = t.b, t.v, t.args
    (kh, kw), (dy, dx), (top, left), (to_y, to_x) = c.kernel, c.dilation, c.padding, c.w.strides[:2]
    meets: dict[int, list[tuple[int, int]]] = {}  # row of the image -> rows of the tile, rows of taps
    for i in range(g.rows):
        for k in range(kh):
            meets.setdefault(i + k * dy, []).append((i, k))
    lines = {}
    for i in sorted(meets):
        at = b.add(row, i64(i - top))
        within = b.icmp_unsigned("<", at, i64(c.size[0]))
        lines[i] = b.select(within, v.element(x, b.mul(at, i64(c.a.strides[1]))), zeros)
    y_row = v.element(y, b.mul(row, i64(c.out_size[1])))

    def weight(ky: int, kx: int) -> Any:
        return t.down(v.at(weights, (ky, to_y), (kx, to_x)))

    kept = {(ky, kx): weight(ky, kx) for ky in range(kh) for kx in range(kw)} if kh * kw <= _KEPT_TAPS else {}

    def pixels(start: Any, masks: list[Any], live: Any) -> None:
        sums = t.zeros(g.rows)
        for i, met in sorted(meets.items()):
            here = v.element(lines[i], start)
            if i < g.rows:  # this place in the next plane, into L2
                v.prefetch(v.element(here, i64(c.a.strides[3])), level=2)
            for kx in range(kw):
                value = v.load(v.element(here, i64(kx * dx - left)), masks[kx])
                for n, ky in met:
                    sums[n] = v.fma(value, kept.get((ky, kx)) or weight(ky, kx), sums[n])
        for n, value in enumerate(sums):
            place = v.element(y_row, b.add(start, i64(n * c.out_size[1])))
            v.prefetch(v.element(place, i64(c.out_size[0] * c.out_size[1])), level=2)
            v.store(value, place, live)

    def mask_of(low: int, high: int) -> Any:
        """Lanes from `low` to `high`; None for all."""
        return None if low <= 0 and high >= g.lanes else prefix(g.lanes, high, low)

    special = borders(c, g.starts, g.lanes)
    if len(g.starts) > 1 and len(g.starts) - 1 not in special:
        special.append(len(g.starts) - 1)  # its distance from the one before is another
    live = None if c.out_size[1] >= g.lanes else mask_of(0, c.out_size[1])
    for k in special:
        masks = [mask_of(left - kx * dx - g.starts[k], c.size[1] + left - kx * dx - g.starts[k]) for kx in range(kw)]
        pixels(i64(g.starts[k]), masks, live)
    plain = [k for k in range(len(g.starts)) if k not in special]
    if plain:
        first, last = plain[0] * g.lanes, (plain[-1] + 1) * g.lanes
        repeat(b, i64(first), i64(last), g.lanes, lambda start: pixels(start, [None] * kw, live))
    b.ret_void()
    return t.function
