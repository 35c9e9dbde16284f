"""Divergences of distributions of one family from each other, where moments give them not, or less exactly."""

from __future__ import annotations

import math

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from .. import special
from ..core.tensor import Tensor
from .continuous import Beta, Exponential, Gamma, Laplace, Normal, Uniform
from .counts import Binomial, Geometric
from .discrete import Bernoulli, Categorical, Poisson
from .distribution import sum_rightmost
from .divergence import kl_divergence, register_kl
from .heavy_tails import EULER, Cauchy, Gumbel, Pareto
from .one_hot import OneHotCategorical
from .positive import HalfNormal
from .transformed import Independent, TransformedDistribution
from .vectors import Dirichlet, MultivariateNormal


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


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    each = _bernoulli(Bernoulli(logits=p.logits), Bernoulli(logits=q.logits))
    more = xp.where(p.total_count > q.total_count, math.inf, math.nan)  # fewer: a sum without a closed form
    return xp.where(p.total_count == q.total_count, p.total_count * each, more)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return _bernoulli(Bernoulli(logits=p.logits), Bernoulli(logits=q.logits)) / p.probs


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    both = xp.square(p.scale + q.scale) + xp.square(p.loc - q.loc)
    return xp.log(both / (4 * p.scale * q.scale))


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -xp.log(ratio) + away + ratio * EULER + xp.exp(xp.lgamma(1 + ratio) - away) - (1 + EULER)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    inside = q.alpha * xp.log(p.scale / q.scale) - xp.log(ratio) + ratio - 1
    return xp.where(p.scale >= q.scale, inside, math.inf)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.event_shape != q.event_shape or p.transforms != q.transforms or not all(t.bijective for t in p.transforms):
        raise ArgumentError(
            f"kl_divergence: of {type(p).__name__} from {type(q).__name__} something is known only for the same "
            "bijections; average p.log_prob(x) - q.log_prob(x) over samples of p"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError("kl_divergence: two Independent distributions need the same reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
