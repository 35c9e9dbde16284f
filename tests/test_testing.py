"""hybridml.testing: what it accepts, and that it says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.testing import assert_kernels, assert_retraces, gradcheck


class Wrong(hm.autograd.Function):
    """x * x with a gradient of 3."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3


def test_right_gradients_pass() -> None:
    rng = np.random.default_rng(0)
    a, b, z = rng.random((2, 3)), rng.random((3, 2)), rng.random(4) + 1j * rng.random(4)
    assert gradcheck(lambda x: hm.exp(x) * x, [0.5, 1.5])
    assert gradcheck(lambda a, k, b: (a @ b, {"rows": hm.take(a, k, axis=0)}), a, np.array([1, 0]), b)
    assert gradcheck(lambda z: (abs(z), z * z, hm.real(z), hm.conj(z)), z)
    assert gradcheck(hm.trace(lambda x: hm.tanh(x) * x), hm.asarray(a))
    assert gradcheck(lambda x: x * 2 > 1, a), "nothing to check is right"


def test_wrong_gradients_and_narrow_floats_are_errors() -> None:
    with pytest.raises(hm.GradientError, match="order 1: the gradient says"):
        gradcheck(Wrong.apply, [1.0, 2.0])
    with pytest.raises(hm.GradientError, match="order 1"):
        gradcheck(abs, [0.0, 1e-7])
    with pytest.raises(hm.DTypeError, match="needs float64 or complex128, got float32"):
        gradcheck(lambda x: x, hm.ones((2,)))


def test_kernels_and_retraces_are_counted() -> None:
    @hm.trace
    def f(x: Any) -> Any:
        return hm.exp(x) * 2 + 1

    f(hm.ones((8,)))
    assert_kernels(f, 1)
    assert_retraces(f)
    f(hm.ones((2, 4), dtype=hm.float64))
    assert_retraces(f, 1)
    with pytest.raises(AssertionError, match="f runs 1 kernels, 0 at most"):
        assert_kernels(f, 0)
    with pytest.raises(AssertionError, match=r"1 calls were traced again, 0 at most were expected:\n  f retraced"):
        assert_retraces(f)
