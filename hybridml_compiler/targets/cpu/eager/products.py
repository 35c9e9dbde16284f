"""Matrix products of eager code: the kernels of traced programs, one for each shape and layout, on our own threads.

So eager and traced products have the same bits, operands are read in place (NumPy computes a batch of strided
matrices element by element), and OpenBLAS's own threads stay out of it: they meet at a spinning barrier, which is fine
on an idle machine and ruinous on a busy one ([Note: Runtime]).

Products of integers NumPy computes element by element. Those of 8 bits, and of 32 bits whose values fit into 8 as those
of a cast do, are products of bytes here (see low_precision.py); integers wrap, so that every way is exact.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import config, dtypes
from ....compile_policy import MOST_PRODUCTS as MOST
from ....compile_policy import known_or_made
from ....schedule import cost

Run = Callable[[np.ndarray, np.ndarray], Any]


def matmul(x: np.ndarray, y: np.ndarray) -> Any:
    """`numpy.matmul`; where it is large, by a compiled kernel."""
    if x.ndim < 2 or y.ndim < 2 or x.size * y.shape[-1] <= cost.WHOLE_PRODUCT or x.dtype.char not in "fdbBi":
        return np.matmul(x, y)
    if x.dtype.char != "i" or y.dtype is not x.dtype:
        found = _multiplied(x, y)
        return found if x.dtype.kind == "f" else found.astype(x.dtype)
    left = _as_bytes(x)
    right = None if left is None else _as_bytes(y)
    return _multiplied(x, y) if left is None or right is None else _multiplied(left, right)


def _as_bytes(x: np.ndarray) -> np.ndarray | None:
    """The same values in 8 bits, if they fit: looking takes a thousandth of the time of a product of 1024 rows."""
    low, high = (x.min(), x.max()) if x.size else (0, 0)
    if -128 <= low and high <= 127:
        return x.astype(dtypes.int8)
    return x.astype(dtypes.uint8) if 0 <= low and high <= 255 else None


def _multiplied(x: np.ndarray, y: np.ndarray) -> Any:
    """The product in the dtype of x; of 8 bits, in int32."""
    key = (x.dtype, x.shape, x.strides, y.dtype, y.shape, y.strides)
    run = _known.get(key) or known_or_made(_known, key, MOST, lambda: _compiled(x, y) or _with_numpy)
    return (run or _with_numpy)(x, y)


_known: dict[Any, Run] = {}


def _with_numpy(x: np.ndarray, y: np.ndarray) -> Any:
    return np.matmul(x, y, dtype=dtypes.int32 if x.itemsize == 1 else None)


def _compiled(x: np.ndarray, y: np.ndarray) -> Run | None:
    """The compiled product. None where there is no compiler or no kernel for it, or nothing to multiply; and where
    accesses are checked, which needs a plan with the sizes of arrays."""
    narrow = x.itemsize == 1
    if config.field("sanitize"):
        return None
    if x.shape[-1] != y.shape[-2] or 0 in (*x.shape, *y.shape) or not x.dtype.isnative:
        return None
    if x.dtype is not y.dtype and (not narrow or y.itemsize > 1):
        return None
    try:
        from ....schedule.kernels.gemm import Product, as_row, fold_batch, is_column, matrix_of
        from ..llvm import modules, registry
        from ..llvm.gemm.product import own_blocking
        from ..runtime import blas, jit, scratch, threads
        from ..runtime.linking import loader
        from ..spec import host_spec
    except ImportError:
        return None
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    (take_x, a), (take_y, b) = ((take, matrix_of(*_strided(take(array)), batch)) for take, array in _regular(x, y))
    assert a is not None and b is not None
    shape = (*batch, x.shape[-2], y.shape[-1])
    dtype, stored = (dtypes.int32, (x.dtype, y.dtype)) if narrow else (x.dtype, None)
    product = fold_batch(Product(dtype, batch, x.shape[-2], y.shape[-1], x.shape[-1], a, b, stored))
    turned = is_column(product)
    if turned:
        product = as_row(product)
    cpu = host_spec()
    holds, imports = own_blocking(product, cpu) is None, blas.gemm_symbols()
    if imports is None or (holds and product.dtype.kind != "f"):
        return None
    *_, module = needed = modules.PlanModules(cpu).modules(product)
    objects = jit.compile_sources([module.code for module in needed])
    library = loader.load(objects, imports | scratch.symbols(), [module.symbol])
    address, callee = library.address(module.symbol), registry.callee_of(product, cpu)
    symbols = blas.hold_symbols()
    hold, release = (ctypes.CFUNCTYPE(None)(symbols[f"hml_blas_{name}"]) for name in ("hold", "release"))
    table = ctypes.c_void_p * 3
    total = callee.total
    granule = callee.granule if callee.parallel else total  # one part: one thread

    def run(x: np.ndarray, y: np.ndarray, keep: Any = library) -> Any:
        x, y = take_x(x), take_y(y)
        out = np.empty(shape, dtype)
        left, right = (y, x) if turned else (x, y)
        pointers = table(left.ctypes.data, right.ctypes.data, out.ctypes.data)
        try:  # an interrupt comes after a call: not between `hold` and `try`
            if holds:
                hold()
            threads.run(address, ctypes.addressof(pointers), total, granule)
        finally:
            if holds:
                release()
        return out

    return run


def _regular(*arrays: np.ndarray) -> list[tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]]:
    """Each operand with the function that makes it readable: none, or a copy where neither rows nor columns are
    contiguous."""
    return [(np.asarray if _is_regular(a) else np.ascontiguousarray, a) for a in arrays]


def _is_regular(x: np.ndarray) -> bool:
    """A field of a structured array has strides that are no whole number of elements."""
    from ....schedule.kernels.gemm import matrix_of  # with a large product, and not with the package

    whole = all(step % x.itemsize == 0 for step in x.strides)
    return whole and matrix_of(*_strided(x), x.shape[:-2]) is not None


def _strided(x: np.ndarray) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Offset, strides and shape, in elements."""
    return 0, tuple(step // x.itemsize for step in x.strides), x.shape
