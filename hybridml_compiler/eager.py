"""Compiled kernels for eager code: a transcendental of the scalar ISA over arrays of any length.

Eager and traced programs have the same bits because they run the same instructions. A kernel is compiled at its first use
(and comes from the object cache after that); where there is no compiler the NumPy builder answers, with the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache as once
from typing import Any

import numpy as np

# Elements from which two threads pay: 32 Ki polynomials take about 10 us on one.
_PARALLEL = 1 << 15
# A loop extent no array reaches: the kernel takes its real length as an argument.
_ANY_LENGTH = (1 << 62) - 1

Runner = Callable[[Any, int, int], None]


def transcendental(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The row `name` of the transcendental table over arrays of one float dtype, broadcast against each other."""
    first = arrays[0]
    shape = first.shape
    if len(arrays) > 1 and any(a.shape != shape for a in arrays):
        arrays = tuple(np.broadcast_arrays(*arrays))
        shape = arrays[0].shape
    out = np.empty(shape, first.dtype)
    size = out.size
    if size:
        run, address = kernel(name, first.dtype.char, len(arrays))
        dense = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        table = (ctypes.c_void_p * (len(dense) + 1))(*(a.ctypes.data for a in dense), out.ctypes.data)
        if size < _PARALLEL:
            run(table, 0, size)
        else:
            from .runtime import threads

            threads.run(address, ctypes.addressof(table), size, 64)
    return out


@once
def kernel(name: str, dtype: str, arity: int) -> tuple[Runner, int]:
    """(ctypes function, address) of `void kernel(ptr buffers, i64 lo, i64 hi)` for one instruction."""
    from llvmlite import ir

    from .backends.llvm.kernel import emit_kernel
    from .loops.builder import LoopBuilder
    from .loops.ir import Buffer, For, Kernel, Store
    from .runtime import jit

    s, kind = LoopBuilder(), np.dtype(dtype)
    var = s.var("i", _ANY_LENGTH)
    sources = [Buffer(f"x{k}", kind, _ANY_LENGTH) for k in range(arity)]
    out = Buffer("out", kind, _ANY_LENGTH, "out")
    value = getattr(s, name)(*(s.load(x, var) for x in sources))
    lanes = jit.host().vector_bits // (8 * kind.itemsize)
    body = For(var, (Store(out, var, value),), vector=True)
    symbol = f"eager_{name}_{kind.name}"
    module = ir.Module(symbol)
    emit_kernel(module, symbol, Kernel((*sources, out), (body,), var, lanes, lanes))
    library = jit.load([jit.compile_cached(str(module))], {}, [symbol])
    _LIBRARIES.append(library)
    address = library.address(symbol)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address), address


_LIBRARIES: list[Any] = []  # code stays loaded as long as the process may call it
