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
