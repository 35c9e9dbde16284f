"""The native methods of the tensor class: their tables, the code linked to them, and method descriptors of CPython.

All code is one module, compiled once per machine; objects of the process are symbols that it is linked to.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.compile_policy import OPERATION
from hybridml_compiler.errors import DTypeError, ManyIndicesError, NoIndexError

from ....record import record
from ..python_entry import object_layout
from ..runtime import allocation, jit
from ..runtime.linking import loader
from ..runtime.linking.builtins import METH_FASTCALL, METH_KEYWORDS, builtin, descriptor, knows_slots, slot_method
from . import kernels
from .tables import COMPLEX, DOUBLE, INTEGER, LOOP, OTHER, ROW, SINGLE, TRUTH, slot_of

_API = (
    "Py_IncRef", "Py_DecRef", "PyType_GenericAlloc", "PyObject_Vectorcall", "PyObject_CallNoArgs", "PyContextVar_Get",
    "PyErr_Clear", "PyErr_Occurred", "PyErr_SetObject", "PyEval_GetFrame", "PyFloat_FromDouble", "PyFrame_GetCode",
    "PyFrame_GetLasti",
    "PyIter_Next", "PyList_Append", "PyList_New", "PyList_SetItem", "PyLong_AsDouble", "PyLong_AsLongLong",
    "PySlice_AdjustIndices", "PySlice_Unpack", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", 
    "PyUnicode_CompareWithASCIIString", "PyWeakref_NewRef", "PyDict_GetItemWithError", "PyLong_FromLongLong",
    "PyLong_FromDouble", "PyObject_GetItem", "PyContextVar_Set", "PyNumber_AsSsize_t", "PyObject_GetAttrString",
    "PyObject_Init", "PyObject_Malloc", "PyType_IsSubtype", "PyObject_CallFinalizerFromDealloc",
    "PyObject_ClearWeakRefs", "PyObject_Free", "PyObject_GC_Del", "PyObject_GC_Track", "PyObject_GC_UnTrack",
    "PyObject_GC_IsFinalized", "_Py_NewReference",
)  # fmt: skip
# Slots of NumPy's C-API table.
_NUMPY = {
    "PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282, "PyDataMem_SetHandler": allocation.SET_HANDLER
}  # fmt: skip
_SLOTS = ("_array", "_made", "_node", "_version", "_view")
_DTYPES = (
    dtypes.float64, dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint64,
    dtypes.uint32, dtypes.uint16, dtypes.uint8, dtypes.complex128, dtypes.complex64,
)  # fmt: skip

_CHARS = {dtype.char: dtype for dtype in _DTYPES}


@record
class Method:
    """A method by what it does: "operator" and "reflected" of two operands, "unary" of one, "update" in place,
    "function" of one operand or more that no method has (`np.sqrt`), "product" of two (`np.dot`), "reduction" of all
    elements, "slot" of its own kind, as `x[key]`, or the name of one of NumPy's protocols, or of a copy."""

    does: str
    fallback: Callable[..., Any]
    ufunc: Any = None
    accepted: frozenset[np.dtype] = frozenset()
    differentiable: bool = True
    mixes: bool = False  # whether operands of several dtypes are brought to the one that they have in common
    floats: bool = False  # whether integers become the default float
    arity: int = 0
    kernels: tuple[
        tuple[str, str], ...
    ] = ()  # instructions by the kinds of dtypes of which NumPy's loops have other bits


def _source(methods: Mapping[str, Method]) -> jit.Source:
    given = {name: method.does for name, method in methods.items()}

    def emit() -> str:
        from .text import text  # once per machine

        return text({name: does for name, does in given.items() if does in _SLOTTED})

    about = f"eager calls {object_layout.layout()} {given}"
    emitters = "targets.cpu.eager_calls.*", "targets.cpu.python_entry.object_layout", "compile_policy"
    return jit.emitted_source(about, emit, *emitters)


