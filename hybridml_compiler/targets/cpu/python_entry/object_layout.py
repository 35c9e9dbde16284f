"""Struct offsets of CPython and NumPy that native code reads, measured once by planting values.

A field is found where exactly one word of a fresh object holds the planted value. A field that is not found (another
Python, another NumPy, a free-threaded build) makes the whole result None, and the native entry gives way to the
portable one.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import types
import weakref

import numpy as np

from ....once import once
from ....record import record
from ..structs import WORD, Struct

FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")  # parts of a function that may be replaced
C_CONTIGUOUS, F_CONTIGUOUS, OWNS_DATA, ALIGNED, WRITEABLE = 0x1, 0x2, 0x4, 0x100, 0x400


class _NotFound(Exception):
    """A field that is not where it was planted, or is in two places."""


@record
class Layout:
    """Byte offsets; the reference count is the low 32 bits of its word on every supported Python."""

    type: int
    type_order: int  # of the __mro__ of a class
    array: Struct  # as far as we know it
    float_value: int
    ctypes_buffer: int
    list_size: int
    list_items: int
    tuple_size: int
    tuple_items: int
    slice: dict[str, int]  # of its three parts
    dict_size: int
    cell_contents: int
    weakref: dict[str, int]  # of its object and its hash
    type_finalize: int
    function: dict[str, int]  # of the attributes in FUNCTION_PARTS


@once
def measured() -> Layout | None:
    """The offsets of this interpreter, or None if one could not be established."""
    without_lock = "free-threading build" in sys.version  # `sysconfig` says so too, and takes 2 ms to import
    if ctypes.sizeof(ctypes.c_void_p) != WORD or sys.byteorder != "little" or without_lock:
        return None
    if sys.implementation.name != "cpython":
        return None
    try:
        array, (size, items), (length, first) = _array(), _list_fields(), _tuple_fields()
        return Layout(
            type=array.offset("type"),
            type_order=_find(Layout, id(Layout.__mro__)),
            array=array,
            float_value=_float_value(),
            ctypes_buffer=_ctypes_buffer(),
            list_size=size,
            list_items=items,
            tuple_size=length,
            tuple_items=first,
            slice=_slice_parts(),
            dict_size=_find(dict.fromkeys(range(77)), 77),
            cell_contents=_cell_contents(),
            weakref=_weakref_parts(),
            type_finalize=_type_finalize(),
            function=_function_parts(),
        )
    except _NotFound:
        return None


def layout() -> Layout:
    """The same, for those who ask where it has been established."""
    found = measured()
    assert found is not None
    return found


@functools.lru_cache(maxsize=16)
def slot_offsets(cls: type) -> dict[str, int] | None:
    """Offset of each slot of a class of nothing but `__slots__` (CPython sorts them); None for any other class."""
    names = cls.__dict__.get("__slots__", ())
    names = [names] if isinstance(names, str) else [n for n in names if n not in ("__weakref__", "__dict__")]
    if cls.__bases__ != (object,) or cls.__dictoffset__ or "__init__" in cls.__dict__ or "__new__" in cls.__dict__:
        return None
    try:
        offsets = {}
        for name in names:
            instance, mark = cls(), object()
            object.__setattr__(instance, name, mark)
            offsets[name] = _find(instance, id(mark))
        return offsets
    except (_NotFound, TypeError, AttributeError):
        return None


def _words(value: object) -> tuple[int, ...]:
    count = type(value).__basicsize__ // WORD
    return struct.unpack(f"{count}Q", ctypes.string_at(id(value), count * WORD))


def _int32(value: object, offset: int) -> int:
    return int(ctypes.c_int32.from_address(id(value) + offset).value)


def _find(value: object, word: int) -> int:
    found = [i * WORD for i, w in enumerate(_words(value)) if w == word]
    if len(found) != 1:
        raise _NotFound
    return found[0]


def _array() -> Struct:
    """The struct of an array. The dims are found through their pointer to planted sizes."""
    array = np.zeros((3, 5, 7), np.float32)[:, 1:, :]
    assert array.base is not None
    data, base, descr = _find(array, array.ctypes.data), _find(array, id(array.base)), _find(array, id(array.dtype))
    nd, flags = data + WORD, descr + WORD
    dims = [
        offset
        for offset in range(nd + WORD, base, WORD)
        if tuple((ctypes.c_ssize_t * 3).from_address(_words(array)[offset // WORD])) == array.shape
    ]
    plain = np.zeros((3, 5))
    shown = [(_int32(a, nd), _int32(a, flags)) for a in (array, plain)]
    if len(dims) != 1 or shown != [(3, array.flags.num), (2, plain.flags.num)]:
        raise _NotFound
    reference = weakref.ref(array)
    weakrefs, kind = _find(array, id(reference)), _find(array, id(np.ndarray))
    strides = (ctypes.c_ssize_t * 3).from_address(_words(array)[dims[0] // WORD + 1])
    if tuple(strides) != array.strides:
        raise _NotFound
    pointers = {"type": kind, "data": data, "dims": dims[0], "descr": descr, "weakrefs": weakrefs}
    pointers |= {"strides": dims[0] + WORD, "base": base}
    numbers = {"references": _refcount(), "nd": nd, "flags": flags}
    kinds = ((pointers, "ptr"), (numbers, "i32"))
    return Struct({name: (offset, kind) for found, kind in kinds for name, offset in found.items()})


def _list_fields() -> tuple[int, int]:
    """(length, pointer to the items); a list that has grown has a capacity larger than its length."""
    value = [object() for _ in range(20)]
    value.append(object())
    size, kind = _find(value, len(value)), _find(value, id(list))
    words = _words(value)
    pointers = [i * WORD for i in range(2, len(words)) if i * WORD != kind and words[i] >= 1 << 16]
    if len(pointers) != 1:
        raise _NotFound
    items = (ctypes.c_void_p * len(value)).from_address(words[pointers[0] // WORD])
    if list(items) != [id(item) for item in value]:
        raise _NotFound
    return size, pointers[0]


def _tuple_fields() -> tuple[int, int]:
    """(length, first item)."""
    value = tuple(object() for _ in range(77))
    first = tuple.__basicsize__
    items = (ctypes.c_void_p * len(value)).from_address(id(value) + first)
    if list(items) != [id(item) for item in value]:
        raise _NotFound
    return _find(value, len(value)), first


def _slice_parts() -> dict[str, int]:
    value = slice(object(), object(), object())
    return {name: _find(value, id(getattr(value, name))) for name in ("start", "stop", "step")}


def _cell_contents() -> int:
    mark = object()
    return _find(types.CellType(mark), id(mark))


def _weakref_parts() -> dict[str, int]:
    """The places of the object, which names the weak reference in turn, and of the hash, -1 at first. Where the object
    is gone nothing else has changed."""

    class Value:
        __slots__ = ("__weakref__",)

    value = Value()
    reference = weakref.ref(value)
    at, before = _find(reference, id(value)), list(_words(reference))
    hashed = _find(reference, 2**64 - 1)
    before[hashed // WORD] = hash(reference) % 2**64
    named = ctypes.c_uint64.from_address(id(value) + Value.__weakrefoffset__).value == id(reference)
    del value
    before[at // WORD] = id(None)
    if not named or list(_words(reference)) != before:
        raise _NotFound
    return {"object": at, "hash": hashed}


_DEALLOC = 48  # of a type, on all 64-bit CPythons


def _type_finalize() -> int:
    """The place of `__del__` in a type; types have what frees their objects where `_DEALLOC` says."""

    class Value:
        __slots__ = ()

    class Other:
        __slots__ = ()

    before = list(_words(Value))
    Value.__del__ = lambda self: None  # type: ignore[attr-defined]
    changed = [k * WORD for k, (old, new) in enumerate(zip(before, _words(Value), strict=True)) if not old and new]
    words = [ctypes.c_uint64.from_address(id(kind) + _DEALLOC).value for kind in (Value, Other, Layout, object)]
    if len(changed) != 1 or len({*words[:3]}) != 1 or words[0] == words[3] or words[0] != before[_DEALLOC // WORD]:
        raise _NotFound
    return changed[0]


def replace_dealloc(cls: type, address: int) -> None:
    """Gives a class another `tp_dealloc`: those that derive from it find it there."""
    ctypes.c_void_p.from_address(id(cls) + _DEALLOC).value = address


def _function_parts() -> dict[str, int]:
    def value(a: int = 1, *, b: int = 2) -> None: ...

    return {name: _find(value, id(getattr(value, name))) for name in FUNCTION_PARTS}


def _refcount() -> int:
    value = object()
    before = _int32(value, 0)
    held = [value] * 7
    if _int32(value, 0) - before != len(held):
        raise _NotFound
    return 0


def _float_value() -> int:
    value = float("0.1234567890123")
    return _find(value, struct.unpack("Q", struct.pack("d", value))[0])


def _ctypes_buffer() -> int:
    value = (ctypes.c_int64 * 64)()
    return _find(value, ctypes.addressof(value))
