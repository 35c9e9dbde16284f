"""Distributions of whole numbers: int64 unless another dtype is asked for; none has a gradient."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler import dtypes

from ..arrays.creation import asarray, zeros_like
from ..control_flow import while_loop
from ..core import ops
from ..core.context import no_grad
from ..core.tensor import Tensor
from .generator import Generator, shape_of, unit
from .sampling import Counts, Domain, Parameter, not_negative, probability, sampler, until_accepted

_AT_ONCE = 4  # steps of the inversion a pass over memory
# Mean from which numbers are drawn by rejection (as the methods ask for, 10), below by adding probabilities up.
_LARGE_MEAN = 10.0
possible = Domain("a probability above 0", lambda v: 0 < v <= 1)


@sampler(p=probability)
def bernoulli(
    p: Parameter = 0.5, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Events that are 1 with probability `p`, else 0: bool, or numbers of `dtype`.

    The result has `shape`, by default that of `p`, a number or a tensor. Raises ArgumentError for a number outside of
    0 .. 1. It has no gradient.

    >>> hm.random.bernoulli(hm.tensor([0.0, 1.0])).tolist()
    [False, True]
    """
    wanted = shape_of(shape) if shape is not None else (asarray(p).shape if not isinstance(p, int | float) else ())
    drawn = unit(wanted, dtypes.default_float(), generator) < p
    return drawn if dtype is None else ops.astype(drawn, dtype)


def _adds_up(u: Tensor, first: Tensor, ratio: Any, most: Any) -> Tensor:
    """The first k whose probability, with all before, is above u: p(0) = first, p(k) = p(k - 1) ratio(k)."""

    def going(carry: Any) -> Tensor:
        k, _, total = carry
        return ((u >= total) & (k < most)).any()

    def step(carry: Any) -> Any:
        k, p, total = carry
        for _ in range(_AT_ONCE):
            on = (u >= total) & (k < most)
            k = ops.where(on, k + 1, k)
            p = ops.where(on, p * ratio(k), p)
            total = ops.where(on, total + p, total)
        return k, p, total

    k: Tensor = while_loop(going, step, (zeros_like(u), first, first))[0]
    return k


def _numbers(d: Counts, k: Tensor, valid: Tensor) -> Tensor:
    return ops.astype(ops.where(valid, k, -1.0), d.result)


