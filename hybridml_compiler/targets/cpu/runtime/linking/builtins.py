"""Python functions from native ones: builtins of CPython, which take a tenth of the time of ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from hybridml_compiler.targets.cpu.runtime.linking import loader

METH_FASTCALL, METH_KEYWORDS, METH_NOARGS, METH_O = 0x80, 0x02, 0x04, 0x08


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_kept: dict[tuple[str, int], _MethodDef] = {}


def _definition(name: str, address: int, flags: int, doc: bytes | None = None) -> int:
    """The address of a definition, which stays: CPython reads it whenever it calls the function."""
    method = _kept.get((name, address))
    if method is None:
        method = _kept[name, address] = _MethodDef(name.encode(), address, flags, doc)
        loader.never_freed(method)
    return ctypes.addressof(method)


def builtin(name: str, address: int, bound: object = None, flags: int = METH_FASTCALL) -> Callable[..., Any]:
    """`PyObject *function(bound, args, n)`, at this address, which is never unloaded, as a Python function."""
    new = loader.python_api(ctypes.py_object, "PyCFunction_NewEx", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = new(_definition(name, address, flags), bound, None)
    return function


def descriptor(cls: type, name: str, address: int, flags: int, doc: str) -> Any:
    """`PyObject *function(self, ...)`, at this address, as a method of a class: called like one that is written in C.
    `doc` begins with its signature, as those of CPython do."""
    new = loader.python_api(ctypes.py_object, "PyDescr_NewMethod", ctypes.py_object, ctypes.c_void_p)
    return new(cls, _definition(name, address, flags, doc.encode()))
