"""Generated CUDA kernels: what tests compile, run and break."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import dtypes
from hybridml_compiler.loops.ir import Kernel, KernelSpec
from hybridml_compiler.record import record
from hybridml_compiler.schedule.kernels.gemm import Matrix, Product
from hybridml_compiler.targets.cuda import nvrtc
from hybridml_compiler.targets.cuda.contraction.contraction import contraction_of
from hybridml_compiler.targets.cuda.contraction.kernel import CallSource, source_of
from hybridml_compiler.targets.cuda.contraction.tiles import Tile, tile_for
from hybridml_compiler.targets.cuda.emit.kernel import ENTRY, Source
from hybridml_compiler.targets.cuda.sim.simulator import Simulator
from hybridml_compiler.targets.cuda.target import TARGET, CudaKernel, CudaTarget

SIM = "cuda:sim"
needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"
)


@contextmanager
def compiled() -> Iterator[list[Any]]:
    """The code of all loop nests and calls that are compiled inside, or found compiled before."""
    made: list[Any] = []

    def code_of(self: CudaTarget, kernel: Kernel) -> Any:
        made.append(nests(self, kernel))
        return made[-1]

    def call_of(self: CudaTarget, spec: KernelSpec) -> Any:
        found = calls(self, spec)
        made.extend([found] * (found is not None))
        return found

    nests, calls = CudaTarget.code_of, CudaTarget.call_of
    CudaTarget.code_of, CudaTarget.call_of = code_of, call_of  # type: ignore[assignment, method-assign]
    try:
        yield made
    finally:
        CudaTarget.code_of, CudaTarget.call_of = nests, calls  # type: ignore[method-assign]


def sources(function: Callable[..., Any], *arrays: np.ndarray) -> list[Source]:
    """The sources of the kernels of a traced function."""
    with compiled() as made:
        hm.trace(function)(*(hm.tensor(array).to(SIM) for array in arrays))
    return [code.source for code in made if isinstance(code, CudaKernel)]


def launch(text: str, source: Source, buffers: list[np.ndarray], iterations: int, blocks: int | None = None) -> None:
    """Runs a source, which may be another text than the kernel's own, on buffers of the host."""
    simulator = Simulator(nvrtc.compile(text, "ptx").code.decode())
    grid = source.grid(iterations, 1024) if blocks is None else blocks
    simulator.launch(ENTRY, grid, source.block, [*buffers, 0, iterations])


@record
class ProductCase:
    """A product of random matrices, in tiles of this size; numbers of int32 are 8 bits wide in memory."""

    m: int
    n: int
    k: int
    dtype: str = "float32"
    stored: str = ""  # of both operands
    turned: str = ""  # "a", "b" or "ab" are transposed in memory
    batch: tuple[int, ...] = ()
    apart: int = 0  # elements between the rows of operands, and before their first
    tile: Tile | None = None
    tf32: bool = False

    @property
    def product(self) -> Product:
        stored = tuple(dtypes.canonical(name) for name in self.stored.split()) if self.stored else None
        sides = [
            self._matrix(rows, columns, name in self.turned)
            for name, rows, columns in (("a", self.m, self.k), ("b", self.k, self.n))
        ]
        kind = np.dtype(self.dtype)
        return Product(dtypes.canonical(kind), self.batch, self.m, self.n, self.k, *sides, stored)  # type: ignore

    def _matrix(self, rows: int, columns: int, turned: bool) -> Matrix:
        lines, length = (columns, rows) if turned else (rows, columns)
        pitch = length + self.apart
        steps = [lines * pitch * math.prod(self.batch[k + 1 :]) for k in range(len(self.batch))]
        return Matrix(self.apart, tuple(steps), 1 if turned else pitch, pitch if turned else 1)

    @property
    def source(self) -> CallSource:
        return source_of(self.product, None, self.tile or tile_for(contraction_of(self.product), tf32=self.tf32))

    def error(self, text: str, blocks: int | None = None) -> float:
        """How far a kernel's result is from the exact one, in parts of the product of magnitudes; infinite for one that
        is wrong beyond measure."""
        source, product, rng = self.source, self.product, np.random.default_rng(0)
        buffers = [
            rng.integers(-100, 100, int(x.size)).astype(x.dtype)
            if x.dtype.kind in "iu"
            else (rng.standard_normal(int(x.size)) * 3).astype(x.dtype)
            for x in source.operands
        ]
        launch(text, source, buffers, source.total, blocks)
        a = _elements(buffers[0], product.batch, product.a, self.m, self.k)
        b = _elements(buffers[1], product.batch, product.b, self.k, self.n)
        exact, most = a @ b, np.abs(a) @ np.abs(b)
        found = buffers[2].astype(np.float64).reshape(exact.shape)
        return float(np.nan_to_num(np.abs(found - exact) / most, nan=math.inf).max())

    @property
    def bound(self) -> float:
        """The largest error of such a product: each of k sums is rounded once, in the precision of the result, and an
        operand of tf32 is, to 11 bits. Other operands are multiplied without an error; integers are exact."""
        if self.dtype == "int32":
            return 0.0
        unit = 2.0**-24 if self.dtype == "float32" else 2.0**-53
        return self.k * unit + self.tf32 * 2 * 2.0**-11


def _elements(memory: np.ndarray, batch: tuple[int, ...], matrix: Matrix, rows: int, columns: int) -> np.ndarray:
    """A batch of matrices, in float64."""
    strides = [step * memory.itemsize for step in (*matrix.batch, matrix.row, matrix.column)]
    first = memory[matrix.offset :]
    return np.lib.stride_tricks.as_strided(first, (*batch, rows, columns), strides).astype(np.float64)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal to the last bit, signs of zeros included; one nan is as good as another."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return a.tobytes() == b.tobytes()
    parts = [(a.real, b.real), (a.imag, b.imag)] if a.dtype.kind == "c" else [(a, b)]
    return all(
        np.array_equal(x, y, equal_nan=True)
        and np.array_equal(np.signbit(x) | np.isnan(x), np.signbit(y) | np.isnan(y))
        for x, y in parts
    )


__all__ = ["SIM", "TARGET", "ProductCase", "compiled", "launch", "needs_nvrtc", "same_bits", "sources"]
