"""Casts of floats to integers have one meaning, for nan and for what does not fit too: in NumPy's loops, compiled, and
by the definition of the rows."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.ops import conversion

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
EDGES = [
    np.nan, np.inf, -np.inf, -1.0, -1.5, 0.99, -0.99, 255.9, 256.0, -129.0, 300.0, 70000.0, 3e9, -3e9, 5e9, 1e10, 1e19,
    1.5e19, -1e19, 2e19, 1e30, -1e30, 2.0**31, -(2.0**31) - 0.5, 2.0**63, -(2.0**63), 2.0**64,
]  # fmt: skip


def edges(dtype: object, repeated: int = 1) -> hm.Tensor:
    with np.errstate(over="ignore"):
        return hm.tensor(np.tile(np.array(EDGES, np.float32), repeated)).astype(dtype)


@pytest.mark.parametrize("source", [hm.float16, hm.bfloat16, hm.float32, hm.float64], ids=lambda d: d.name)
def test_eager_and_traced_are_equal(source: object) -> None:
    def program(x: hm.Tensor) -> list[hm.Tensor]:
        return [x.astype(target) for target in INTEGERS]

    x = edges(source, 3)
    eager, traced = program(x), hm.trace(program)(x)
    alone = [program(x[k]) for k in range(len(EDGES))]  # none of them in a vector
    for n, (a, b) in enumerate(zip(eager, traced, strict=True)):
        assert a.tolist() == b.tolist()
        assert a.tolist()[: len(EDGES)] == [found[n].item() for found in alone]


@pytest.mark.parametrize("target", INTEGERS)
def test_the_portable_way_is_that_of_numpy_where_it_is_taken(target: str) -> None:
    for source in (np.float32, np.float64):
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.array(EDGES, source)
            assert conversion._integers(x, np.dtype(target)).tolist() == conversion.cast(x, np.dtype(target)).tolist()


def test_the_meaning() -> None:
    x = hm.tensor([-1.0, 300.0, float("nan"), float("inf"), 3e9])
    assert x.astype(hm.uint8).tolist() == [255, 44, 0, 0, 0]
    assert x.astype(hm.int32).tolist() == [-1, 300, -(2**31), -(2**31), -(2**31)]
    assert x.astype(hm.uint32).tolist() == [2**32 - 1, 300, 0, 0, 3_000_000_000]
    assert x.astype(hm.int64).tolist() == [-1, 300, -(2**63), -(2**63), 3_000_000_000]
    assert hm.tensor([-1.0, float("nan"), float("inf")]).astype(hm.uint64).tolist() == [2**64 - 1, 2**63, 0]


def test_float64_is_rounded_to_float16_by_way_of_float32() -> None:
    x = hm.tensor(np.array([1 + 2.0**-11 + 2.0**-40]))
    assert x.astype(hm.float16).tolist() == hm.trace(lambda x: x.astype(hm.float16))(x).tolist() == [1.0]