def is_kept(methods: Mapping[str, Method]) -> bool:
    """Whether `native_methods` compiles nothing, as another process has."""
    return object_layout.measured() is None or jit.is_kept(_source(methods))


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
    slotted = [name for name, method in methods.items() if method.does in _SLOTTED]
    if not (_known_ufuncs() and _known_numbers() and knows_slots(np.ndarray, slotted)):
        return {}, {}
    if not all([hasattr(ctypes.pythonapi, name) for name in _API]):
        return {}, {}
    kept: list[object] = [cls, methods, objects, words, _CONSTANTS, _DTYPES, _TEXTS]

    def table(values: Sequence[int]) -> int:
        kept.append(memory := _words(values))
        return ctypes.addressof(memory)

    offsets = [(f"hml_offset{name}", table([slots[name]])) for name in _SLOTS]
    offsets += [("hml_offset__weakref__", table([cls.__weakrefoffset__]))]
    words_of = {name: _words(_row(method)) for name, method in methods.items()}
    kept.append(words_of)
    rows = {name: ctypes.addressof(memory) for name, memory in words_of.items()}
    ufuncs = [name for name, method in methods.items() if method.does in _LOOPS and not method.ufunc.signature]
    imports = {
        **{name: loader.address_of(getattr(ctypes.pythonapi, name)) for name in _API},
        **{name: allocation.numpy_function(slot) for name, slot in _NUMPY.items()},
        **{name: ctypes.addressof(word) for name, word in words.items()},
        **{name: id(value) for name, value in {**objects, **_CONSTANTS, "hml_tensor": cls}.items()},
        **{symbol(name): row for name, row in rows.items()},
        **dict(offsets),
        "hml_dtypes": table([word for dtype in _DTYPES for word in _dtype(dtype)]),
        **{name: ctypes.addressof(text) for name, text in _TEXTS.items()},
        "hml_common": table([_common(one, other) for one in _DTYPES for other in _DTYPES]),
        "hml_n_dtypes": table([len(_DTYPES)]),
        "hml_handler": ctypes.addressof(allocation.own),
        "hml_ufuncs": table([rows[name] for name in ufuncs]),
        "hml_n_ufuncs": table([len(ufuncs)]),
    }  # fmt: skip
    given = {name: method.does for name, method in methods.items()}
    exported = {name: f"hml_{does}" for name, does in given.items() if does in _FLAGS}
    exported |= {name: f"hml_slot_{slot_of(name, given[name])}" for name in slotted}
    exports = ["hml_function", "hml_reduction", "hml_kernel_loop", "hml_copy_loop", "hml_dealloc"]
    exports += dict.fromkeys(exported.values())
    library = loader.load([jit.compile_source(_source(methods))], imports, exports, keep=kept)
    loader.never_freed(library)
    kernels.use(library.address("hml_kernel_loop"))
    object_layout.replace_dealloc(cls, library.address("hml_dealloc"))
    copies = [_copies(dtype, library.address("hml_copy_loop")) for dtype in _DTYPES]
    words_of["__setitem__"][len(ROW.fields) :] = [word for loop in copies for word in loop]
    for name, method in methods.items():
        for kind, instruction in method.kernels:
            for number, dtype in enumerate(_DTYPES):
                if dtype.kind == kind:
                    kernels.want((instruction, dtype.char, method.arity), words_of[name], number)
    called = {
        name: builtin(methods[name].ufunc.__name__, library.address("hml_function"), words_of[name])
        for name in ufuncs
        if methods[name].accepted
    }
    reduction, names = library.address("hml_reduction"), [name for name in given if given[name] == "reduction"]
    called |= {name: builtin(name, reduction, words_of[name]) for name in names}
    found = {name: (library.address(symbol), _doc(name, methods[name])) for name, symbol in exported.items()}
    return called, {
        name: slot_method(cls, name, vars(np.ndarray)[name], *how)
        if name in slotted
        else descriptor(cls, name, how[0], _FLAGS[given[name]], how[1])
        for name, how in found.items()
    }


_LOOPS = frozenset(("operator", "unary", "function"))
_SLOTTED = frozenset(("operator", "reflected", "update", "unary", "slot"))
_FLAGS = {
    "array_function": METH_FASTCALL,
    "array_ufunc": METH_FASTCALL | METH_KEYWORDS,
    "array": METH_FASTCALL | METH_KEYWORDS,
    "clone": METH_FASTCALL | METH_KEYWORDS,
    "copy": METH_FASTCALL | METH_KEYWORDS,
}
_TEXTS = {
    "hml_call": ctypes.create_string_buffer(b"__call__"),
    "hml_out": ctypes.create_string_buffer(b"out"),
    "hml_name_copy": ctypes.create_string_buffer(b"copy"),
    "hml_delitem": ctypes.create_string_buffer(b"__delitem__"),
}


