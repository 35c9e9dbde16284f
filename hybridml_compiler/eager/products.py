"""Matrix products of eager code: the kernels of traced programs, one for each shape and layout, on our own threads.

So eager and traced products have the same bits, operands are read as they lie (NumPy computes a batch of strided
matrices element by element), and OpenBLAS's own threads stay out of it: they meet at a spinning barrier, which is fine
on an idle machine and ruinous on a busy one (a 1024x64 by 64x256 product took up to 13 ms in place of 0.7).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..schedule import cost
from ..schedule.contract import Product, fold_batch, matrix_of

# Signatures compiled; a program with more (every batch of another length) goes on with NumPy.
MOST = 256

Run = Callable[[np.ndarray, np.ndarray], Any]


def matmul(x: np.ndarray, y: np.ndarray) -> Any:
    """`numpy.matmul`; where it is large, by a compiled kernel."""
    if x.ndim < 2 or y.ndim < 2 or x.size * y.shape[-1] <= cost.WHOLE_PRODUCT or x.dtype.char not in "fd":
        return np.matmul(x, y)
    key = (x.dtype, x.shape, x.strides, y.dtype, y.shape, y.strides)
    run = _known.get(key)
    if run is None:
        if len(_known) >= MOST:
            return np.matmul(x, y)
        run = _known[key] = _compiled(x, y) or np.matmul
    return run(x, y)


_known: dict[Any, Run] = {}


def _compiled(x: np.ndarray, y: np.ndarray) -> Run | None:
    """None where there is no compiler or no BLAS, or nothing to multiply."""
    if x.shape[-1] != y.shape[-2] or x.dtype is not y.dtype or 0 in (*x.shape, *y.shape) or not x.dtype.isnative:
        return None
    try:
        from ..backends.llvm import modules, works
        from ..runtime import blas, jit, threads
    except ImportError:
        return None
    imports = blas.gemm_symbols()
    if imports is None:
        return None
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    (take_x, a), (take_y, b) = ((take, matrix_of(*_strided(take(array)), batch)) for take, array in _regular(x, y))
    assert a is not None and b is not None
    shape = (*batch, x.shape[-2], y.shape[-1])
    product = fold_batch(Product(x.dtype, batch, x.shape[-2], y.shape[-1], x.shape[-1], a, b))
    kind = works.kind_of(product)
    *_, module = needed = modules.modules_of_work(product)
    objects = jit.compile_sources([module.code for module in needed], passes=False)
    library = jit.load(objects, imports, [module.symbol])
    address, (total, granule) = library.address(module.symbol), kind.range(product)
    symbols = blas.hold_symbols()
    hold, release = (ctypes.CFUNCTYPE(None)(symbols[f"hml_blas_{name}"]) for name in ("hold", "release"))
    holds, table = kind.calls_blas(product), ctypes.c_void_p * 3
    if not kind.parallel(product):
        granule = total  # one part: one thread

    def run(x: np.ndarray, y: np.ndarray, keep: Any = library) -> Any:
        x, y = take_x(x), take_y(y)
        out = np.empty(shape, x.dtype)
        pointers = table(x.ctypes.data, y.ctypes.data, out.ctypes.data)
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
    """Each with what makes it readable: nothing, or a copy where neither its rows nor its columns lie together."""
    return [(np.asarray if _is_regular(a) else np.ascontiguousarray, a) for a in arrays]


def _is_regular(x: np.ndarray) -> bool:
    """A field of a structured array has strides that are no whole number of elements."""
    whole = all(step % x.itemsize == 0 for step in x.strides)
    return whole and matrix_of(*_strided(x), x.shape[:-2]) is not None


def _strided(x: np.ndarray) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Offset, strides and shape, in elements."""
    return 0, tuple(step // x.itemsize for step in x.strides), x.shape
