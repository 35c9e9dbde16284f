"""`contiguous()` gives row-major memory, in both styles; large copies are made by a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm


@pytest.mark.parametrize("shape", [(3, 4), (600, 500), (0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "bfloat16"])
def test_the_result_is_row_major(shape: tuple[int, ...], dtype: str) -> None:
    x = hm.asarray(np.random.default_rng(0).standard_normal(shape) > 0).astype(dtype)
    expected = x.numpy().T
    for run in (lambda x: x[:].T.contiguous(), hm.trace(lambda x: x[:].T.contiguous())):
        got = run(x)
        assert got.numpy().flags.c_contiguous
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.numpy(), expected)
        if x.size:
            assert not np.shares_memory(got.numpy(), x.numpy())


def test_a_tensor_in_this_order_is_its_own_and_gradients_flow() -> None:
    x = hm.ones((2, 3), requires_grad=True)
    assert x.contiguous() is x
    (x.T.contiguous() * hm.arange(6.0).reshape((3, 2))).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.arange(6.0).reshape(3, 2).T)


@pytest.mark.parametrize("key", [np.s_[:, ::2], np.s_[::-1, ::-1], np.s_[:, ::-2]])
def test_elements_in_even_steps_are_copied(key: Any) -> None:
    x = hm.arange(24.0).reshape((4, 6))
    got = x[key].contiguous()
    assert got.numpy().flags.c_contiguous and not np.shares_memory(got.numpy(), x.numpy())
    np.testing.assert_array_equal(got.numpy(), x.numpy()[key])
    np.testing.assert_array_equal(hm.trace(lambda x: x[key].contiguous() * 2.0)(x).numpy(), got.numpy() * 2.0)
