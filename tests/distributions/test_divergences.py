"""Divergences of different families from each other, by their integrals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import hybridml as hm
from hybridml import distributions as D
from hybridml.distributions.divergence import _DIVERGENCES
from hybridml_compiler.errors import ArgumentError

# One of each family, and the interval that its probability is in.
MADE: dict[str, tuple[tuple[float, ...], float, float]] = {
    "Beta": ((2.5, 1.5), 0, 1),
    "Cauchy": ((0.3, 1.5), -math.inf, math.inf),
    "ContinuousBernoulli": ((0.3,), 0, 1),
    "Exponential": ((1.5,), 0, math.inf),
    "Gamma": ((2.5, 1.5), 0, math.inf),
    "Gumbel": ((0.3, 1.5), -30, 60),
    "HalfNormal": ((1.5,), 0, 30),
    "Laplace": ((0.3, 1.5), -60, 60),
    "LogNormal": ((0.3, 0.5), 0, math.inf),
    "Normal": ((0.4, 1.3), -20, 20),
    "Pareto": ((0.5, 5.0), 0.5, math.inf),
    "Uniform": ((0.1, 0.9), 0.1, 0.9),
}
OTHER = {
    "Cauchy": (1.0, 0.7),
    "Gumbel": (-0.5, 2.5),
    "HalfNormal": (0.7,),
    "LogNormal": (-0.2, 1.1),
    "Pareto": (0.4, 3.0),
}
OTHER |= {"ContinuousBernoulli": (0.8,)}
PAIRS = [
    (p.__name__, q.__name__) for p, q in _DIVERGENCES if p.__name__ in MADE and q.__name__ in MADE and p is not q
] + [(name, name) for name in OTHER]


def made(name: str, parameters: tuple[float, ...]) -> D.Distribution:
    p: D.Distribution = getattr(D, name)(*(hm.tensor(v, dtype="float64") for v in parameters))
    return p


def test_pairs_are_those_of_pytorch_and_more() -> None:
    assert len(PAIRS) >= 65 and ("Gamma", "Gumbel") in PAIRS and ("Uniform", "Beta") in PAIRS


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_divergences_are_integrals(pair: tuple[str, str]) -> None:
    first, second = pair
    parameters, low, high = MADE[first]
    p, q = made(first, parameters), made(second, OTHER[second] if first == second else MADE[second][0])
    _, from_, to = MADE[second]
    found = D.kl_divergence(p, q).item()
    if first == second:
        assert D.kl_divergence(p, p).item() == pytest.approx(0, abs=1e-12)
    elif low < (from_ if math.isfinite(from_) and from_ > -20 else -math.inf) or high > (to if to <= 1 else math.inf):
        assert found == math.inf
        return

    def integrand(x: float) -> float:
        at: Any = hm.tensor(x, dtype="float64")
        log_p = p.log_prob(at).item()
        return math.exp(log_p) * (log_p - q.log_prob(at).item()) if log_p > -700 else 0.0

    middle = 0.3 if low < 0.3 < high else (low + min(high, low + 1)) / 2
    expected = sum(integrate.quad(integrand, *ends, limit=100)[0] for ends in ((low, middle), (middle, high)))
    assert found == pytest.approx(expected, rel=1e-5)


def test_divergences_that_are_sums() -> None:
    k = hm.arange(0.0, 80.0, dtype="float64")
    for of, a, b in (
        (D.Geometric, 0.3, 0.6),
        (lambda p: D.Binomial(7, p), 0.3, 0.6),
        (lambda p: D.Poisson(p * 3) if p == 0.6 else D.Bernoulli(p), 0.3, 0.6),
    ):
        p, q = (of(hm.tensor(v, dtype="float64")) for v in (a, b))
        values = k[:8] if isinstance(p, D.Binomial) else k[:2] if isinstance(p, D.Bernoulli) else k
        log_p = p.log_prob(values)
        expected = (hm.exp(log_p) * (log_p - q.log_prob(values))).sum().item()
        assert D.kl_divergence(p, q).item() == pytest.approx(expected)
    assert D.kl_divergence(D.Poisson(1.0), D.Bernoulli(0.5)).item() == math.inf
    assert D.kl_divergence(D.Binomial(3, 0.5), D.Binomial(2, 0.5)).item() == math.inf
    hot = D.kl_divergence(D.OneHotCategorical([0.2, 0.8]), D.OneHotCategorical([0.5, 0.5])).item()
    assert hot == D.kl_divergence(D.Categorical([0.2, 0.8]), D.Categorical([0.5, 0.5])).item()


def test_independent_ones_add_up() -> None:
    p, q = D.Normal(hm.zeros((2, 3)), 1.0), D.Normal(hm.ones((2, 3)), 2.0)
    both = D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1))
    np.testing.assert_allclose(both.numpy(), D.kl_divergence(p, q).sum(-1).numpy())
    with pytest.raises(ArgumentError, match="the same reinterpreted_batch_ndims"):
        D.kl_divergence(D.Independent(p, 1), D.Independent(q, 2))


def test_traced() -> None:
    def both(a: hm.Tensor) -> hm.Tensor:
        return D.kl_divergence(D.Gamma(a, 1.5), D.Normal(a, 2.0)) + D.kl_divergence(D.Beta(a, 1.5), D.Uniform(0.0, a))

    a = hm.tensor([1.5, 2.5], dtype="float64")
    np.testing.assert_allclose(hm.trace(both)(a).numpy(), both(a).numpy(), rtol=1e-12)
