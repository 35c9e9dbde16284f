"""`unique` and its kin beside NumPy: nan, axes, sizes that data decide, both styles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

NAN = np.nan
ARRAYS = [
    np.array([[3, 1, 2], [1, 3, 3]]),
    np.array([2.0, NAN, -1.0, NAN, 2.0, -np.inf]),
    np.array([True, False, True]),
    np.array([5], "u1"),
    np.array(4.0),
    np.zeros((0,), "f4"),
    np.zeros((2, 0), "i4"),
    np.arange(6.0)[::-1].copy(),
]


def both(fn: Any, *arrays: Any, backend: str = "interpret") -> Any:
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend=backend)(*tensors)
    assert type(eager) is type(traced)
    for a, b in zip(hm.tree_leaves(eager), hm.tree_leaves(traced), strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return hm.tree_map(np.asarray, eager)


@pytest.mark.parametrize("x", ARRAYS)
def test_of_the_standard(x: np.ndarray) -> None:
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        found, expected = both(getattr(hm, name), x), getattr(np, name)(x)
        if name == "unique_values":
            np.testing.assert_array_equal(found, np.sort(expected))
            continue
        assert found._fields == expected._fields
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("x", ARRAYS)
@pytest.mark.parametrize("equal_nan", [True, False])
def test_of_numpy(x: np.ndarray, equal_nan: bool) -> None:
    def program(t: Any) -> Any:
        return hm.unique(t, return_index=True, return_inverse=True, return_counts=True, equal_nan=equal_nan)

    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=equal_nan)
    for a, b in zip(both(program, x), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(both(lambda t: hm.unique(t, equal_nan=equal_nan), x), expected[0])


def test_slices() -> None:
    x = np.random.default_rng(0).integers(0, 2, (7, 3, 2))
    for axis in (0, 1, -1):

        def program(t: Any, axis: int = axis) -> Any:
            return hm.unique(t, return_index=True, return_inverse=True, return_counts=True, axis=axis)

        expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        for a, b in zip(both(program, x), expected, strict=True):
            np.testing.assert_array_equal(a, b.reshape(a.shape))
    with pytest.raises(hm.ShapeError, match="no slices to compare"):
        hm.unique(hm.ones((0, 2)), axis=0)


def test_neighbours() -> None:
    torch = pytest.importorskip("torch")
    x = np.array([[1, 1, 2], [2, 1, 1]])
    found = both(lambda t: hm.unique_consecutive(t, return_inverse=True, return_counts=True), x)
    expected = torch.unique_consecutive(torch.tensor(x), return_inverse=True, return_counts=True)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b.numpy())


def test_membership() -> None:
    rng = np.random.default_rng(0)
    for x, among in (
        (rng.integers(0, 9, (4, 5)), rng.integers(0, 9, (2, 2))),
        (np.array([1.0, NAN, 3.0]), np.array([NAN, 3.0])),
        (np.array([1.5, 2.0]), np.array([2, 3])),
        (np.array([1, 2]), np.zeros(0, "i8")),
        (np.array([True, False]), np.array([True])),
    ):
        np.testing.assert_array_equal(both(hm.isin, x, among), np.isin(x, among))
        np.testing.assert_array_equal(
            both(lambda a, b: hm.isin(a, b, invert=True), x, among), np.isin(x, among, invert=True)
        )
    assert hm.isin(hm.tensor([0.1], dtype=hm.float64), [0.1]).tolist() == [True]
    assert hm.isin(0.1, hm.tensor([0.1], dtype=hm.float64)).item() is True


def test_another_number_of_values_is_another_program() -> None:
    @hm.trace
    def program(x: hm.Tensor) -> Any:
        return hm.unique_counts(x * 2)

    for values in ([1, 2, 1, 4], [1, 1, 1, 1], [3, 2, 1, 0], [2, 2, 1, 4]):
        found = program(hm.tensor(values))
        expected = np.unique_counts(np.array(values) * 2)
        assert found.values.tolist() == expected.values.tolist() and found.counts.tolist() == expected.counts.tolist()


def test_gradients_go_to_the_first() -> None:
    g = hm.grad(lambda x: (hm.unique(x) * hm.tensor([1.0, 10.0])).sum())(hm.tensor([2.0, 1.0, 2.0]))
    assert g.tolist() == [10, 1, 0]
