"""Matrix products of eager code: BLAS at one thread a slab, slabs shared by our pool.

OpenBLAS's own threads meet at a spinning barrier, which is fine on an idle machine and ruinous on a busy one (a 1024x64
by 64x256 product took up to 13 ms in place of 0.7). Slabs on the pool take the same time when it is quiet. Traced
programs use products of our own where those are faster (`backends/llvm/product.py`): each is compiled for one shape.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache as once
from typing import Any, NamedTuple

import numpy as np

from ..schedule import cost

_ROWS, _COLUMNS, _BATCH = 0, 1, 2
_FIELDS = ("a", "b", "c", "m", "n", "k", "lda", "ldb", "ta", "tb", "a_step", "b_step", "slab", "mode")


class _Layout(NamedTuple):
    """The last two axes as BLAS reads them: transposed?, leading dimension; and the distance of matrices of a batch."""

    transposed: bool
    leading: int
    step: int


def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`numpy.matmul`, on our own threads where it is large and BLAS can read the operands as they lie."""
    product: np.ndarray = _matmul(x, y)
    return product


def _matmul(x: np.ndarray, y: np.ndarray) -> Any:
    if x.ndim < 2 or y.ndim < 2 or x.dtype is not y.dtype or x.dtype.char not in "fd":
        return np.matmul(x, y)
    if y.ndim == 2 and x.ndim > 2 and x.flags.c_contiguous:  # a batch times one matrix is one product
        return _matmul(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[1])
    m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
    if x.size * n <= cost.WHOLE_PRODUCT or y.shape[-2] != k or x.shape[:-2] != y.shape[:-2]:
        return np.matmul(x, y)
    left, right = _layout(x), _layout(y)
    run = _kernel(x.dtype.char)
    if left is None or right is None or run is None:
        return np.matmul(x, y)
    out = np.empty((*x.shape[:-2], m, n), x.dtype)
    count = math.prod(x.shape[:-2])
    mode = _BATCH if count > 1 else _ROWS if m >= n else _COLUMNS
    fields = (
        x.ctypes.data, y.ctypes.data, out.ctypes.data, m, n, k, left.leading, right.leading,
        left.transposed, right.transposed, left.step, right.step,
    )  # fmt: skip
    run(fields, mode, count if mode == _BATCH else max(m, n))
    return out


def _layout(x: np.ndarray) -> _Layout | None:
    size = x.itemsize
    *outer, row, column = (s // size for s in x.strides)
    rows, columns = x.shape[-2:]
    step = outer[-1] if outer else 0
    for j in range(len(outer) - 1):  # a batch of several axes must be evenly spaced
        if outer[j] != outer[j + 1] * x.shape[j + 1]:
            return None
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return _Layout(False, max(row, columns), step)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return _Layout(True, max(column, rows), step)
    return None


@once
def _kernel(dtype: str) -> Any:
    """run(fields, mode, extent), or None where there is no compiler or no BLAS."""
    try:
        from llvmlite import ir

        from ..backends.llvm.gemm import slab
        from ..runtime import blas, jit, threads
    except ImportError:
        return None
    symbols = blas.gemm_symbols()
    if symbols is None:
        return None
    module = ir.Module(f"eager_product_{dtype}")
    _emit(module, np.dtype(dtype))
    library = jit.load([jit.compile_cached(str(module), passes=False)], symbols, ["product"])
    address = library.address("product")
    holds = blas.hold_symbols()
    hold, release = (ctypes.CFUNCTYPE(None)(holds[name]) for name in ("hml_blas_hold", "hml_blas_release"))
    table = ctypes.c_int64 * len(_FIELDS)

    def run(fields: tuple[int, ...], mode: int, extent: int, keep: Any = library) -> None:
        part = 1 if mode == _BATCH else slab(extent)
        argument = table(*fields, part, mode)
        hold()
        try:
            threads.run(address, ctypes.addressof(argument), -(-extent // part), 1)
        finally:
            release()

    return run


def _emit(module: Any, dtype: np.dtype) -> None:
    """`void product(ptr fields, i64 lo, i64 hi)`: slabs of rows or columns, or matrices, lo..hi of the product."""
    from llvmlite import ir

    from .. import dtypes
    from ..backends.llvm.kernel import KERNEL_TYPE
    from ..backends.llvm.types import I32, I64, PTR, VOID, constant, register_type

    element = register_type(dtype)
    kind = ir.FunctionType(VOID, [I32, I32, I32, I64, I64, I64, element, PTR, I64, PTR, I64, element, PTR, I64])
    gemm = ir.Function(module, kind, "hml_sgemm" if dtype.char == "f" else "hml_dgemm")
    function = ir.Function(module, KERNEL_TYPE, "product")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    table, lo, hi = function.args

    def number(value: int) -> Any:
        return constant(value, dtypes.int64)

    def field(name: str) -> Any:
        return b.load(b.gep(table, [number(_FIELDS.index(name))], source_etype=I64), typ=I64)

    v = {name: field(name) for name in _FIELDS}
    transposed, plain = constant(112, dtypes.int32), constant(111, dtypes.int32)
    flags = [b.select(b.trunc(v[t], ir.IntType(1)), transposed, plain) for t in ("ta", "tb")]

    def call(a: Any, right: Any, c: Any, m: Any, n: Any) -> None:
        pointers = [
            b.gep(b.inttoptr(v[name], PTR), [offset], source_etype=element)
            for name, offset in (("a", a), ("b", right), ("c", c))
        ]
        one, zero = constant(1.0, dtype), constant(0.0, dtype)
        b.call(
            gemm,
            [constant(101, dtypes.int32), *flags, m, n, v["k"], one, pointers[0], v["lda"], pointers[1], v["ldb"], zero,
             pointers[2], v["n"]],
        )  # fmt: skip

    zero, one = number(0), number(1)
    row = b.select(b.icmp_signed("!=", v["ta"], zero), one, v["lda"])
    column = b.select(b.icmp_signed("!=", v["tb"], zero), v["ldb"], one)
    rows, columns = (b.icmp_signed("==", v["mode"], number(mode)) for mode in (_ROWS, _COLUMNS))
    extent = b.select(rows, v["m"], v["n"])
    head, done, entry = b.append_basic_block("part"), b.append_basic_block("done"), b.block
    b.branch(head)
    b.position_at_end(head)
    t = b.phi(I64)
    start = b.mul(t, v["slab"])
    left = b.sub(extent, start)
    count = b.select(b.icmp_signed("<", left, v["slab"]), left, v["slab"])

    def by_mode(of_rows: Any, of_columns: Any, of_batch: Any) -> Any:
        return b.select(rows, of_rows, b.select(columns, of_columns, of_batch))

    call(
        by_mode(b.mul(start, row), zero, b.mul(t, v["a_step"])),
        by_mode(zero, b.mul(start, column), b.mul(t, v["b_step"])),
        by_mode(b.mul(start, v["n"]), start, b.mul(t, b.mul(v["m"], v["n"]))),
        by_mode(count, v["m"], v["m"]),
        by_mode(v["n"], count, v["n"]),
    )
    following = b.add(t, one)
    t.add_incoming(lo, entry)
    t.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, hi), head, done)
    b.position_at_end(done)
    b.ret_void()
