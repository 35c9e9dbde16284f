"""Products of narrow operands: every format, layout, size of edge, batch and width of vector, against exact ones."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from hybridml_compiler import dtypes
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.kernels.convolution import Pretranspose
from hybridml_compiler.schedule.kernels.gemm import Matrix, Product
from hybridml_compiler.targets.cpu.kernels import gemm_blocking as limits
from hybridml_compiler.targets.cpu.kernels.low_precision import (
    BYTES,
    FLOATS,
    PAIRS,
    SHORTS,
    Format,
    format_of,
    narrow_blocking,
)
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.contraction.packing import emit_turn
from hybridml_compiler.targets.cpu.llvm.gemm.blocked import BlockedProduct
from hybridml_compiler.targets.cpu.runtime import jit, scratch
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.examples import every

LAYOUTS = ("nn", "nt", "tn", "tt")
WIDTHS = {64: 32, 32: 16, 16: 16}  # bytes of a register: how many there are
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
BF16 = dtypes.bfloat16

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")

# What is stored, and the format that multiplies it: by instructions of its own where the machine has them, converted.
Kind = tuple[np.dtype, np.dtype, Format]
CONVERTED: dict[str, Kind] = {
    "bf16 widened": (BF16, BF16, FLOATS),
    "bf16 by f32": (BF16, dtypes.float32, FLOATS),
    "f32 by bf16": (dtypes.float32, BF16, FLOATS),
    "i8 widened": (dtypes.int8, dtypes.int8, SHORTS),
    "u8 by i8 widened": (dtypes.uint8, dtypes.int8, SHORTS),
    "u8 widened": (dtypes.uint8, dtypes.uint8, SHORTS),
}
NATIVE: dict[str, tuple[str, Kind]] = {
    "bf16": ("avx512bf16", (BF16, BF16, PAIRS)),
    "i8": ("avx512vnni", (dtypes.int8, dtypes.int8, BYTES)),
    "u8 by i8": ("avx512vnni", (dtypes.uint8, dtypes.int8, BYTES)),
}
KINDS = CONVERTED | {name: kind for name, (feature, kind) in NATIVE.items() if feature in host_spec().enabled}


def widths(how: Format) -> list[int]:
    return [w for w in WIDTHS if 8 * w <= host_spec().vector_bits and (w == 64 or how in (FLOATS, SHORTS))]


class Case:
    """A product and operands for it: `pad` extra columns a row, `offset` elements before the first matrix."""

    def __init__(
        self,
        kind: Kind,
        size: tuple[int, int, int],
        layout: str = "nn",
        batch: tuple[int, ...] = (),
        pad: int = 0,
        offset: int = 0,
    ) -> None:
        m, n, k = size
        left, right, self.how = kind
        rng = np.random.default_rng([m, n, k])
        self.dtype = dtypes.int32 if left.kind in "iu" else dtypes.float32
        self.a, a = self._operand(rng, (*batch, m, k), layout[0] == "t", left, pad, offset)
        self.b, b = self._operand(rng, (*batch, k, n), layout[1] == "t", right, pad, offset)
        self.product = Product(self.dtype, batch, m, n, k, a, b, (left, right))

    @staticmethod
    def _operand(
        rng: np.random.Generator, shape: tuple[int, ...], transposed: bool, dtype: np.dtype, pad: int, offset: int
    ) -> tuple[np.ndarray, Matrix]:
        """All values of 8 bits, and small ones that no order of additions rounds; outside, what would show."""
        *batch, rows, columns = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
        stored = (*batch, rows, columns + pad)
        memory = np.full(offset + int(np.prod(stored)), 113 if dtype.kind in "iu" else np.nan, dtype)
        matrices = memory[offset:].reshape(stored)[..., :columns]
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-8, 8)
        matrices[...] = rng.integers(low, high + 1, matrices.shape).astype(dtype)
        steps = tuple(s // dtype.itemsize for s in matrices.strides)
        row, column = (1, steps[-2]) if transposed else (steps[-2], 1)
        values = matrices.swapaxes(-1, -2) if transposed else matrices
        return values, Matrix(offset, steps[:-2], row, column)

    def run(self, width: int, cores: int = 2, ranges: Sequence[tuple[int, int]] | None = None) -> np.ndarray:
        p = self.product
        blocking = narrow_blocking(p, self.how, width, WIDTHS[width], cores)
        module = ir.Module("product", host_spec())
        emit_turn(module, "turn", Pretranspose(dtypes.float32, blocking.lanes))
        BlockedProduct(module, "product", p, blocking, symbols=["turn"], how=self.how).emit()
        library = loader.load([jit.compile_ir(str(module))], scratch.symbols(), ["product"])
        scratch.require()
        guard = 64
        memory = np.full(p.matrices * p.m * p.n + 2 * guard, 77, p.dtype)
        out = memory[guard:-guard]
        # The operands' memory starts `offset` elements before their first element.
        starts = [x.ctypes.data - m.offset * x.itemsize for x, m in ((self.a, p.a), (self.b, p.b))]
        table = (ctypes.c_void_p * 3)(*starts, out.ctypes.data)
        run = RUN(library.address("product"))
        for lo, hi in ranges or [(0, blocking.units(p))]:
            run(ctypes.addressof(table), lo, hi)
        assert (memory[:guard] == 77).all() and (memory[-guard:] == 77).all(), "wrote outside of the result"
        return out.reshape(*p.batch, p.m, p.n).copy()

    def check(self, width: int) -> None:
        exact = self.a.astype(np.float64) @ self.b.astype(np.float64)
        np.testing.assert_array_equal(self.run(width), exact.astype(self.dtype), str(self.product))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", every(2, LAYOUTS))
def test_odd_sizes_of_every_layout(kind: str, layout: str) -> None:
    rng = np.random.default_rng(0)
    sizes = [(1, 1, 1), (5, 67, 2), (67, 1, 3), (16, 32, 64), (15, 33, 17), *map(tuple, rng.integers(1, 99, (3, 3)))]
    half = ([*KINDS].index(kind) + LAYOUTS.index(layout)) % 2  # the other layouts of the kind have the other sizes
    for number, size in enumerate(sizes[half::2]):
        case = Case(KINDS[kind], tuple(map(int, size)), layout)
        able = widths(case.how)
        case.check(able[number % len(able)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_strides_offsets_and_blocks_of_k(kind: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_DEPTH", "MAX_DEPTH_TRANSPOSED"):
        monkeypatch.setattr(limits, name, 16)
    monkeypatch.setattr(limits, "UNIT_BYTES", 1 << 12)
    case = Case(KINDS[kind], (19, 75, 203), layout, batch=(2, 1), pad=5, offset=7)
    case.check(widths(case.how)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_operand_shared_by_a_batch(kind: str) -> None:
    case = Case(KINDS[kind], (19, 23, 24), batch=(4,))
    case.b = np.broadcast_to(case.b[0], case.b.shape)
    case.product = replace(case.product, b=replace(case.product.b, batch=(0,)))
    case.check(widths(case.how)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ("nn", "tt"))
def test_bits_depend_neither_on_threads_nor_on_tiles_nor_on_the_width(kind: str, layout: str) -> None:
    case = Case(KINDS[kind], (33, 70, 1400), layout)
    rng = np.random.default_rng(0)
    if case.dtype.kind == "f":
        case.a[...], case.b[...] = rng.standard_normal(case.a.shape), rng.standard_normal(case.b.shape)
    widest = widths(case.how)[0]
    count = narrow_blocking(case.product, case.how, widest, WIDTHS[widest], 3).units(case.product)
    results = [case.run(width, cores) for width, cores in zip(widths(case.how), (1, 2), strict=False)]
    results.append(case.run(widest, 3, [(k, k + 1) for k in reversed(range(count))]))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    exact = case.a.astype(np.float64) @ case.b.astype(np.float64)
    scale = np.abs(case.a.astype(np.float64)) @ np.abs(case.b.astype(np.float64))
    assert (np.abs(results[0] - exact) <= 1400 * 2.0**-24 * scale).all()


def test_integers_wrap() -> None:
    """2^17 products of -128 by -128 are 2^31."""
    for kind in KINDS.values():
        if kind[0] is dtypes.int8:
            case = Case(kind, (2, 3, 1 << 17))
            case.a[...], case.b[...] = -128, -128
            np.testing.assert_array_equal(case.run(64 if kind[2] is BYTES else widths(kind[2])[0]), np.int32(-(2**31)))


def test_values_that_are_not_finite_stay_in_their_rows_and_columns() -> None:
    for kind in KINDS.values():
        case = Case(kind, (5, 7, 9))
        if case.dtype.kind == "f":
            case.a[1, 8], case.b[3, 2] = np.inf, np.nan
            with np.errstate(all="ignore"):
                expected = case.a.astype("f4") @ case.b.astype("f4")
            np.testing.assert_array_equal(case.run(widths(case.how)[0]), expected)


def test_the_format_follows_from_the_operands_and_the_machine() -> None:
    native = {"avx512bf16", "avx512vnni"}
    for name, (left, right, how) in CONVERTED.items():
        product = Case((left, right, how), (2, 2, 2)).product
        assert format_of(product, ()) is how, name
        narrow = next((f for _, (a, b, f) in NATIVE.values() if (a, b) == (left, right)), how)
        assert format_of(product, native) is narrow, name


def test_code_for_other_machines_has_no_instructions_of_this_one() -> None:
    for kind in CONVERTED.values():
        case = Case(kind, (9, 20, 33), "nt")
        blocking = narrow_blocking(case.product, case.how, 16, 32, 2)
        module = ir.Module("product", host_spec())
        BlockedProduct(module, "product", case.product, blocking, symbols=["turn"], how=case.how).emit()
        assert "x86" not in str(module)
