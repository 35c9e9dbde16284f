"""Every function that makes an array, in every dtype: traced as eager, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
MAKERS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda d: hm.zeros((2, 3), dtype=d),
    "ones": lambda d: hm.ones(3, dtype=d),
    "full": lambda d: hm.full((3,), 1, dtype=d),
    "empty_like": lambda d: hm.zeros_like(hm.ones(2), dtype=d),
    "arange": lambda d: hm.arange(5, dtype=d),
    "arange, negative": lambda d: hm.arange(-3, 3, dtype=d),
    "arange, fractions": lambda d: hm.arange(-2.5, 3, 0.3, dtype=d),
    "linspace": lambda d: hm.linspace(-1, 1, 7, dtype=d),
    "logspace": lambda d: hm.logspace(0, 1, 4, dtype=d),
    "geomspace": lambda d: hm.geomspace(1, 8, 4, dtype=d),
    "eye": lambda d: hm.eye(3, k=1, dtype=d),
    "identity": lambda d: hm.identity(3, dtype=d),
    "tri": lambda d: hm.tri(3, dtype=d),
    "vander": lambda d: hm.vander(hm.ones(3, dtype=d)),
    "diag": lambda d: hm.diag(hm.ones(3, dtype=d)),
    "one_hot": lambda d: hm.one_hot(hm.tensor([0, 2]), num_classes=3, dtype=d),
    "matrix_power": lambda d: hm.linalg.matrix_power(hm.full((2, 2), 2, dtype=d), 0),
    "window": lambda d: hm.hann_window(4, dtype=d),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_traced_is_eager(dtype: str) -> None:
    makers = {}
    for name, make in MAKERS.items():
        try:
            makers[name] = make, make(dtype)
        except (hm.HybridmlError, AttributeError):
            with pytest.raises((hm.HybridmlError, AttributeError)):
                hm.trace(make)(dtype)
    assert len(makers) >= len(MAKERS) - 6
    traced = hm.trace(lambda: [make(dtype) for make, _ in makers.values()])()
    for (name, (_, eager)), found in zip(makers.items(), traced, strict=True):
        assert found.dtype is eager.dtype, name
        assert found.numpy().tobytes() == eager.numpy().tobytes(), name
