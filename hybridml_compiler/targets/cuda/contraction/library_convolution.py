"""Convolutions as a library's: its kernels are for dense images and weights, in one of two orders.

    channels first   x[n, c, h, w]   w[o, c, kh, kw]   y[n, o, h, w]
    channels last    x[n, h, w, c]   w[o, kh, kw, c]   y[n, h, w, o]

Images are read and written where they are. Weights, which are small, are copied into the order of their images where
they have another: those of the gradient of images are reversed, or every second one. The gradient of weights is a
convolution whose channels are images: it is called by its own name, and its result is copied. In float32
that is left to our kernel. See [Note: Convolutions on a GPU]. On an H100, in us, cuDNN 9.19 and ours:

    weights of 64x64x32x32 by 3x3 to 64              252    237
    weights of 64x64x32x32 by 3x3, stride 2, to 128  476    131
    weights of 64x3x128x128 by 7x7, stride 2, to 64  731    300
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .... import config, dtypes
from ....loops.builder import LoopBuilder
from ....loops.ir import Buffer, Expr, Kernel, KernelSpec, Store, serial
from ....record import replace
from ....schedule.fusion.epilogue import Fused
from ....schedule.kernels.convolution import Convolution
from ..code import RegionSource, Step
from ..driver import Convolve, Images
from .kernel import CallSource, nest_source
from .rounding import copied, rounded, unscheduled

_LIBRARY_FLOPS = 1 << 27  # that are left to it; below, a launch is expected to take longer than the convolution
_FIRST, _LAST = (0, 1, 2, 3), (0, 2, 3, 1)  # axes of (n, c, h, w) in their order in memory


def library_convolution(call: Convolution, result: np.dtype | None = None) -> Convolve | None:
    """The call of a library, with dense weights; None for one that is small, or that it has no form of. `result`: its
    dtype, where that is another than that of the sums."""
    if call.flops < _LIBRARY_FLOPS or call.dtype.kind != "f" or min(call.a.strides) < 0:
        return None
    weights, tf32 = is_of_weights(call), config.field("tf32")
    if weights and call.stored is None and not tf32:
        return None
    n, y, x, g, c = call.a.strides
    order = _LAST if (n if weights else c) <= x else _FIRST
    stored = call.stored or (call.dtype, call.dtype)
    result = result or call.dtype
    (h, w), (oh, ow), kernel = call.size, call.out_size, call.kernel
    features = call.groups * call.features
    # The library has the kernel of the forward convolution, whose result is the kernel of a gradient of weights.
    turned = (kernel, (oh, ow), call.dilation, call.stride), ((oh, ow), kernel, call.stride, call.dilation)
    along = zip((h, w), call.padding, *turned[not weights], strict=True)
    fits = [_fit(*axis) for axis in along]
    sizes, before, after = ((a, b) for a, b in zip(*fits, strict=True))
    offset = call.a.offset + sum(max(-p, 0) * step for p, step in zip(call.padding, (y, x), strict=True))
    if weights:
        count, channels, axis, of_group = call.channels, call.batch, n, call.batch * n
        ky, kx, wg, wc, wo = call.w.strides
        if min(call.w.strides) < 0 or (call.groups > 1 and wg != call.features * wo):
            return None
        gradient = Images(stored[1], call.w.offset, (count, features, *kernel), (wc, wo, ky, kx))
        made = Images(result, 0, (features, channels, oh, ow), ())
        images, stride, dilation = (c, axis, y, x), call.dilation, call.stride
    else:
        count, channels, axis, of_group = call.batch, call.channels, c, call.channels * c
        gradient = Images(result, 0, (count, features, oh, ow), ())
        made = Images(stored[1], 0, (features, channels, *kernel), ())
        images, stride, dilation = (n, axis, y, x), call.stride, call.dilation
    if call.groups > 1 and g != of_group:
        return None
    source = Images(stored[0], offset, (count, call.groups * channels, *sizes), images)
    mine = _FIRST if call.channels_first else _LAST
    return Convolve(
        call.dtype, _regular(source, order), _dense(made, order),
        _regular(gradient, order) if weights else _dense(gradient, mine),
        stride, dilation, before, after, weights, tf32,
    )  # fmt: skip


def is_of_weights(call: Convolution) -> bool:
    """Whether the convolution is a gradient of weights, whose sums are over images: they are further apart in memory
    than channels are. Of one image, or one channel, that has the larger kernel."""
    n, *_, c = call.a.strides
    if call.batch > 1 and call.channels > 1:
        return abs(n) < abs(c)
    return call.kernel[0] * call.kernel[1] > call.out_size[0] * call.out_size[1]


def _fit(size: int, padding: int, out: int, kernel: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """(rows of the image that count, zeros before, zeros after) so that there are `out` positions: as many after as
    before, where that is possible."""
    before, size = max(padding, 0), size + min(padding, 0)
    needed = (out - 1) * stride + (kernel - 1) * dilation + 1
    if 0 <= size + 2 * before - needed < stride:
        return size, before, before
    missing = needed - size - before
    return (size, before, missing) if missing > 0 else (size + missing // stride * stride, before, 0)


def _dense(images: Images, order: Sequence[int]) -> Images:
    strides, step = [0] * 4, 1
    for axis in reversed(order):
        strides[axis] = step
        step *= images.shape[axis]
    return replace(images, strides=tuple(strides))


def _regular(images: Images, order: Sequence[int]) -> Images:
    """The same images, with the strides of dense ones at axes of length 1, which are never stepped along."""
    dense = _dense(images, order).strides
    strides = [d if n == 1 else s for n, s, d in zip(images.shape, images.strides, dense, strict=True)]
    return replace(images, strides=tuple(strides))


def library_steps(spec: KernelSpec, *, wide: bool = True) -> RegionSource | None:
    """The launches of a convolution, and of the loop nest after it, where a library computes it; `wide`: as emit_call
    has it."""
    call, epilogue = (spec.call, spec.epilogue) if isinstance(spec, Fused) else (spec, None)
    if not isinstance(call, Convolution):
        return None
    s = LoopBuilder()
    nest = narrow = None if epilogue is None else unscheduled(s, epilogue)
    if nest is not None:
        narrow = rounded(s, nest, call.stored[0]) if call.passing and call.stored is not None else None
    nest, home = narrow or nest, None if narrow is None else copied(narrow)
    found = library_convolution(call, None if narrow is None else narrow.operands[0].dtype)
    if found is None:
        return None
    scratch: list[int] = []
    count = 3 if epilogue is None else 2 + len(epilogue.operands)  # operands of the spec

    def new(images: Images) -> int:
        scratch.append(int(np.prod(images.shape)) * images.dtype.itemsize)
        return count + len(scratch) - 1

    steps: list[Step] = []
    out = 2
    if call.passing:
        out = new(found.w if found.weights else found.y) if home is None else 2 + home
    if found.weights:
        made = _by_group(found.w, call.groups)
        place = _weights_of_result(call, made)
        target = out if _alike(place, made) else new(made)
        steps.append((found, (0, 1, target)))
        if target != out:
            steps.append((copies(made, place, wide), (target, out)))
    else:
        wanted = _by_group(found.w, call.groups)
        place = _weights_of_operand(call, wanted)
        weights = 1
        if _alike(place, wanted):
            found = replace(found, w=replace(found.w, offset=place.offset))
        else:
            weights = new(wanted)
            steps.append((copies(place, wanted, wide), (1, weights)))
        steps.append((found, (0, weights, out)))
    if nest is not None and home is None:
        steps.append((nest_source(s, nest, wide), (out, *range(3, count))))
    return RegionSource(tuple(steps), tuple(scratch))


def _alike(a: Images, b: Images) -> bool:
    """Whether both have the same order in memory, whatever the strides of axes of length 1."""
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True))


def _weights_of_operand(call: Convolution, dense: Images) -> Images:
    """The weights (groups, o, c, kh, kw) of a call where they are."""
    ky, kx, g, c, o = call.w.strides
    return Images(dense.dtype, call.w.offset, dense.shape, (g, o, c, ky, kx))


def _weights_of_result(call: Convolution, dense: Images) -> Images:
    """The place of a gradient of weights (groups, o, c, kh, kw) in the result of a call."""
    _, o, _, kh, kw = dense.shape
    area, features = kh * kw, call.groups * call.features
    first, last = (o * area, area, features * area, kw, 1), (o, 1, area * features, kw * features, features)
    return replace(dense, strides=first if call.channels_first else last)


def _by_group(weights: Images, groups: int) -> Images:
    """Weights (o, c, kh, kw) with their groups as an axis."""
    (features, *shape), (step, *strides) = weights.shape, weights.strides
    each = features // groups
    return replace(weights, shape=(groups, each, *shape), strides=(each * step, step, *strides))


def copies(source: Images, target: Images, wide: bool = True) -> CallSource:
    """The kernel that copies images from one order to another."""
    s = LoopBuilder()
    given = Buffer("x", source.dtype, _extent(source))
    made = Buffer("y", target.dtype, _extent(target), "out")
    axes = sorted(range(len(target.shape)), key=lambda axis: -target.strides[axis])
    variables = {axis: s.var("i", source.shape[axis]) for axis in axes}

    def place(images: Images) -> Expr:
        total = s.const(images.offset, dtypes.int64)
        for axis, variable in variables.items():
            total = s.add(total, s.mul(variable, images.strides[axis]))
        return total

    body = serial(list(variables.values()), [Store(made, place(target), s.load(given, place(source)))])
    return nest_source(s, Kernel((given, made), body), wide)


def _extent(images: Images) -> int:
    forward = [(n - 1) * step for n, step in zip(images.shape, images.strides, strict=True) if step > 0]
    return images.offset + sum(forward) + 1
