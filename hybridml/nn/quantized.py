"""Linear layers and convolutions in 8 bits, for inference: weights are quantised once, inputs as they come.

A row of numbers is `scale` times integers from -127 to 127, where the largest of its numbers is 127 scales. Products of
integers are exact, so that an output is off by the rounding of its two rows only (Dettmers et al., "LLM.int8()", 2022,
call these vector-wise scales). For a convolution an image is a row of its input, and an output channel one of its
weight. Zeros stay zeros, so that padding is exact too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import ArgumentError, DTypeError

from .. import arrays as xp
from .. import functional as F
from ..core.context import no_grad
from ..core.library import compiled
from ..core.tensor import Tensor
from ..functional.arguments import Padding, Pair
from .convolution import Conv2d, _Convolution, channels_last
from .linear import Linear
from .module import Module

LARGEST = 127


def quantize(input: Tensor, axis: int | tuple[int, ...] = -1) -> tuple[Tensor, Tensor]:
    """Integers and scales of the rows of a float tensor: (..., n) -> int8 (..., n) and float32 (..., 1).

    Elements that differ along `axis` alone share a scale. The product of the two is within half a scale of `input`; a
    row of zeros has scale 1. Raises DTypeError for an input that is not of floats.

    >>> values, scale = quantize(hm.asarray([[1.0, -2.0, 0.5]]))
    >>> values.tolist()
    [[64, -127, 32]]
    """
    if input.dtype.kind not in "fV":
        raise DTypeError(f"quantize: input must be of a float dtype, got {input.dtype.name}; cast it with astype")
    input = input.astype(xp.float32)
    largest = xp.max(xp.abs(input), axis=axis, keepdims=True)
    scale = xp.where(largest > 0, largest / LARGEST, 1.0)
    return xp.round(input / scale).astype(xp.int8), scale


@compiled
def linear(input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ (scale * weight).T + bias`` with `input` rounded to 8 bits a row: (..., in) -> float32 (..., out).

    `weight` int8 (out, in), `scale` (out,), `bias` (out,).

    >>> weight, scale = quantize(hm.eye(2) * 254)
    >>> linear(hm.asarray([[1.0, 127.0]]), weight, scale[:, 0]).tolist()
    [[254.0, 32258.0]]
    """
    values, of_row = quantize(input)
    product = xp.matmul(values.astype(xp.int32), weight.astype(xp.int32).mT)
    out = product.astype(xp.float32) * (of_row * scale)
    return out if bias is None else out + bias


