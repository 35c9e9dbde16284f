"""Products of few rows: sums in a fixed order, whatever the tile, the threads and the vectors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace
from hybridml_compiler.targets.cpu.kernels import gemv as limits
from hybridml_compiler.targets.cpu.kernels.gemv import SUMS, Axpys, Gemv, axpys_of, dots_of
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.gemm.gemv import Dots, Updates
from hybridml_compiler.targets.cpu.llvm.gemm.product import own_blocking
from hybridml_compiler.targets.cpu.runtime import jit, scratch, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.product_cases import RUN, WIDTHS, Case, usable_widths

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")

SIZES = [(1, 2, 16), (1, 9, 17), (2, 3, 40), (3, 8, 129), (5, 7, 31), (8, 33, 64), (13, 21, 100), (16, 16, 131)]


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_SIZE", 1)
    monkeypatch.setattr(limits, "STEPS_A_ROW", 1)


def cut(case: Case, width: int, cores: int = 2) -> Gemv:
    found = dots_of(case.product, width, WIDTHS[width], cores)
    assert found is not None
    return found


def run(case: Case, dots: Gemv | Axpys, apart: bool = False) -> np.ndarray:
    p = case.product
    module = ir.Module("product", host_spec())
    kind: Any = Dots if isinstance(dots, Gemv) else Updates
    kind(module, "product", p, dots).emit()
    library = loader.load([jit.compile_ir(str(module))], scratch.symbols(), ["product"])
    scratch.require()
    guard = 64
    memory = np.full(p.matrices * p.m * p.n + 2 * guard, np.nan, p.dtype)
    starts = [x.ctypes.data - m.offset * p.dtype.itemsize for x, m in ((case.a, p.a), (case.b, p.b))]
    table = (ctypes.c_void_p * 3)(*starts, memory[guard:].ctypes.data)
    count = dots.units(p)
    for lo, hi in [(k, k + 1) for k in reversed(range(count))] if apart else [(0, count)]:
        RUN(library.address("product"))(ctypes.addressof(table), lo, hi)
    assert np.isnan(memory[:guard]).all() and np.isnan(memory[-guard:]).all(), "wrote outside of the result"
    return memory[guard:-guard].reshape(*p.batch, p.m, p.n)


def in_order(case: Case) -> np.ndarray:
    """The sums as `schedule.dots` defines them; products of these operands are exact in float64, as in an fma."""
    a, b = case.a.astype("f8"), case.b.astype("f8").swapaxes(-1, -2)
    k = -(-case.product.k // SUMS) * SUMS
    a, b = (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, k - x.shape[-1])]) for x in (a, b))
    sums = np.zeros((*case.product.batch, case.product.m, case.product.n, SUMS), "f4")
    for step in range(0, k, SUMS):
        products = a[..., :, None, step : step + SUMS] * b[..., None, :, step : step + SUMS]
        sums = (sums + products).astype("f4")
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums[..., 0]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_bit_on_any_vector_and_in_any_unit(size: tuple[int, int, int]) -> None:
    case = Case(size, "nt", batch=(2,) if size[0] % 2 else (), pad=3, offset=5)
    for x in (case.a, case.b):  # 8 bits of mantissa: sums of products in float64 are rounded once
        x[...] = np.round(x * 32) / 32
    expected = in_order(case)
    for width in usable_widths():
        for cores, apart in ((1, False), (3, True)):
            np.testing.assert_array_equal(run(case, cut(case, width, cores), apart), expected)
        np.testing.assert_array_equal(run(case, replace(cut(case, width), far=True)), expected)


@pytest.mark.parametrize("size", [(1, 8, 1), (1, 16, 9), (1, 37, 40), (1, 300, 17), (1, 1030, 24)], ids=str)
def test_rows_are_added_in_order(size: tuple[int, int, int]) -> None:
    case = Case(size, "nn", batch=(2,), pad=3, offset=5)
    for x in (case.a, case.b):  # 8 bits of mantissa, as above
        x[...] = np.round(x * 32) / 32
    expected = np.zeros((2, 1, size[1]), "f4")
    for k in range(size[2]):
        expected = (expected + case.a[:, :, k, None].astype("f8") * case.b[:, None, k]).astype("f4")
    for width in usable_widths():
        for cores, apart in ((1, False), (3, True)):
            found = axpys_of(case.product, width, cores)
            assert found is not None or size[1] < width // 4
            if found is not None:
                np.testing.assert_array_equal(run(case, found, apart), expected)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_tiles_and_blocks_cover_the_result_and_fit_the_registers(size: tuple[int, int, int]) -> None:
    m, n, _ = size
    for width, registers in {**WIDTHS, 16: 32}.items():
        found = dots_of(Case(size, "nt").product, width, registers, 4)
        assert found is not None
        assert found.large * found.rows + (found.tiles - found.large) * (found.rows - 1) == m
        assert found.columns <= found.block and found.block * found.blocks <= n
        assert SUMS // found.lanes * found.rows * found.columns + found.rows + 1 <= registers


def test_which_products_are_sums_along_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cpu = host_spec()
    few, many = Case((8, 512, 512), "nt").product, Case((32, 512, 512), "nt").product
    assert isinstance(own_blocking(few, cpu), Gemv) and not isinstance(own_blocking(many, cpu), Gemv)
    others = [Case((8, 512, 512)), Case((8, 512, 512), "tt"), Case((16, 512, 64), "nt"), Case((4, 16, 64), "nt")]
    assert not any(isinstance(own_blocking(case.product, cpu), Gemv) for case in others)
    far = dots_of(Case((1, 2048, 1024), "nt").product, 64, 32, 1)
    assert far is not None and far.far


def test_a_linear_layer_of_one_row_with_what_follows_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype("f4") for shape in ((1, 384), (1003, 384), (1003,))]
    x, w, bias = nodes = graph_of(arrays)
    turned = apply(OPS["permute_dims"], [w], {"axes": (1, 0)})
    added = apply(OPS["add"], [apply(OPS["matmul"], [x, turned], {}), bias], {})
    executable = pipeline.compile(Graph(tuple(nodes), (apply(OPS["abs"], [added], {}),)))
    assert len(executable.launches) == 1
    count = threads.get_num_threads()
    try:
        for number in (1, 2, 3):
            threads.set_num_threads(number)
            np.testing.assert_array_equal(executable(arrays)[0], abs(arrays[0] @ arrays[1].T + arrays[2]))
    finally:
        threads.set_num_threads(count)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_that_come_with_a_step_of_a_loop(dtype: str) -> None:
    def columns(x: Any, y: Any) -> Any:
        found = hm.zeros((41, 41), dtype=dtype)
        for i in range(41):
            found[i, i:] = x[:, i] @ x[:, i:] / 2.0
        return found

    def rows(x: Any, y: Any) -> Any:
        found = hm.zeros((41, 37), dtype=dtype)
        for i in range(41):
            found[i] = x[i, : i + 1] @ y[: i + 1]
        return found

    def place(x: Any, y: Any) -> Any:
        found = hm.zeros((57, 37), dtype=dtype)
        for i in range(57):
            found[i] = x[i] @ y + 1.0
        return found

    rng = np.random.default_rng(0)
    x, y = (hm.asarray(rng.integers(-4, 5, size).astype(dtype)) for size in ((57, 41), (41, 37)))
    for program in (columns, rows, place):
        traced = hm.trace(program)
        found, expected = traced(x, y), program(x, y)
        assert found.dtype == dtype and np.array_equal(found.numpy(), expected.numpy())  # sums of integers are exact
        assert " = loop(" in str(traced.ir) and "gemm" not in str(traced.llvm)
