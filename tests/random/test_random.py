"""Distributions: their shapes against SciPy's, the same bits in every style, gradients, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import hybridml as hm
from hybridml import random
from hybridml.random.gammas import _slope
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, HybridmlError, ShapeError
from tests.support.by_operation import by_operation
from tests.support.examples import every

N = 4000
INF = math.inf

# Kolmogorov and Smirnov's test (with seeds that stay, so that a sound distribution does not fail by chance)
CONTINUOUS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "laplace": ("laplace", (1.0, 3.0), stats.laplace(1, 3)),
    "gumbel": ("gumbel", (1.0, 3.0), stats.gumbel_r(1, 3)),
    "logistic": ("logistic", (1.0, 3.0), stats.logistic(1, 3)),
    "cauchy": ("cauchy", (1.0, 3.0), stats.cauchy(1, 3)),
    "exponential": ("exponential", (3.0,), stats.expon(scale=3)),
    "rayleigh": ("rayleigh", (3.0,), stats.rayleigh(scale=3)),
    "weibull": ("weibull", (1.7, 3.0), stats.weibull_min(1.7, scale=3)),
    "pareto": ("pareto", (2.5,), stats.lomax(2.5)),
    "lognormal": ("lognormal", (0.5, 0.7), stats.lognorm(0.7, scale=math.exp(0.5))),
    "truncated middle": ("truncated_normal", (-1.0, 3.0, 1.0, 2.0), stats.truncnorm(-1, 1, 1, 2)),
    "truncated above": ("truncated_normal", (6.0, INF), stats.truncnorm(6, INF)),
    "truncated below": ("truncated_normal", (-30.0, -20.0), stats.truncnorm(-30, -20)),
    "gamma small": ("gamma", (0.05, 2.0), stats.gamma(0.05, scale=2)),
    "gamma 1": ("gamma", (1.0, 2.0), stats.gamma(1, scale=2)),
    "gamma large": ("gamma", (1e5,), stats.gamma(1e5)),
    "chi2": ("chi2", (3.0,), stats.chi2(3)),
    "student_t": ("student_t", (3.0, 1.0, 2.0), stats.t(3, 1, 2)),
    "beta at the ends": ("beta", (0.1, 0.3), stats.beta(0.1, 0.3)),
    "beta": ("beta", (20.0, 30.0), stats.beta(20, 30)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_distributed_as_they_should(name: str, dtype: str) -> None:
    method, parameters, expected = CONTINUOUS[name]
    draw: Callable[..., hm.Tensor] = getattr(random.Generator(3), method)
    x = draw(*parameters, shape=(N,), dtype=dtype)
    assert x.dtype.name == dtype and x.shape == (N,)
    assert stats.kstest(x.numpy(), expected.cdf).pvalue > 0.005


def test_uniform_and_normal() -> None:
    g = random.Generator(1)
    assert stats.kstest(g.uniform((N,), -1.0, 2.0).numpy(), stats.uniform(-1, 3).cdf).pvalue > 0.005
    assert stats.kstest(g.normal((N,), 1.0, 2.0).numpy(), stats.norm(1, 2).cdf).pvalue > 0.005
    shares = g.dirichlet([1.0, 2.0, 3.0], (N,))
    np.testing.assert_allclose(shares.sum(-1).numpy(), 1, rtol=1e-6)
    assert stats.kstest(shares[:, 1].numpy(), stats.beta(2, 4).cdf).pvalue > 0.005
    tiny = g.dirichlet(hm.full(3, 1e-4), (50,)).numpy()
    assert np.isfinite(tiny).all() and (tiny.max(-1) > 0.99).all()


def test_normal_vectors() -> None:
    cov = hm.tensor([[4.0, 1.2], [1.2, 1.0]])
    x = random.Generator(1).multivariate_normal(hm.tensor([1.0, -1.0]), cov, (N,))
    assert x.shape == (N, 2)
    np.testing.assert_allclose(np.cov(x.numpy().T), cov.numpy(), atol=0.2)
    np.testing.assert_allclose(x.numpy().mean(0), [1, -1], atol=0.1)
    factor = hm.linalg.cholesky(cov)
    same = random.Generator(1).multivariate_normal([1.0, -1.0], scale_tril=factor, shape=(N,))
    assert same.tolist() == x.tolist()
    traced = hm.trace(lambda c: random.Generator(1).multivariate_normal([1.0, -1.0], c, (N,)))(cov)
    np.testing.assert_allclose(traced.numpy(), x.numpy(), rtol=1e-5, atol=1e-5)
    slope = hm.grad(lambda c: (random.Generator(1).multivariate_normal([0.0, 0.0], c, (N,)) ** 2).mean(0).sum())(cov)
    np.testing.assert_allclose(slope.numpy(), np.eye(2), atol=0.1)


COUNTS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "poisson few": ("poisson", (3.0,), stats.poisson(3)),
    "poisson below the bound": ("poisson", (9.99,), stats.poisson(9.99)),
    "poisson at the bound": ("poisson", (10.0,), stats.poisson(10)),
    "poisson many": ("poisson", (1000.0,), stats.poisson(1000)),
    "binomial few": ("binomial", (10, 0.3), stats.binom(10, 0.3)),
    "binomial at the bound": ("binomial", (100, 0.1), stats.binom(100, 0.1)),
    "binomial often": ("binomial", (100, 0.99), stats.binom(100, 0.99)),
    "binomial many": ("binomial", (1000, 0.8), stats.binom(1000, 0.8)),
    "binomial rare": ("binomial", (10**6, 1e-6), stats.binom(10**6, 1e-6)),
    "geometric": ("geometric", (0.3,), stats.geom(0.3)),
    "randint": ("randint", (-3, 4), stats.randint(-3, 4)),
    "integers": ("integers", (9,), stats.randint(0, 9)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_distributed_as_they_should(name: str) -> None:
    method, parameters, distribution = COUNTS[name]
    draw: Callable[..., hm.Tensor] = getattr(random.Generator(2), method)
    x = draw(*parameters, shape=(N,))
    assert x.dtype.name == "int64"
    check(x.numpy(), distribution.pmf)


def check(x: np.ndarray, pmf: Callable[[np.ndarray], np.ndarray]) -> None:
    """The chi-squared test, over the values that are expected at least 8 times and the rest."""
    values = np.arange(x.min(), x.max() + 1)
    expected = pmf(values) * x.size
    common = expected >= 8
    observed = np.bincount(x - x.min())[common]
    rest = x.size - expected[common].sum()
    if rest > 1:
        observed, expected = np.append(observed, x.size - observed.sum()), np.append(expected[common], rest)
    else:
        expected = expected[common]
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 0.005


def test_counts_at_their_ends() -> None:
    g = random.Generator(0)
    assert not g.poisson(0.0, (9,)).any()
    assert g.binomial(hm.tensor([5, 5, 0]), hm.tensor([0.0, 1.0, 0.5])).tolist() == [0, 5, 0]
    assert g.geometric(1.0, (5,)).tolist() == [1] * 5
    assert g.poisson(3.0, (2,), dtype="float32").dtype.name == "float32"
    assert g.binomial(hm.tensor([-1, 3]), hm.tensor([0.5, 1.5])).tolist() == [-1, -1]
    assert g.poisson(hm.tensor([math.nan, -1.0])).tolist() == [-1, -1]
    assert np.isnan(g.gamma(hm.tensor([-1.0, math.nan])).numpy()).all()
    assert g.truncated_normal(hm.tensor([50.0, -60.0]), hm.tensor([60.0, -50.0])).tolist() == [50, -50]


PROBABILITIES = [0.1, 0.2, 0.0, 0.7]


def test_categories() -> None:
    g, p = random.Generator(5), hm.tensor(PROBABILITIES)
    pmf = np.array(PROBABILITIES).__getitem__
    check(g.categorical(hm.log(p), (N,)).numpy(), pmf)
    check(g.multinomial(p * 3, N, True).numpy(), pmf)
    check(g.choice(4, (N,), p=p).numpy(), pmf)
    check(g.bernoulli(hm.full((N,), 0.3), dtype="int64").numpy(), np.array([0.7, 0.3]).__getitem__)
    pairs = g.multinomial(hm.broadcast_to(p, (N, 4)), 2)
    assert pairs.shape == (N, 2) and not bool((pairs[:, 0] == pairs[:, 1]).any())
    check(pairs[:, 0].numpy(), pmf)
    second = [sum(PROBABILITIES[j] * p / (1 - PROBABILITIES[j]) for j in range(4) if j != k)
              for k, p in enumerate(PROBABILITIES)]  # fmt: skip
    check(pairs[:, 1].numpy(), np.array(second).__getitem__)
    assert sorted(g.multinomial(p, 4).tolist()) == [0, 1, 2, 3]
    assert g.categorical(hm.tensor([[0.0, 9.0], [-INF, 0.0], [-INF, -INF]]), (5, 2), axis=0).shape == (5, 2)


def test_orders() -> None:
    g = random.Generator(5)
    x = hm.arange(12).reshape((3, 4))
    assert sorted(g.permutation(7).tolist()) == list(range(7)) == sorted(g.randperm(7).tolist())
    columns = g.shuffle(x, axis=1)
    assert sorted(columns.T.tolist()) == sorted(x.T.tolist()) and x.tolist() == hm.arange(12).reshape((3, 4)).tolist()
    assert sorted(g.permutation(x).tolist()) == x.tolist()
    assert g.choice(x, (2, 5), axis=1).shape == (3, 2, 5)
    assert g.choice(1, (3,)).tolist() == [0, 0, 0] and g.choice(x[:1], (1,), False).tolist() == x[:1].tolist()
    assert sorted(g.choice(x, (3,), False).tolist()) == x.tolist()
    first = [g.permutation(4)[0].item() for _ in range(400)]
    check(np.array(first), lambda k: np.full(k.shape, 0.25))


def test_integers_of_any_range() -> None:
    g = random.Generator(1)
    x = g.randint(-(2**62), 2**62 - 12345, (N,)).numpy()
    assert stats.kstest(x.astype("f8"), stats.uniform(-(2.0**62), 2.0**63).cdf).pvalue > 0.005
    assert set(g.integers(0, 3, (100,), endpoint=True, dtype="uint8").tolist()) == {0, 1, 2, 3}
    tops = hm.tensor([1, 5, 1000, 2**32])
    many = g.randint(hm.tensor(-3), tops, (N, 4)).numpy()
    assert (many.min(0) == [-3, -3, *many.min(0)[2:]]).all() and (many < tops.numpy()).all()
    check(many[:, 1], lambda k: np.full(k.shape, 1 / 8))
    assert g.randint(3, (5,)).shape == (5,) and g.integers([1, 2], [1, 9], endpoint=True).tolist()[0] == 1
    # a range that keeps half of the words: what Lemire's scaling alone favours would be seen
    check(g.randint(0, 3 * 2**30, (N,)).numpy() // 2**28, lambda k: np.full(k.shape, 1 / 12))


A, B, P = hm.tensor([[0.05], [0.5], [3.0], [50.0]]), hm.tensor([0.2, 0.7, 2.0]), hm.tensor([0.1, 0.5, 0.9])
DRAWS: dict[str, Callable[[random.Generator], hm.Tensor]] = {
    "uniform": lambda g: g.uniform(low=A, high=B),
    "normal": lambda g: g.normal(None, A, B),
    "standard_normal": lambda g: g.standard_normal((3, 3), dtype="float16"),
    "truncated_normal": lambda g: g.truncated_normal(A, A + B, shape=(5, 4, 3)),
    "lognormal": lambda g: g.lognormal(A * 0.1, B),
    "exponential": lambda g: g.exponential(A, (4, 7)),
    "laplace": lambda g: g.laplace(A, B),
    "gumbel": lambda g: g.gumbel(A, B),
    "logistic": lambda g: g.logistic(A, B),
    "cauchy": lambda g: g.cauchy(A, B),
    "rayleigh": lambda g: g.rayleigh(A),
    "weibull": lambda g: g.weibull(A, B),
    "pareto": lambda g: g.pareto(A + 1),
    "gamma": lambda g: g.gamma(A, B, (50, 4, 3)),
    "gamma in float64": lambda g: g.gamma(A, B, (50, 4, 3), dtype="float64"),
    "gamma in bfloat16": lambda g: g.gamma(2.0, 1.0, (50,), dtype="bfloat16"),
    "beta": lambda g: g.beta(A, B, (50, 4, 3)),
    "dirichlet": lambda g: g.dirichlet(A[:, 0], (50,)),
    "chi2": lambda g: g.chi2(A, (4, 9)),
    "student_t": lambda g: g.student_t(A + 1, B),
    "poisson": lambda g: g.poisson(A * B * 3, (50, 4, 3)),
    "binomial": lambda g: g.binomial(hm.tensor([[0], [3], [40], [1000]]), P, (50, 4, 3)),
    "geometric": lambda g: g.geometric(P, (50, 3)),
    "bernoulli": lambda g: g.bernoulli(P, (50, 3)),
    "randint": lambda g: g.randint(5, 13, (100,)),
    "randint of tensors": lambda g: g.randint(hm.tensor([-5, 3, 100]), hm.tensor([[13], [2**32]])),
    "randint of two words": lambda g: g.randint(-(2**61), 2**62 + 13, (100,)),
    "categorical": lambda g: g.categorical(A * 0.01, (50, 1), axis=0),
    "multinomial": lambda g: g.multinomial(A[:, 0], 40, True),
    "multinomial in order": lambda g: g.multinomial(A.reshape((1, 4)), 4),
    "permutation": lambda g: g.permutation(50),
    "shuffle": lambda g: g.shuffle(A),
    "choice": lambda g: g.choice(A, (2, 3)),
    "choice of some": lambda g: g.choice(4, (3,), False, [0.1, 0.2, 0.3, 0.4]),
}


@pytest.mark.parametrize("name", every(2, DRAWS))
def test_traced_bits_are_the_eager_ones(name: str) -> None:
    draw = DRAWS[name]
    ours, theirs = random.Generator(7), random.Generator(7)
    eager = [draw(ours), draw(ours)]
    traced = hm.trace(lambda: draw(theirs))
    for x, y in zip(eager, [traced(), traced()], strict=True):
        assert x.dtype is y.dtype and x.shape == y.shape and x.numpy().tobytes() == y.numpy().tobytes()
        assert bool(hm.isfinite(x.astype("float64")).all())
    assert ours.state.tolist() == theirs.state.tolist()
    assert eager[0].numpy().tobytes() != eager[1].numpy().tobytes()


LARGE: dict[str, tuple[Any, ...]] = {
    "gamma": (0.7,),
    "poisson": (20.0,),
    "binomial": (100, 0.3),
    "truncated_normal": (),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_draws_have_the_bits_of_small_ones_on_any_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[bytes, list[int]]:
        g = random.Generator(4)
        x = getattr(g, name)(*LARGE[name], shape=(40000,))
        return x.numpy().tobytes(), g.state.tolist()

    threads = hm.get_num_threads()
    try:
        hm.set_num_threads(1)
        one = run()
        hm.set_num_threads(2)
        assert run() == one
    finally:
        hm.set_num_threads(threads)
    assert by_operation(run) == one


def test_draws_in_a_traced_loop() -> None:
    def walk(g: random.Generator) -> hm.Tensor:
        last, _ = hm.scan(lambda c, _: (c + g.gamma(2.0) - g.poisson(2.0), None), hm.tensor(0.0), length=5)
        return last

    ours, theirs = random.Generator(2), random.Generator(2)
    assert walk(ours).item() == hm.trace(lambda: walk(theirs))().item()
    assert ours.state.tolist() == theirs.state.tolist()


REPARAMETERISED: dict[str, Callable[[random.Generator, hm.Tensor], hm.Tensor]] = {
    "uniform": lambda g, p: g.uniform(low=-p, high=p * p),
    "normal": lambda g, p: g.normal(None, p, p),
    "truncated_normal": lambda g, p: g.truncated_normal(-p, p + 1, p, p),
    "lognormal": lambda g, p: g.lognormal(p, p),
    "exponential": lambda g, p: g.exponential(p),
    "gumbel": lambda g, p: g.gumbel(p, p),
    "weibull": lambda g, p: g.weibull(p, p),
    "gamma's scale": lambda g, p: g.gamma(2.0, p),
}


@pytest.mark.parametrize("name", REPARAMETERISED)
def test_gradients_go_through(name: str) -> None:
    p, v, h = hm.tensor([0.8, 2.5], dtype="float64"), hm.tensor([1.0, 0.3], dtype="float64"), 1e-5

    def total(p: hm.Tensor) -> hm.Tensor:
        return REPARAMETERISED[name](random.Generator(4), p).sum()

    expected = (total(p + v * h) - total(p - v * h)).item() / (2 * h)
    assert (hm.grad(total)(p) * v).sum().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("a", [0.05, 1.0, 30.0, 5000.0, 9999.0, 10001.0, 1e7])
def test_implicit_gradient_of_gamma(a: float) -> None:
    shares, h = np.array([1e-4, 0.1, 0.7, 0.9999]), a * 1e-4
    x = special.gammaincinv(a, shares)
    one, two = (special.gammaincinv(a + k * h, shares) - special.gammaincinv(a - k * h, shares) for k in (1, 2))
    found = x * _slope(hm.full(4, a, dtype="float64"), hm.asarray(np.log(x))).numpy()
    np.testing.assert_allclose(found[x > 1e-300], ((8 * one - two) / (12 * h))[x > 1e-300], rtol=1e-6)


def test_gradients_of_what_gamma_makes() -> None:
    a = hm.tensor([0.5, 2.0, 7.0])
    mean = hm.grad(lambda a: random.Generator(0).gamma(a, 2.0, (3000, 3)).mean(0).sum())
    np.testing.assert_allclose(mean(a).numpy(), 2.0, rtol=0.15)  # the mean is 2 a
    np.testing.assert_allclose(hm.trace(mean)(a).numpy(), mean(a).numpy(), rtol=1e-5)
    share = hm.grad(lambda a: random.Generator(0).dirichlet(a, (3000,))[:, 0].mean())
    np.testing.assert_allclose(share(hm.tensor([1.0, 2.0, 3.0])).numpy(), [5 / 36, -1 / 36, -1 / 36], rtol=0.15)
    with pytest.raises(GradientError, match="has no gradient"):
        hm.grad(lambda a: hm.grad(lambda b: random.gamma(b).sum())(a).sum())(a)


def test_shapes_and_dtypes() -> None:
    g = random.Generator(0)
    assert g.normal((2, 3)).dtype.name == "float32" and g.normal().shape == ()
    assert g.gamma(hm.ones((4, 1)), hm.ones(3, dtype="float64")).shape == (4, 3)
    assert g.gamma(hm.ones(2, dtype="float64")).dtype.name == "float64"
    assert g.gamma(np.ones(2)).dtype.name == "float64" and g.gamma([1, 2]).dtype.name == "float32"
    assert g.exponential(2.0, size=(2, 2)).shape == (2, 2) and g.randint(3, size=5).shape == (5,)
    assert g.normal((0, 3)).shape == (0, 3) and g.gamma(2.0, shape=(0,)).shape == (0,)
    assert g.randn_like(hm.zeros((2, 3), dtype="float64")).dtype is hm.float64 and g.rand_like(hm.zeros(2)).shape == (
        2,
    )
    assert g.randn(2, 3).shape == g.rand(2, 3).shape == (2, 3)


def test_generators_of_a_generator() -> None:
    first, second = random.Generator(3).spawn(2)
    again = random.Generator(3)
    assert [g.state.tolist() for g in again.spawn(2)] == [first.state.tolist(), second.state.tolist()]
    assert first.state.tolist() != second.state.tolist() and again.state.tolist() != [3, 0]
    numbers = np.concatenate([first.uniform((N,)).numpy(), second.uniform((N,)).numpy()])
    assert len(set(numbers.tolist())) > 2 * N - 10


ERRORS: dict[str, tuple[type[HybridmlError], str, Callable[[], Any]]] = {
    "scale": (ArgumentError, "exponential: scale must be 0 or more, got -1", lambda: random.exponential(-1)),
    "std": (ArgumentError, "normal: std must be 0 or more", lambda: random.normal((3,), 0.0, -2.0)),
    "nan": (ArgumentError, "gamma: concentration must be above 0, got nan", lambda: random.gamma(math.nan)),
    "p": (ArgumentError, "bernoulli: p must be a probability from 0 to 1, got 1.5", lambda: random.bernoulli(1.5)),
    "0": (ArgumentError, "geometric: p must be a probability above 0", lambda: random.geometric(0.0)),
    "order": (DTypeError, "mean must be a number or a tensor.*sizes go to", lambda: random.normal((3,), (0, 1))),
    "first": (
        ArgumentError,
        r"or a tuple of them, got 0.5; it comes first, mean and std",
        lambda: random.normal(shape=0.5),
    ),
    "shape": (ShapeError, "do not broadcast to shape", lambda: random.normal((3,), hm.zeros((2, 3)))),
    "parameters": (ShapeError, "gamma: shapes", lambda: random.gamma(hm.ones(2), hm.ones(3))),
    "spawn": (ArgumentError, "spawn: n is a number of generators, got -1", lambda: random.Generator(0).spawn(-1)),
    "negative": (ShapeError, "a size cannot be negative", lambda: random.normal((-1,))),
    "dtype": (DTypeError, "gamma: draws floats, got dtype int64", lambda: random.gamma(1.0, dtype="int64")),
    "range": (ArgumentError, "needs low < high", lambda: random.randint(3, 3)),
    "bounds": (DTypeError, "bounds must be integers, got low=0, high=1.5", lambda: random.randint(1.5)),
    "kinds": (DTypeError, "bounds must be integers, got float32", lambda: random.randint(hm.ones(3))),
    "narrow": (ArgumentError, "uint8 does not hold", lambda: random.randint(0, 300, dtype="uint8")),
    "rows": (ShapeError, "probs must be a vector or a matrix", lambda: random.multinomial(hm.ones((1, 1, 1)), 1)),
    "many": (ArgumentError, "5 samples of 3 categories", lambda: random.multinomial(hm.ones(3), 5)),
    "choice": (ArgumentError, "5 of 3 without replacement", lambda: random.choice(3, (5,), False)),
    "choice of none": (ArgumentError, "at least one element to draw, got 0", lambda: random.choice(0, (2,))),
    "weights": (ShapeError, "one probability for each of 3", lambda: random.choice(3, (5,), p=[0.5, 0.5])),
    "alpha": (ShapeError, "alpha needs an axis", lambda: random.dirichlet(2.0)),
    "factors": (ArgumentError, "takes the covariance, or", lambda: random.multivariate_normal(hm.ones(2))),
    "matrices": (ShapeError, "matrices of k by k", lambda: random.multivariate_normal(hm.ones(2), hm.ones((3, 2)))),
    "logits": (ShapeError, "logits need an axis", lambda: random.categorical(2.0)),
    "results": (ShapeError, "do not broadcast to results", lambda: random.categorical(hm.ones((2, 3)), (3,))),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_same_in_both_styles(name: str) -> None:
    kind, message, call = ERRORS[name]
    with pytest.raises(kind, match=message) as eager:
        call()
    with pytest.raises(kind, match=message) as traced:
        hm.trace(call)()
    assert str(eager.value).splitlines()[0] == str(traced.value).splitlines()[0]


def test_complex_numbers_are_drawn_in_the_shape_of_the_parameters() -> None:
    z = hm.random.uniform((4000,), -1.0, 3.0, dtype=hm.complex64).numpy()
    for part in (z.real, z.imag):
        assert part.min() >= -1 and part.max() < 3
        assert abs(part.mean() - 1) < 0.1
    assert abs(np.corrcoef(z.real, z.imag)[0, 1]) < 0.1
    assert hm.rand(2, 3, dtype=hm.complex128).dtype is hm.complex128
    for draw in (hm.random.uniform, hm.random.normal):
        found = draw(None, hm.zeros(3, dtype=hm.float64), 1.0, dtype=hm.complex64)
        assert found.dtype is hm.complex64 and len(set(found.tolist())) == 3  # and not one number for all
        with pytest.raises(hm.ShapeError, match="do not broadcast"):
            draw((2,), hm.zeros(3), 1.0, dtype=hm.complex64)
