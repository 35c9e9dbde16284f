"""Distributions against SciPy's: densities, moments, entropies; divergences by their integrals; both styles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import hybridml as hm
from hybridml import distributions as D
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, HybridmlError, ShapeError

REAL: dict[str, tuple[Callable[..., D.Distribution], Callable[..., Any], list[tuple[float, ...]]]] = {
    "Normal": (D.Normal, lambda m, s: stats.norm(m, s), [(0.3, 1.5), (-0.5, 0.7)]),
    "Uniform": (D.Uniform, lambda a, b: stats.uniform(a, b - a), [(-1.0, 2.0), (-1.5, 2.5)]),
    "Exponential": (D.Exponential, lambda r: stats.expon(scale=1 / r), [(1.5,), (0.7,)]),
    "Laplace": (D.Laplace, lambda m, s: stats.laplace(m, s), [(0.3, 1.5), (-0.5, 0.7)]),
    "Gamma": (D.Gamma, lambda a, r: stats.gamma(a, scale=1 / r), [(2.5, 1.5), (1.4, 0.7)]),
    "Beta": (D.Beta, lambda a, b: stats.beta(a, b), [(2.5, 1.5), (1.4, 3.0)]),
}
WHOLE: dict[str, tuple[Callable[..., D.Distribution], Callable[..., Any], list[tuple[float, ...]]]] = {
    "Bernoulli": (D.Bernoulli, lambda p: stats.bernoulli(p), [(0.3,), (0.8,)]),
    "Poisson": (D.Poisson, lambda r: stats.poisson(r), [(2.5,), (4.0,)]),
}
F8 = {"dtype": "float64"}


def made(of: Callable[..., D.Distribution], parameters: tuple[float, ...]) -> D.Distribution:
    return of(*(hm.tensor(p, **F8) for p in parameters))


@pytest.mark.parametrize("name", [*REAL, *WHOLE])
def test_densities_and_moments(name: str) -> None:
    of, scipy, parameters = (REAL | WHOLE)[name]
    p, q = made(of, parameters[0]), scipy(*parameters[0])
    x = np.arange(-1.0, 6) if name in WHOLE else np.linspace(-2, 3, 21) + 1e-3
    x = np.array([0.0, 1.0]) if name == "Bernoulli" else x
    expected = q.logpmf(x) if name in WHOLE else q.logpdf(x)
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).numpy(), expected, rtol=1e-12, atol=1e-13)
    assert p.mean.item() == pytest.approx(q.mean()) and p.variance.item() == pytest.approx(q.var())
    assert p.stddev.item() == pytest.approx(q.std())
    if name != "Poisson":
        assert p.entropy().item() == pytest.approx(q.entropy())
    samples = p.sample((4000,), generator=hm.random.Generator(1))
    assert samples.shape == (4000,) and samples.mean().item() == pytest.approx(q.mean(), abs=5 * q.std() / 60)
    traced = hm.trace(lambda x: made(of, parameters[0]).log_prob(x))(hm.asarray(x))
    np.testing.assert_allclose(traced.numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", REAL)
def test_divergences_are_integrals(name: str) -> None:
    of, scipy, (one, other) = REAL[name]
    p, q = scipy(*one), scipy(*other)
    low, high = p.ppf(1e-13), p.ppf(1 - 1e-13)
    expected, _ = integrate.quad(
        lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), low, high, points=[other[0]] if name == "Laplace" else None
    )
    assert D.kl_divergence(made(of, one), made(of, other)).item() == pytest.approx(expected, rel=1e-5)
    assert D.kl_divergence(made(of, one), made(of, one)).item() == pytest.approx(0, abs=1e-12)


def test_divergences_that_are_sums() -> None:
    for of, a, b in ((D.Bernoulli, 0.3, 0.8), (D.Poisson, 2.5, 4.0)):
        p, q, x = of(hm.tensor(a, **F8)), of(hm.tensor(b, **F8)), hm.arange(2 if of is D.Bernoulli else 60)
        expected = (hm.exp(p.log_prob(x)) * (p.log_prob(x) - q.log_prob(x))).sum().item()
        assert D.kl_divergence(p, q).item() == pytest.approx(expected)
    p, q = D.Categorical([0.2, 0.0, 0.8]), D.Categorical([0.5, 0.25, 0.25])
    assert D.kl_divergence(p, q).item() == pytest.approx(0.2 * math.log(0.4) + 0.8 * math.log(3.2))
    assert D.kl_divergence(q, p).item() == math.inf
    assert D.kl_divergence(D.Bernoulli(1.0), D.Bernoulli(1.0)).item() == 0
    assert D.kl_divergence(D.Uniform(0.0, 2.0), D.Uniform(0.0, 1.0)).item() == math.inf
    e = D.Exponential(1.5), D.Exponential(0.7)
    same = D.kl_divergence(e[0], D.Gamma(1.0, 0.7)).item()
    assert D.kl_divergence(*e).item() == pytest.approx(same, rel=1e-5)


def test_categories() -> None:
    p = D.Categorical(hm.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 1.0]], **F8))
    assert p.batch_shape == (2,) and p.sample((5,)).shape == (5, 2) and p.sample().dtype is hm.int64
    np.testing.assert_allclose(p.log_prob([0, 2]).exp().numpy(), [0.25, 0.25])
    np.testing.assert_allclose(p.log_prob([[0], [1], [2]]).exp().numpy(), [[0.25, 0.5], [0.75, 0.25], [0, 0.25]])
    np.testing.assert_allclose(p.entropy().numpy(), stats.entropy(p.probs.numpy(), axis=-1))
    q = D.Categorical(logits=hm.log(p.probs) + 3)
    np.testing.assert_allclose(q.probs.numpy(), p.probs.numpy())
    b = D.Bernoulli(logits=hm.tensor([0.0, 2.0]))
    np.testing.assert_allclose(b.probs.numpy(), [0.5, 1 / (1 + math.exp(-2))], rtol=1e-6)
    assert D.Bernoulli(1.0).log_prob([0.0, 1.0]).tolist() == [-math.inf, 0] and D.Bernoulli(1.0).entropy().item() == 0


def test_vectors() -> None:
    a, x = np.array([2.0, 3.0, 0.7]), np.array([0.2, 0.5, 0.3])
    p = D.Dirichlet(hm.asarray(a))
    assert p.log_prob(x).item() == pytest.approx(stats.dirichlet.logpdf(x, a))
    assert p.entropy().item() == pytest.approx(stats.dirichlet.entropy(a)) and p.event_shape == (3,)
    np.testing.assert_allclose(p.variance.numpy(), stats.dirichlet.var(a))
    assert D.Dirichlet(hm.ones((4, 3))).sample((2,)).shape == (2, 4, 3)
    pair, beta = D.Dirichlet([1.5, 2.5]), D.Beta(1.5, 2.5)
    other = D.kl_divergence(pair, D.Dirichlet([3.0, 0.5])).item()
    assert other == pytest.approx(D.kl_divergence(beta, D.Beta(3.0, 0.5)).item(), rel=1e-5)

    cov = np.array([[2.0, 0.6], [0.6, 1.0]])
    m = D.MultivariateNormal(hm.asarray(np.array([1.0, -1.0])), hm.asarray(cov))
    points = np.array([[0.0, 0.0], [1.0, 2.0]])
    expected = stats.multivariate_normal([1, -1], cov)
    np.testing.assert_allclose(m.log_prob(points).numpy(), expected.logpdf(points))
    assert m.entropy().item() == pytest.approx(expected.entropy())
    np.testing.assert_allclose(m.covariance_matrix.numpy(), cov)
    np.testing.assert_allclose(m.variance.numpy(), np.diag(cov))
    batch = D.MultivariateNormal(hm.zeros((5, 1, 2)), scale_tril=hm.eye(2) * hm.ones((3, 1, 1)))
    assert batch.batch_shape == (5, 3) and batch.sample((4,)).shape == (4, 5, 3, 2)
    assert batch.log_prob(hm.zeros(2)).shape == (5, 3)
    ones = D.Normal(hm.tensor([1.0, 0.0]), hm.tensor([2.0, 0.5])), D.Normal(hm.zeros(2), hm.tensor([1.0, 3.0]))
    diagonal = [D.MultivariateNormal(n.loc, hm.eye(2) * n.variance) for n in ones]
    assert D.kl_divergence(*diagonal).item() == pytest.approx(D.kl_divergence(*ones).sum().item(), rel=1e-6)


def test_gradients_of_samples() -> None:
    """Of the mean of a square, by the samples and by the moments."""
    for of, parameters in ((D.Normal, (0.5, 1.5)), (D.Gamma, (2.0, 1.5)), (D.Laplace, (0.5, 1.5))):
        at = hm.tensor(list(parameters), **F8)

        def squared(t: hm.Tensor, of: Any = of) -> hm.Tensor:
            return (of(t[0], t[1]).rsample((20000,), generator=hm.random.Generator(0)) ** 2).mean()

        def exact(t: hm.Tensor, of: Any = of) -> hm.Tensor:
            return hm.square(of(t[0], t[1]).mean) + of(t[0], t[1]).variance

        np.testing.assert_allclose(hm.grad(squared)(at).numpy(), hm.grad(exact)(at).numpy(), rtol=0.1, atol=0.05)
    t = hm.tensor(2.0, requires_grad=True)
    assert not D.Normal(t, 1.0).sample().requires_grad and D.Normal(t, 1.0).rsample().requires_grad


def test_normal_shares() -> None:
    p = D.Normal(hm.tensor(1.0, **F8), hm.tensor(2.0, **F8))
    assert p.cdf(2.0).item() == pytest.approx(stats.norm(1, 2).cdf(2.0))
    assert p.icdf(p.cdf(2.5)).item() == pytest.approx(2.5)
    assert repr(D.Normal(hm.zeros(3), 1.0)) == "Normal(batch_shape=(3,), event_shape=())"


ERRORS: dict[str, tuple[type[HybridmlError], str, Callable[[], Any]]] = {
    "scale": (ArgumentError, "Normal: scale must be above 0, got -1", lambda: D.Normal(0.0, -1.0)),
    "shapes": (ShapeError, "Gamma: shapes", lambda: D.Gamma(hm.ones(2), hm.ones(3))),
    "probs": (ArgumentError, "Bernoulli: takes probs or logits", lambda: D.Bernoulli()),
    "number": (ShapeError, "Categorical: needs an axis", lambda: D.Categorical(0.5)),
    "shares": (ShapeError, "Dirichlet: needs an axis", lambda: D.Dirichlet(0.5)),
    "matrix": (ArgumentError, "takes covariance_matrix or scale_tril", lambda: D.MultivariateNormal(hm.zeros(2))),
    "square": (ShapeError, "matrices of k by k", lambda: D.MultivariateNormal(hm.zeros(2), hm.eye(3))),
    "rsample": (GradientError, "Poisson.rsample: its samples", lambda: D.Poisson(2.0).rsample()),
    "mean": (ArgumentError, "Categorical has no mean", lambda: D.Categorical([0.5, 0.5]).mean),
    "entropy": (ArgumentError, "Poisson has no entropy", lambda: D.Poisson(2.0).entropy()),
    "pair": (ArgumentError, "of Normal from Poisson nothing", lambda: D.kl_divergence(D.Normal(0, 1), D.Poisson(1))),
    "types": (DTypeError, "takes two distributions", lambda: D.kl_divergence(D.Normal(0, 1), 3)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    kind, message, call = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()
    with pytest.raises(kind, match=message):
        hm.trace(call)()
