"""Matrix products with operands in memory, and runs of the code that is emitted for them, beside NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.schedule.kernels.convolution import Pretranspose
from hybridml_compiler.schedule.kernels.gemm import Matrix, Product
from hybridml_compiler.targets.cpu.kernels.gemm_blocking import Blocking
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.contraction.packing import emit_turn
from hybridml_compiler.targets.cpu.llvm.gemm.blocked import BlockedProduct
from hybridml_compiler.targets.cpu.runtime import jit, scratch
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec

WIDTHS = {64: 32, 32: 16}  # bytes of a register: how many there are
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Case:
    """A product and operands for it: `pad` extra columns a row, `offset` elements before the first matrix."""

    def __init__(
        self,
        size: tuple[int, int, int],
        layout: str = "nn",
        batch: tuple[int, ...] = (),
        dtype: np.dtype = dtypes.float32,
        pad: int = 0,
        offset: int = 0,
    ) -> None:
        m, n, k = size
        rng = np.random.default_rng([m, n, k])
        self.a, a = self._operand(rng, (*batch, m, k), layout[0] == "t", dtype, pad, offset)
        self.b, b = self._operand(rng, (*batch, k, n), layout[1] == "t", dtype, pad, offset)
        self.product = Product(dtype, batch, m, n, k, a, b)

    @staticmethod
    def _operand(
        rng: np.random.Generator, shape: tuple[int, ...], transposed: bool, dtype: np.dtype, pad: int, offset: int
    ) -> tuple[np.ndarray, Matrix]:
        *batch, rows, columns = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
        stored = (*batch, rows, columns + pad)
        memory = np.full(offset + int(np.prod(stored)), np.nan, dtype)  # what must not be read would show
        matrices = memory[offset:].reshape(stored)[..., :columns]
        matrices[...] = rng.standard_normal(matrices.shape)
        steps = tuple(s // dtype.itemsize for s in matrices.strides)
        row, column = (1, steps[-2]) if transposed else (steps[-2], 1)
        values = matrices.swapaxes(-1, -2) if transposed else matrices
        return values, Matrix(offset, steps[:-2], row, column)

    def expected(self) -> np.ndarray:
        return np.asarray(self.a.astype(np.float64) @ self.b.astype(np.float64))

    def tolerance(self) -> float:
        return (self.product.k + 8) * float(np.finfo(self.product.dtype).eps)

    def run(self, blocking: Blocking, ranges: Sequence[tuple[int, int]] | None = None) -> np.ndarray:
        p = self.product
        module = ir.Module("product", host_spec())
        emit_turn(module, "turn", Pretranspose(p.dtype, blocking.lanes))
        BlockedProduct(module, "product", p, blocking, symbols=["turn"]).emit()
        library = loader.load([jit.compile_ir(str(module))], scratch.symbols(), ["product"])
        scratch.require()
        guard = 64
        memory = np.full(p.matrices * p.m * p.n + 2 * guard, np.nan, p.dtype)
        out = memory[guard:-guard]
        # The operands' memory starts `offset` elements before their first element.
        starts = [x.ctypes.data - m.offset * p.dtype.itemsize for x, m in ((self.a, p.a), (self.b, p.b))]
        table = (ctypes.c_void_p * 3)(*starts, out.ctypes.data)
        run = RUN(library.address("product"))
        for lo, hi in ranges or [(0, blocking.units(p))]:
            run(ctypes.addressof(table), lo, hi)
        assert np.isnan(memory[:guard]).all() and np.isnan(memory[-guard:]).all(), "wrote outside of the result"
        return out.reshape(*p.batch, p.m, p.n)

    def check(self, blocking: Blocking) -> np.ndarray:
        out = self.run(blocking)
        scale = np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64)
        assert np.all(np.abs(out - self.expected()) <= self.tolerance() * scale + 1e-300), f"{self.product} {blocking}"
        return out


def usable_widths() -> list[int]:
    return [width for width in WIDTHS if 8 * width <= host_spec().vector_bits]
