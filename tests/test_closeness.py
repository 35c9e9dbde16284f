"""What the comparison of sums lets pass and what it finds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.closeness import assert_close, magnitude


def operands(depth: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(depth)
    return rng.standard_normal((20, depth)).astype("f4"), rng.standard_normal((depth, 30)).astype("f4")


@pytest.mark.parametrize("depth", [3, 64, 2000])
def test_every_order_of_adding_passes(depth: int) -> None:
    a, b = operands(depth)
    exact = (a.astype("f8") @ b.astype("f8")).astype("f4")
    order = np.random.default_rng(0).permutation(depth)
    one_by_one = np.zeros_like(exact)
    for k in order:
        one_by_one += a[:, [k]] * b[[k]]
    for found in (a @ b, a[:, order] @ b[order], one_by_one):
        assert_close(found, exact, terms=magnitude(np.matmul, a, b))


def test_a_sum_that_cancels_passes_and_a_wrong_one_beside_it_does_not() -> None:
    exact = np.array([30.0, -0.09108, 2e-7], "f4")
    assert_close(exact + np.array([0, 4.8e-6, 2.2e-6], "f4"), exact)
    with pytest.raises(AssertionError, match="weights"):
        assert_close(exact + np.array([0, 0, 1e-4], "f4"), exact, "weights")


@pytest.mark.parametrize("depth", [3, 64, 2000])
def test_a_term_left_out_of_one_sum_is_found(depth: int) -> None:
    """Any of the terms but the few that are smaller than the roundings of the others."""
    a, b = operands(depth)
    terms, exact = magnitude(np.matmul, a, b), (a.astype("f8") @ b.astype("f8")).astype("f4")
    found = 0
    for k in range(3):
        wrong = exact.copy()
        wrong[7, 9] -= a[7, k] * b[k, 9]
        for size in (None, terms):
            with pytest.raises(AssertionError):
                assert_close(wrong, exact, terms=size)
            found += 1
    assert found == 6


def test_two_exchanged_elements_and_other_shapes_and_dtypes_are_found() -> None:
    a, b = operands(64)
    exact = a @ b
    for wrong in (np.roll(exact, 1, 0), exact[:, ::-1], exact[:, :1], exact.astype("f8"), exact * np.float32(1.0001)):
        with pytest.raises(AssertionError):
            assert_close(wrong, exact)
    broken = exact.copy()
    broken[3, 3] = np.nan
    with pytest.raises(AssertionError):
        assert_close(broken, exact)
    with pytest.raises(AssertionError):
        assert_close(broken, exact, terms=magnitude(np.matmul, a, b))
    assert_close(broken, broken)