@sampler(lam=not_negative)
def poisson(
    lam: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Poisson counts: the number of events in an interval with mean `lam`.

    The result has `shape`, by default the one that the parameters broadcast to, and is int64 unless `dtype` says
    otherwise; it has no gradient. From mean 10 on by Hörmann's rejection PTRS ("The transformed rejection method for
    generating Poisson random variables", 1993), below by inversion. Raises ArgumentError for a negative `lam`,
    ShapeError for one that does not broadcast to `shape`. Negative elements of a tensor give -1.

    >>> hm.random.poisson(hm.tensor([0.0, 3.0, 1e6])).shape
    (3,)
    """
    d = Counts("poisson", shape, dtype, generator, lam)
    with no_grad():
        mean = ops.broadcast_to(d.tensors()[0], d.shape)
        if isinstance(lam, int | float):  # one of the methods is enough
            return ops.astype(_ptrs(d, mean) if lam >= _LARGE_MEAN else _poisson_inversion(d, mean), d.result)
        large = mean >= _LARGE_MEAN
        few = _poisson_inversion(d, ops.where(large, 0.0, mean))
        return _numbers(d, ops.where(large, _ptrs(d, ops.where(large, mean, _LARGE_MEAN)), few), mean >= 0)


def _poisson_inversion(d: Counts, mean: Tensor) -> Tensor:
    return _adds_up(d.unit(), ops.exp(-mean), lambda k: mean / k, 200.0)


def _ptrs(d: Counts, mean: Tensor) -> Tensor:
    log_mean = ops.log(mean)
    b = ops.sqrt(mean) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    height = ops.log(1.1328 / (b - 3.4) + 1.1239)
    inner = 0.9277 - 3.6224 / (b - 2)

    def propose() -> tuple[Tensor, Tensor]:
        u, v = d.unit() - 0.5, 1 - d.unit()
        room = 0.5 - ops.abs(u)
        k = ops.floor((2 * a / room + b) * u + mean + 0.43)
        below = ops.log(v) + height - ops.log(a / (room * room) + b)
        exact = below <= k * log_mean - mean - ops.lgamma(ops.maximum(k, 0.0) + 1)
        possible = (k >= 0) & ((room >= 0.013) | (v <= room))
        return k, ((room >= 0.07) & (v <= inner)) | (possible & exact)

    return until_accepted(propose, d.shape, d.dtype)


@sampler(n=not_negative, p=probability)
def binomial(
    n: Parameter, p: Parameter, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Binomial counts: the number of `n` independent events of probability `p` that happen.

    The result has `shape`, by default the one that the parameters broadcast to, and is int64 unless `dtype` says
    otherwise; it has no gradient. From mean 10 on by Hörmann's rejection BTRS ("The generation of binomial random
    variates", 1993), below by inversion, both of the rarer outcome. Raises ArgumentError for a negative `n` or a `p`
    outside of 0 .. 1, ShapeError for parameters that do not broadcast to `shape`. Elements of tensors that are outside
    give -1.

    >>> hm.random.binomial(5, 1.0, (2,)).tolist()
    [5, 5]
    """
    d = Counts("binomial", shape, dtype, generator, n, p)
    with no_grad():
        count, share = (ops.broadcast_to(t, d.shape) for t in d.tensors())
        valid = (count >= 0) & (share >= 0) & (share <= 1)
        count = ops.where(valid, ops.floor(count), 0.0)
        rare = ops.where(valid, ops.minimum(share, 1 - share), 0.0)
        if isinstance(n, int | float) and isinstance(p, int | float):  # one of the methods is enough
            method = _btrs if n * min(p, 1 - p) >= _LARGE_MEAN else _binomial_inversion
            k = method(d, count, rare)
        else:
            large = count * rare >= _LARGE_MEAN
            few = _binomial_inversion(d, count, ops.where(large, 0.0, rare))
            k = ops.where(large, _btrs(d, ops.where(large, count, 40.0), ops.where(large, rare, 0.5)), few)
        return _numbers(d, ops.where(share > 0.5, count - k, k), valid)


def _binomial_inversion(d: Counts, n: Tensor, p: Tensor) -> Tensor:
    odds = p / (1 - p)
    none = ops.exp(ops.log1p(-p) * n)
    return _adds_up(d.unit(), none, lambda k: odds * (n - k + 1) / k, ops.minimum(n, 1000.0))


def _btrs(d: Counts, n: Tensor, p: Tensor) -> Tensor:
    spread = ops.sqrt(n * p * (1 - p))
    b = spread * 2.53 + 1.15
    a = b * 0.0248 - 0.0873 + p * 0.01
    centre = n * p + 0.5
    inner = 0.92 - 4.2 / b
    height = (5.1 / b + 2.83) * spread
    odds = ops.log(p / (1 - p))
    mode = ops.floor((n + 1) * p)
    top = ops.lgamma(mode + 1) + ops.lgamma(n - mode + 1)

    def propose() -> tuple[Tensor, Tensor]:
        u, v = d.unit() - 0.5, 1 - d.unit()
        room = 0.5 - ops.abs(u)
        k = ops.floor((2 * a / room + b) * u + centre)
        inside = (k >= 0) & (k <= n)
        at = ops.clip(k, 0.0, n)
        below = ops.log(v * height / (a / (room * room) + b))
        exact = below <= top - ops.lgamma(at + 1) - ops.lgamma(n - at + 1) + (at - mode) * odds
        return k, ((room >= 0.07) & (v <= inner)) | (inside & exact)

    return until_accepted(propose, d.shape, d.dtype)


@sampler(p=possible)
def geometric(p: Parameter, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Geometric counts: the number of trials of probability `p` up to the first success, 1 or more, as in NumPy.

    The result has `shape`, by default the one that the parameters broadcast to, and is int64 unless `dtype` says
    otherwise; it has no gradient. Raises ArgumentError unless 0 < p <= 1, ShapeError for a `p` that does not broadcast
    to `shape`. Elements of a tensor that are outside give -1.

    >>> hm.random.geometric(1.0, (3,)).tolist()
    [1, 1, 1]
    """
    d = Counts("geometric", shape, dtype, generator, p)
    with no_grad():
        (share,) = d.tensors()
        valid = (share > 0) & (share <= 1)
        rate = -ops.log1p(-ops.where(valid, share, 1.0))
        k = ops.ceil(-ops.log(d.open_unit()) / rate)
        return _numbers(d, ops.clip(k, 1.0, math.ldexp(1.0, 62)), ops.broadcast_to(valid, d.shape))
