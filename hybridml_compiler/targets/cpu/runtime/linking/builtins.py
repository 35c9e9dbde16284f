"""Python functions from native ones: builtins of CPython, which take a tenth of the time of ctypes."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterable
from typing import Any

from hybridml_compiler.targets.cpu.runtime.linking import loader

METH_FASTCALL, METH_KEYWORDS = 0x80, 0x02


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Slot(ctypes.Structure):
    """`struct wrapperbase`: how a method that is a slot of a type's is called from Python."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("offset", ctypes.c_int),
        ("generic", ctypes.c_void_p),
        ("wrapper", ctypes.c_void_p),
        ("doc", ctypes.c_char_p),
        ("flags", ctypes.c_int),
        ("interned", ctypes.c_void_p),
    )


class _SlotMethod(ctypes.Structure):
    """`PyWrapperDescrObject`"""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("of", ctypes.c_void_p * 3),
        ("slot", ctypes.POINTER(_Slot)),
        ("function", ctypes.c_void_p),
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


def slot_method(cls: type, name: str, like: Any, address: int, doc: str) -> Any:
    """The C function of a slot of a type, as `nb_add`, as a method of a class: CPython calls the function itself for
    `x + y`, where it looks a method up in the class otherwise. `like` is such a method of another class."""
    its = _Slot.from_buffer_copy(_SlotMethod.from_address(id(like)).slot.contents)
    its.doc = doc.encode()
    loader.never_freed(its)
    new = loader.python_api(ctypes.py_object, "PyDescr_NewWrapper", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    return new(cls, ctypes.addressof(its), address)


def knows_slots(cls: type, names: Iterable[str]) -> bool:
    """Whether these methods of a class, written in C, are slots, and the structs of them those above."""
    for name in names:
        method = vars(cls).get(name)
        if type(method) is not types.WrapperDescriptorType or type(method).__basicsize__ != ctypes.sizeof(_SlotMethod):
            return False
        if _SlotMethod.from_address(id(method)).slot.contents.name != name.encode():
            return False
    return True
