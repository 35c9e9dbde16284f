"""The divergence of Kullback and Leibler, one function per pair of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from hybridml_compiler.errors import ArgumentError, DTypeError

from .. import arrays as xp
from .. import special
from ..core.tensor import Tensor
from .continuous import Beta, Exponential, Gamma, Laplace, Normal, Uniform
from .discrete import Bernoulli, Categorical, Poisson
from .distribution import Distribution
from .vectors import Dirichlet, MultivariateNormal

F = TypeVar("F", bound=Callable[..., Any])
_DIVERGENCES: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[F], F]:
    """Decorator of a function (p, q) that returns the divergence of distributions of these types and their subclasses.

    >>> class Unit(hm.distributions.Uniform):
    ...     pass
    >>> @register_kl(Unit, Unit)
    ... def same(p, q):
    ...     return hm.zeros(())
    >>> hm.distributions.kl_divergence(Unit(0.0, 1.0), Unit(0.0, 1.0)).item()
    0.0
    """

    def register(fn: F) -> F:
        _DIVERGENCES[type_p, type_q] = fn
        return fn

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Kullback-Leibler divergence: the expected log_prob of `p` less that of `q`, under `p`.

    The shape is what the two `batch_shape` broadcast to. Raises ArgumentError for a pair that has no closed form here
    (see `register_kl`), DTypeError for arguments that are no distributions.

    >>> D = hm.distributions
    >>> D.kl_divergence(D.Normal(1.0, 1.0), D.Normal(0.0, 1.0)).item()
    0.5
    """
    for d in (p, q):
        if not isinstance(d, Distribution):
            raise DTypeError(f"kl_divergence: takes two distributions, got {type(d).__name__}")
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _DIVERGENCES:
                return _DIVERGENCES[first, second](p, q)
    raise ArgumentError(
        f"kl_divergence: of {type(p).__name__} from {type(q).__name__} nothing is known; average p.log_prob(x) - "
        "q.log_prob(x) over samples of p, or register_kl a formula"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio, away = xp.square(p.scale / q.scale), xp.square((p.loc - q.loc) / q.scale)
    return (ratio + away - 1 - xp.log(ratio)) * 0.5


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return xp.where(inside, xp.log((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - xp.log(ratio)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    away = xp.abs(p.loc - q.loc)
    return xp.log(q.scale / p.scale) + (p.scale * xp.exp(-away / p.scale) + away) / q.scale - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = (a - b) * xp.digamma(a) - xp.lgamma(a) + xp.lgamma(b)
    return shapes + b * xp.log(p.rate / q.rate) + a * (q.rate / p.rate - 1)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return _gamma(Gamma(1.0, p.rate), q)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b = p.concentration1, p.concentration0
    more, less = a - q.concentration1, b - q.concentration0
    spread = more * xp.digamma(a) + less * xp.digamma(b) - (more + less) * xp.digamma(a + b)
    return special.betaln(q.concentration1, q.concentration0) - special.betaln(a, b) + spread


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    return _of_probabilities(p.probs, p.log_prob(1), q.log_prob(1)) + _of_probabilities(
        1 - p.probs, p.log_prob(0), q.log_prob(0)
    )


def _of_probabilities(p: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    """p (log_p - log_q), 0 for what is impossible."""
    return xp.where(p > 0, p * (xp.where(p > 0, log_p, 0.0) - log_q), 0.0)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return _of_probabilities(p.probs, p.logits, q.logits).sum(axis=-1)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return special.rel_entr(p.rate, q.rate) - (p.rate - q.rate)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    means = xp.digamma(a) - xp.digamma(a.sum(axis=-1, keepdims=True))  # of log(x)
    return q.log_normalizer() - p.log_normalizer() + ((a - b) * means).sum(axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    spread = xp.square(q._whitened(p.scale_tril)).sum(axis=(-2, -1))
    away = xp.square(q._whitened((p.loc - q.loc)[..., None])).sum(axis=(-2, -1))
    return q.half_log_det() - p.half_log_det() + (spread + away - p.event_shape[0]) * 0.5