def _doc(name: str, method: Method) -> str:
    takes = {
        "__setitem__": "key, value, ", "__getitem__": "key, ", "array_ufunc": "ufunc, call, /, *inputs, **kwargs",
        "array": "dtype=None, copy=None", "clone": "", "copy": "/, *args, **kwargs",
                "array_function": "func, types, args, kwargs, ", "slot": "", "unary": "", "__pow__": "other, ",
        "__rpow__": "other, ",
    }  # fmt: skip
    given = takes.get(name, takes.get(method.does, "other, "))
    end = "/" if given.endswith(", ") or not given else ""
    return f"{name}($self, {given}{end})\n--\n\n{method.fallback.__doc__ or ''}"


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def symbol(name: str) -> str:
    return f"hml_row_{name.strip('_')}"


_KIND_OF = {dtypes.float64: DOUBLE, dtypes.float32: SINGLE, dtypes.bool_: TRUTH, dtypes.complex128: COMPLEX}


def _dtype(dtype: np.dtype) -> list[int]:
    kind = INTEGER if dtype.kind in "iu" else _KIND_OF.get(dtype, OTHER)
    low, high = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if kind == INTEGER else (0, 0)
    whole = kind in (INTEGER, TRUTH) and dtype is not dtypes.uint64
    return [id(dtype), kind, low, min(high, 2**63 - 1), dtype.itemsize, int(whole)]


def _common(one: np.dtype, other: np.dtype) -> int:
    """The number of the dtype that two have in common; that of none where there is none."""
    try:
        return _DTYPES.index(dtypes.result_type([(one, False), (other, False)]))
    except (DTypeError, ValueError):
        return len(_DTYPES)


def _row(method: Method) -> list[int]:
    """The words of a `ROW` and its loops."""
    ufunc = method.ufunc
    if ufunc is None:
        return [id(method.fallback), *[0] * (len(ROW.fields) - 1 + len(_DTYPES) * len(LOOP.fields))]
    loops = _loops(ufunc) if method.accepted else {}
    found = [loops.get(dtype.char * ufunc.nin, _NO_LOOP) if dtype in method.accepted else _NO_LOOP for dtype in _DTYPES]
    flags = int(method.mixes), int(method.floats)
    head = [id(method.fallback), int(method.differentiable), id(ufunc), method.arity, *flags]
    return [*head, *(word for loop in found for word in loop)]


def _copies(dtype: np.dtype, loop: int) -> list[int]:
    return [loop, dtype.itemsize, id(dtype), dtype.itemsize, OPERATION - 1]


_CONSTANTS: dict[str, object] = {
    "_Py_NoneStruct": None, "_Py_TrueStruct": True, "_Py_FalseStruct": False, "_Py_EllipsisObject": ...,
    "_Py_NotImplementedStruct": NotImplemented,
    "hml_no_index": NoIndexError, "hml_many_indices": ManyIndicesError,
    "hml_zero": 0, "hml_two": 2, "hml_ndarray": np.ndarray, "hml_float_class": float, "hml_float64_class": np.float64,
    "hml_int64_class": np.int64, "hml_complex128_class": np.complex128, "hml_complex_class": complex,
    "hml_bool_class": bool, "hml_int_class": int, "hml_list": list, "hml_tuple": tuple, "hml_slice": slice,
    "hml_str": str, "hml_dict": dict, "hml_weakref_class": weakref.ref, "hml_np_dot": np.dot,
    "hml_np_matmul": np.matmul, "hml_bool_dtype": dtypes.bool_, "hml_int64": dtypes.int64,
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


def _known_numbers() -> bool:
    """Whether an int64 of NumPy's and complex numbers have their values where a float has it."""
    value, at = np.int64(0x0123456789ABCDEF), object_layout.layout().float_value
    if np.int64.__basicsize__ < at + 8 or ctypes.c_int64.from_address(id(value) + at).value != value:
        return False
    for number in (complex(1.5, -2.5), np.complex128(complex(0.5, 3.5))):
        parts = (ctypes.c_double * 2).from_address(id(number) + at)
        if type(number).__basicsize__ < at + 16 or complex(*parts) != number:
            return False
    return not np.ndarray.__flags__ & _COUNTED  # as arrays are made in memory of their own


_COUNTED = 1 << 9 | 1 << 14  # `Py_TPFLAGS_HEAPTYPE`, whose objects have a reference to it, and `Py_TPFLAGS_HAVE_GC`


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
            loop = its.functions[k] or 0, its.data[k] or 0 if its.data else 0
            found[inputs] = [*loop, id(made), made.itemsize, OPERATION - 1]
    return found
