"""Comparison of sums: an error is measured against the terms that were added, not against what they left.

Two orders of adding the same terms differ by roundings of the terms. Where those cancel, any two correct programs
differ by more than a small part of the sum, and which machine is the unlucky one depends on its vectors and its BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROUNDINGS = 16  # of the largest term: orders of adding up differ by 1 to 6 in the suite's sums


def assert_close(
    got: Any,
    expected: Any,
    what: str = "",
    *,
    rtol: float | None = None,
    terms: Any = None,
    roundings: float = ROUNDINGS,
    dtype: Any = None,
) -> None:
    """Raise AssertionError unless shapes and dtypes are equal and each element is within ``rtol`` of its own size, or
    within ``roundings`` units in the last place of its terms.

    ``terms`` is the size of the terms that were added, a number or one per element: see `magnitude`. Without it, that
    of the largest element: right where all elements are sums over the same axes, as of a product or a gradient. For
    elementwise functions give 1.0. ``rtol`` is sqrt(eps) / 16 if not given: 2e-5 for float32, 9e-10 for float64.
    ``dtype`` is what was added in, where the result has a wider one. What is not floating point is compared exactly.
    """
    __tracebackhide__ = True
    got, expected = np.asarray(got), np.asarray(expected)
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, expected, err_msg=what, strict=True)
        return
    eps = float(np.finfo(dtype or expected.dtype).eps)
    if terms is None:
        terms = np.abs(expected).max(initial=0.0, where=np.isfinite(expected))
    allowed = roundings * eps * np.asarray(terms, np.float64)
    if allowed.ndim == 0:
        rtol = eps**0.5 / 16 if rtol is None else rtol
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=float(allowed), err_msg=what, strict=True)
        return
    # An element is what its terms allow: nothing is added for its own size, which they bound.
    errors = (got - expected) / allowed
    np.testing.assert_allclose(
        errors, np.zeros(expected.shape, errors.dtype), rtol=0, atol=1, err_msg=what, strict=True
    )


def magnitude(function: Any, *operands: Any) -> np.ndarray:
    """Size of the terms of each sum that a multilinear function makes (matmul, a convolution): its value for the
    absolute values, in float64."""
    return np.asarray(function(*(np.abs(np.asarray(x, np.float64)) for x in operands)))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal to the last bit, signs of zeros included; one nan is as good as another."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return a.tobytes() == b.tobytes()
    parts = [(a.real, b.real), (a.imag, b.imag)] if a.dtype.kind == "c" else [(a, b)]
    return all(
        np.array_equal(x, y, equal_nan=True)
        and np.array_equal(np.signbit(x) | np.isnan(x), np.signbit(y) | np.isnan(y))
        for x, y in parts
    )
