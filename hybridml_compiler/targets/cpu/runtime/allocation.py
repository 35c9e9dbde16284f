"""Memory of large results: kept when freed, for the next one (`block_cache.py`), and on a cache line, for stores past
the caches (`targets/cpu/llvm/vectors/nontemporal.py`).

NumPy asks the C library, whose large blocks begin 16 bytes after a line. A NumPy memory handler (NEP 49) of our own is
set while such an array is made, and only then: the array owns its memory as any other and frees it the same way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.compile_policy import KEPT
from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.linking.builtins import builtin

LARGE = KEPT
SET_HANDLER = 304  # slot of PyDataMem_SetHandler in NumPy's C-API table, which only ever grows
_NAME = b"mem_handler"  # of its capsule

_FUNCTIONS = ("malloc", "calloc", "realloc", "free")
_LIBRARY = ("mmap", "munmap", "madvise", "memset", "memcpy")
_PYTHON = ("PyObject_Vectorcall", "Py_DecRef")


own = ctypes.c_int64(0)  # the address of our handler once it is made, for native code


class Handling(NamedTuple):
    """Our handler; what calls a function under it; addresses of the handler's functions `hml_malloc` and others."""

    own: object | None  # none but on Linux
    under: Callable[..., Any]
    functions: Mapping[str, int]

    @property
    def capsule(self) -> int:
        """Address of our handler, 0 if there is none."""
        return 0 if self.own is None else id(self.own)


class _Handler(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
    ]


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`numpy.empty`, on a cache line where it is large."""
    if prod(shape) * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    found: np.ndarray[Any, Any] = handler().under(np.empty, shape, dtype)
    return found


def source(results: Sequence[int]) -> jit.Source | None:
    """The module that results of these bytes need, for those who compile others at the same time: once per machine."""
    needed = sys.platform == "linux" and max(results, default=0) >= LARGE
    return _source() if needed else None


def _source() -> jit.Source:
    def emit() -> str:
        from hybridml_compiler.targets.cpu.runtime import block_cache

        return block_cache.text()

    return jit.emitted_source("block_cache", emit, "targets.cpu.runtime.block_cache", opt=jit.RARELY_CALLED)


@once
def handler() -> Handling:
    """Made once; nothing is set by it."""
    if sys.platform != "linux":
        return Handling(None, lambda function, *args: function(*args), {})
    library = ctypes.CDLL(None)
    imports = {name: loader.address_of(getattr(library, name)) for name in _LIBRARY}
    imports |= {name: loader.address_of(getattr(ctypes.pythonapi, name)) for name in _PYTHON}
    imports["PyDataMem_SetHandler"] = numpy_function(SET_HANDLER)
    names = [f"hml_{name}" for name in _FUNCTIONS]
    code = loader.load([jit.compile_source(_source())], imports, [*names, "hml_with_handler"])
    struct = _Handler(b"hybridml", 1, None, *map(code.address, names))
    new = loader.python_api(ctypes.py_object, "PyCapsule_New", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(ctypes.addressof(struct), _NAME, None)
    # An array may be made or freed after everything of Python's is gone.
    loader.python_api(None, "Py_IncRef", ctypes.py_object)((code, struct, capsule))
    with_handler = builtin("with_handler", code.address("hml_with_handler"))
    own.value = id(capsule)
    return Handling(capsule, partial(with_handler, capsule), {name: code.address(name) for name in names})


def numpy_function(slot: int) -> int:
    """The address in a slot of NumPy's C-API table."""
    capsule = import_module("numpy._core._multiarray_umath")._ARRAY_API
    table = loader.python_api(ctypes.c_void_p, "PyCapsule_GetPointer", ctypes.py_object, ctypes.c_char_p)(capsule, None)
    return int((ctypes.c_void_p * (slot + 1)).from_address(table)[slot] or 0)
