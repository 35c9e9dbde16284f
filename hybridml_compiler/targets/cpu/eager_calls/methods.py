"""The native methods of the tensor class: their tables, the code linked to them, and method descriptors of CPython.

All code is one module, compiled once per machine; objects of the process are symbols that it is linked to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes

from ....record import record
from ..python_entry import object_layout
from ..runtime import allocation, jit
from ..runtime.linking import loader
from ..runtime.linking.builtins import METH_FASTCALL, METH_KEYWORDS, METH_NOARGS, METH_O, builtin, descriptor
from .tables import DOUBLE, INTEGER, LOOP, OTHER, ROW, SINGLE

_API = (
    "Py_IncRef", "Py_DecRef", "PyType_GenericAlloc", "PyObject_Vectorcall", "PyObject_CallNoArgs", "PyContextVar_Get",
    "PyErr_Clear", "PyErr_Occurred", "PyEval_GetFrame", "PyFloat_FromDouble", "PyFrame_GetCode", "PyFrame_GetLasti",
    "PyIter_Next", "PyList_Append", "PyList_New", "PyList_SetItem", "PyLong_AsDouble", "PyLong_AsLongLong",
    "PySlice_AdjustIndices", "PySlice_Unpack", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", "PyWeakref_GetObject",
    "PyUnicode_CompareWithASCIIString", "PyWeakref_NewRef", "PyDict_GetItemWithError", "PyLong_FromLongLong",
)  # fmt: skip
_NUMPY = {"PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282}  # slots of NumPy's C-API table
_SLOTS = ("_array", "_made", "_node", "_version", "_view")
_DTYPES = (
    dtypes.float64, dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint64,
    dtypes.uint32, dtypes.uint16, dtypes.uint8, dtypes.complex128, dtypes.complex64,
)  # fmt: skip

_CHARS = {dtype.char: dtype for dtype in _DTYPES}


@record
class Method:
    """A method by what it does: "operator" and "reflected" of two operands, "update" in place, "function" of one
    operand or more that no method has (`np.sqrt`), "product" of two (`np.dot`), or the name of one of the others, as
    "getitem"."""

    does: str
    fallback: Callable[..., Any]
    ufunc: Any = None
    accepted: frozenset[np.dtype] = frozenset()
    differentiable: bool = True


def native_methods(
    cls: type, methods: Mapping[str, Method], objects: Mapping[str, object], words: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Functions of the rows that have a ufunc, and method descriptors of a class, by name; none where structs of the
    interpreter or NumPy are not what is known.

    `objects` are what native code knows by name, `words` numbers that it reads, or writes.
    """
    slots = object_layout.slot_offsets(cls)
    if object_layout.measured() is None or slots is None or not set(_SLOTS) <= slots.keys():
        return {}, {}
    if not (_known_ufuncs() and _known_integers()):
        return {}, {}
    if not all([hasattr(ctypes.pythonapi, name) for name in _API]):
        return {}, {}
    kept: list[object] = [cls, methods, objects, words, _CONSTANTS, _DTYPES, _CALL, _OUT]

    def table(values: Sequence[int]) -> int:
        kept.append(memory := _words(values))
        return ctypes.addressof(memory)

    offsets = [(f"hml_offset{name}", table([slots[name]])) for name in _SLOTS]
    offsets += [("hml_offset__weakref__", table([cls.__weakrefoffset__]))]
    words_of = {name: _words(_row(method)) for name, method in methods.items()}
    kept.append(words_of)
    rows = {name: ctypes.addressof(memory) for name, memory in words_of.items()}
    ufuncs = [name for name, method in methods.items() if method.does in ("operator", "unary", "function")]
    imports = {
        **{name: loader.address_of(getattr(ctypes.pythonapi, name)) for name in _API},
        **{name: allocation.numpy_function(slot) for name, slot in _NUMPY.items()},
        **{name: ctypes.addressof(word) for name, word in words.items()},
        **{name: id(value) for name, value in {**objects, **_CONSTANTS, "hml_tensor": cls}.items()},
        **{symbol(name): row for name, row in rows.items()},
        **dict(offsets),
        "hml_dtypes": table([word for dtype in _DTYPES for word in _dtype(dtype)]),
        "hml_call": ctypes.addressof(_CALL),
        "hml_out": ctypes.addressof(_OUT),
        "hml_n_dtypes": table([len(_DTYPES)]),
        "hml_ufuncs": table([rows[name] for name in ufuncs]),
        "hml_n_ufuncs": table([len(ufuncs)]),
    }  # fmt: skip
    given = {name: method.does for name, method in methods.items()}

    def emit() -> str:
        from .text import text  # once per machine

        return text({exported(name, does): (symbol(name), does) for name, does in given.items() if does not in _ROWS})

    about = f"eager calls {object_layout.layout()} {given}"
    source = jit.emitted_source(about, emit, "targets.cpu.eager_calls.*", "targets.cpu.python_entry.object_layout")
    exports = ["hml_function", *(exported(name, does) for name, does in given.items() if does not in _ROWS)]
    library = loader.load([jit.compile_source(source)], imports, exports, keep=kept)
    loader.never_freed(library)
    called = {
        name: builtin(methods[name].ufunc.__name__, library.address("hml_function"), words_of[name]) for name in ufuncs
    }
    return called, {
        name: descriptor(
            cls, name, library.address(exported(name, does)), _FLAGS.get(does, METH_O), _doc(name, methods[name])
        )
        for name, does in given.items()
        if does not in _ROWS
    }


