"""Results too large for the caches: stored past them, the same bits wherever they lie."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Graph, apply, input_node
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.schedule import cost
from hybridml_compiler.sizes.dims import symbol
from hybridml_compiler.targets.cpu.python_entry.spec import call_step
from hybridml_compiler.targets.cpu.spec import host_spec

past = host_spec().architecture == "x86_64"
ROWS = cost.STREAM_BYTES // 4 // 1024


@pytest.mark.parametrize("shape", [(ROWS, 1024), (ROWS + 3, 1031), (1024 * ROWS + 5,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_elementwise(shape: tuple[int, ...], dtype: str) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    traced = hm.trace(lambda x: x * 2 + 1)
    for _ in range(2):
        assert np.array_equal(traced(hm.tensor(x)).numpy(), x * 2 + 1)
    assert ("nontemporal" in traced.llvm) == ("sfence" in traced.llvm) == past


@pytest.mark.parametrize("size", [1, 63, 1000, 1 << 16, 1024 * ROWS, 2 * 1024 * ROWS + 5])
def test_eager_kernels_of_any_length(size: int) -> None:
    x = np.arange(size, dtype=np.float32) / 4
    assert np.array_equal((hm.tensor(x) + hm.tensor(x)).numpy(), x + x)
    assert np.array_equal(hm.exp(hm.tensor(x[:1])).numpy(), hm.exp(hm.tensor(x)).numpy()[:1])


def normalise(x: hm.Tensor) -> hm.Tensor:
    return (x - x.mean(-1, keepdims=True)) / x.max(-1, keepdims=True)


@pytest.mark.parametrize("fn", [normalise, lambda x: x.T + 1, lambda x: hm.cumsum(x, -1)])
def test_rows_tiles_and_scans(fn: Callable[[hm.Tensor], hm.Tensor]) -> None:
    x = np.random.default_rng(0).random((ROWS, 1024), np.float32)
    assert np.allclose(hm.trace(fn)(hm.tensor(x)).numpy(), fn(hm.tensor(x.astype("f8"))).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("off", [4, 16, 32, 60])
def test_a_result_beside_a_line_is_stored_as_ever(off: int) -> None:
    x = np.random.default_rng(0).random((ROWS, 1024), np.float32)
    given = input_node(Aval(x.shape, x.dtype))
    run = pipeline.compile(Graph((given,), (apply(OPS["multiply"], (given, given), {}),), "square"))
    owner = np.zeros(x.nbytes + 128, np.uint8)
    start = -owner.ctypes.data % 64 + off
    assert call_step(run.step, [x.ctypes.data, owner.ctypes.data + start, 0]) == 0
    assert np.array_equal(owner[start : start + x.nbytes].view("f4").reshape(x.shape), x * x)
    assert not owner[:start].any() and not owner[start + x.nbytes :].any()


def test_a_size_that_comes_with_the_call_decides_then() -> None:
    given = input_node(Aval((symbol("n", 64), 1024), np.dtype("f4")))
    run = pipeline.compile(Graph((given,), (apply(OPS["multiply"], (given, given), {}),), "square"))
    assert ("nontemporal" in run.llvm) == past
    for rows in (2, 64, ROWS, ROWS + 1):
        x = np.random.default_rng(0).random((rows, 1024), np.float32)
        assert np.array_equal(run([x])[0], x * x)


def test_small_results_stay_in_the_caches() -> None:
    traced = hm.trace(lambda x: x * 2 + 1)
    traced(hm.ones((ROWS // 2, 1024)))
    assert "nontemporal" not in traced.llvm


def test_a_chain_writes_what_its_next_stage_reads() -> None:
    def attend(q: hm.Tensor, k: hm.Tensor, v: hm.Tensor) -> hm.Tensor:
        return hm.functional.softmax(q @ k.mT, -1) @ v

    traced = hm.trace(attend)
    traced(*(hm.ones((64, 256, 64)) for _ in range(3)))  # scores of 16 MB
    assert "nontemporal" not in traced.llvm
