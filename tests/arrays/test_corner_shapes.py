"""Shapes that NumPy and PyTorch take: indices that broadcast, no elements, no axes, whole spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F

R = np.random.default_rng(0)


def both(fn: Any, *args: Any) -> list[np.ndarray]:
    """What it gives, eager and traced."""
    return [np.asarray(fn(*args)), np.asarray(hm.trace(fn)(*args))]


@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [((5, 5), (1, 2), 1), ((1, 4), (3, 2), 1), ((2, 1, 4), (1, 3, 2), -1), ((3, 4), (2, 1), 0), ((3, 4), (3, 4), 1)],
)
def test_take_along_axis_broadcasts(shape: tuple[int, ...], indices: tuple[int, ...], axis: int) -> None:
    x, at = R.normal(size=shape), R.integers(-shape[axis], shape[axis], indices)
    for found in both(lambda x, at: hm.take_along_axis(x, at, axis=axis), hm.tensor(x), hm.tensor(at)):
        np.testing.assert_array_equal(found, np.take_along_axis(x, at, axis))
    gradient = hm.grad(lambda t: hm.take_along_axis(t, hm.tensor(at), axis=axis).sum())(hm.tensor(x))
    assert gradient.shape == shape and gradient.sum().item() == np.take_along_axis(x, at, axis).size


def test_take_along_axis_says_what_does_not_fit() -> None:
    with pytest.raises(
        hm.ShapeError, match="take_along_axis: indices i64\\[2,1\\] must have the shape of f32\\[3,4\\]"
    ):
        hm.take_along_axis(hm.ones((3, 4)), hm.tensor([[0], [1]]), axis=1)
    with pytest.raises(hm.ShapeError, match="axis 2 does not exist"):
        hm.take_along_axis(hm.ones((3, 4)), hm.tensor([[0]]), axis=2)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.softmin])
def test_softmax_of_nothing(function: Any) -> None:
    x = hm.zeros((3, 0))
    assert [found.shape for found in both(lambda x: function(x, -1), x)] == [(3, 0)] * 2
    assert hm.grad(lambda x: function(x, -1).sum())(x).shape == (3, 0)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_of_no_images(mode: str) -> None:
    assert [found.shape for found in both(lambda x: F.pad(x, (1, 2), mode), hm.zeros((0, 3, 3)))] == [(0, 3, 6)] * 2
    if mode == "reflect":
        with pytest.raises(hm.ShapeError, match="at most 0 elements"):
            F.pad(hm.zeros((3, 0)), (1, 0), mode)


def test_tensorsolve_moves_any_axes() -> None:
    a, b = R.normal(size=(2, 3, 6)), R.normal(size=(2, 3))
    for found in both(lambda a, b: hm.linalg.tensorsolve(a, b, axes=(0, 2)), hm.tensor(a), hm.tensor(b)):
        np.testing.assert_allclose(found, np.linalg.tensorsolve(a, b, axes=(0, 2)), rtol=1e-10)
    with pytest.raises(hm.ShapeError, match="no square map"):
        hm.linalg.tensorsolve(hm.ones((2, 3, 5)), hm.ones((2, 3)))


def test_a_number_of_pieces_as_a_tensor() -> None:
    for sections in (hm.tensor(4), np.array(4), np.int64(4), 4):
        assert [t.tolist() for t in hm.array_split(hm.arange(6), sections)] == [[0, 1], [2, 3], [4], [5]]
    assert [t.tolist() for t in hm.array_split(hm.arange(4), hm.tensor([1, 3]))] == [[0], [1, 2], [3]]
    for size in (hm.tensor(4), np.array(4), np.int64(4), 4):
        assert [t.tolist() for t in hm.split(hm.arange(6), size)] == [[0, 1, 2, 3], [4, 5]]
    assert [t.tolist() for t in hm.hsplit(hm.arange(4), hm.tensor(2))] == [[0, 1], [2, 3]]
    with pytest.raises(hm.ShapeError, match="do not make 3 equal pieces"):
        hm.hsplit(hm.arange(4), hm.tensor(3))


def test_argwhere_without_axes() -> None:
    for value in (0.0, 1.0):
        want = np.argwhere(np.array(value)).shape
        assert np.argwhere(hm.tensor(value)).shape == want
        assert [found.shape for found in both(hm.argwhere, hm.tensor(value))] == [want] * 2


def test_variance_of_complex_numbers() -> None:
    z = R.normal(size=(3, 4)) + 1j * R.normal(size=(3, 4))
    t, chosen = hm.tensor(z), R.integers(0, 2, (3, 4)).astype(bool)
    for name in ("var", "std"):
        fn = getattr(np, name)
        for params in ({}, {"axis": 1, "ddof": 1}, {"axis": 0, "keepdims": True}, {"where": chosen | (z.real > 0)}):
            found = np.asarray(fn(t, **params))
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, fn(z, **params), rtol=1e-12)


def test_istft_of_a_whole_spectrum() -> None:
    x = hm.tensor(R.normal(size=40))
    window = hm.hann_window(8, dtype=hm.float64)
    whole = hm.stft(x, 8, 2, window=window, onesided=False, return_complex=True)
    assert whole.shape[0] == 8
    for found in both(lambda z: hm.istft(z, 8, 2, window=window), whole):
        np.testing.assert_allclose(found, x.numpy(), atol=1e-9)


def test_feature_alpha_dropout_of_one_axis() -> None:
    assert F.feature_alpha_dropout(hm.ones(5), 0.5, training=False).tolist() == [1.0] * 5
    with pytest.raises(hm.ShapeError, match="must be \\(n, c"):
        F.feature_alpha_dropout(hm.ones(5), 0.5, training=True)


def test_masked_scatter_broadcasts_to_the_mask() -> None:
    mask = np.eye(5, dtype=bool)
    want = np.zeros((5, 5), np.float32)
    want[mask] = np.arange(5)
    source = hm.arange(25.0).reshape((5, 5))
    for found in both(lambda x, m, s: hm.masked_scatter(x, m, s), hm.zeros(5), hm.tensor(mask), source):
        np.testing.assert_array_equal(found, want)
    with pytest.raises(hm.HybridmlError):
        hm.zeros(5).masked_scatter_(hm.tensor(mask), source)
