"""`hybridml.special`: values against SciPy on edges and random points, both styles, gradients, what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import scipy.special

import hybridml as hm
from hybridml import special

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e-30, 1e30, np.inf, -np.inf, np.nan, -2.5, 0.25, 0.75])
BOTH = tuple(a.ravel() for a in np.meshgrid(EDGES, EDGES))
# Where SciPy has another answer: nan for j0, j1, i0 and i1 at infinity, and -inf for gammaln(-inf), which is inf in C.
FINITE = np.concatenate([EDGES[np.isfinite(EDGES)], np.random.default_rng(0).uniform(-3, 3, 60)])
UNARY = {
    **{name: np.concatenate([EDGES, FINITE]) for name in (
        "entr", "logit", "log_expit", "expit", "psi", "gamma", "erf", "erfc", "erfcx", "erfinv", "erfcinv", "ndtri",
        "ndtr", "log_ndtr", "i0e", "i1e", "exp1", "expi", "zeta", "expm1", "log1p", "exp2", "cbrt")},
    **{name: FINITE for name in ("gammaln", "i0", "i1", "j0", "j1", "y0", "y1")},
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> object:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(got: hm.Tensor, want: object) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", UNARY)
def test_of_one_argument(name: str) -> None:
    x = UNARY[name]
    same(getattr(special, name)(hm.asarray(x)), getattr(scipy.special, name)(x))


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "rel_entr", "kl_div"])
def test_of_two_arguments(name: str) -> None:
    random = np.random.default_rng(1).uniform(0, 3, (2, 100))
    x, y = (np.concatenate([edges, more]) for edges, more in zip(BOTH, random, strict=True))
    if name == "kl_div":  # at infinity SciPy has inf - inf, here it is inf
        x = np.where(np.isinf(x), 2.0, x)
    same(getattr(special, name)(hm.asarray(x), hm.asarray(y)), getattr(scipy.special, name)(x, y))


def test_beta() -> None:
    a, b = np.random.default_rng(2).uniform(0.1, 30, (2, 200))
    same(special.betaln(hm.asarray(a), hm.asarray(b)), scipy.special.betaln(a, b))
    same(special.beta(hm.asarray(a), hm.asarray(b)), scipy.special.beta(a, b))
    assert special.betaln(hm.tensor(0.0), hm.tensor(2.0)).item() == np.inf
    # by mpmath; the difference of logarithms would have lost seven digits
    found = special.betaln(hm.tensor(88.75, dtype=hm.float64), 10914528.5).item()
    assert found == pytest.approx(-1130.204036490735, rel=1e-12)


def test_incomplete_functions() -> None:
    rng = np.random.default_rng(3)
    a, b, x = rng.uniform(0.01, 60, 300), rng.uniform(0.01, 60, 300), rng.uniform(0, 1, 300)
    for name in ("gammainc", "gammaincc"):
        want = getattr(scipy.special, name)(a, 60 * x)
        np.testing.assert_allclose(np.asarray(getattr(special, name)(hm.asarray(a), hm.asarray(60 * x))), want, 1e-11)
    found = special.betainc(hm.asarray(a), hm.asarray(b), hm.asarray(x))
    np.testing.assert_allclose(np.asarray(found), scipy.special.betainc(a, b, x), rtol=1e-11)
    assert hm.igamma(2.0, hm.tensor(1.0)).item() == special.gammainc(2.0, hm.tensor(1.0)).item()


def test_orders_and_dimensions() -> None:
    x = np.random.default_rng(4).uniform(0.5, 6, 20)
    for n in range(6):
        same(special.polygamma(n, hm.asarray(x)), scipy.special.polygamma(n, x))
    same(special.multigammaln(hm.asarray(x + 3), 4), [scipy.special.multigammaln(v, 4) for v in x + 3])
    for wrong in (-1, 1.5, True, 101):
        with pytest.raises(hm.ArgumentError, match="polygamma: the order n must be an integer from 0 to 100"):
            special.polygamma(wrong, hm.asarray(x))
    with pytest.raises(hm.ArgumentError, match="multigammaln: the dimension d must be a positive integer, got 0"):
        special.multigammaln(hm.asarray(x), 0)


def test_riemann_zeta() -> None:
    x = np.array([-20.5, -7.0, -2.0, -0.5, 0.0, 0.5, 1.0, 1.5, 30.0])
    same(special.zeta(hm.asarray(x)), scipy.special.zeta(x))
    same(special.zeta(hm.asarray(x[-2:]), hm.asarray(np.array([0.5, 7.0]))), scipy.special.zeta(x[-2:], [0.5, 7.0]))


def test_sums_of_exponentials() -> None:
    x = np.random.default_rng(5).normal(size=(3, 4)) * 100
    for axis in (None, 0, 1):
        same(special.logsumexp(hm.asarray(x), axis), scipy.special.logsumexp(x, axis))
        same(special.softmax(hm.asarray(x), axis), scipy.special.softmax(x, axis))
        same(special.log_softmax(hm.asarray(x), axis), scipy.special.log_softmax(x, axis))
    assert special.logsumexp(hm.asarray(x), 1, keepdims=True).shape == (3, 1)
    assert special.logsumexp(hm.tensor([-np.inf, -np.inf])).item() == -np.inf
    assert special.logsumexp(hm.tensor([np.inf, 1.0])).item() == np.inf


def test_sinc() -> None:
    x = np.concatenate([EDGES, np.linspace(-4, 4, 81)])
    finite = x[np.isfinite(x) & (np.abs(x) < 1e9)]
    same(hm.sinc(hm.asarray(finite)), np.sinc(finite))
    assert hm.sinc(hm.tensor([3.0, -7.0, 1e6])).tolist() == [0, 0, 0]
    second = hm.grad(hm.grad(lambda t: hm.sinc(t)))(hm.tensor(0.0, dtype=hm.float64))
    assert second.item() == pytest.approx(-(np.pi**2) / 3)


def test_numbers_take_the_dtype_beside_them() -> None:
    x = hm.tensor(0.5, dtype=hm.float64)
    assert special.xlogy(x, 0.1).item() == 0.5 * np.log(0.1)
    assert special.xlogy(hm.tensor([2]), 3).dtype is hm.float32
    assert special.betaln(2, 3).item() == pytest.approx(-2.4849066)


TWO: dict[str, Callable[..., hm.Tensor]] = {
    name: getattr(special, name) for name in ("xlogy", "xlog1py", "rel_entr", "kl_div", "betaln", "beta")
}
ONE: dict[str, Callable[..., hm.Tensor]] = {
    **{name: getattr(special, name) for name in ("entr", "logit", "log_expit", "logsumexp", "softmax", "sinc")},
    "multigammaln": lambda t: special.multigammaln(t + 1, 3),
    "zeta": lambda t: special.zeta(2.0, t + 1),
    "polygamma": lambda t: special.polygamma(2, t + 0.5),
}


LARGE = ("beta", "betaln", "multigammaln")  # 390 kB of IR, and half as much


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in (*TWO, *ONE)])
def test_both_styles_and_gradients(name: str) -> None:
    function, count = (TWO[name], 2) if name in TWO else (ONE[name], 1)
    points = list(np.random.default_rng(6).uniform(0.1, 0.95, (count, 5)))

    def total(*xs: hm.Tensor) -> hm.Tensor:
        return (function(*xs) * hm.asarray(np.arange(1.0, 6.0))).sum()

    inputs = [hm.asarray(p) for p in points]
    np.testing.assert_array_equal(np.asarray(hm.trace(function)(*inputs)), np.asarray(function(*inputs)))
    for k in range(count):
        slope = hm.grad(total, k)
        direction, step = np.linspace(-1, 1, 5), 1e-6
        for order, (value, derivative) in enumerate(
            ((total, slope), (lambda *xs: slope(*xs).sum(), hm.grad(lambda *xs: slope(*xs).sum(), k)))  # noqa: B023
        ):
            high, low = (
                float(value(*[hm.asarray(p + s * direction * (j == k)) for j, p in enumerate(points)]).item())
                for s in (step, -step)
            )
            found = float((np.asarray(derivative(*inputs)) * direction).sum())
            assert found == pytest.approx((high - low) / (2 * step), rel=2e-5, abs=2e-5), f"order {order + 1}"


def test_gradients_at_the_ends() -> None:
    x, y = hm.tensor([0.0, 0.0, 0.0], requires_grad=True), hm.tensor([0.0, 2.0, -1.0], requires_grad=True)
    special.xlogy(x, y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, np.log(2), 0], rtol=1e-6)
    np.testing.assert_array_equal(y.grad.numpy(), [0, 0, 0])
    p = hm.tensor([0.2, 0.5, 0.8], requires_grad=True)
    special.logit(p).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), 1 / (p.detach().numpy() * (1 - p.detach().numpy())), rtol=1e-5)


def test_gradients_of_densities_at_the_ends() -> None:
    ends = {"gammainc": ((1.0, 0.0), 1.0), "betainc": ((1.0, 3.0, 0.0), 3.0), "betainc ": ((3.0, 1.0, 1.0), 3.0)}
    for name, (values, want) in ends.items():
        *parameters, x = (hm.tensor(v, dtype=hm.float64) for v in values)
        x.requires_grad_()
        getattr(special, name.strip())(*parameters, x).backward()
        assert x.grad.item() == pytest.approx(want)
    x = hm.tensor([-1e4, -200.0, 3.0], requires_grad=True)  # of float32, where ndtr is 0
    special.log_ndtr(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1e4, 200.005, 0.004437839], rtol=1e-6)


def test_names() -> None:
    for name in special.__all__:
        assert callable(getattr(special, name)), name
        assert name in dir(special)
    with pytest.raises(AttributeError, match=r"hybridml\.special"):
        special.airy  # noqa: B018
