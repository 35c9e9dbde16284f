"""The machine of targets whose code runs on the host: memory is arrays of bytes, and products are NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..graph.ir import Graph
from ..loops.ir import Kernel, KernelSpec
from ..schedule.kernels.gemm import Matrix, Product
from .numpy_call import typed

Bytes = np.ndarray  # uint8
# Runs iterations lo to hi of a loop nest on its operands, flat arrays; False where an index was out of range
RunKernel = Callable[[Kernel, Sequence[np.ndarray], int, int], bool]


class HostMachine:
    """A machine (see run_plan.py) with the function that runs its loop nests."""

    def __init__(self, run_kernel: RunKernel) -> None:
        self.run_kernel = run_kernel

    def memory(self, array: np.ndarray) -> Bytes:
        return array.reshape(-1).view(np.uint8)

    def new(self, nbytes: int) -> Bytes:
        """New memory; not zeros, for nothing may rely on what it holds."""
        return np.full(nbytes, 0x7F, np.uint8)

    def copy(self, target: Bytes, source: Bytes, nbytes: int) -> None:
        target[:nbytes] = source[:nbytes]

    def zero(self, target: Bytes, nbytes: int) -> None:
        target[:nbytes] = 0

    def read(self, memory: Bytes, nbytes: int) -> np.ndarray:
        return memory[:nbytes]

    def nest(self, kernel: Kernel, memories: Sequence[Bytes], lo: int, hi: int) -> bool:
        buffers = [typed(m, b.dtype, int(b.size)) for m, b in zip(memories, kernel.operands, strict=False)]
        return self.run_kernel(kernel, buffers, lo, hi)

    def call(self, spec: KernelSpec, memories: Sequence[Bytes], part: int, parts: int) -> bool:
        return False

    def product(self, call: Product, memories: Sequence[Bytes], part: int, parts: int) -> None:
        left, right, out = memories
        stored = call.stored or (call.dtype, call.dtype)
        a = _matrices(left, call, stored[0], call.a, call.m, call.k)
        b = _matrices(right, call, stored[1], call.b, call.k, call.n)
        if call.blocks > 1:
            rows = typed(out, call.dtype, call.blocks * call.n).reshape(call.blocks, call.n)
            for block in range(call.blocks * part // parts, call.blocks * (part + 1) // parts):
                own = slice(*call.rows_of_block(block))
                rows[block] = np.matmul(a[..., own], b[..., own, :]).reshape(call.n)
            return
        shape = (call.matrices, call.m, call.n)
        share = slice(call.matrices * part // parts, call.matrices * (part + 1) // parts)
        with np.errstate(all="ignore"):  # other elements of a chain hold anything
            typed(out, call.dtype, math.prod(shape)).reshape(shape)[share] = np.matmul(a, b).reshape(shape)[share]

    def operation(self, graph: Graph, memories: Sequence[Bytes]) -> bool:
        return False

    def on_host(
        self,
        compute: Callable[[Sequence[Bytes]], bool],
        memories: Sequence[Bytes],
        sizes: Sequence[int],
        written: Sequence[bool],
    ) -> bool:
        return compute(memories)


def _matrices(memory: Bytes, product: Product, stored: np.dtype, matrix: Matrix, rows: int, columns: int) -> np.ndarray:
    """The operand of a product as an array (*batch, rows, columns), read by its strides."""
    flat = memory[: memory.size // stored.itemsize * stored.itemsize].view(stored)
    shape, steps = (*product.batch, rows, columns), (*matrix.batch, matrix.row, matrix.column)
    at = np.full((1,) * len(shape), matrix.offset)
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        at = at + (np.arange(n) * step).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    found: np.ndarray = flat[at].astype(product.dtype, copy=False)
    return found
