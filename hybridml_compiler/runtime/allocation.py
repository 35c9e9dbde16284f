"""Memory of large results, on a cache line, for stores past the caches (`backends/llvm/vectors/nontemporal.py`).

NumPy asks the C library, whose large blocks begin 16 bytes after one. A NumPy memory handler (NEP 49) of our own is set
while such an array is made, and only then: the array owns its memory as any other and frees it the same way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.once import once
from hybridml_compiler.runtime import jit
from hybridml_compiler.runtime.linking import loader

# Results from here on; also where NumPy asks the kernel for huge pages, as is done here.
LARGE = 4 << 20
_LINE, _PAGE, _HUGE_PAGES = 64, 4096, 14
_FRONT = 16  # bytes at least before an array; blocks of the C library begin at a multiple of it
SET_HANDLER = 304  # slot of PyDataMem_SetHandler in NumPy's C-API table, which only ever grows
_NAME = b"mem_handler"  # of its capsule

# The four functions of a handler, over those of the C library; the address of its block is in front of an array. The
# library's own `aligned_alloc` asks for more than it then keeps, so that a freed array is too small for the next one of
# its size, and every result is new pages ([Note: Runtime]). A block that grows may leave its line: such an array is
# never stored to past the caches again, since every store looks at its address.
_TEXT = f"""
declare ptr @malloc(i64)
declare ptr @calloc(i64, i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)

define internal ptr @place(ptr %block, i64 %offset) {{
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %mark
mark:
  %array = getelementptr i8, ptr %block, i64 %offset
  %front = getelementptr i8, ptr %array, i64 -8
  store ptr %block, ptr %front
  br label %out
out:
  %result = phi ptr [null, %0], [%array, %mark]
  ret ptr %result
}}

define internal i64 @line(ptr %block) {{
  %address = ptrtoint ptr %block to i64
  %up = add i64 %address, {_FRONT + _LINE - 1}
  %line = and i64 %up, -{_LINE}
  %offset = sub i64 %line, %address
  ret i64 %offset
}}

define internal ptr @block(ptr %array) {{
  %front = getelementptr i8, ptr %array, i64 -8
  %block = load ptr, ptr %front
  ret ptr %block
}}

define ptr @hml_malloc(ptr %context, i64 %size) {{
  %more = add i64 %size, {_FRONT + _LINE}
  %sane = icmp ult i64 %size, {1 << 62}
  br i1 %sane, label %ask, label %out
ask:
  %block = call ptr @malloc(i64 %more)
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %advise
advise:
  %address = ptrtoint ptr %block to i64
  %up = add i64 %address, {_PAGE - 1}
  %page = and i64 %up, -{_PAGE}
  %start = inttoptr i64 %page to ptr
  %left = sub i64 %size, {_PAGE}
  %ignored = call i32 @madvise(ptr %start, i64 %left, i32 {_HUGE_PAGES})
  %offset = call i64 @line(ptr %block)
  %array = call ptr @place(ptr %block, i64 %offset)
  br label %out
out:
  %result = phi ptr [null, %0], [null, %ask], [%array, %advise]
  ret ptr %result
}}

define ptr @hml_calloc(ptr %context, i64 %count, i64 %size) {{
  %more = add i64 %count, {_FRONT + _LINE}
  %block = call ptr @calloc(i64 %more, i64 %size)
  %offset = call i64 @line(ptr %block)
  %array = call ptr @place(ptr %block, i64 %offset)
  ret ptr %array
}}

define ptr @hml_realloc(ptr %context, ptr %array, i64 %size) {{
  %block = call ptr @block(ptr %array)
  %from = ptrtoint ptr %block to i64
  %to = ptrtoint ptr %array to i64
  %offset = sub i64 %to, %from
  %more = add i64 %size, {_FRONT + _LINE}
  %moved = call ptr @realloc(ptr %block, i64 %more)
  %new = call ptr @place(ptr %moved, i64 %offset)
  ret ptr %new
}}

define void @hml_free(ptr %context, ptr %array, i64 %size) {{
  %none = icmp eq ptr %array, null
  br i1 %none, label %out, label %give
give:
  %block = call ptr @block(ptr %array)
  call void @free(ptr %block)
  br label %out
out:
  ret void
}}
"""
_FUNCTIONS = ("malloc", "calloc", "realloc", "free")
_LIBRARY = ("malloc", "calloc", "realloc", "free", "madvise")


class Handling(NamedTuple):
    """NumPy's function that makes a handler the current one and gives the one before; its address; our handler."""

    swap: Callable[[object], object]
    address: int
    own: object | None  # none but on Linux

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
    handling = handler()
    if handling.own is None:
        return np.empty(shape, dtype)
    before = handling.swap(handling.own)
    try:
        return np.empty(shape, dtype)
    finally:
        handling.swap(before)


def source(results: Sequence[int]) -> jit.Source | None:
    """The module that results of these bytes need, for those who compile others at the same time: once per machine,
    without LLVM's passes, as nothing calls it often."""
    needed = sys.platform == "linux" and max(results, default=0) >= LARGE
    return jit.Source(_TEXT, lambda: _TEXT, passes=False) if needed else None


@once
def handler() -> Handling:
    """Made once; nothing is set by it."""
    address = numpy_function(SET_HANDLER)
    swap = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    if sys.platform != "linux":
        return Handling(swap, address, None)
    library = ctypes.CDLL(None)
    imports = {name: loader.address_of(getattr(library, name)) for name in _LIBRARY}
    names = [f"hml_{name}" for name in _FUNCTIONS]
    code = loader.load([jit.compile_cached(_TEXT, passes=False)], imports, names)
    struct = _Handler(b"hybridml", 1, None, *map(code.address, names))
    new = loader.python_api(ctypes.py_object, "PyCapsule_New", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    own = new(ctypes.addressof(struct), _NAME, None)
    # An array may be freed after everything of Python's is gone.
    loader.python_api(None, "Py_IncRef", ctypes.py_object)((code, struct))
    return Handling(swap, address, own)


def numpy_function(slot: int) -> int:
    """The address in a slot of NumPy's C-API table."""
    capsule = import_module("numpy._core._multiarray_umath")._ARRAY_API
    table = loader.python_api(ctypes.c_void_p, "PyCapsule_GetPointer", ctypes.py_object, ctypes.c_char_p)(capsule, None)
    return int((ctypes.c_void_p * (slot + 1)).from_address(table)[slot] or 0)
