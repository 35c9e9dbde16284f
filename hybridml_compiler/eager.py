"""Compiled kernels for eager code: a transcendental of the scalar ISA over arrays of any length.

Eager and traced programs have the same bits because they run the same instructions. A kernel is compiled at its first use
(and comes from the object cache after that); where there is no compiler the NumPy builder answers, with the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache as once
from typing import Any, NamedTuple

import numpy as np

# Elements from which two threads pay: 32 Ki polynomials take about 10 us on one.
_PARALLEL = 1 << 15
# A loop extent no array reaches: the kernel takes its real length as an argument.
_ANY_LENGTH = (1 << 62) - 1


class Elementary(NamedTuple):
    """One instruction over arrays: `call(*dense_inputs, out)` from Python, and the kernel's address for the pool."""

    call: Callable[..., object]
    address: int


def transcendental(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The row `name` of the transcendental table over arrays of one float dtype, broadcast against each other.

    >>> transcendental("exp", np.array([0.0, 1.0])).tolist()
    [1.0, 2.718281828459045]
    """
    first = arrays[0]
    shape = first.shape
    if len(arrays) > 1 and any(a.shape != shape for a in arrays):
        arrays = tuple(np.broadcast_arrays(*arrays))
        shape = arrays[0].shape
    out = np.empty(shape, first.dtype)
    run = elementary(name, first.dtype.char, len(arrays))
    # native code reads the array structs: a NumPy scalar must not get through
    dense = [a if type(a) is np.ndarray and a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
    if out.size < _PARALLEL:
        run.call(*dense, out)
    else:
        from .runtime import threads

        table = (ctypes.c_void_p * (len(dense) + 1))(*(a.ctypes.data for a in dense), out.ctypes.data)
        threads.run(run.address, ctypes.addressof(table), out.size, 64)
    return out


@once
def elementary(name: str, dtype: str, arity: int) -> Elementary:
    """The compiled kernel of one instruction."""
    from llvmlite import ir

    from .backends.llvm.builtin import emit_builtin
    from .backends.llvm.kernel import emit_kernel
    from .loops.builder import LoopBuilder
    from .loops.ir import Buffer, For, Kernel, Store
    from .runtime import jit, layout

    s, kind = LoopBuilder(), np.dtype(dtype)
    var = s.var("i", _ANY_LENGTH)
    sources = [Buffer(f"x{k}", kind, _ANY_LENGTH) for k in range(arity)]
    out = Buffer("out", kind, _ANY_LENGTH, "out")
    value = getattr(s, name)(*(s.load(x, var) for x in sources))
    lanes = jit.host().vector_bits // (8 * kind.itemsize)
    body = For(var, (Store(out, var, value),), vector=True)
    module = ir.Module(f"eager_{name}_{kind.name}")
    function = emit_kernel(module, "kernel", Kernel((*sources, out), (body,), var, lanes, lanes))
    offsets = layout.measured()
    if offsets is None:
        library = jit.load([jit.compile_cached(str(module), passes=False)], {}, ["kernel"])
        _LIBRARIES.append(library)
        return Elementary(_through_ctypes(library.address("kernel")), library.address("kernel"))
    emit_builtin(module, "builtin", function, arity + 1, offsets)
    api = {n: jit.address_of(getattr(ctypes.pythonapi, n)) for n in ("Py_IncRef", "_Py_NoneStruct")}
    library = jit.load([jit.compile_cached(str(module), passes=False)], api, ["kernel", "builtin"])
    _LIBRARIES.append(library)
    return Elementary(_new_builtin(name, library.address("builtin")), library.address("kernel"))


_LIBRARIES: list[Any] = []  # code and method definitions stay as long as the process may call them


def _through_ctypes(address: int) -> Callable[..., object]:
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def call(*arrays: np.ndarray) -> None:
        run((ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)), 0, arrays[-1].size)

    return call


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def _new_builtin(name: str, address: int) -> Callable[..., object]:
    from .runtime import jit

    method = _MethodDef(name.encode(), address, 0x80, None)  # METH_FASTCALL
    _LIBRARIES.append(method)
    new = jit.python_api(ctypes.py_object, "PyCFunction_NewEx", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    function: Callable[..., object] = new(ctypes.addressof(method), None, None)
    return function
