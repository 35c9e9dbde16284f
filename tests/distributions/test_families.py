"""Families of distributions against SciPy's: densities, shares, moments, entropies, samples and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import hybridml as hm
from hybridml import distributions as D
from hybridml_compiler.errors import ArgumentError, HybridmlError, ShapeError

F8 = {"dtype": "float64"}


def f8(*values: Any) -> Any:
    return tuple(hm.tensor(v, **F8) for v in values) if len(values) > 1 else hm.tensor(values[0], **F8)


class _Kumaraswamy(stats.rv_continuous):  # type: ignore[misc]
    def _pdf(self, x: Any, a: Any, b: Any) -> Any:
        return a * b * x ** (a - 1) * (1 - x**a) ** (b - 1)

    def _cdf(self, x: Any, a: Any, b: Any) -> Any:
        return 1 - (1 - x**a) ** b


class _ContinuousBernoulli(stats.rv_continuous):  # type: ignore[misc]
    def _pdf(self, x: Any, p: Any) -> Any:
        return p**x * (1 - p) ** (1 - x) * 2 * np.arctanh(1 - 2 * p) / (1 - 2 * p)


Of = Callable[..., Any]
REAL: dict[str, tuple[Of, Of, tuple[float, ...]]] = {
    "Beta": (D.Beta, stats.beta, (2.5, 1.5)),
    "Cauchy": (D.Cauchy, stats.cauchy, (0.3, 1.5)),
    "Chi2": (D.Chi2, stats.chi2, (3.5,)),
    "ContinuousBernoulli": (D.ContinuousBernoulli, _ContinuousBernoulli(a=0, b=1), (0.3,)),
    "Exponential": (D.Exponential, lambda r: stats.expon(scale=1 / r), (1.5,)),
    "FisherSnedecor": (D.FisherSnedecor, stats.f, (3.0, 9.0)),
    "Gamma": (D.Gamma, lambda a, r: stats.gamma(a, scale=1 / r), (2.5, 1.5)),
    "GeneralizedPareto": (D.GeneralizedPareto, lambda m, s, c: stats.genpareto(c, m, s), (0.3, 1.5, 0.2)),
    "GeneralizedPareto0": (D.GeneralizedPareto, lambda m, s, c: stats.genpareto(c, m, s), (0.3, 1.5, 0.0)),
    "GeneralizedParetoEnds": (D.GeneralizedPareto, lambda m, s, c: stats.genpareto(c, m, s), (0.3, 1.5, -0.7)),
    "Gumbel": (D.Gumbel, stats.gumbel_r, (0.3, 1.5)),
    "HalfCauchy": (D.HalfCauchy, lambda s: stats.halfcauchy(0, s), (1.5,)),
    "HalfNormal": (D.HalfNormal, lambda s: stats.halfnorm(0, s), (1.5,)),
    "InverseGamma": (D.InverseGamma, lambda a, r: stats.invgamma(a, scale=r), (5.5, 3.0)),
    "Kumaraswamy": (D.Kumaraswamy, _Kumaraswamy(a=0, b=1), (2.5, 1.5)),
    "Laplace": (D.Laplace, stats.laplace, (0.3, 1.5)),
    "LogNormal": (D.LogNormal, lambda m, s: stats.lognorm(s, scale=math.exp(m)), (0.3, 0.5)),
    "Pareto": (D.Pareto, lambda s, a: stats.pareto(a, scale=s), (0.5, 5.0)),
    "StudentT": (D.StudentT, stats.t, (5.0, 0.3, 1.5)),
    "Uniform": (D.Uniform, lambda a, b: stats.uniform(a, b - a), (-1.0, 2.0)),
    "VonMises": (D.VonMises, lambda m, k: stats.vonmises(k, m), (0.3, 1.5)),
    "Weibull": (D.Weibull, lambda s, k: stats.weibull_min(k, scale=s), (1.5, 2.5)),
}
WHOLE: dict[str, tuple[Of, Of, tuple[float, ...]]] = {
    "Binomial": (lambda n, p: D.Binomial(7, p), lambda n, p: stats.binom(7, p), (7.0, 0.3)),
    "Geometric": (D.Geometric, lambda p: stats.geom(p, loc=-1), (0.3,)),
    "NegativeBinomial": (D.NegativeBinomial, lambda n, p: stats.nbinom(n, 1 - p), (3.5, 0.4)),
}
NO_MOMENTS = ("Cauchy", "HalfCauchy")
NO_CDF = ("FisherSnedecor", "StudentT", "VonMises")
NO_ICDF = (*NO_CDF, "Beta", "Chi2", "Gamma", "InverseGamma")
NO_MODE = ("ContinuousBernoulli", "Uniform")


@pytest.mark.parametrize("name", [*REAL, *WHOLE])
def test_densities_and_moments(name: str) -> None:
    of, scipy, parameters = (REAL | WHOLE)[name]
    p, q = of(*map(f8, parameters)), scipy(*parameters)
    x = np.arange(-1.0, 9) if name in WHOLE else np.linspace(-2, 3, 21) + 1e-3
    expected = q.logpmf(x) if name in WHOLE else q.logpdf(x)
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).numpy(), expected, rtol=1e-11, atol=1e-12)
    traced = hm.trace(lambda x: of(*map(f8, parameters)).log_prob(x))(hm.asarray(x))
    np.testing.assert_allclose(traced.numpy(), expected, rtol=1e-11, atol=1e-12)
    if name == "VonMises":
        assert p.mean.item() == 0.3 and p.variance.item() == pytest.approx(1 - _length(q))
    elif name not in NO_MOMENTS:
        assert p.mean.item() == pytest.approx(q.mean()) and p.variance.item() == pytest.approx(q.var())
    if name not in ("NegativeBinomial", "FisherSnedecor", "VonMises"):
        assert p.entropy().item() == pytest.approx(float(q.entropy()), rel=1e-6)
        assert p.perplexity().item() == pytest.approx(math.exp(float(q.entropy())), rel=1e-5)
    if name not in NO_MODE:
        values = x if name in WHOLE else np.linspace(-2, 3, 5001) + 1e-9
        logs = p.log_prob(hm.asarray(values)).numpy()
        assert p.log_prob(p.mode).item() >= logs.max() - 1e-6


def _length(q: Any) -> float:
    """Length of the mean of the unit vectors of angles."""
    return abs(integrate.quad(lambda x: math.cos(x - 0.3) * q.pdf(x), -math.pi, math.pi)[0])


@pytest.mark.parametrize("name", [name for name in REAL if name not in NO_CDF])
def test_shares(name: str) -> None:
    of, scipy, parameters = REAL[name]
    p, q, x = of(*map(f8, parameters)), scipy(*parameters), np.linspace(-2, 3, 21) + 1e-3
    np.testing.assert_allclose(p.cdf(hm.asarray(x)).numpy(), q.cdf(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(hm.trace(p.cdf)(hm.asarray(x)).numpy(), q.cdf(x), rtol=1e-9, atol=1e-12)
    if name not in NO_ICDF:
        share = np.linspace(0.05, 0.95, 7)
        np.testing.assert_allclose(p.icdf(hm.asarray(share)).numpy(), q.ppf(share), rtol=1e-7)
        if "Cauchy" not in name:  # no float has an infinite tangent
            np.testing.assert_allclose(p.icdf(f8([0.0, 1.0])).numpy(), q.ppf([0.0, 1.0]), rtol=1e-7)


@pytest.mark.parametrize("name", REAL)
def test_samples_follow_the_distribution(name: str) -> None:
    of, scipy, parameters = REAL[name]
    p, q = of(*map(f8, parameters)), scipy(*parameters)
    drawn = p.sample((4000,), generator=hm.random.Generator(1)).numpy()
    assert drawn.shape == (4000,) and stats.kstest(drawn, q.cdf).pvalue > 1e-3
    traced = hm.trace(lambda: of(*map(f8, parameters)).sample((50,), generator=hm.random.Generator(1)))().numpy()
    again = p.sample((50,), generator=hm.random.Generator(1)).numpy()
    np.testing.assert_allclose(traced, again, rtol=1e-12)


@pytest.mark.parametrize("name", WHOLE)
def test_counts_follow_the_distribution(name: str) -> None:
    of, scipy, parameters = WHOLE[name]
    p, q = of(*map(f8, parameters)), scipy(*parameters)
    drawn = p.sample((4000,), generator=hm.random.Generator(1)).numpy()
    assert drawn.mean() == pytest.approx(q.mean(), abs=5 * q.std() / 60)
    assert (drawn == np.floor(drawn)).all() and drawn.min() == 0


@pytest.mark.parametrize("name", [name for name, (of, _, _) in REAL.items() if name not in ("VonMises", *NO_MOMENTS)])
def test_gradients_of_samples_are_those_of_the_mean(name: str) -> None:
    of, _, parameters = REAL[name]
    at = f8(list(parameters))

    def sampled(t: hm.Tensor) -> hm.Tensor:
        return of(*(t[k] for k in range(len(parameters)))).rsample((40000,), generator=hm.random.Generator(0)).mean()

    def exact(t: hm.Tensor) -> hm.Tensor:
        return of(*(t[k] for k in range(len(parameters)))).mean

    np.testing.assert_allclose(hm.grad(sampled)(at).numpy(), hm.grad(exact)(at).numpy(), rtol=0.1, atol=0.04)


@pytest.mark.parametrize("name", [*REAL, *WHOLE])
def test_expanded(name: str) -> None:
    of, _, parameters = (REAL | WHOLE)[name]
    p, x = of(*map(f8, parameters)), f8(0.7 if name in REAL else 2.0)
    wide = p.expand((3, 2))
    assert wide.batch_shape == (3, 2) and wide.sample((4,)).shape == (4, 3, 2) and type(wide) is type(p)
    np.testing.assert_array_equal(wide.log_prob(x).numpy(), np.full((3, 2), p.log_prob(x).item()))


def test_counts_of_categories() -> None:
    p = D.Multinomial(5, f8([0.2, 0.3, 0.5]))
    q = stats.multinomial(5, [0.2, 0.3, 0.5])
    x = np.array([[1.0, 1, 3], [0, 0, 5], [5, 0, 0]])
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).numpy(), q.logpmf(x))
    assert p.entropy().item() == pytest.approx(float(q.entropy()))
    assert p.log_prob(f8([1.0, 1.0, 1.0])).item() == -math.inf
    drawn = p.sample((3000,)).numpy()
    assert (drawn.sum(-1) == 5).all() and drawn.mean(0) == pytest.approx(p.mean.numpy(), abs=0.12)
    np.testing.assert_allclose(p.variance.numpy(), np.diag(q.cov()))
    assert D.Multinomial(0, [1.0, 3.0]).sample((2,)).tolist() == [[0, 0]] * 2
    rows = D.Multinomial(3000, f8([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])).sample((4,)).numpy()
    assert rows[:, 0] / 3000 == pytest.approx(np.tile([0.2, 0.3, 0.5], (4, 1)), abs=0.05)
    assert (rows[:, 1] == [3000, 0, 0]).all()
    assert D.Multinomial(2, [1.0, 0.0]).log_prob([2.0, 0.0]).item() == 0
    assert D.Binomial(3, 1.0).log_prob([3.0, 2.0]).tolist() == [0, -math.inf]
    np.testing.assert_array_equal(
        D.Binomial(2, hm.tensor([0.5, 0.1])).enumerate_support().numpy(), [[0, 0], [1, 1], [2, 2]]
    )
    assert D.NegativeBinomial(0.0, 0.5).log_prob([0.0]).item() == 0
    assert D.Binomial(hm.tensor([3.0, 5.0]), logits=0.0).mean.tolist() == [1.5, 2.5]


def test_one_hot() -> None:
    shares = f8([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])
    p, names = D.OneHotCategorical(shares), D.Categorical(shares)
    drawn = p.sample((2000,))
    assert drawn.shape == (2000, 2, 3) and drawn.mean(0).numpy() == pytest.approx(shares.numpy(), abs=0.05)
    np.testing.assert_allclose(p.log_prob(hm.eye(3)[:, None]).numpy(), names.log_prob(hm.arange(3)[:, None]).numpy())
    assert p.mode.tolist() == [[0, 0, 1], [1, 0, 0]] and names.mode.tolist() == [2, 0]
    assert p.enumerate_support().shape == (3, 2, 3) and p.enumerate_support(expand=False).shape == (3, 1, 3)
    assert names.enumerate_support().shape == (3, 2) and D.Bernoulli(0.3).enumerate_support().tolist() == [0, 1]
    weights = f8([1.0, 2.0, 3.0])

    def through(t: hm.Tensor) -> hm.Tensor:
        return (D.OneHotCategoricalStraightThrough(t).rsample() * weights).sum()

    share = f8([0.2, 0.3, 0.5])
    expected = hm.grad(lambda t: (t / t.sum() * weights).sum())(share)
    np.testing.assert_allclose(hm.grad(through)(share).numpy(), expected.numpy())


def test_series_near_one_half() -> None:
    p, q = D.ContinuousBernoulli(f8(0.4995)), _ContinuousBernoulli(a=0, b=1)(0.4995)
    x = np.linspace(0.1, 0.9, 5)
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).numpy(), q.logpdf(x), rtol=1e-11, atol=1e-13)
    assert p.mean.item() == pytest.approx(q.mean(), rel=1e-9) and p.variance.item() == pytest.approx(q.var(), rel=1e-9)


def test_relaxed_ones_are_distributions() -> None:
    p = D.RelaxedBernoulli(f8(0.7), f8(0.3))
    total = integrate.quad(lambda x: math.exp(p.log_prob(f8(x)).item()), 0, 1)[0]
    assert total == pytest.approx(1, abs=1e-6)
    assert (p.sample((4000,)).numpy() > 0.5).mean() == pytest.approx(0.3, abs=0.03)
    pair = D.RelaxedOneHotCategorical(f8(0.7), f8([0.3, 0.7]))
    total = integrate.quad(lambda x: math.exp(pair.log_prob(f8([x, 1 - x])).item()), 0, 1)[0]
    assert total == pytest.approx(1, abs=1e-6)
    t, shares, x = 0.7, np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.6, 0.3])
    terms = shares * x ** (-t)
    density = 2 * t**2 * (terms / x).prod() / terms.sum() ** 3  # Maddison et al. 2017, of three shares
    three = D.RelaxedOneHotCategorical(f8(t), hm.asarray(shares))
    assert three.log_prob(hm.asarray(x)).item() == pytest.approx(math.log(density))
    drawn = pair.rsample((4000,))
    np.testing.assert_allclose(drawn.sum(-1).numpy(), 1)
    assert (drawn[:, 0].numpy() > 0.5).mean() == pytest.approx(0.3, abs=0.03)
    grad = hm.grad(lambda t: D.RelaxedOneHotCategorical(t, f8([0.3, 0.7])).rsample((50,)).square().sum())(f8(0.7))
    assert grad.item() < 0  # colder is nearer to a corner
    assert D.RelaxedOneHotCategorical(hm.tensor([0.5]), hm.ones((4, 3))).sample((2,)).shape == (2, 4, 3)


def test_mixtures() -> None:
    shares, means, scales = np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 1.5])
    p = D.MixtureSameFamily(D.Categorical(hm.asarray(shares)), D.Normal(hm.asarray(means), hm.asarray(scales)))
    x = np.linspace(-3, 5, 9)
    expected = (shares * stats.norm(means, scales).pdf(x[:, None])).sum(-1)
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).exp().numpy(), expected)
    np.testing.assert_allclose(hm.trace(p.log_prob)(hm.asarray(x)).exp().numpy(), expected)
    drawn = p.sample((4000,), generator=hm.random.Generator(1))
    below = (shares * stats.norm(means, scales).cdf(x[:, None])).sum(-1)
    np.testing.assert_allclose(p.cdf(hm.asarray(x)).numpy(), below)
    assert (
        stats.kstest(drawn.numpy(), lambda x: (shares * stats.norm(means, scales).cdf(x[:, None])).sum(-1)).pvalue
        > 1e-3
    )
    assert drawn.mean().item() == pytest.approx(p.mean.item(), abs=0.15)
    assert drawn.var().item() == pytest.approx(p.variance.item(), rel=0.1)
    vectors = D.MixtureSameFamily(
        D.Categorical([1.0, 0.0]), D.Independent(D.Normal(hm.arange(8.0).reshape((2, 4)), 1e-3), 1)
    )
    assert vectors.event_shape == (4,) and vectors.expand((3,)).sample((5,)).shape == (5, 3, 4)
    np.testing.assert_allclose(vectors.sample().numpy(), [0, 1, 2, 3], atol=0.01)
    np.testing.assert_allclose(vectors.mean.numpy(), [0, 1, 2, 3])


def test_low_rank() -> None:
    loc, factor, own = f8([1.0, -1.0, 0.5]), f8([[1.0], [0.5], [-2.0]]), f8([0.5, 1.0, 2.0])
    p = D.LowRankMultivariateNormal(loc, factor, own)
    cov = factor.numpy() @ factor.numpy().T + np.diag(own.numpy())
    q, x = stats.multivariate_normal(loc.numpy(), cov), np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).numpy(), q.logpdf(x))
    np.testing.assert_allclose(hm.trace(p.log_prob)(hm.asarray(x)).numpy(), q.logpdf(x))
    np.testing.assert_allclose(p.precision_matrix.numpy(), np.linalg.inv(cov))
    assert p.entropy().item() == pytest.approx(q.entropy())
    np.testing.assert_allclose(np.cov(p.sample((20000,)).numpy().T), cov, atol=0.2)
    m = D.MultivariateNormal(loc, precision_matrix=hm.asarray(np.linalg.inv(cov)))
    np.testing.assert_allclose(m.covariance_matrix.numpy(), cov)
    np.testing.assert_allclose(m.scale_tril.numpy(), np.linalg.cholesky(cov), atol=1e-12)
    assert D.kl_divergence(p, m).item() == pytest.approx(0, abs=1e-12)
    assert p.expand((4,)).sample((2,)).shape == (2, 4, 3)


def test_matrices() -> None:
    scale = np.array([[2.0, 0.6], [0.6, 1.0]])
    p, q = D.Wishart(f8(4.5), hm.asarray(scale)), stats.wishart(4.5, scale)
    x = q.rvs(3, random_state=0)
    np.testing.assert_allclose(p.log_prob(hm.asarray(x)).numpy(), [q.logpdf(m) for m in x])
    assert p.entropy().item() == pytest.approx(q.entropy())
    np.testing.assert_allclose(p.mean.numpy(), q.mean())
    np.testing.assert_allclose(p.variance.numpy(), q.var())
    np.testing.assert_allclose(p.mode.numpy(), q.mode())
    drawn = p.sample((8000,), generator=hm.random.Generator(1)).numpy()
    np.testing.assert_allclose(drawn.mean(0), q.mean(), atol=5 * math.sqrt(q.var().max() / 8000))
    lkj = D.LKJCholesky(2, f8(1.5))
    # The correlation of two is 2 Beta(c, c) - 1.
    r, c = 0.3, stats.beta(1.5, 1.5, loc=-1, scale=2)
    factor = np.linalg.cholesky(np.array([[1.0, r], [r, 1.0]]))
    assert lkj.log_prob(hm.asarray(factor)).item() == pytest.approx(c.logpdf(r))
    assert stats.kstest(lkj.sample((3000,)).numpy()[:, 1, 0], c.cdf).pvalue > 1e-3
    # A correlation in a larger matrix is 2 Beta(b, b) - 1 with b = c + (dim - 2) / 2.
    many = D.LKJCholesky(4, f8([1.5, 3.0])).sample((3000,), generator=hm.random.Generator(2)).numpy()[:, 0]
    full = many @ many.swapaxes(-1, -2)
    np.testing.assert_allclose(np.diagonal(full, axis1=-2, axis2=-1), 1)
    for i, j in ((1, 0), (3, 1), (3, 2)):
        assert stats.kstest(full[:, i, j], stats.beta(2.5, 2.5, loc=-1, scale=2).cdf).pvalue > 1e-3


DRAWS: dict[str, Callable[[hm.Tensor], D.Distribution]] = {
    "expanded": lambda a: D.LogNormal(a[0], 1.0).expand((2, 3)),
    "lkj": lambda a: D.LKJCholesky(3, hm.exp(a)),
    "low rank": lambda a: D.LowRankMultivariateNormal(a, hm.ones((3, 1)), hm.ones(3)),
    "mixture": lambda a: D.MixtureSameFamily(D.Categorical(logits=a), D.Normal(a, 1.0)),
    "multinomial": lambda a: D.Multinomial(5, logits=a),
    "negative binomial": lambda a: D.NegativeBinomial(2.0, logits=a),
    "one hot": lambda a: D.OneHotCategoricalStraightThrough(logits=a),
    "relaxed": lambda a: D.RelaxedOneHotCategorical(0.5, logits=a),
    "wishart": lambda a: D.Wishart(4.0, hm.diag(hm.exp(a))),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_and_their_gradients_are_equal_in_both_styles(name: str) -> None:
    a, of = hm.tensor([0.1, -0.4, 0.7]), DRAWS[name]

    def drawn(a: hm.Tensor) -> hm.Tensor:
        p = of(a)
        return (p.rsample if p.has_rsample else p.sample)((4,), generator=hm.random.Generator(3))

    eager = drawn(a)
    assert eager.shape == (4, *of(a).batch_shape, *of(a).event_shape) and eager.dtype is hm.float32
    np.testing.assert_allclose(hm.trace(drawn)(a).numpy(), eager.numpy(), rtol=1e-5, atol=1e-6)
    if of(a).has_rsample:
        slope = hm.grad(lambda a: (drawn(a) ** 2).sum())
        assert (slope(a).numpy() != 0).any()
        np.testing.assert_allclose(hm.trace(slope)(a).numpy(), slope(a).numpy(), rtol=1e-4, atol=1e-5)


ERRORS: dict[str, tuple[type[HybridmlError], str, Callable[[], Any]]] = {
    "precision": (ArgumentError, "takes covariance_matrix or scale_tril", lambda: D.Wishart(3.0)),
    "df": (ArgumentError, "df must be above 1", lambda: D.Wishart(1.0, hm.eye(2))),
    "dim": (ArgumentError, "dim must be 2 or more", lambda: D.LKJCholesky(1)),
    "count": (ArgumentError, "total_count must be an int", lambda: D.Multinomial(2.5, [1.0])),  # type: ignore[arg-type]
    "never": (ArgumentError, "probs must be above 0, up to 1", lambda: D.Geometric(0.0)),
    "negative count": (ArgumentError, "int of 0 or more, got -1", lambda: D.Multinomial(-1, [1.0])),
    "list": (
        ArgumentError,
        "for a total_count that is an int",
        lambda: D.Binomial(hm.ones(2), 0.5).enumerate_support(),
    ),
    "factor": (
        ShapeError,
        "a factor of k by m",
        lambda: D.LowRankMultivariateNormal(hm.zeros(1), hm.eye(3), hm.ones(3)),
    ),
    "mean": (ShapeError, "a mean of k numbers", lambda: D.MultivariateNormal(0.0, hm.eye(1))),
    "mean of low rank": (
        ShapeError,
        "a factor of k by m",
        lambda: D.LowRankMultivariateNormal(0.0, hm.ones((3, 1)), hm.ones(3)),
    ),
    "mixture": (ArgumentError, "must be Categorical", lambda: D.MixtureSameFamily(D.Normal(0, 1), D.Normal(0, 1))),  # type: ignore[arg-type]
    "parts": (
        ShapeError,
        "2 components",
        lambda: D.MixtureSameFamily(D.Categorical([1.0, 1.0]), D.Normal(hm.zeros(3), 1)),
    ),
    "axes": (ShapeError, "2 axes of a batch", lambda: D.Independent(D.Normal(hm.zeros(3), 1), 2)),
    "values": (ArgumentError, "Poisson has no list of values", lambda: D.Poisson(1.0).enumerate_support()),
    "cdf": (ArgumentError, "StudentT has no cdf", lambda: D.StudentT(1.0).cdf(0.0)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    kind, message, call = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()