@compiled
def conv2d(
    input: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """`functional.conv2d` with ``scale * weight`` and `input` rounded to 8 bits an image: (n, c, h, w) or (c, h, w) ->
    float32 (n, o, h', w').

    `weight` int8 (o, c / groups, kh, kw), `scale` (o,), `bias` (o,).

    >>> conv2d(hm.ones((1, 3, 8, 8)), hm.ones((4, 3, 3, 3), dtype=hm.int8), hm.ones((4,)))[0, :, 0, 0].tolist()
    [27.0, 27.0, 27.0, 27.0]
    """
    values, of_image = quantize(input, axis=(-3, -2, -1))
    wide = values.astype(xp.int32), weight.astype(xp.int32)
    sums = F.conv2d(*wide, None, stride, padding, dilation, groups)
    out = sums.astype(xp.float32) * (of_image * scale.reshape((-1, 1, 1)))
    return out if bias is None else out + bias.reshape((-1, 1, 1))


class QuantizedLinear(Module):
    """Linear layer whose weight is 8 bits, for inference: (..., in_features) -> (..., out_features).

    Its inputs are rounded to 8 bits too, each row with a scale of its own. Its state are buffers: it has no parameters
    and gives no gradients. Raises DTypeError for an input that is not of floats. Make it from a trained layer:

    >>> layer = QuantizedLinear.from_linear(hm.nn.Linear(16, 4))
    >>> layer.weight.dtype.name, layer(hm.ones((2, 16))).shape
    ('int8', (2, 4))
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight", xp.zeros((out_features, in_features), dtype=xp.int8))
        self.register_buffer("scale", xp.ones((out_features,), dtype=xp.float32))
        self.register_buffer("bias", xp.zeros((out_features,), dtype=xp.float32) if bias else None)

    @classmethod
    def from_linear(cls, linear: Linear) -> QuantizedLinear:
        """The layer with its weight rounded to 8 bits, each row (of one output) with a scale of its own."""
        layer = cls(linear.in_features, linear.out_features, bias=linear.bias is not None)
        with no_grad():
            layer.weight, scale = quantize(linear.weight.detach())
            layer.scale = scale[:, 0]
            if linear.bias is not None:
                layer.bias = linear.bias.detach().astype(xp.float32)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        with no_grad():
            return linear(input, self.weight, self.scale, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class QuantizedConv2d(_Convolution):
    """Conv2d whose weight is 8 bits, each output channel with a scale of its own, for inference.

    Shapes (n, in_channels, h, w) -> float32 (n, out_channels, h', w'). Its inputs are rounded to 8 bits too, each
    image with a scale of its own. Its state are buffers: it has no parameters and gives no gradients. Options and
    errors are those of `Conv2d`. Make it from a trained layer:

    >>> layer = QuantizedConv2d.from_conv(hm.nn.Conv2d(3, 8, 3, padding=1))
    >>> layer.weight.dtype.name, layer(hm.ones((2, 3, 6, 6))).shape
    ('int8', (2, 8, 6, 6))
    """

    dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode
        )  # fmt: skip

    def _make_state(self, outer: int, inner: int, bias: bool, dtype: Any) -> None:
        weight = channels_last(outer, inner, self.kernel_size, xp.int8)
        self.register_buffer("weight", weight.copy_(xp.zeros_like(weight)))
        self.register_buffer("scale", xp.ones((outer,), dtype=xp.float32))
        self.register_buffer("bias", xp.zeros((outer,), dtype=xp.float32) if bias else None)

    @classmethod
    def from_conv(cls, conv: Conv2d) -> QuantizedConv2d:
        """The layer with its weight rounded to 8 bits, each output channel with a scale of its own."""
        layer = cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation,
            conv.groups, conv.bias is not None, conv.padding_mode,
        )  # fmt: skip
        with no_grad():
            values, scale = quantize(conv.weight.detach(), axis=(1, 2, 3))
            layer.weight.copy_(values)
            layer.scale = scale.reshape((-1,))
            if conv.bias is not None:
                layer.bias = conv.bias.detach().astype(xp.float32)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        with no_grad():
            input, padding = self._padded(input)
            return conv2d(input, self.weight, self.scale, self.bias, self.stride, padding, self.dilation, self.groups)


_QUANTIZED: dict[type[Module], Callable[[Any], Module]] = {
    Linear: QuantizedLinear.from_linear,
    Conv2d: QuantizedConv2d.from_conv,
}


def quantize_layers(module: Module, kinds: tuple[type[Module], ...] = tuple(_QUANTIZED)) -> Module:
    """Module with each `Linear` and `Conv2d` in it (or those of `kinds`) in 8 bits, in place; of one, a new layer.

    Raises ArgumentError for a kind that has no form in 8 bits.

    >>> quantize_layers(hm.nn.Sequential(hm.nn.Conv2d(3, 4, 3), hm.nn.ReLU()))[0]
    QuantizedConv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    unknown = [kind.__name__ for kind in kinds if kind not in _QUANTIZED]
    if unknown:
        raise ArgumentError(f"quantize_layers: there is no 8-bit form of {', '.join(unknown)}; kinds may be {_NAMES}")
    if type(module) in kinds:
        return _QUANTIZED[type(module)](module)
    for name, child in list(module.named_children()):
        setattr(module, name, quantize_layers(child, kinds))
    return module


_NAMES = " and ".join(kind.__name__ for kind in _QUANTIZED)


def quantize_linear(module: Module) -> Module:
    """`quantize_layers` of each `Linear` alone.

    >>> quantize_linear(hm.nn.Sequential(hm.nn.Linear(4, 4), hm.nn.ReLU()))[0]
    QuantizedLinear(in_features=4, out_features=4, bias=True)
    """
    return quantize_layers(module, (Linear,))
