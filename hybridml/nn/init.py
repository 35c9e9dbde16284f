"""Initial values, written in place from the default generator, with PyTorch's names and defaults."""

from __future__ import annotations

import math
from typing import Literal

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import linalg, random
from ..core.context import no_grad, placed
from ..core.spellings import advise
from ..core.tensor import Tensor

Mode = Literal["fan_in", "fan_out"]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Factor that keeps the variance of values through a nonlinearity (He et al. 2015).

    `nonlinearity` is "linear", "conv1d", "conv2d", "sigmoid", "tanh", "relu", "selu" or "leaky_relu", whose slope is
    `param`; ArgumentError for others.

    >>> calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope * slope))
    gains = {
        "linear": 1.0,
        "conv1d": 1.0,
        "conv2d": 1.0,
        "sigmoid": 1.0,
        "tanh": 5 / 3,
        "relu": math.sqrt(2),
        "selu": 3 / 4,
    }
    if nonlinearity not in gains:
        raise ArgumentError(
            f"calculate_gain: unknown nonlinearity {nonlinearity!r}; use one of {[*gains, 'leaky_relu']}"
        )
    return gains[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Pair (fan in, fan out) of a weight (out, in, ...): the numbers of inputs and outputs of one position.

    Raises ShapeError for fewer than two axes.

    >>> fans(hm.empty((8, 3, 5, 5)))
    (75, 200)
    """
    if tensor.ndim < 2:
        raise ShapeError(f"init: fan in and fan out need at least 2 axes, got shape {tensor.shape}")
    area = math.prod(tensor.shape[2:])
    return tensor.shape[1] * area, tensor.shape[0] * area


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fills a tensor of any shape with uniform numbers between `a` and `b`, in place, and returns it.

    >>> w = uniform_(hm.empty((100,)), 1.0, 2.0)
    >>> bool(((w >= 1) & (w <= 2)).all())
    True
    """
    return _fill(tensor, random.uniform(tensor.shape, a, b, dtype=tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fills a tensor of any shape with normal numbers of `mean` and `std`, in place, and returns it.

    >>> normal_(hm.empty((2, 3)), mean=4.0, std=0.0)[0].tolist()
    [4.0, 4.0, 4.0]
    """
    return _fill(tensor, random.normal(tensor.shape, mean, std, dtype=tensor.dtype))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fills a tensor with normal numbers that are between `a` and `b`, in place, and returns it.

    Raises ArgumentError unless a < b.

    >>> bool((abs(trunc_normal_(hm.empty((100,)), a=-1.0, b=1.0)) <= 1).all())
    True
    """
    if not a < b:
        raise ArgumentError(f"trunc_normal_: needs a < b, got a={a}, b={b}")
    return _fill(tensor, random.truncated_normal(a, b, mean, std, tensor.shape, dtype=tensor.dtype))


@placed
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills a tensor of any shape with `val`, in place, and returns it.

    >>> constant_(hm.empty((2,)), 0.5).tolist()
    [0.5, 0.5]
    """
    return _fill(tensor, xp.full(tensor.shape, val, dtype=tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Fills a tensor of any shape with zeros, in place, and returns it.

    >>> zeros_(hm.empty((2,))).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fills a tensor of any shape with ones, in place, and returns it.

    >>> ones_(hm.empty((2,))).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """Fills a matrix (out, in) with the identity, in place, and returns it. Raises ShapeError for other shapes.

    >>> eye_(hm.empty((2, 3))).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: needs a matrix, got shape {tensor.shape}")
    return _fill(tensor, xp.eye(*tensor.shape, dtype=tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills a convolution's weight (out, in, ...) so that it keeps its input, in place, and returns it.

    Each of the `groups` keeps as many channels as it has on both sides. Raises ShapeError for a tensor that has not
    three, four or five axes, or an `out` that `groups` does not divide.

    >>> dirac_(hm.empty((2, 2, 3)))[1].tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups:
        raise ShapeError(f"dirac_: needs 3, 4 or 5 axes, the first in {groups} groups, got shape {tensor.shape}")
    each = tensor.shape[0] // groups
    kept = min(each, tensor.shape[1])
    channels = xp.arange(groups * kept)
    middle = tuple(n // 2 for n in tensor.shape[2:])
    values = xp.zeros_like(tensor).detach()
    values[(channels // kept * each + channels % kept, channels % kept, *middle)] = 1
    return _fill(tensor, values)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fills a weight (out, in, ...) with uniform numbers of variance ``2 gain^2 / (fan_in + fan_out)``, and returns it.

    In place, also known as Glorot's start (Glorot and Bengio 2010). Raises ShapeError for fewer than two axes.

    >>> bool((abs(xavier_uniform_(hm.empty((3, 3)))) <= 1).all())
    True
    """
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fills a weight (out, in, ...) with normal numbers of variance ``2 gain^2 / (fan_in + fan_out)``, and returns it.

    In place (Glorot and Bengio 2010). Raises ShapeError for fewer than two axes.

    >>> xavier_normal_(hm.empty((3, 2)), gain=0.0)[0].tolist()
    [0.0, 0.0]
    """
    return normal_(tensor, 0, gain * math.sqrt(2 / sum(fans(tensor))))


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: Mode = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fills a weight (out, in, ...) with uniform numbers of variance ``gain^2 / fan``, and returns it (He et al. 2015).

    In place. `a` is the slope of a leaky relu, `mode` is "fan_in" or "fan_out", `nonlinearity` a name that
    `calculate_gain` takes; ArgumentError for others. Raises ShapeError for fewer than two axes.

    >>> bool((abs(kaiming_uniform_(hm.empty((3, 6)))) <= 1).all())
    True
    """
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: Mode = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fills a weight (out, in, ...) with normal numbers of variance ``gain^2 / fan``, and returns it (He et al. 2015).

    In place; arguments and errors as of `kaiming_uniform_`.

    >>> kaiming_normal_(hm.empty((3, 2))).shape
    (3, 2)
    """
    return normal_(tensor, 0, _kaiming_std(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fills a weight (out, ...) with orthonormal rows, or columns if there are fewer, times `gain`, and returns it.

    In place (Saxe et al. 2013). Axes after the first count as one. Raises ShapeError for fewer than two axes.

    >>> w = orthogonal_(hm.empty((2, 3)))
    >>> bool(hm.allclose(w @ w.T, hm.eye(2), atol=1e-6))
    True
    """
    fans(tensor)  # checks the shape
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    q, r = linalg.qr(random.normal((max(rows, columns), min(rows, columns)), dtype=tensor.dtype))
    q = q * xp.sign(linalg.diagonal(r))  # then every orthonormal matrix is as likely
    return _fill(tensor, (gain * (q if rows >= columns else q.T)).reshape(tensor.shape))


def _kaiming_std(tensor: Tensor, a: float, mode: Mode, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"kaiming: mode must be 'fan_in' or 'fan_out', got {mode!r}")
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[mode == "fan_out"] or 1)


def _fill(tensor: Tensor, values: Tensor) -> Tensor:
    with no_grad():
        tensor.copy_(values)
    return tensor


advise(globals())
