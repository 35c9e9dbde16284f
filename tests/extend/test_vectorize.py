"""`hm.vectorize`: functions of numbers, and of small arrays, over larger ones, as `numpy.vectorize` computes them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.extend.cores import cores_of
from hybridml.testing import gradcheck

STYLES = [lambda f: f, hm.trace]
RNG = np.random.default_rng(0)
REAL, POSITIVE = RNG.normal(size=(5, 7)), RNG.random((5, 7)) + 0.5
COMPLEX = RNG.normal(size=(5, 7)) + 1j * RNG.normal(size=(5, 7))
WHOLE = RNG.integers(0, 9, (7,))


def escape(c: Any, limit: Any) -> Any:
    z, n = 0j, 0
    while abs(z) < 2 and n < limit:
        z = z * z + c
        n += 1
    return n


def escape_at(c: Any, limit: Any) -> Any:
    """The steps, and where it has left the circle."""
    z = c
    for n in range(limit):
        if abs(z) >= 2:
            return n, z
        z = z * z + c
    return limit, z


def harmonic(x: Any, n: Any) -> Any:
    s = 0.0
    for k in range(n):
        s += x / (k + 1)
    return s


def collatz(n: Any) -> Any:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def greatest_divisor(a: Any, b: Any) -> Any:
    while b != 0:
        a, b = b, a % b
    return a


def newton(x: Any) -> Any:
    g = x
    while abs(g * g - x) > 1e-9 * x:
        g = (g + x / g) / 2
    return g


def clipped(x: Any, low: Any = -0.5, high: Any = 0.5) -> Any:
    if x < low:
        return low
    return high if x > high else x


def parts(z: Any) -> Any:
    return z.real, z.imag, abs(z)


def polar(z: Any) -> Any:
    return math.hypot(z.real, z.imag) if z.real > 0 else -1.0


def first_power(x: Any, limit: Any) -> Any:
    n = 0
    while True:
        if x**n > limit:
            break
        n += 1
        if n == 40:
            return -1
    return n


def truth(x: Any, n: Any) -> Any:
    return x > 0 and n > 3


NUMBERS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (escape, (COMPLEX, 50)), (escape, (COMPLEX, WHOLE)), (escape, (REAL, 50)), (escape, (0.25, WHOLE)),
    (escape_at, (COMPLEX, WHOLE)),
    (harmonic, (REAL, WHOLE)), (harmonic, (2.0, WHOLE[:, None] + np.zeros((1, 3), int))), (collatz, (WHOLE + 1,)),
    (greatest_divisor, (WHOLE, np.array([4]))), (newton, (POSITIVE,)), (clipped, (REAL,)), (clipped, (REAL, -0.25)),
    (clipped, (REAL, -POSITIVE, POSITIVE)), (parts, (COMPLEX,)), (polar, (COMPLEX,)), (first_power, (POSITIVE, 3.0)),
    (truth, (REAL, WHOLE)), (newton, (POSITIVE[::2, ::-1],)), (newton, (POSITIVE.T,)), (newton, (np.float64(2.0),)),
    (harmonic, (REAL[:0], WHOLE)), (collatz, (np.zeros((0, 3), int),)),
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES, ids=["eager", "traced"])
@pytest.mark.parametrize(("fn", "args"), NUMBERS, ids=lambda x: getattr(x, "__name__", ""))
def test_as_numpy(fn: Callable[..., Any], args: tuple[Any, ...], style: Callable[..., Any]) -> None:
    found = style(hm.vectorize(fn))(*args)
    results = found if isinstance(found, tuple) else (found,)
    types = "d" * len(results) if any(np.size(x) == 0 for x in args) else None
    expected: Any = np.vectorize(fn, otypes=types)(*args)
    for a, b in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert a.shape == b.shape
        if types is None:
            assert a.dtype == b.dtype or (a.dtype == "float32" and b.dtype == "float64" and fn is harmonic)
        # NumPy's complex products may be fused multiply-adds (see loops/complex_parts.py).
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-13 if a.dtype != "float32" else 1e-6)


@pytest.mark.parametrize("fn", [escape, escape_at, harmonic, newton, clipped, parts], ids=lambda f: f.__name__)
def test_both_styles_have_the_same_bits(fn: Callable[..., Any]) -> None:
    args = next(args for f, args in NUMBERS if f is fn)
    one, other = hm.vectorize(fn)(*args), hm.trace(hm.vectorize(fn))(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (one, other)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_it_is_one_kernel_in_a_program() -> None:
    escaped = hm.vectorize(escape)

    @hm.trace
    def f(c: Any) -> Any:
        return escaped(c * 2, 50) * 2 + 1

    c = hm.asarray(COMPLEX)
    np.testing.assert_array_equal(f(c), np.vectorize(escape)(COMPLEX * 2, 50) * 2 + 1)
    assert f.stats.kernels == 1


def test_decorators_and_options() -> None:
    @hm.vectorize(otypes="f", doc="Twice.")
    def twice(x: Any) -> Any:
        """x + x"""
        return x + x

    assert twice.__doc__ == "Twice." and twice.__name__ == "twice"
    assert twice([1, 2]).dtype == "float32" and twice([1, 2]).tolist() == [2.0, 4.0]
    two = hm.vectorize(parts, otypes=["float32", "float32", float])
    assert [x.dtype.name for x in two(COMPLEX)] == ["float32", "float32", "float64"]
    assert hm.vectorize(lambda x, y: x - y)(5, y=[1, 2]).tolist() == [4, 3]
    assert hm.vectorize(parts, cache=True)(1 + 2j)[1].item() == 2.0


def test_excluded_arguments_are_the_same_for_all() -> None:
    def poly(x: Any, p: Any, *, shift: Any = 0) -> Any:
        total = 0.0
        for c in p:
            total = total * x + c
        return total + shift

    for style in STYLES:
        for excluded in (["p"], {1}):
            f = style(hm.vectorize(poly, excluded=excluded))
            np.testing.assert_allclose(f(REAL, (1.0, -2.0, 3.0)), REAL**2 - 2 * REAL + 3, rtol=1e-14)
            np.testing.assert_allclose(f(REAL, (1.0, 3.0), shift=WHOLE), REAL + 3 + WHOLE, rtol=1e-14)


OFFSET = 1.0


def test_variables_around_it_may_change() -> None:
    global OFFSET

    @hm.vectorize
    def f(x: Any) -> Any:
        return x + OFFSET

    traced = hm.trace(f)
    for OFFSET in (1.0, 2.0):
        assert f(hm.zeros(2)).tolist() == [OFFSET] * 2 == traced(hm.zeros(2)).tolist()


@hm.vectorize
def helper(x: Any) -> Any:
    return newton(x) * 2


def test_functions_call_each_other() -> None:
    @hm.vectorize
    def f(x: Any) -> Any:
        return helper(x) + clipped(x)

    expected = np.vectorize(lambda x: 2 * newton(x) + clipped(x))(POSITIVE)
    for style in STYLES:
        np.testing.assert_allclose(style(f)(POSITIVE), expected, rtol=1e-13)
    assert pickle.loads(pickle.dumps(helper)) is helper


def test_gradients() -> None:
    def f(x: Any, n: Any) -> Any:
        s = 0.5
        while abs(s) < 4 and n > 0:
            s = s * x + math.sin(x)
            n -= 1
        return s * x

    g = hm.vectorize(f)
    x, n = hm.asarray(POSITIVE), hm.asarray(WHOLE)
    gradcheck(lambda x: g(x, n), (x,))
    one, other = hm.grad(lambda x: g(x, n).sum())(x), hm.trace(hm.grad(lambda x: g(x, n).sum()))(x)
    np.testing.assert_array_equal(one, other)


def test_a_gradient_has_the_dtype_of_its_argument() -> None:
    f = hm.vectorize(lambda x, y: x * y)
    x, y = hm.ones((3,), dtype="float32"), hm.ones((3,), dtype="float64") * 3
    for style in STYLES:
        gx, gy = style(hm.grad(lambda x, y: f(x, y).sum(), (0, 1)))(x, y)
        assert gx.dtype == "float32" and gy.dtype == "float64" and gx.tolist() == [3.0] * 3


def test_a_gradient_of_complex_numbers_is_an_error() -> None:
    f = hm.vectorize(lambda z: abs(z * z))
    for style in STYLES:
        with pytest.raises(hm.GradientError, match="no derivative is taken of complex numbers"):
            style(hm.grad(lambda z: f(z).sum()))(hm.asarray(COMPLEX))


# -- functions of small arrays


def solved(a: Any, b: Any) -> Any:
    return hm.linalg.solve(a, b)


def norm_or_nothing(x: Any) -> Any:
    """With a question about data, of which each call has its own answer."""
    n = (x * x).sum() ** 0.5
    return n if n > 1 else n * 0


def iterated(x: Any) -> Any:
    n = 0
    while (x * x).sum() < 100 and n < 30:
        x = x * 1.5 + 0.1
        n += 1
    return x, hm.asarray(n)


def moments(x: Any) -> Any:
    return x.mean(), x - x.mean()


A, B = RNG.normal(size=(20, 1, 3, 3)) + 3 * np.eye(3), RNG.normal(size=(2, 3))
ARRAYS: list[tuple[Callable[..., Any], str, tuple[Any, ...]]] = [
    (solved, "(n,n),(n)->(n)", (A, B)), (norm_or_nothing, "(n)->()", (RNG.normal(size=(30, 4)),)),
    (iterated, "(n)->(n),()", (RNG.random((24, 3)),)), (moments, "(n)->(),(n)", (RNG.normal(size=(40, 5)),)),
    (lambda a, b: a @ b, "(m,k),(k,n)->(m,n)", (RNG.normal(size=(18, 2, 3)), RNG.normal(size=(3, 4)))),
    (lambda x, y: (x * y).sum(), "(n),(n)->()", (RNG.normal(size=(3,)), RNG.normal(size=(3,)))),
    (lambda x: x[::-1] * 2, "(n)->(n)", (RNG.normal(size=(2, 5)),)),
    (lambda x, y: x[0] + y, "(2),()->()", (RNG.normal(size=(4, 2)), RNG.normal(size=(4,)))),
    (lambda x: hm.stack([x, x]), "()->(2)", (RNG.normal(size=(17,)),)),
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES, ids=["eager", "traced"])
@pytest.mark.parametrize(("fn", "signature", "args"), ARRAYS, ids=lambda x: getattr(x, "__name__", ""))
def test_signatures(fn: Any, signature: str, args: tuple[Any, ...], style: Callable[..., Any]) -> None:
    def on_arrays(*xs: Any) -> Any:
        found = fn(*map(hm.asarray, xs))
        return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)

    expected = np.vectorize(on_arrays, signature=signature)(*args)
    found = style(hm.vectorize(fn, signature=signature))(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)


def test_a_signature_is_one_loop_that_threads_may_share() -> None:
    f = hm.trace(hm.vectorize(moments, signature="(n)->(),(n)"))
    f(hm.asarray(RNG.normal(size=(40, 5))))
    assert f.ir.count("parallel=True") == 2 and len(f.ir.splitlines()) < 60
    found = hm.audit(hm.vectorize(iterated, signature="(n)->(n),()"), hm.asarray(RNG.random((24, 3))))
    assert found and found.in_order == ()


def test_gradients_through_signatures() -> None:
    f = hm.vectorize(lambda a, x: hm.tanh(a @ x), signature="(m,n),(n)->(m)")
    a, x = hm.asarray(RNG.normal(size=(20, 2, 3))), hm.asarray(RNG.normal(size=(3,)))
    for k in (0, 1):
        of = hm.grad(lambda a, x: (f(a, x) ** 2).sum(), k)
        wanted = hm.grad(lambda a, x: (hm.tanh(a @ x) ** 2).sum(), k)(a, x)
        np.testing.assert_allclose(of(a, x), wanted, rtol=1e-12)
        np.testing.assert_allclose(hm.trace(of)(a, x), wanted, rtol=1e-12)


def test_no_elements() -> None:
    f = hm.vectorize(lambda a: a * 2, signature="(n)->(n)")
    assert f(hm.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(hm.ShapeError, match="do not tell the sizes"):
        hm.vectorize(lambda a: a[:2], signature="(n)->(k)")(hm.zeros((0, 3)))


def test_signatures_are_numpys() -> None:
    assert cores_of("(m, n),(n)->(m)").inputs == (("m", "n"), ("n",))
    assert cores_of("()->(),(3)").outputs == ((), ("3",))
    for bad in ("(m->n)", "m,n->m", "(m)", "", "(m),->(n)"):
        with pytest.raises(hm.ArgumentError, match="written as NumPy's"):
            hm.vectorize(lambda x: x, signature=bad)


def test_errors() -> None:
    product = hm.vectorize(lambda a, x: a @ x, signature="(m,n),(n)->(m)")
    for style in STYLES:
        with pytest.raises(hm.ShapeError, match="core axis n of argument 1 has 4 elements, where it should have 3"):
            style(product)(hm.ones((2, 3)), hm.ones((4,)))
        with pytest.raises(hm.ShapeError, match="at least 2 axes"):
            style(product)(hm.ones((3,)), hm.ones((3,)))
        with pytest.raises(hm.ShapeError):
            style(product)(hm.ones((4, 2, 3)), hm.ones((5, 3)))
        with pytest.raises(hm.ShapeError, match=r"returns shape \(3,\), and its signature says \(\)"):
            style(hm.vectorize(lambda x: x, signature="(n)->()"))(hm.ones((20, 3)))
        with pytest.raises(hm.ArgumentError, match="returns 1 results, and its signature says 2"):
            style(hm.vectorize(lambda x: x, signature="(n)->(n),()"))(hm.ones((20, 3)))
        with pytest.raises(hm.TraceError, match=r"test_vectorize\.py"):
            style(hm.vectorize(says))(hm.ones(3))
        with pytest.raises(TypeError, match="missing a required argument"):
            style(hm.vectorize(lambda x, y: x + y))(hm.ones(3))
        with pytest.raises(hm.ShapeError):
            style(hm.vectorize(lambda x, y: x + y))(hm.ones(3), hm.ones(4))
    with pytest.raises(hm.ArgumentError, match="takes a Python function"):
        hm.vectorize(math.sin)
    with pytest.raises(hm.ArgumentError, match="has 1 results, and otypes 2"):
        hm.vectorize(newton, otypes="dd")
    with pytest.raises(hm.ArgumentError, match="arguments have names"):
        hm.vectorize(lambda *xs: xs[0])
    with pytest.raises(hm.ArgumentError, match="is given no array"):
        hm.vectorize(newton, excluded={0})(2.0)


def says(x: Any) -> Any:
    print(x)
    return x
