"""Functions with NumPy's names that are compositions: what they refuse, in both styles, and edges of their meaning.

Their values and gradients are compared with NumPy's in tests/interop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

V = np.array([1.0, 2.0, 4.0])
A = np.arange(6.0).reshape(2, 3)

REFUSED: list[tuple[Callable[[Any], Any], np.ndarray, type[Exception], str]] = [
    (lambda x: hm.average(x, weights=x[0], axis=0), A, hm.ShapeError, "weights of shape"),
    (lambda x: hm.quantile(x, 1.5), V, hm.ArgumentError, "shares must lie in 0..1"),
    (lambda x: hm.percentile(x, -1), V, hm.ArgumentError, "shares must lie in 0..100"),
    (lambda x: hm.quantile(x, 0.5, method="middle"), V, hm.ArgumentError, "method must be one of linear"),
    (lambda x: hm.median(x[:0]), V, hm.ShapeError, "no elements along axis"),
    (lambda x: hm.cov(x[None, None]), V, hm.ShapeError, "at most 2 axes"),
    (lambda x: hm.cov(x, fweights=x[:2]), V, hm.ShapeError, "one an observation"),
    (lambda x: hm.histogram(x, 0), V, hm.ArgumentError, "at least one bin"),
    (lambda x: hm.histogramdd(x[:, None], [2, 2]), V, hm.ShapeError, "2 bins and 1 ranges for 1 coordinates"),
    (lambda x: hm.gradient(x[:1]), V, hm.ShapeError, "edge_order=1 needs 2"),
    (lambda x: hm.gradient(x, edge_order=3), V, hm.ArgumentError, "edge_order must be 1 or 2"),
    (lambda x: hm.gradient(x, 1.0, 2.0), V, hm.ArgumentError, "2 spacings for 1 axes"),
    (lambda x: hm.gradient(x, x[:2]), V, hm.ShapeError, "places along axis 0"),
    (lambda x: hm.interp(x, x, x[:2]), V, hm.ShapeError, "vectors of one length"),
    (lambda x: hm.interp(x, x, x, period=0), V, hm.ArgumentError, "must not be 0"),
    (lambda x: hm.convolve(x, x, "all"), V, hm.ArgumentError, "mode must be one of full"),
    (lambda x: hm.correlate(x, x[:0]), V, hm.ShapeError, "not empty"),
    (lambda x: hm.block([[x], x]), V, hm.ShapeError, "different depths"),
    (lambda x: hm.vstack([]), V, hm.ShapeError, "at least one tensor"),
    (lambda x: hm.insert(x, 5, 0.0), V, hm.OutOfBoundsError, "place 5 is out of bounds"),
    (lambda x: hm.delete(x, [-4]), V, hm.OutOfBoundsError, "place -4 is out of bounds"),
    (lambda x: hm.hsplit(x, 2), V, hm.ShapeError, "3 elements do not make 2"),
    (lambda x: hm.vsplit(x, 3), V, hm.ShapeError, "at least 2 axes"),
    (lambda x: hm.array_split(x, 0), V, hm.ArgumentError, "positive number of pieces"),
    (lambda x: hm.fliplr(x), V, hm.ShapeError, "fliplr: needs at least 2 axes"),
    (lambda x: hm.rot90(x, axes=(0, 0)), A, hm.ShapeError, "two different ones"),
    (lambda x: hm.diag(x[None]), A, hm.ShapeError, "a vector or a matrix"),
    (lambda x: hm.vander(x), A, hm.ShapeError, "needs a vector"),
    (lambda x: hm.poly(x), A, hm.ShapeError, "a vector of zeros or a square matrix"),
    (lambda x: hm.polyder(x, -1), V, hm.ArgumentError, "must not be negative"),
    (lambda x: hm.polyint(x, 3, k=[1.0, 2.0]), V, hm.ShapeError, "2 constants"),
    (lambda x: hm.polyfit(x, x[:2], 1), V, hm.ShapeError, "as many y"),
    (lambda x: hm.polyfit(x, x, 2, cov=True), V, hm.ArgumentError, "how good a fit"),
    (lambda x: hm.bitwise_count(x), V, hm.DTypeError, "needs integers"),
    (lambda x: hm.matvec(x, x), V, hm.ShapeError, "matrices and vectors"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "x", "error", "message"), REFUSED)
def test_what_they_refuse(call: Callable[[Any], Any], x: np.ndarray, error: type[Exception], message: str) -> None:
    for run in (call, hm.trace(call)):
        with pytest.raises(error, match=message.replace("(", r"\(").replace(")", r"\)")):
            run(hm.tensor(x))


def test_float32_stays_float32() -> None:
    x = hm.tensor(A, dtype=hm.float32)
    for y in (
        hm.average(x), hm.median(x), hm.quantile(x, [0.5]), hm.cov(x), hm.trapezoid(x), hm.gradient(x)[0], hm.nanstd(x),
        hm.interp(x, x[0], x[1]), hm.unwrap(x), hm.polyval(x[0], x), hm.convolve(x[0], x[1]), hm.histogram(x)[1],
        hm.nan_to_num(x), hm.fmod(x, 2.0), hm.logaddexp2(x, 1.0), hm.cbrt(x), hm.deg2rad(x), hm.spacing(x),
    ):  # fmt: skip
        assert y.dtype is hm.float32


def test_integers_become_the_default_float_where_a_fraction_may_come_out() -> None:
    x = hm.tensor([3, 1, 2])
    assert hm.median(x).item() == 2.0 and hm.average(x).dtype is hm.float32 and hm.ptp(x).dtype is hm.int64


def test_edges_of_the_elementwise_ones() -> None:
    edges = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
    x = hm.tensor(edges, dtype=hm.float64)
    array = np.array(edges)
    for name in ("angle", "cbrt", "fabs", "deg2rad", "isposinf", "isneginf"):
        # NumPy's cube root has another last bit on another processor.
        np.testing.assert_allclose(getattr(hm, name)(x).numpy(), getattr(np, name)(array), 2.0**-52, 0, err_msg=name)
    for found, expected in zip(hm.modf(x), np.modf(array), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)
        np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(expected))
    pairs = np.array(np.meshgrid(array, array)).reshape(2, -1)
    for name in ("fmax", "fmin", "logaddexp2", "heaviside"):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(*pairs)
        np.testing.assert_allclose(
            getattr(hm, name)(*map(hm.tensor, pairs)).numpy(), expected, rtol=1e-15, err_msg=name
        )
    with np.errstate(all="ignore"):
        expected = np.fmod(*pairs)
    np.testing.assert_array_equal(hm.fmod(*map(hm.tensor, pairs)).numpy(), expected)


def test_integers_of_fmod_and_counts_of_bits() -> None:
    for dtype in (np.int8, np.int64, np.uint16):
        x = np.array([7, 5, 120, 1], dtype) - (6 if np.dtype(dtype).kind == "i" else 0)
        np.testing.assert_array_equal(hm.fmod(hm.tensor(x), 4).numpy(), np.fmod(x, dtype(4)))
        np.testing.assert_array_equal(hm.bitwise_count(hm.tensor(x)).numpy(), np.bitwise_count(x))
