"""Keys as NumPy has them: eager, recorded and traced programs read and write what NumPy does, with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from tests.support.examples import examples

X = np.arange(24.0).reshape(2, 3, 4)
BIG = X[:, :, 0] > 5
KEYS: list[Any] = [
    ([0, 1], [1, 2]),
    ([0, 1], slice(None), [1, 3]),
    (slice(None), [0, 2], [1, 3]),
    (slice(None), [[0], [2]], [1, 3]),
    (0, slice(None), [1, 2]),
    (slice(None), 0, None, [0, 1]),
    (slice(None), [0, 1], ..., [0, 1]),
    ([0, 1], ..., [0, 1], 2),
    X > 5,
    BIG,
    (slice(None), X[0] > 5),
    (0, X[0] > 5),
    (..., np.array([True, False, True, False])),
    (BIG, [0, 2, 1]) if int(BIG.sum()) == 3 else (BIG, 1),
    [True, False],
    [],
    (slice(None), []),
    (slice(1, 1), [0, 1]),
    np.array(1),
    np.array(True),
    (np.array(False), slice(1, 2)),
    ([-1, 0], None, slice(None, None, -1)),
    (slice(1, None), [2, 0], 1),
    (None, [0, 1], None, [2, 1], None),
    (np.array([[0, 1]], "u1"), np.array(2), [3]),
]


def eager(fn: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return fn(*map(hm.tensor, arrays))


def recorded(fn: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return fn(*(hm.tensor(a, requires_grad=True) for a in arrays)).detach()


def traced(fn: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return hm.trace(fn, backend="interpret")(*map(hm.tensor, arrays))


STYLES = [eager, recorded, traced]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_reading_and_writing(key: Any, style: Callable[..., Any]) -> None:
    want = X[key]
    got = style(lambda x: x[key], X)
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)
    value = np.random.default_rng(0).uniform(size=np.shape(want))
    written = X.copy()
    written[key] = value

    def write(x: Any, v: Any) -> Any:
        x = x * 1
        x[key] = v
        return x

    np.testing.assert_array_equal(style(write, X, value), written)


@pytest.mark.parametrize("style", STYLES)
def test_updates_in_place(style: Callable[..., Any]) -> None:
    """`x[key] += v` reads, adds and stores: an element named twice is added to once."""

    def program(x: Any, v: Any) -> Any:
        x = x * 1
        x[[0, 0, 1], 1] += v
        x[x > 20] *= 2
        x[:, [0, 2], [1, 1]] = 5
        x[0, :, [3, 1]] -= 1
        view = x[1]
        view[[0, 1]] = -view[[1, 0]]
        x[..., [0, 1, 1]] = np.array([1.0, 2.0, 3.0])
        return x

    value = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(style(program, X, value), program(X, value))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        (([0, 1], [0, 3]), hm.OutOfBoundsError, "index 3 is out of range for axis 1 of size 3"),
        ((0, [0, -4]), hm.OutOfBoundsError, "index -4 is out of range"),
        (([0, 1], [0, 1, 2]), hm.ShapeError, r"index arrays of shapes .* do not broadcast"),
        (np.ones((2, 2), bool), hm.ShapeError, r"a mask of shape \(2, 2\) does not fit f64\[2,3,4\]"),
        ((0, np.ones(2, bool)), hm.ShapeError, r"a mask of shape \(2,\) does not fit f64\[2,3,4\] at axes 1 to 1"),
        ([0.5], hm.ArgumentError, "must hold integers"),
        (([0], [0], [0], [0]), hm.OutOfBoundsError, "4 indices for f64"),
    ],
)
def test_errors(key: Any, error: type[Exception], match: str, style: Callable[..., Any]) -> None:
    def write(x: Any) -> Any:
        x = x * 1
        x[key] = 1.0
        return x

    for fn in (lambda x: x[key], write, lambda x: x.at[key].add(1.0)):
        with pytest.raises(error, match=match):
            style(fn, X)


@pytest.mark.parametrize("style", STYLES)
def test_values_that_do_not_fit(style: Callable[..., Any]) -> None:
    def write(value: Any) -> Callable[..., Any]:
        def fn(x: Any) -> Any:
            x = x * 1
            x[[0, 1]] = value
            return x

        return fn

    with pytest.raises(hm.ShapeError, match=r"a value of shape \(5,\) does not fit the selected part, \(2, 3, 4\)"):
        style(write(np.ones(5)), X)
    with pytest.raises(hm.DTypeError, match="a float64 value does not fit a float32 tensor"):
        style(write(np.ones(4)), X.astype("f4"))


AT: dict[str, Callable[[np.ndarray, Any, Any], None]] = {
    "add": np.add.at,
    "subtract": np.subtract.at,
    "multiply": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
    "divide": np.divide.at,
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("how", AT)
@pytest.mark.parametrize("key", [1, (slice(None), [0, 0, 2]), ([0, 0, 1], [1, 1, 0]), X > 7, (..., [1, 1])], ids=str)
def test_functional_updates(key: Any, how: str, style: Callable[..., Any]) -> None:
    value = np.random.default_rng(1).uniform(1, 2, np.shape(X[key]))
    want = X.copy()
    AT[how](want, key, value)
    got = style(lambda x, v: getattr(x.at[key], how)(v), X, value)
    np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize("style", STYLES)
def test_other_functional_updates(style: Callable[..., Any]) -> None:
    key = ([0, 0, 1], [1, 1, 0])
    np.testing.assert_array_equal(style(lambda x: x.at[key].get(), X), X[key])
    for fn, want in (
        (lambda x: x.at[key].set(7.0), 0 * X[key] + 7),
        (lambda x: x.at[key].power(2), X[key] ** 2),
        (lambda x: x.at[key].apply(lambda part: part + 1), X[key] + 1),
    ):
        changed = X.copy()
        changed[key] = want
        np.testing.assert_array_equal(style(fn, X), changed)
    x = hm.tensor(X)
    assert not np.shares_memory(x.at[0].get().numpy(), x.numpy())
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("how", ["set", "add", "subtract", "multiply", "divide", "min", "max", "power"])
@pytest.mark.parametrize("key", [1, (slice(None), [0, 2, 0]), ([0, 0, 1], [1, 1, 0]), X > 7], ids=str)
def test_gradients_of_functional_updates(key: Any, how: str) -> None:
    """Against differences, with a factor that is 0 and elements that are named twice."""
    rng = np.random.default_rng(2)
    x, v = rng.uniform(0.5, 2, X.shape), rng.uniform(0.5, 2, np.shape(X[key]))
    weight = rng.standard_normal(X.shape)
    if how == "multiply":
        v.reshape(-1)[0] = 0

    def value(x: Any, v: Any) -> Any:
        return (getattr(x.at[key], how)(v) * weight).sum()

    dx, dv, h = rng.standard_normal(x.shape), rng.standard_normal(v.shape), 1e-6
    numeric = float(eager(value, x + h * dx, v + h * dv) - eager(value, x - h * dx, v - h * dv)) / (2 * h)
    for fn in (hm.grad(value, (0, 1)), hm.trace(hm.grad(value, (0, 1)), backend="interpret")):
        gx, gv = fn(hm.tensor(x), hm.tensor(v))
        assert float((gx * dx).sum() + (gv * dv).sum()) == pytest.approx(numeric, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("x", [X % 3, X > 5, X[0] * 0, X[:0]], ids=str)
def test_where_a_condition_holds(x: np.ndarray, style: Callable[..., Any]) -> None:
    if style is recorded:
        return
    want = np.nonzero(x)
    for f in (hm.nonzero, hm.where, np.nonzero):
        for got, its in zip(style(lambda t: list(f(t)), x), want, strict=True):  # noqa: B023
            np.testing.assert_array_equal(got, its)
            assert got.dtype is np.dtype("int64")
    np.testing.assert_array_equal(style(hm.argwhere, x), np.argwhere(x))
    np.testing.assert_array_equal(style(lambda t: hm.count_nonzero(t, axis=1), x), np.count_nonzero(x, axis=1))
    with pytest.raises(hm.ShapeError, match="nonzero: a 0-dimensional tensor"):
        style(hm.nonzero, np.array(1.0))


def test_a_mask_asks_for_a_number_alone() -> None:
    """Masks with as many true elements share a path."""
    fn = hm.trace(lambda x: x[x > 1] * 2, backend="interpret")
    for shift in range(6):
        x = np.roll([0.0, 2.0, 3.0, 0.0, 1.0, 5.0], shift)
        np.testing.assert_array_equal(fn(hm.tensor(x)), x[x > 1] * 2)
    assert fn.cache_info().compiles == 1


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """A key of x[key] with at least one index array or mask."""
    broadcast = draw(st.sampled_from([(2,), (3,), (2, 2), ()]))
    parts: list[Any] = []
    at = 0
    while at < len(shape):
        n = shape[at]
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "none", "dots", "mask"]))
        if kind == "array":
            its = broadcast if draw(st.booleans()) else (1,) * len(broadcast)
            flat = draw(st.lists(st.integers(-n, n - 1), min_size=int(np.prod(its)), max_size=int(np.prod(its))))
            parts.append(np.array(flat, "i8").reshape(its))
        elif kind == "slice":
            step = draw(st.sampled_from([None, 2, -1]))
            parts.append(slice(draw(st.sampled_from([None, 0, 1])) if step != -1 else None, None, step))
        elif kind == "int":
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == "none":
            parts.append(None)
            continue
        elif kind == "dots":
            if any(k is ... for k in parts):
                continue
            parts.append(...)
            at += draw(st.integers(0, len(shape) - at))
            continue
        else:
            mask = np.zeros(n, bool)
            mask[: int(np.prod(broadcast)) if len(broadcast) == 1 and broadcast[0] <= n else 1] = True
            parts.append(mask)
        at += 1
    return tuple(parts)


@examples(150, deadline=None)
@given(key=keys(shape=(2, 3, 4)))
def test_any_key(key: Any) -> None:
    try:
        want = X[key]
    except IndexError:
        return
    written = X.copy()
    written[key] = np.arange(want.size).reshape(np.shape(want))
    for style in STYLES:
        np.testing.assert_array_equal(style(lambda x: x[key], X), want)

        def write(x: Any) -> Any:
            x = x * 1
            x[key] = hm.arange(float(want.size), dtype=hm.float64).reshape(np.shape(want))
            return x

        np.testing.assert_array_equal(style(write, X), written)


def test_updates_fuse() -> None:
    """Keys without arrays, masks and reads are part of the kernel around them; a scatter copies, then updates."""
    i, j = hm.tensor([0, 1]), hm.tensor([1, 2])
    for fn, kernels in (
        (lambda x: (x * 2).at[x > 3].set(0.0) + 1, 1),
        (lambda x: (x * 2).at[1:].add(1.0) + 1, 1),
        (lambda x: (x * 2)[i, j] + 1, 1),
        (lambda x: (x * 2).at[i, j].add(1.0) + 1, 3),
    ):
        traced = hm.trace(fn)
        np.testing.assert_array_equal(traced(hm.tensor(X)), fn(hm.tensor(X)))
        assert traced.stats.kernels == kernels


def test_in_the_body_of_a_loop() -> None:
    def program(x: Any) -> Any:
        def step(carry: Any, i: Any) -> Any:
            carry = carry.at[0, i].add(carry[0, i - 1].sum())
            return carry, carry[0, [0, i], [1, 2]]

        return hm.scan(step, x, hm.arange(1, 3))

    for got, want in zip(hm.trace(program)(hm.tensor(X)), program(hm.tensor(X)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "bfloat16", "float32"])
def test_every_dtype(dtype: str) -> None:
    x = (hm.arange(6) % 2).astype(dtype)

    def program(x: Any) -> Any:
        y = x.at[[0, -1, 0]].set(x[[3, 2, 1]])
        y[y == x] = 1
        y[[4, 4]] = x[[0, 1]]
        return y, y[[1, 2]], x.at[1:3].set(0)

    traced = hm.trace(program)
    for got, want in zip(traced(x), program(x), strict=True):
        assert got.dtype is x.dtype and got.tolist() == want.tolist()


def test_a_backward_takes_the_elements_that_the_forward_took() -> None:
    """Lists and arrays that change afterwards are no matter; a tensor that does is an error, as a kept value is."""
    rows, columns = [0, 2], np.array([1, 0])
    x = hm.ones((3, 2), requires_grad=True)
    out = (x[rows, columns] * 3).sum()
    rows[0], columns[0] = 1, 0
    out.backward()
    assert x.grad.tolist() == [[0, 3], [0, 0], [3, 0]]
    index = hm.tensor([0, 1])
    out = x[index].sum()
    index += 1
    with pytest.raises(hm.GradientError, match=r"index array was overwritten in place[^@]*kept at .*test_indexing"):
        out.backward()
