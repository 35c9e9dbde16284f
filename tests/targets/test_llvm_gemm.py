"""Our own matrix product: every layout, size of edge, batch and width of vector, against NumPy."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.kernels.gemm import Product, use_own_product
from hybridml_compiler.targets.cpu.kernels import gemm_blocking as limits
from hybridml_compiler.targets.cpu.kernels.gemm_blocking import Blocking, blocking_of, tile_shape
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.contraction.packing import emit_turn
from hybridml_compiler.targets.cpu.llvm.gemm.product import (
    emit_product,
    own_blocking,
    plan_of,
    product_source,
)
from hybridml_compiler.targets.cpu.runtime import jit, scratch, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.product_cases import WIDTHS, Case, usable_widths

LAYOUTS = ("nn", "nt", "tn", "tt")
pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")


def blocked(product: Product, width: int = 32, cores: int = 2) -> Blocking:
    return blocking_of(product, width, WIDTHS[width], cores)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_sizes_of_every_layout(layout: str) -> None:
    rng = np.random.default_rng(0)
    sizes = [(1, 1, 1), (1, 67, 1), (67, 1, 3), (16, 32, 16), (15, 33, 17), *map(tuple, rng.integers(1, 68, (6, 3)))]
    for number, size in enumerate(sizes):
        case = Case(tuple(map(int, size)), layout)
        case.check(blocked(case.product, usable_widths()[number % len(usable_widths())]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float64(layout: str) -> None:
    case = Case((29, 37, 41), layout, dtype=dtypes.float64)
    case.check(blocked(case.product, usable_widths()[0]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_of_k_and_packed_panels(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_DEPTH", "MAX_DEPTH_TALL", "MAX_DEPTH_TRANSPOSED"):
        monkeypatch.setattr(limits, name, 48)
    monkeypatch.setattr(limits, "UNIT_BYTES", 1 << 14)
    case = Case((45, 150, 130), layout)
    blocking = blocked(case.product, usable_widths()[0])
    assert blocking.depth < case.product.k
    case.check(replace(blocking, pack=True, column_blocks=-(-blocking.panels // min(blocking.unit_panels, 2))))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_strides_and_offsets(layout: str) -> None:
    case = Case((19, 23, 21), layout, batch=(2, 3), pad=5, offset=7)
    case.check(blocked(case.product))


def test_an_operand_shared_by_a_batch() -> None:
    case = Case((19, 23, 21), batch=(4,))
    case.b = np.broadcast_to(case.b[0], case.b.shape)
    case.product = replace(case.product, b=replace(case.product.b, batch=(0,)))
    case.check(blocked(case.product))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_depend_neither_on_threads_nor_on_tiles_nor_on_the_width(layout: str) -> None:
    case = Case((61, 100, 600), layout)
    results = []
    for width, cores in itertools.product(usable_widths(), (1, 3)):
        blocking = blocked(case.product, width, cores)
        count = blocking.units(case.product)
        results.append(case.run(blocking))
        results.append(case.run(blocking, [(k, k + 1) for k in reversed(range(count))]))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [100, 112])
@pytest.mark.parametrize("pack", [False, True])
def test_a_last_panel_of_fewer_vectors_has_the_same_bits(
    layout: str, columns: int, pack: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case((37, columns, 300), layout, pad=3)
    want = case.check(blocked(case.product))
    monkeypatch.setattr(limits, "TAIL_NS", 0.0)
    monkeypatch.setattr(limits, "tile_shape", lambda m, *_, **__: (-(-m // 4), 3))
    for width in usable_widths():
        blocking = replace(blocked(case.product, width), pack=pack or case.product.b.transposed)
        assert 0 < blocking.tail < blocking.vectors
        np.testing.assert_array_equal(case.check(blocking), want)


def test_a_last_panel_of_its_own_is_for_products_that_take_long() -> None:
    """784 columns of 16 are 16 panels of three vectors and one more."""
    large, small = (Case((64, 784, k)).product for k in (1200, 64))
    assert blocked(small, 64).tail == blocked(small, 64).vectors
    blocking = blocked(large, 64)
    assert blocking.tail == 49 - (blocking.panels - 1) * blocking.vectors < blocking.vectors


def test_tiles_cover_the_rows_and_fit_the_registers() -> None:
    for m, n, lanes, registers in itertools.product((1, 2, 13, 64, 67, 1000), (1, 10, 48, 500), (4, 16), (16, 32)):
        tiles, vectors = tile_shape(m, n, lanes, registers, limits.MAX_ROWS)
        rows = -(-m // tiles)
        assert tiles * (rows - 1) < m <= tiles * rows
        assert rows * vectors + vectors + 1 <= registers


def test_few_rows_are_read_at_once_where_they_share_a_set_of_l1() -> None:
    sizes = {k: blocked(Case((256, 16, k)).product, 64).rows for k in (1000, 1024)}
    assert sizes[1024] <= limits.L1_WAYS < sizes[1000]


def test_units_share_a_large_product_and_leave_a_small_one_whole() -> None:
    large, small = Case((256, 256, 256)).product, Case((16, 16, 16)).product
    assert blocked(large, cores=2).units(large) >= 4
    assert blocked(small).units(small) == 1
    tall = Case((4096, 32, 64)).product
    assert blocked(tall).units(tall) >= 4


def test_the_cost_decides_between_blas_and_our_own() -> None:
    def uses_own(size: tuple[int, int, int], layout: str = "nn", dtype: np.dtype = dtypes.float32) -> bool:
        return use_own_product(Case(size, layout, dtype=dtype).product, 1.0, 64)

    assert uses_own((128, 512, 512)) and uses_own((512, 512, 128), "tn") and uses_own((64, 64, 64), "nt")
    assert uses_own((8, 512, 512), "nt") and uses_own((1, 1024, 1024)) and uses_own((64, 4095, 512))
    assert not uses_own((64, 64, 64)) and not uses_own((8, 64, 64), "nt") and not uses_own((1, 1024, 1024), "nt")
    assert not uses_own((128, 512, 512), dtype=dtypes.float64)
    batch = Case((16, 16, 16), batch=(256,)).product
    assert use_own_product(batch, 1.0, 64) and not use_own_product(batch, 0.9, 64)
    narrow = Case((1024, 8, 1024)).product
    assert use_own_product(narrow, 0.5, 64) and not use_own_product(narrow, 0.25, 64)
    square, turned = (Case((1024, 1024, 1024), layout).product for layout in ("nn", "tn"))
    assert use_own_product(square, 1.0, 32) and not use_own_product(turned, 1.0, 32)


def test_a_right_operand_that_comes_from_memory_is_packed() -> None:
    small, large = Case((64, 256, 256)).product, Case((64, 1024, 576), batch=(4,)).product
    assert not blocked(small, 64).pack and blocked(large, 64).pack
    few, more = Case((32, 256, 512)).product, Case((32, 1024, 512)).product  # rows of B 4 KB apart share a set of L2
    assert blocked(small, 32).pack and not blocked(few, 32).pack and blocked(more, 32).pack


def test_a_right_operand_is_packed_where_many_rows_read_it() -> None:
    def packs(m: int, layout: str = "nn", n: int = 512) -> bool:
        return blocked(Case((m, n, 512), layout).product, 64).pack

    assert packs(128) and not packs(127) and not packs(128, n=64)
    assert packs(64, "tn") and not packs(63, "tn")


def test_rows_that_share_a_line_are_read_at_once() -> None:
    # Of a transposed A, 14 rows are a line; others whose lines are in one set of L1 evict each other.
    assert blocked(Case((394, 768, 768), "tn").product, 64).rows > 8
    assert blocked(Case((394, 768, 1024)).product, 64).rows <= 8


@pytest.mark.parametrize("layout", ("nn", "nt", "tn"))
def test_the_product_that_is_chosen_runs_on_the_pool(layout: str) -> None:
    case = Case((128, 192, 128), layout)
    p = case.product
    cpu = host_spec()
    module = ir.Module("chosen", cpu)
    parts = [emit_turn(module, f"turn{k}", part).name for k, part in enumerate(plan_of(p, cpu).parts(p))]
    emit_product(module, "product", p, parts)
    assert ("Slabs" in product_source(p, cpu)) == (own_blocking(p, cpu) is None)
    if own_blocking(p, cpu) is None:
        return
    library = loader.load([jit.compile_ir(str(module))], scratch.symbols(), ["product"])
    scratch.require()
    out = np.full((p.m, p.n), np.nan, p.dtype)
    table: Any = (ctypes.c_void_p * 3)(case.a.ctypes.data, case.b.ctypes.data, out.ctypes.data)
    threads.run(library.address("product"), ctypes.addressof(table), plan_of(p, cpu).units(p), 1)
    np.testing.assert_array_equal(out, case.run(blocked(p, usable_widths()[-1], 1)))


def test_a_compiled_graph_has_the_same_bits_on_any_number_of_threads() -> None:
    """x @ w.T, its gradients' layouts and a batch, all in one graph; sums of small integers are exact."""
    rng = np.random.default_rng(0)
    shapes = ((128, 192), (160, 192), (4, 128, 160), (4, 160, 128))
    arrays = [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    nodes = graph_of(arrays)
    x, w, p, q = nodes
    turned = [apply(OPS["permute_dims"], [v], {"axes": (1, 0)}) for v in (x, w)]
    pairs = [(x, turned[1]), (turned[0], x), (p, q)]
    graph = Graph(tuple(nodes), tuple(apply(OPS["matmul"], list(pair), {}) for pair in pairs))
    executable = pipeline.compile(graph)
    expected = [arrays[0] @ arrays[1].T, arrays[0].T @ arrays[0], arrays[2] @ arrays[3]]
    count = threads.get_num_threads()
    try:
        for number in (1, 2, 3):
            threads.set_num_threads(number)
            for got, want in zip(executable(arrays), expected, strict=True):
                np.testing.assert_array_equal(got, want)
    finally:
        threads.set_num_threads(count)
    assert ("hml_sgemm" in executable.llvm) == (
        host_spec().vector_bits < 512
    )  # narrower vectors leave a transposed A to it
