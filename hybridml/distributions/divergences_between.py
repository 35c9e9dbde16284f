"""Divergences of distributions of one family from those of another, by moments.

The divergence of p from q is the expected -log q under p, less the entropy of p. That logarithm is a sum of a few
moments of p (`_NEEDS` of q), and each p has some of them: a pair has a formula where it has all. Where p has values
that q has not, the divergence is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .. import arrays as xp
from .. import special
from ..core.tensor import Tensor
from .bounded import ContinuousBernoulli
from .continuous import Beta, Exponential, Gamma, Laplace, Normal, Uniform
from .counts import Binomial
from .discrete import Bernoulli, Poisson
from .divergence import register_kl
from .heavy_tails import EULER, Gumbel, Pareto

# (lowest, highest) value of each family.
_SUPPORTS: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    Beta: lambda d: (0.0, 1.0),
    ContinuousBernoulli: lambda d: (0.0, 1.0),
    Exponential: lambda d: (0.0, math.inf),
    Gamma: lambda d: (0.0, math.inf),
    Gumbel: lambda d: (-math.inf, math.inf),
    Laplace: lambda d: (-math.inf, math.inf),
    Normal: lambda d: (-math.inf, math.inf),
    Pareto: lambda d: (d.scale, math.inf),
    Uniform: lambda d: (d.low, d.high),
}


def _mean_log_uniform(low: Tensor, high: Tensor) -> Tensor:
    return (special.xlogy(high, high) - special.xlogy(low, low)) / (high - low) - 1


# Expected log(x), log(1 - x) and exp(t x) of a draw x.
_LOGS: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda d: xp.digamma(d.concentration1) - xp.digamma(d.concentration1 + d.concentration0),
    Exponential: lambda d: -xp.log(d.rate) - EULER,
    Gamma: lambda d: xp.digamma(d.concentration) - xp.log(d.rate),
    Pareto: lambda d: xp.log(d.scale) + 1 / d.alpha,
    Uniform: lambda d: _mean_log_uniform(d.low, d.high),
}
_LOGS_OF_THE_REST: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda d: xp.digamma(d.concentration0) - xp.digamma(d.concentration1 + d.concentration0),
    Uniform: lambda d: _mean_log_uniform(1 - d.high, 1 - d.low),
}
_EXPONENTIALS: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda d, t: d.rate / (d.rate - t),
    Gamma: lambda d, t: (1 - t / d.rate) ** -d.concentration,
    Normal: lambda d, t: xp.exp(d.loc * t + xp.square(d.scale * t) * 0.5),
    Uniform: lambda d, t: (xp.exp(t * d.high) - xp.exp(t * d.low)) / (t * (d.high - d.low)),
}
_EVERY: Mapping[type, object] = _SUPPORTS  # all have a mean and a variance

# Moments that -log q is made of.
_NEEDS: dict[type, tuple[Mapping[type, object], ...]] = {
    Beta: (_LOGS, _LOGS_OF_THE_REST),
    ContinuousBernoulli: (_EVERY,),
    Exponential: (_EVERY,),
    Gamma: (_LOGS,),
    Gumbel: (_EXPONENTIALS,),
    Normal: (_EVERY,),
    Pareto: (_LOGS,),
    Uniform: (_EVERY,),
}
_CROSS_ENTROPIES: dict[type, Callable[[Any, Any], Tensor]] = {
    Beta: lambda p, q: (
        special.betaln(q.concentration1, q.concentration0)
        - (q.concentration1 - 1) * _LOGS[_family(p)](p)
        - (q.concentration0 - 1) * _LOGS_OF_THE_REST[_family(p)](p)
    ),
    ContinuousBernoulli: lambda p, q: -p.mean * q.logits - xp.log1p(-q.probs) - q.log_normalizer(),
    Exponential: lambda p, q: q.rate * p.mean - xp.log(q.rate),
    Gamma: lambda p, q: (
        xp.lgamma(q.concentration)
        - q.concentration * xp.log(q.rate)
        - (q.concentration - 1) * _LOGS[_family(p)](p)
        + q.rate * p.mean
    ),
    Gumbel: lambda p, q: (
        xp.log(q.scale)
        + (p.mean - q.loc) / q.scale
        + xp.exp(q.loc / q.scale) * _EXPONENTIALS[_family(p)](p, -1 / q.scale)
    ),
    Normal: lambda p, q: (
        xp.log(q.scale)
        + 0.5 * math.log(2 * math.pi)
        + (p.variance + xp.square(p.mean - q.loc)) / (2 * xp.square(q.scale))
    ),
    Pareto: lambda p, q: (q.alpha + 1) * _LOGS[_family(p)](p) - xp.log(q.alpha) - q.alpha * xp.log(q.scale),
    Uniform: lambda p, q: xp.log(q.high - q.low),
}
# Pairs of which p has values that q has not, whatever the parameters.
_LINE, _RAY, _UNIT = (Gumbel, Laplace, Normal), (Exponential, Gamma, Pareto), (Beta, ContinuousBernoulli)
_NEVER = {
    *((p, q) for p in _LINE for q in (*_RAY, *_UNIT, Uniform)),
    *((p, q) for p in _RAY for q in (*_UNIT, Uniform)),
    *((p, Pareto) for p in (*_UNIT, Exponential, Gamma)),
}


def _family(d: Any) -> type:
    return next(kind for kind in type(d).__mro__ if kind in _SUPPORTS)


def _infinite(p: Any, q: Any) -> Tensor:
    return xp.full(xp.broadcast_shapes(p.batch_shape, q.batch_shape), math.inf, dtype=p.mean.dtype)


def _by_moments(p: Any, q: Any) -> Tensor:
    (low, high), (from_, to) = _SUPPORTS[_family(p)](p), _SUPPORTS[_family(q)](q)
    held = xp.asarray(low >= from_) & xp.asarray(high <= to)
    return xp.where(held, _CROSS_ENTROPIES[_family(q)](p, q) - p.entropy(), math.inf)


for _p in _SUPPORTS:
    for _q, _needs in _NEEDS.items():
        if (_p, _q) in _NEVER:
            register_kl(_p, _q)(_infinite)
        elif all(_p in moments for moments in _needs):
            register_kl(_p, _q)(_by_moments)

for _q in (Bernoulli, Binomial):
    register_kl(Poisson, _q)(_infinite)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    away = p.loc - q.loc
    z = away / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * xp.exp(-0.5 * z * z) + away * xp.erf(z * math.sqrt(0.5))
    return distance / q.scale + xp.log(2 * q.scale) - p.entropy()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - special.xlogy(p.probs, q.rate) - p.entropy()
