"""Loads in steps of a few elements: picked from whole vectors, which end where the elements end."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import dtypes


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "bool", "bfloat16", "complex64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -1, -2, -3, -4])
def test_elements_in_steps(step: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    for count, rest in ((128, 0), (128, 3), (37, 1), (6, 0)):  # whole vectors up to the end of the memory, and others
        a = np.random.default_rng(0).integers(-9, 9, (3, abs(step) * (count - 1) + 1 + rest))
        x = hm.asarray(a.astype(dtypes.canonical(dtype)))
        at = np.s_[:, rest::step] if step > 0 else np.s_[:, -1 - rest :: step]
        got = hm.trace(lambda x, at=at: hm.where(x[at] != 0, x[at], x[at]))(x)
        np.testing.assert_array_equal(got.numpy(), x.numpy()[at])
