"""Compiled kernels over arrays of any length: `out[i] = value(i)`, called from Python and through the thread pool."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....loops.ir import ANY_LENGTH

# Elements from which two threads pay, with a polynomial for each.
_PARALLEL = 1 << 15
_GRANULE = 64

# Fills the last of its arrays. All are C-contiguous ndarrays: native code reads their structs without a check.
Pointwise = Callable[..., object]


def compile_pointwise(
    name: str, sources: Sequence[np.dtype], result: np.dtype, value: Callable[[Any, Any, Sequence[Any]], Any]
) -> Pointwise:
    """The kernel `out[i] = value(s, i, buffers)`: `s` builds the expression, `buffers` are the sources."""
    from ....loops.builder import LoopBuilder
    from ....loops.ir import Buffer, For, Kernel, Store
    from ..llvm import ir
    from ..llvm.builtin import PYTHON_API, emit_builtin
    from ..llvm.kernel import emit_kernel
    from ..python_entry import object_layout
    from ..runtime import jit, polling, scratch, threads
    from ..runtime.linking import loader
    from ..runtime.linking.builtins import builtin
    from ..spec import host_spec

    s = LoopBuilder()
    var = s.var("i", ANY_LENGTH)
    buffers = [Buffer(f"x{k}", kind, ANY_LENGTH) for k, kind in enumerate(sources)]
    out = Buffer("out", result, ANY_LENGTH, "out")
    body = For(var, (Store(out, var, value(s, var, buffers)),), "vector")
    cpu = host_spec()
    lanes = cpu.vector_bits // (8 * max(result.itemsize, *(kind.itemsize for kind in sources)))
    module = ir.Module(f"eager_{name}", cpu)
    kernel = Kernel((*buffers, out), (body,), lanes, lanes)
    function, polls = emit_kernel(module, "kernel", kernel), kernel.loops
    offsets = object_layout.measured()
    if offsets is None:
        library = loader.load([jit.compile_cached(str(module))], polling.symbols(), ["kernel"])
        _KEPT.append(library)
        return _through_ctypes(library.address("kernel"))
    emit_builtin(module, "builtin", function, len(buffers) + 1, offsets, _PARALLEL, _GRANULE, polls=polls)
    imports = {n: loader.address_of(getattr(ctypes.pythonapi, n)) for n in PYTHON_API} | threads.symbols()
    if polls:
        imports |= {**scratch.symbols(), **polling.symbols()}
    library = loader.load([jit.compile_cached(str(module))], imports, ["builtin", "kernel"])
    _KEPT.append(library)
    if not polls:
        ADDRESSES[name] = library.address("kernel")
    return builtin(name, library.address("builtin"))


ADDRESSES: dict[str, int] = {}  # `kernel(data pointers, first, end)` of those that need nothing round them
_KEPT: list[Any] = []  # code stays as long as the process may call it


def _through_ctypes(address: int) -> Pointwise:
    from ..runtime import threads

    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def call(*arrays: np.ndarray) -> None:
        table, size = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)), arrays[-1].size
        if size < _PARALLEL:
            run(table, 0, size)
        else:
            threads.run(address, ctypes.addressof(table), size, _GRANULE)

    return call
