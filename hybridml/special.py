"""Special functions, with the names of scipy.special and torch.special.

What is a row of the operation table is that row (see Operations in the documentation). The others are composed of
rows, so they trace, fuse and differentiate to any order. Where a formula is 0 * inf they have its limit, and a finite
gradient where the true one is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.table import OPS

from .arrays.creation import asarray
from .arrays.shaping.manipulation import _tensor
from .core.context import placed
from .core.library import compiled
from .core.ops import names
from .core.spellings import accept
from .core.tensor import Tensor

_where, _isnan, _log, _abs, _equal = (OPS[name].fn for name in ("where", "isnan", "log", "abs", "equal"))
_ROWS = (
    "betainc", "cbrt", "digamma", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp1", "exp2", "expi", "expm1", "gamma",
    "gammainc", "gammaincc", "i0", "i0e", "i1", "i1e", "j0", "j1", "lgamma", "log1p", "log_ndtr", "ndtr", "ndtri",
    "round", "trigamma", "y0", "y1",
)  # fmt: skip
# The names that other libraries have for rows.
_ALIASES = {
    "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1", "expit": "sigmoid",
    "gammaln": "lgamma", "igamma": "gammainc", "igammac": "gammaincc",
    "modified_bessel_i0": "i0", "modified_bessel_i1": "i1", "psi": "digamma",
}  # fmt: skip


def __getattr__(name: str) -> Callable[..., Any]:
    if name in _ROWS or name in _ALIASES:
        return names[_ALIASES.get(name, name)]
    raise AttributeError(f"module 'hybridml.special' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


@placed
def _floats(*operands: Any) -> list[Tensor]:
    """Operands as tensors of floats; a Python number has the dtype of the tensors beside it."""
    tensors = [x for x in operands if isinstance(x, Tensor | np.ndarray)]
    wanted = next((x.dtype for x in tensors if x.dtype.kind in "fcV"), dtypes.default_float())
    found = [asarray(x, dtype=wanted) if isinstance(x, bool | int | float) else _tensor(x) for x in operands]
    return [x if x.dtype.kind in "fcV" else x.astype(wanted) for x in found]


# ---------------------------------------------------------------- entropy


def _times_log(x: Tensor, y: Tensor, log: Callable[[Tensor], Tensor], least: float) -> Tensor:
    """x log(y), and 0 where x is 0 and y no nan; `least`: where the logarithm begins."""
    vanishes = _equal(x, 0) & ((y <= least) | _equal(y, math.inf))
    return x * log(_where(vanishes, 1.0, y))


@compiled
def xlogy(x: Tensor, y: Tensor, /) -> Tensor:
    """``x * log(y)``, and 0 where x is 0 (unless y is nan). Any shapes that broadcast; integers become floats.

    >>> import hybridml as hm
    >>> hm.special.xlogy(hm.tensor([0.0, 2.0]), hm.tensor([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """
    u, v = _floats(x, y)
    return _times_log(u, v, _log, 0.0)


@compiled
def xlog1py(x: Tensor, y: Tensor, /) -> Tensor:
    """``x * log(1 + y)``, and 0 where x is 0 (unless y is nan).

    >>> import hybridml as hm
    >>> hm.special.xlog1py(hm.tensor([0.0, 2.0]), hm.tensor([-1.0, 0.0])).tolist()
    [0.0, 0.0]
    """
    u, v = _floats(x, y)
    return _times_log(u, v, OPS["log1p"].fn, -1.0)


@compiled
def entr(x: Tensor, /) -> Tensor:
    """Entropy of a probability, ``-x * log(x)``: 0 at 0, -inf below.

    >>> import hybridml as hm
    >>> hm.special.entr(hm.tensor([0.0, 1.0, -1.0])).tolist()
    [0.0, 0.0, -inf]
    """
    (x,) = _floats(x)
    below = x < 0
    return _where(below, -math.inf, 0 - xlogy(x, _where(below, 1.0, x)))


@compiled
def rel_entr(x: Tensor, y: Tensor, /) -> Tensor:
    """Relative entropy, ``x * log(x / y)``: 0 where x is 0 and y is not negative, inf where one of them is negative.

    >>> import hybridml as hm
    >>> hm.special.rel_entr(hm.tensor([0.0, 1.0, 1.0]), hm.tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, inf]
    """
    x, y = _floats(x, y)
    unknown = _isnan(x) | _isnan(y)
    inside = (x > 0) & (y > 0)
    u, v = _where(inside, x, 1.0), _where(inside, y, 1.0)
    ratio = u / v
    plain = (ratio > 0) & (ratio < math.inf)
    logarithm = _where(plain, _log(_where(plain, ratio, 1.0)), _log(u) - _log(v))
    outside = _where(_equal(x, 0) & (y >= 0), 0.0, math.inf)
    return _where(unknown, x + y, _where(inside, u * logarithm, outside))


@compiled
def kl_div(x: Tensor, y: Tensor, /) -> Tensor:
    """``rel_entr(x, y) - x + y``, whose sum over distributions is the Kullback-Leibler divergence. Source: SciPy.

    >>> import hybridml as hm
    >>> hm.special.kl_div(hm.tensor([0.0, 1.0]), hm.tensor([2.0, 1.0])).tolist()
    [2.0, 0.0]
    """
    x, y = _floats(x, y)
    entropy = rel_entr(x, y)
    return _where(_equal(entropy, math.inf), math.inf, entropy - x + y)


# ---------------------------------------------------------------- logistic


@compiled
def logit(x: Tensor, /, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of `expit`; nan outside of [0, 1]. `eps` moves x into [eps, 1 - eps] first.

    Next to 1/2, where it crosses zero, it is ``2 * atanh(2 * x - 1)``, which is exact to rounding there.

    >>> import hybridml as hm
    >>> hm.special.logit(hm.tensor([0.0, 0.5, 1.0])).tolist()
    [-inf, 0.0, inf]
    """
    (x,) = _floats(x)
    if eps is not None:
        x = OPS["clip"].fn(x, eps, 1 - eps)
    middle = _abs(x - 0.5) < 0.25
    inner, outer = _where(middle, x, 0.5), _where(middle, 0.25, x)
    return _where(middle, 2 * OPS["atanh"].fn(2 * inner - 1), _log(outer) - OPS["log1p"].fn(-outer))


def log_expit(x: Tensor, /) -> Tensor:
    """``log(expit(x))`` without overflow; torch's logsigmoid.

    >>> import hybridml as hm
    >>> hm.special.log_expit(hm.tensor([-200.0, 200.0])).tolist()
    [-200.0, 0.0]
    """
    from .functional import logsigmoid

    return logsigmoid(_floats(x)[0])


@compiled
def logsumexp(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` along `axis` (all), without overflow; its gradient is `softmax`.

    >>> import hybridml as hm
    >>> hm.special.logsumexp(hm.tensor([1000.0, -1000.0])).item()
    1000.0
    """
    (x,) = _floats(x)
    highest = x.detach().max(axis=axis, keepdims=True)
    shift = _where(OPS["isfinite"].fn(highest), highest, 0.0)
    total = _log(OPS["exp"].fn(x - shift).sum(axis=axis, keepdims=keepdims))
    return total + (shift if keepdims else shift.reshape(total.shape))


def softmax(x: Tensor, /, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along `axis` (over all elements), computed in `dtype` where one is given.

    >>> import hybridml as hm
    >>> hm.special.softmax(hm.tensor([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    from . import functional

    return _along(functional.softmax, x, axis, dtype)


def log_softmax(x: Tensor, /, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """``log(softmax(x))`` along `axis` (over all elements), in `dtype` where one is given.

    It is exact to rounding where softmax underflows.

    >>> import hybridml as hm
    >>> hm.special.log_softmax(hm.tensor([0.0, -200.0])).tolist()
    [0.0, -200.0]
    """
    from . import functional

    return _along(functional.log_softmax, x, axis, dtype)


def _along(function: Callable[..., Tensor], x: Any, axis: int | None, dtype: Any) -> Tensor:
    (x,) = _floats(x)
    if axis is None:
        return function(x.reshape(-1), -1, dtype=dtype).reshape(x.shape)
    return function(x, axis, dtype=dtype)


# ---------------------------------------------------------------- gamma and beta


def polygamma(n: Any, x: Tensor, /) -> Tensor:
    """Derivative of order n of `digamma`, n an integer from 0 to 100. Raises ArgumentError for another n.

    At 0, -1, -2, ...: the infinity of an odd n, nan of an even one.

    >>> import hybridml as hm
    >>> round(hm.special.polygamma(1, hm.tensor(1.0)).item(), 6)  # pi ** 2 / 6
    1.644934
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 0 <= n <= 100:
        raise ArgumentError(f"polygamma: the order n must be an integer from 0 to 100, got {n!r}")
    (x,) = _floats(x)
    if n < 2:
        return names["trigamma" if n else "digamma"](x)
    return OPS["digamma_by_order"].fn(x, order=int(n))


@compiled
def multigammaln(a: Tensor, d: Any, /) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension d: the sum of ``lgamma(a - j / 2)`` for j < d and
    ``d (d - 1) / 4 * log(pi)``. torch's mvlgamma. Raises ArgumentError for d < 1.

    >>> import hybridml as hm
    >>> hm.special.multigammaln(hm.tensor(1.0), 1).item()
    0.0
    """
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
        raise ArgumentError(f"multigammaln: the dimension d must be a positive integer, got {d!r}")
    (a,) = _floats(a)
    total = OPS["lgamma"].fn(a)
    for j in range(1, d):
        total = total + OPS["lgamma"].fn(a - j / 2)
    return total + d * (d - 1) / 4 * math.log(math.pi)


# Stirling's series of lgamma, in 1 / x
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _stirling(x: Tensor) -> Tensor:
    u = 1 / x
    w, total = u * u, u * 0.0
    for c in reversed(_STIRLING):
        total = total * w + c
    return total * u


@compiled
def betaln(a: Tensor, b: Tensor, /) -> Tensor:
    """``log |B(a, b)|``, B the beta function. Where an argument is large, the difference of two large logarithms is
    taken apart, as Stirling's series allows.

    >>> import hybridml as hm
    >>> hm.special.betaln(hm.tensor(1.0), hm.tensor(1.0)).item()
    0.0
    """
    a, b = _floats(a, b)
    p, q = OPS["minimum"].fn(a, b), OPS["maximum"].fn(a, b)
    far = (p > 0) & (q >= 10)
    u, v = _where(far, p, 1.0), _where(far, q, 10.0)
    both = u + v
    series = _stirling(both) - _stirling(v)
    difference = (v - 0.5) * OPS["log1p"].fn(u / v) + u * (_log(both) - 1) + series
    lgamma = OPS["lgamma"].fn
    s, t = _where(far, 1.0, p), _where(far, 1.0, q)
    near = _where(_equal(p, 0) & ~_isnan(q), math.inf, lgamma(s) + lgamma(t) - lgamma(s + t))
    return _where(far, lgamma(u) - difference, near)


@compiled
def beta(a: Tensor, b: Tensor, /) -> Tensor:
    """The beta function, ``gamma(a) * gamma(b) / gamma(a + b)``.

    >>> import hybridml as hm
    >>> hm.special.beta(hm.tensor(1.0), hm.tensor(2.0)).item()
    0.5
    """
    a, b = _floats(a, b)
    gamma = OPS["gamma"].fn
    small = (_abs(a) < 15) & (_abs(b) < 15)
    s, t = _where(small, a, 1.0), _where(small, b, 1.0)
    u, v = _where(small, 1.0, a), _where(small, 1.0, b)
    return _where(small, gamma(s) * gamma(t) / gamma(s + t), OPS["exp"].fn(betaln(u, v)))


def zeta(x: Tensor, q: Tensor | None = None, /) -> Tensor:
    """Hurwitz zeta function, the sum of ``(q + k) ** -x`` over k = 0, 1, ...; without q Riemann's, for every real x.

    Differentiable with respect to q; a gradient with respect to x is a GradientError.

    >>> import hybridml as hm
    >>> round(hm.special.zeta(hm.tensor(2.0)).item(), 6)  # pi ** 2 / 6
    1.644934
    """
    return OPS["zeta"].fn(*_floats(x, 1.0 if q is None else q))


# ---------------------------------------------------------------- waves

_SINC = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(13))  # sin(z) / z in z^2, up to pi / 2


@compiled
def sinc(x: Tensor, /) -> Tensor:
    """``sin(pi * x) / (pi * x)``, 1 at 0; pi times x is taken after x less its nearest integer, so integers give 0.

    >>> import hybridml as hm
    >>> hm.special.sinc(hm.tensor([0.0, 1.0, 3.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    (x,) = _floats(x)
    if x.dtype.kind == "c":
        zero = _equal(x, 0)
        angle = _where(zero, 1.0, x) * math.pi
        return _where(zero, 1.0, OPS["sin"].fn(angle) / angle)
    near = _abs(x) < 0.5
    inner, outer = _where(near, x, 0.0) * math.pi, _where(near, 1.0, x)
    w, series = inner * inner, inner * 0.0
    for c in reversed(_SINC):
        series = series * w + c
    nearest = OPS["round"].fn(outer)
    odd = _equal(OPS["remainder"].fn(nearest, 2.0), 1)
    sine = OPS["sin"].fn((outer - nearest) * math.pi) / (outer * math.pi)
    return _where(near, series, _where(odd, 0 - sine, sine))


mvlgamma = multigammaln

__all__ = sorted([
    *_ROWS, *_ALIASES, "beta", "betaln", "entr", "kl_div", "log_expit", "log_softmax", "logit", "logsumexp",
    "multigammaln", "mvlgamma", "polygamma", "rel_entr", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
])  # fmt: skip
accept(globals(), __all__)
