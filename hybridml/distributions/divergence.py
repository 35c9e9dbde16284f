"""The divergence of Kullback and Leibler: the registry of its formulas, one function per pair of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hybridml_compiler.errors import ArgumentError, DTypeError

from ..core.tensor import Tensor
from .distribution import Distribution

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
