"""Activations as modules: each holds the arguments of its function."""

from __future__ import annotations

from typing import Any, Literal

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional as F
from ..core.tensor import Tensor
from .held import Held
from .module import Module
from .parameter import Parameter


class _Inplace(Held):
    """`inplace` is taken for compatibility and has no effect."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class ReLU(_Inplace):
    """`functional.relu`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.relu)


class ReLU6(_Inplace):
    """`functional.relu6`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.relu6)


class SiLU(_Inplace):
    """`functional.silu`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.silu)


class Mish(_Inplace):
    """`functional.mish`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.mish)


class SELU(_Inplace):
    """`functional.selu`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.selu)


class Hardsigmoid(_Inplace):
    """`functional.hardsigmoid`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.hardsigmoid)


class Hardswish(_Inplace):
    """`functional.hardswish`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.hardswish)


class Sigmoid(Held):
    """`functional.sigmoid`."""

    function = staticmethod(F.sigmoid)

    def __init__(self) -> None:
        super().__init__()


class Tanh(Held):
    """`functional.tanh`."""

    function = staticmethod(F.tanh)

    def __init__(self) -> None:
        super().__init__()


class LogSigmoid(Held):
    """`functional.logsigmoid`."""

    function = staticmethod(F.logsigmoid)

    def __init__(self) -> None:
        super().__init__()


class Softsign(Held):
    """`functional.softsign`."""

    function = staticmethod(F.softsign)

    def __init__(self) -> None:
        super().__init__()


class Tanhshrink(Held):
    """`functional.tanhshrink`."""

    function = staticmethod(F.tanhshrink)

    def __init__(self) -> None:
        super().__init__()


class LeakyReLU(Held):
    """`functional.leaky_relu`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope)


class ELU(Held):
    """`functional.elu`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class CELU(Held):
    """`functional.celu`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class Hardtanh(Held):
    """`functional.hardtanh`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val=min_val, max_val=max_val)


class Threshold(Held):
    """`functional.threshold`. `inplace` is taken for compatibility and has no effect."""

    function = staticmethod(F.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value)


class GELU(Held):
    """`functional.gelu`."""

    function = staticmethod(F.gelu)

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__(approximate=approximate)


class Softplus(Held):
    """`functional.softplus`."""

    function = staticmethod(F.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardshrink(Held):
    """`functional.hardshrink`."""

    function = staticmethod(F.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(Held):
    """`functional.softshrink`."""

    function = staticmethod(F.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class GLU(Held):
    """`functional.glu` along `dim`."""

    function = staticmethod(F.glu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax(Held):
    """`functional.softmax` along `dim`."""

    function = staticmethod(F.softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmin(Held):
    """`functional.softmin` along `dim`."""

    function = staticmethod(F.softmin)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSoftmax(Held):
    """`functional.log_softmax` along `dim`."""

    function = staticmethod(F.log_softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax2d(Held):
    """`functional.softmax` over the channels of (n, c, h, w) or (c, h, w)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: input must be (n, c, h, w) or (c, h, w), got shape {input.shape}")
        return F.softmax(input, -3)


class RReLU(Held):
    """`functional.rrelu`, with drawn slopes in training. `inplace` is taken for compatibility and has no effect."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper)

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training)


class PReLU(Module):
    """`functional.prelu` with a slope to learn, or one for each of `num_parameters` channels, from `init` on.

    >>> PReLU(3)(hm.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(xp.full((num_parameters,), init, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


def activation(name_or_function: Any) -> Any:
    """An activation given by name ("relu", "gelu") or as a function."""
    named = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": F.tanh}
    if callable(name_or_function):
        return name_or_function
    if name_or_function not in named:
        raise ArgumentError(f"activation must be a function or one of {sorted(named)}, got {name_or_function!r}")
    return named[name_or_function]
