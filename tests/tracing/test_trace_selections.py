"""`x[mask]` in a trace: its sums ask for no number of elements, and all else is as in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 20))
MASK = RNG.random((30, 20)) < 0.4


def _all(s: Any) -> Any:
    return s.sum(), s.mean(), s.prod(), s.sum(axis=0), s.mean(axis=-1), hm.sum(s), np.sum(s)


def _changed(x: Any, mask: Any) -> Any:
    x, mask = x * 2, mask & True
    s = x[mask]
    x += 1
    mask[:] = False
    return s.sum(), s.mean(), x, s, s.sum()


def _in_a_loop(x: Any, mask: Any) -> Any:
    def body(state: Any) -> Any:
        return state[0] + 1, state[1] + (x * state[0])[mask].mean()

    return hm.while_loop(lambda state: state[0] < 3, body, (hm.tensor(0), hm.tensor(0.0, dtype="float64")))[1]


def _in_branches(x: Any, mask: Any) -> Any:
    s = x[mask]
    return hm.cond(x.sum() > 0, lambda: s.sum() + s[0], lambda: s.sum()), s


def _gradients(x: Any, mask: Any) -> Any:
    def loss(x: Any) -> Any:
        with hm.no_grad():
            fixed = x[mask]
        return x[mask].sum() * 3 + x[mask].mean() ** 2 + (x[mask] ** 2).sum() + fixed.sum()

    return hm.grad(loss)(x)


PROGRAMS: dict[str, tuple[Callable[..., Any], bool]] = {  # and whether a number of elements is asked for
    "sums": (lambda x, mask: _all(x[mask]), False),
    "quantifiers": (lambda x, mask: ((x < 9)[mask].all(), (x > 9)[mask].any()), False),
    "bins": (lambda x, mask: hm.stack([x[(x >= k) & mask].mean() for k in range(-2, 2)]), False),
    "loop": (_in_a_loop, False),
    "kept axes": (lambda x, mask: x[mask].sum(keepdims=True), True),
    "itself": (lambda x, mask: (x[mask], x[mask].sum(), x[mask].max()), True),
    "changed": (_changed, True),
    "branches": (_in_branches, True),
    "gradients": (_gradients, True),
    "in place": (lambda x, mask: (x * 1).at[mask].add(x[mask].sum()), True),
}


def _equal(one: Any, other: Any) -> None:
    for a, b in zip(hm.tree_leaves(one), hm.tree_leaves(other), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager_code(name: str) -> None:
    fn, asks = PROGRAMS[name]
    x, mask = hm.tensor(X), hm.tensor(MASK)
    traced = hm.trace(fn)
    for _ in range(2):
        _equal(fn(x, mask), traced(x, mask))
    if not asks:
        strict = hm.trace(fn, strict=True)  # which raises where a value is asked for
        for m in (mask, hm.tensor(~MASK)):
            _equal(fn(x, m), strict(x, m))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "complex128"])
def test_dtypes(dtype: str) -> None:
    x, mask = hm.tensor((X * 9).round()).astype(dtype), hm.tensor(MASK)

    def fn(x: Any, mask: Any) -> Any:
        return [x[m].sum() for m in (mask, mask & ~mask)], [x[m].mean() for m in (mask, mask & ~mask)], x[mask].prod()

    for a, b in zip(hm.tree_leaves(fn(x, mask)), hm.tree_leaves(hm.trace(fn, strict=True)(x, mask)), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(np.asarray(a.astype("complex128")), np.asarray(b.astype("complex128")), rtol=1e-6)


def test_a_mask_that_does_not_fit_is_an_error_at_its_line() -> None:
    for style in (lambda fn: fn, hm.trace):
        with pytest.raises(hm.ShapeError, match=r"a mask of shape \(3, 20\) does not fit"):
            style(lambda x, mask: x[mask[:3]] * 0)(hm.tensor(X), hm.tensor(MASK))


def test_a_selection_that_is_kept() -> None:
    kept: dict[str, Any] = {}

    def fn(x: Any, mask: Any) -> Any:
        kept["s"] = x[mask]
        return x.sum()

    traced = hm.trace(fn)
    for mask in (MASK, ~MASK, MASK):
        traced(hm.tensor(X), hm.tensor(mask))
        np.testing.assert_array_equal(np.asarray(kept["s"]), X[mask])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32"])
def test_dtypes_of_extremes_and_variances(dtype: str) -> None:
    x, mask = hm.tensor((X * 9).round()).astype(dtype), hm.tensor(MASK)

    def fn(x: Any, mask: Any) -> Any:
        s, rows = x[mask], x[mask[:, 0]]
        return (
            s.max(),
            s.min(),
            s.var(),
            s.std(correction=1),
            rows.max(axis=0),
            rows.min(axis=1).sum(),
            rows.var(axis=0),
        )

    for a, b in zip(hm.tree_leaves(fn(x, mask)), hm.tree_leaves(hm.trace(fn, strict=True)(x, mask)), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(np.asarray(a.astype("float64")), np.asarray(b.astype("float64")), rtol=1e-6)


def test_extremes_of_no_elements() -> None:
    def fn(x: Any, mask: Any) -> Any:
        x[mask].max()  # unused, and an error all the same
        return x[mask].min(axis=0)

    traced = hm.trace(fn, strict=True)
    assert traced(hm.tensor(X), hm.tensor(MASK)).item() == X[MASK].min()
    for style in (fn, traced):
        with pytest.raises(hm.ShapeError, match=r"max: no elements to choose from: axis \(0,\) of f64\[0\] is empty"):
            style(hm.tensor(X), hm.tensor(MASK & False))


def test_gradients_of_extremes_that_are_infinite() -> None:
    x = np.array([-np.inf, -np.inf, 1.0, np.inf])
    for chosen in ([True, True, False, False], [True, False, True, False], [False, False, False, True]):

        def fn(x: Any, mask: Any) -> Any:
            return hm.grad(lambda x: x[mask].max())(x), hm.grad(lambda x: x[mask].min())(x)

        _equal(fn(hm.tensor(x), hm.tensor(chosen)), hm.trace(fn, strict=True)(hm.tensor(x), hm.tensor(chosen)))


def test_what_a_loop_updates_is_no_selection_any_more() -> None:
    def fn(x: Any, mask: Any) -> Any:
        s, t = x[mask], x[mask]
        for i in range(18):
            s[0] = s[0] * 0.5 + i
            t += s.mean()
        return s, t, t.sum()

    _equal(fn(hm.tensor(X), hm.tensor(MASK)), hm.trace(fn)(hm.tensor(X), hm.tensor(MASK)))
