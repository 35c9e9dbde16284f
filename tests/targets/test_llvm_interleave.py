"""Stores into every n-th element, side by side: one contiguous store in the code, the same values in memory."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.ops.random import numpy_bits


@pytest.mark.parametrize("size", [1, 4, 31, 32, 36, 64, 1000, 4 * 8 * 33 + 3, 1 << 16])
def test_random_bits_are_those_of_the_reference(size: int) -> None:
    def draw(x: hm.Tensor) -> hm.Tensor:
        return hm.random.bits((size,), generator=generator) + x

    zero = hm.zeros((1,), dtype=hm.uint32)
    generator = hm.random.Generator(7)
    eager = [draw(zero).numpy() for _ in range(3)]
    generator = hm.random.Generator(7)
    traced = hm.trace(draw)
    assert [traced(zero).numpy().tolist() for _ in range(3)] == [e.tolist() for e in eager]
    assert np.array_equal(numpy_bits(np.array([7, 0], np.uint64), (size,)), eager[0])


def test_they_are_one_store() -> None:
    traced = hm.trace(lambda x: hm.random.bits((4096,)) + x)
    traced(hm.zeros((1,), dtype=hm.uint32))
    assert "masked.scatter" not in traced.llvm and "shufflevector" in traced.llvm
