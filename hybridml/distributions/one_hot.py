"""Categories as vectors with a single 1, and smooth relatives of them."""

from __future__ import annotations

import math
from typing import Any

from .. import arrays as xp
from .. import functional, random
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .discrete import OfCategories, given_odds
from .distribution import Distribution
from .transformed import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform


class OneHotCategorical(OfCategories):
    """Categorical distribution of vectors (..., k): 1 at the category, 0 elsewhere.

    `probs` (..., k), or `logits`, are those of `Categorical`; `batch_shape` is (...), `event_shape` (k,).

    >>> hm.distributions.OneHotCategorical([0.0, 1.0]).sample().tolist()
    [0.0, 1.0]
    """

    has_enumerate_support = True
    support = constraints.one_hot

    def _hot(self, places: Tensor) -> Tensor:
        return functional.one_hot(places, self.event_shape[0]).astype(self.probs.dtype)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return self._hot(self._categorical._draw(shape, generator))

    def log_prob(self, value: Any) -> Tensor:
        return self._categorical.log_prob(xp.argmax(xp.asarray(value), axis=-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._listed(xp.eye(self.event_shape[0], dtype=self.probs.dtype), expand)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._hot(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose samples have the gradient of the probabilities, which they stand for.

    Source: Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons".

    >>> probs = hm.tensor([0.5, 0.5], requires_grad=True)
    >>> hm.distributions.OneHotCategoricalStraightThrough(probs).rsample().requires_grad
    True
    """

    has_rsample = True

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return super()._draw(shape, generator).detach() + (self.probs - self.probs.detach())


class LogitRelaxedBernoulli(Distribution):
    """Distribution of the logits of `RelaxedBernoulli`.

    >>> hm.distributions.RelaxedBernoulli(0.5, 0.3).base_dist.sample((3,)).shape
    (3,)
    """

    has_rsample = True
    arg_constraints = constraints.by_name(
        temperature=constraints.positive, probs=constraints.unit_interval, logits=constraints.real
    )
    support = constraints.real

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        (self.probs, self.logits), (self.temperature,) = given_odds(self, probs, logits, temperature=temperature)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        eps = float(xp.finfo(self.probs.dtype).eps)
        share = xp.clip(self.probs, eps, 1 - eps)
        odds = xp.log(share) - xp.log1p(-share)
        noise = random.logistic(shape=shape, dtype=self.probs.dtype, generator=generator)
        return (noise + odds) / self.temperature

    def log_prob(self, value: Any) -> Tensor:
        away = self.logits - xp.asarray(value) * self.temperature
        return xp.log(self.temperature) + away - 2 * functional.softplus(away)


class RelaxedBernoulli(TransformedDistribution):
    """Smooth relative of `Bernoulli` over (0, 1), which nears it as `temperature` goes to 0.

    Parameters (`logits` for sigmoid(logits) instead of `probs`) are numbers or tensors that broadcast to
    `batch_shape`. Raises ArgumentError unless one of the two is given. Source: Maddison et al. 2017.

    >>> 0 < hm.distributions.RelaxedBernoulli(0.5, 0.3).sample().item() < 1
    True
    """

    base_dist: LogitRelaxedBernoulli
    arg_constraints = constraints.by_name(
        temperature=constraints.positive, probs=constraints.unit_interval, logits=constraints.real
    )
    support = constraints.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform())
        self.temperature, self.probs, self.logits = (
            self.base_dist.temperature, self.base_dist.probs, self.base_dist.logits,
        )  # fmt: skip


class ExpRelaxedCategorical(OfCategories):
    """Distribution of the logarithms of `RelaxedOneHotCategorical`.

    >>> hm.distributions.RelaxedOneHotCategorical(0.5, [0.3, 0.7]).base_dist.sample((3,)).shape
    (3, 2)
    """

    has_rsample = True
    arg_constraints = constraints.by_name(**OfCategories.arg_constraints, temperature=constraints.positive)
    support = constraints.real_vector

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        super().__init__(probs, logits)
        self._check("temperature", constraints.positive, temperature)
        given = xp.asarray(temperature, dtype=self.probs.dtype)
        self.temperature = xp.broadcast_to(given.reshape(()) if given.size == 1 else given, self.batch_shape)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        noise = random.gumbel(shape=(*shape, *self.event_shape), dtype=self.probs.dtype, generator=generator)
        return functional.log_softmax((self.logits + noise) / self.temperature[..., None], -1)

    def log_prob(self, value: Any) -> Tensor:
        k = self.event_shape[0]
        scores = functional.log_softmax(self.logits - xp.asarray(value) * self.temperature[..., None], -1)
        return scores.sum(axis=-1) + math.lgamma(k) + (k - 1) * xp.log(self.temperature)


class RelaxedOneHotCategorical(TransformedDistribution):
    """Smooth relative of `OneHotCategorical`, of shares (..., k), which nears it as `temperature` goes to 0.

    `temperature` is a number, or a tensor that broadcasts to `batch_shape`; `probs` (..., k), or `logits`, are those
    of `Categorical`. Source: Maddison et al. 2017, "The concrete distribution".

    >>> hm.distributions.RelaxedOneHotCategorical(0.5, [0.3, 0.7]).sample((3,)).shape
    (3, 2)
    """

    base_dist: ExpRelaxedCategorical
    arg_constraints = constraints.by_name(probs=constraints.simplex, logits=constraints.real_vector)
    support = constraints.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits), ExpTransform())
        self.temperature, self.probs, self.logits = (
            self.base_dist.temperature, self.base_dist.probs, self.base_dist.logits,
        )  # fmt: skip
