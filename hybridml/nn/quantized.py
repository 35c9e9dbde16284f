"""Linear layers in 8 bits, for inference: weights are quantised once, inputs as they come (dynamic quantisation).

A row of numbers is `scale` times integers from -127 to 127, where the largest of its numbers is 127 scales. Products of
integers are exact, so that an output is off by the rounding of its two rows only (Dettmers et al., "LLM.int8()", 2022,
call these vector-wise scales).
"""

from __future__ import annotations

import hybridml as hm
from hybridml_compiler.errors import DTypeError

from ..functional.compiled import compiled
from ..tensor import Tensor
from .linear import Linear
from .module import Module

LARGEST = 127


def quantize(input: Tensor) -> tuple[Tensor, Tensor]:
    """(integers, scales) of the rows of a float tensor: (..., n) -> int8 (..., n) and float32 (..., 1).

    The product of the two is within half a scale of `input`; a row of zeros has scale 1.

    >>> values, scale = quantize(hm.asarray([[1.0, -2.0, 0.5]]))
    >>> values.tolist()
    [[64, -127, 32]]
    """
    if input.dtype.kind not in "fV":
        raise DTypeError(f"quantize: input must be of a float dtype, got {input.dtype.name}; cast it with astype")
    input = input.astype(hm.float32)
    largest = hm.max(hm.abs(input), axis=-1, keepdims=True)
    scale = hm.where(largest > 0, largest / LARGEST, 1.0)
    return hm.round(input / scale).astype(hm.int8), scale


@compiled
def linear(input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ (scale * weight).T + bias`` with `input` rounded to 8 bits a row: (..., in) -> float32 (..., out).

    `weight` int8 (out, in), `scale` (out,), `bias` (out,).

    >>> weight, scale = quantize(hm.eye(2) * 254)
    >>> linear(hm.asarray([[1.0, 127.0]]), weight, scale[:, 0]).tolist()
    [[254.0, 32258.0]]
    """
    values, of_row = quantize(input)
    product = hm.matmul(values.astype(hm.int32), weight.astype(hm.int32).mT)
    out = product.astype(hm.float32) * (of_row * scale)
    return out if bias is None else out + bias


class QuantizedLinear(Module):
    """A linear layer whose weight is 8 bits, for inference: (..., in_features) -> (..., out_features).

    Its inputs are rounded to 8 bits too, each row with a scale of its own. Its state are buffers: it has no parameters
    and gives no gradients. Make it from a trained layer:

    >>> layer = QuantizedLinear.from_linear(hm.nn.Linear(16, 4))
    >>> layer.weight.dtype.name, layer(hm.ones((2, 16))).shape
    ('int8', (2, 4))
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight", hm.zeros((out_features, in_features), dtype=hm.int8))
        self.register_buffer("scale", hm.ones((out_features,), dtype=hm.float32))
        self.register_buffer("bias", hm.zeros((out_features,), dtype=hm.float32) if bias else None)

    @classmethod
    def from_linear(cls, linear: Linear) -> QuantizedLinear:
        """The layer with its weight rounded to 8 bits, each row (of one output) with a scale of its own."""
        layer = cls(linear.in_features, linear.out_features, bias=linear.bias is not None)
        with hm.no_grad():
            layer.weight, scale = quantize(linear.weight.detach())
            layer.scale = scale[:, 0]
            if linear.bias is not None:
                layer.bias = linear.bias.detach().astype(hm.float32)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        with hm.no_grad():
            return linear(input, self.weight, self.scale, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def quantize_linear(module: Module) -> Module:
    """The module with each `Linear` in it replaced by a `QuantizedLinear`, in place; of a `Linear`, a new layer.

    >>> quantize_linear(hm.nn.Sequential(hm.nn.Linear(4, 4), hm.nn.ReLU()))[0]
    QuantizedLinear(in_features=4, out_features=4, bias=True)
    """
    if type(module) is Linear:
        return QuantizedLinear.from_linear(module)
    for name, child in list(module.named_children()):
        setattr(module, name, quantize_linear(child))
    return module