_ROWS = ("function", "product")  # what others call
_EACH = frozenset(("operator", "reflected", "update", "unary", "square", "matmul"))  # what several methods may do
_CALL, _OUT = map(ctypes.create_string_buffer, (b"__call__", b"out"))
_FLAGS = {
    "setitem": METH_FASTCALL, "array_function": METH_FASTCALL, "array_ufunc": METH_FASTCALL | METH_KEYWORDS,
    "bool": METH_NOARGS, "float": METH_NOARGS, "int": METH_NOARGS, "index": METH_NOARGS, "unary": METH_NOARGS,
}  # fmt: skip


def _doc(name: str, method: Method) -> str:
    takes = {
        "setitem": "key, value, ", "getitem": "key, ", "array_ufunc": "ufunc, call, /, *inputs, **kwargs",
        "array_function": "func, types, args, kwargs, ",
    }  # fmt: skip
    given = "" if _FLAGS.get(method.does) == METH_NOARGS else takes.get(method.does, "other, ")
    end = "" if given.endswith("kwargs") else "/"
    return f"{name}($self, {given}{end})\n--\n\n{method.fallback.__doc__ or ''}"


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def symbol(name: str) -> str:
    return f"hml_row_{name.strip('_')}"


def exported(name: str, does: str) -> str:
    return f"hml_method_{name}" if does in _EACH else f"hml_{does}"


def _dtype(dtype: np.dtype) -> list[int]:
    kind = {"f": DOUBLE if dtype.itemsize == 8 else SINGLE, "i": INTEGER, "u": INTEGER}.get(dtype.kind, OTHER)
    low, high = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if kind == INTEGER else (0, 0)
    return [id(dtype), kind, low, min(high, 2**63 - 1), dtype.itemsize]


def _row(method: Method) -> list[int]:
    """The words of a `ROW` and its loops."""
    ufunc = method.ufunc
    if ufunc is None:
        return [id(method.fallback), *[0] * (len(ROW.fields) - 1)]
    loops = _loops(ufunc)
    found = [loops.get(dtype.char * ufunc.nin, _NO_LOOP) if dtype in method.accepted else _NO_LOOP for dtype in _DTYPES]
    head = [id(method.fallback), int(method.differentiable), id(ufunc), ufunc.nin]
    return [*head, *(word for loop in found for word in loop)]


_CONSTANTS: dict[str, object] = {
    "_Py_NoneStruct": None, "_Py_TrueStruct": True, "_Py_FalseStruct": False, "_Py_EllipsisObject": ...,
    "hml_zero": 0, "hml_two": 2, "hml_ndarray": np.ndarray, "hml_float_class": float, "hml_float64_class": np.float64,
    "hml_int64_class": np.int64,
    "hml_int_class": int, "hml_list": list, "hml_tuple": tuple, "hml_slice": slice, "hml_str": str,
    "hml_dict": dict, "hml_np_dot": np.dot, "hml_np_matmul": np.matmul,
    "hml_bool_dtype": dtypes.bool_, "hml_int64": dtypes.int64,
}  # fmt: skip


class _Ufunc(ctypes.Structure):
    """`PyUFuncObject`, as far as NumPy's header shows it."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


def _known_integers() -> bool:
    """Whether an int64 of NumPy's has its value where a float has it."""
    value = np.int64(0x0123456789ABCDEF)
    at = object_layout.layout().float_value
    return np.int64.__basicsize__ >= at + 8 and ctypes.c_int64.from_address(id(value) + at).value == value


def _known_ufuncs() -> bool:
    """Whether the struct of ufuncs is the one above."""
    for ufunc in (np.add, np.sqrt, np.less):
        found = _Ufunc.from_address(id(ufunc))
        if (found.nin, found.nout, found.nargs, found.ntypes) != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes):
            return False
        if found.name != ufunc.__name__.encode():
            return False
        shown = "".join(ufunc.types).replace("->", "").encode()
        numbers = found.types[: len(shown)]
        if [np.dtype(chr(c)).num for c in shown] != list(numbers):
            return False
    return True


_NO_LOOP = [0] * len(LOOP.fields)


def _loops(ufunc: Any) -> dict[str, list[int]]:
    """The words of each `LOOP` of a ufunc, by its operands' dtypes: the one that NumPy finds, which is the first."""
    its, found = _Ufunc.from_address(id(ufunc)), {}
    for k, types in enumerate(ufunc.types):
        inputs, _, result = types.partition("->")
        if result in _CHARS and inputs not in found:
            made = _CHARS[result]
            found[inputs] = [its.functions[k] or 0, its.data[k] or 0 if its.data else 0, id(made), made.itemsize]
    return found
