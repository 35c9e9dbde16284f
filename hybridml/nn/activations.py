"""Activations as modules: each holds the arguments of its function."""

from __future__ import annotations

from typing import Any, Literal

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional as F
from ..core.tensor import Tensor
from .function_module import FunctionModule
from .module import Module
from .parameter import Parameter


class _Inplace(FunctionModule):
    """Base class of activations whose only option, `inplace`, has no effect."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class ReLU(_Inplace):
    """Rectified linear unit ``max(input, 0)``: (...) -> (...), in the dtype of the input.

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.relu`.

    >>> ReLU()(hm.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    function = staticmethod(F.relu)


class ReLU6(_Inplace):
    """Rectified linear unit with a ceiling, ``min(max(input, 0), 6)``: (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.relu6`.

    >>> ReLU6()(hm.asarray([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    function = staticmethod(F.relu6)


class SiLU(_Inplace):
    """Sigmoid linear unit ``input * sigmoid(input)``, also called swish: (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.silu`.

    >>> round(SiLU()(hm.asarray(1.0)).item(), 4)
    0.7311
    """

    function = staticmethod(F.silu)


class Mish(_Inplace):
    """Mish activation ``input * tanh(softplus(input))`` (Misra 2019): (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.mish`.

    >>> round(Mish()(hm.asarray(1.0)).item(), 4)
    0.8651
    """

    function = staticmethod(F.mish)


class SELU(_Inplace):
    """Scaled `ELU` that keeps mean 0 and variance 1 from layer to layer (Klambauer et al. 2017): (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.selu`.

    >>> round(SELU()(hm.asarray(1.0)).item(), 4)
    1.0507
    """

    function = staticmethod(F.selu)


class Hardsigmoid(_Inplace):
    """Piecewise linear sigmoid ``relu6(input + 3) / 6`` (Courbariaux et al. 2015): (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.hardsigmoid`.

    >>> Hardsigmoid()(hm.asarray([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    function = staticmethod(F.hardsigmoid)


class Hardswish(_Inplace):
    """Piecewise swish ``input * hardsigmoid(input)`` (Howard et al. 2019): (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.hardswish`.

    >>> Hardswish()(hm.asarray([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.0, 3.0]
    """

    function = staticmethod(F.hardswish)


class Sigmoid(FunctionModule):
    """Logistic function ``1 / (1 + exp(-input))``: (...) -> (...). See `functional.sigmoid`.

    >>> Sigmoid()(hm.asarray([0.0])).tolist()
    [0.5]
    """

    function = staticmethod(F.sigmoid)

    def __init__(self) -> None:
        super().__init__()


class Tanh(FunctionModule):
    """Hyperbolic tangent of each element: (...) -> (...). See `functional.tanh`.

    >>> Tanh()(hm.asarray([0.0])).tolist()
    [0.0]
    """

    function = staticmethod(F.tanh)

    def __init__(self) -> None:
        super().__init__()


class LogSigmoid(FunctionModule):
    """Logarithm of the sigmoid, computed without overflow: (...) -> (...). See `functional.logsigmoid`.

    >>> LogSigmoid()(hm.asarray([-1000.0])).tolist()
    [-1000.0]
    """

    function = staticmethod(F.logsigmoid)

    def __init__(self) -> None:
        super().__init__()


class Softsign(FunctionModule):
    """Softsign activation ``input / (1 + |input|)``: (...) -> (...). See `functional.softsign`.

    >>> Softsign()(hm.asarray([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """

    function = staticmethod(F.softsign)

    def __init__(self) -> None:
        super().__init__()


class Tanhshrink(FunctionModule):
    """Tanhshrink activation ``input - tanh(input)``: (...) -> (...). See `functional.tanhshrink`.

    >>> Tanhshrink()(hm.asarray([0.0])).tolist()
    [0.0]
    """

    function = staticmethod(F.tanhshrink)

    def __init__(self) -> None:
        super().__init__()


class LeakyReLU(FunctionModule):
    """Input where it is positive, ``negative_slope * input`` elsewhere: (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.leaky_relu`.

    >>> LeakyReLU(0.5)(hm.asarray([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    function = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope)


class ELU(FunctionModule):
    """Exponential linear unit: input where positive, ``alpha * (exp(input) - 1)`` elsewhere (Clevert et al. 2015).

    Shapes (...) -> (...). `inplace` is accepted for PyTorch's sake and has no effect. See `functional.elu`.

    >>> ELU(alpha=2.0)(hm.asarray([-1000.0, 2.0])).tolist()
    [-2.0, 2.0]
    """

    function = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class CELU(FunctionModule):
    """Exponential linear unit with a continuous slope at 0: `ELU` with ``exp(input / alpha)`` (Barron 2017).

    Shapes (...) -> (...). Raises ArgumentError when it is called and `alpha` is 0. `inplace` is accepted for PyTorch's
    sake and has no effect. See `functional.celu`.

    >>> CELU(alpha=2.0)(hm.asarray([-1000.0, 2.0])).tolist()
    [-2.0, 2.0]
    """

    function = staticmethod(F.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class Hardtanh(FunctionModule):
    """Input clipped to `min_val` .. `max_val`, with gradient 0 at both ends: (...) -> (...).

    Raises ArgumentError when it is called and `min_val` is above `max_val`. `inplace` is accepted for PyTorch's sake
    and has no effect. See `functional.hardtanh`.

    >>> Hardtanh()(hm.asarray([-2.0, 0.5, 2.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    function = staticmethod(F.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val=min_val, max_val=max_val)


class Threshold(FunctionModule):
    """Input where it is above `threshold`, `value` elsewhere: (...) -> (...).

    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.threshold`.

    >>> Threshold(0.5, 9.0)(hm.asarray([-1.0, 2.0])).tolist()
    [9.0, 2.0]
    """

    function = staticmethod(F.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value)


class GELU(FunctionModule):
    """Gaussian error linear unit ``input * Phi(input)`` (Hendrycks and Gimpel 2016): (...) -> (...).

    `approximate` is "none" for the exact normal distribution function Phi, or "tanh" for a formula with a tanh; others
    raise ArgumentError when it is called. See `functional.gelu`.

    >>> round(GELU()(hm.asarray(1.0)).item(), 4)
    0.8413
    """

    function = staticmethod(F.gelu)

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__(approximate=approximate)


class Softplus(FunctionModule):
    """Smooth rectifier ``log(1 + exp(beta * input)) / beta``: (...) -> (...).

    Where ``beta * input > threshold`` the result is the input itself. See `functional.softplus`.

    >>> round(Softplus()(hm.asarray(0.0)).item(), 4)
    0.6931
    """

    function = staticmethod(F.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardshrink(FunctionModule):
    """Input where it is outside of -lambd .. lambd, 0 within: (...) -> (...). See `functional.hardshrink`.

    >>> Hardshrink()(hm.asarray([-1.0, 0.2])).tolist()
    [-1.0, 0.0]
    """

    function = staticmethod(F.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(FunctionModule):
    """Input moved towards 0 by `lambd`, and 0 where it would pass it: (...) -> (...).

    Raises ArgumentError when it is called and `lambd` is negative. See `functional.softshrink`.

    >>> Softshrink()(hm.asarray([-1.0, 0.2, 2.0])).tolist()
    [-0.5, 0.0, 1.5]
    """

    function = staticmethod(F.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class GLU(FunctionModule):
    """Gated linear unit ``a * sigmoid(b)`` of the halves a and b of axis `dim` (Dauphin et al. 2017).

    Shapes (..., 2 k, ...) -> (..., k, ...). Raises ShapeError where the axis has an odd number of elements. See
    `functional.glu`.

    >>> GLU()(hm.asarray([4.0, 0.0])).tolist()
    [2.0]
    """

    function = staticmethod(F.glu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax(FunctionModule):
    """Exponentials that sum to 1 along axis `dim`: (...) -> (...).

    Unlike PyTorch's, `dim` has a default, the last axis. See `functional.softmax`.

    >>> Softmax(dim=-1)(hm.asarray([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    function = staticmethod(F.softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmin(FunctionModule):
    """Softmax of the negated input along axis `dim`: (...) -> (...). See `functional.softmin`.

    >>> Softmin(dim=-1)(hm.asarray([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    function = staticmethod(F.softmin)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSoftmax(FunctionModule):
    """Logarithm of the softmax along axis `dim`, without its rounding: (...) -> (...). See `functional.log_softmax`.

    >>> LogSoftmax(dim=-1)(hm.asarray([0.0, -1000.0])).tolist()
    [0.0, -1000.0]
    """

    function = staticmethod(F.log_softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax2d(FunctionModule):
    """Softmax over the channels of images: (n, c, h, w) or (c, h, w) -> the same shape.

    Raises ShapeError for an input of another number of axes.

    >>> Softmax2d()(hm.zeros((1, 2, 1, 1))).reshape((-1,)).tolist()
    [0.5, 0.5]
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: input must be (n, c, h, w) or (c, h, w), got shape {input.shape}")
        return F.softmax(input, -3)


class RReLU(FunctionModule):
    """Leaky relu with random slopes between `lower` and `upper` in training (Xu et al. 2015): (...) -> (...).

    In evaluation the slope is the middle of the two. Raises ArgumentError when it is called and `lower` is above
    `upper`. `inplace` is accepted for PyTorch's sake and has no effect. See `functional.rrelu`.

    >>> RReLU(0.25, 0.75).eval()(hm.asarray([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper)

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training)


class PReLU(Module):
    """Leaky relu whose slope is learned, one for all or one per channel (He et al. 2015): (n, c, ...) -> (n, c, ...).

    `weight` (num_parameters,) starts as `init`. With ``num_parameters=1`` any shape is accepted. Raises ShapeError
    where `num_parameters` is neither 1 nor the number of channels. See `functional.prelu`.

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
    """Activation function named "relu", "gelu", "silu" or "tanh", or the given function itself.

    Raises ArgumentError for other names.
    """
    named = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": F.tanh}
    if callable(name_or_function):
        return name_or_function
    if name_or_function not in named:
        raise ArgumentError(f"activation must be a function or one of {sorted(named)}, got {name_or_function!r}")
    return named[name_or_function]


__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip
