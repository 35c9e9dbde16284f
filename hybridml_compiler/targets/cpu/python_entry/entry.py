"""The callable a user's call ends in: guards, pointers, fresh outputs, the step and the result in one native function.

`build_entry` fills a block of data for the one builtin that native.py describes; nothing is compiled ([Note: Runtime]
has times). A call that the step was not compiled for goes to `fallback`, which may be another entry. Where the structs
of the interpreter could not be measured, portable.py does the same in Python.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.python_entry import block as entry_block
from hybridml_compiler.targets.cpu.python_entry import object_layout
from hybridml_compiler.targets.cpu.python_entry.block import (
    CONSTANT,
    FLOAT,
    HEADER,
    NUMBER,
    OUTPUT,
    RESULTS,
    TENSOR,
    TUPLE,
)
from hybridml_compiler.targets.cpu.python_entry.portable import portable_entry
from hybridml_compiler.targets.cpu.python_entry.spec import (
    Argument,
    ArraySpec,
    Constant,
    Counter,
    EntrySpec,
    FloatCell,
    Returned,
    Stamps,
)
from hybridml_compiler.targets.cpu.runtime import allocation, jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.linking.builtins import METH_FASTCALL, METH_KEYWORDS, builtin
from hybridml_compiler.targets.cpu.structs import WORD, Struct
from hybridml_compiler.weak import WeakMembers


def build_entry(spec: EntrySpec) -> Callable[..., object]:
    """A callable for this step, which returns its results; without any given, its outputs as one tensor, a tuple of
    several, or None.

    One call at a time: a call that finds the entry at work (a second thread, a nested call) goes to `fallback`.
    Raises ValueError for a slot the tensor type does not have.
    """
    slots = object_layout.slot_offsets(spec.tensor_type)
    measured = object_layout.measured()
    asked = {spec.array_slot, *spec.slot_defaults, *spec.require_none_slots}
    if unknown := sorted(name for name in asked if not hasattr(spec.tensor_type, name)):
        raise ValueError(f"{spec.tensor_type.__name__} has no slot {', '.join(unknown)}")
    if measured is None or slots is None or not asked <= slots.keys():
        return portable_entry(spec)
    return _native_entry(spec, slots, measured)


class Block(ctypes.Structure):
    """The header that the native function reads; owns everything that its words point to."""

    _fields_ = [(name, ctypes.c_int64) for name in HEADER.names]
    __hash__ = object.__hash__  # which structures lack; they are compared by identity all the same
    owners: tuple[object, ...] = ()


blocks: WeakMembers[Block] = WeakMembers()  # of all entries


def _after_fork() -> None:
    """The thread that was inside a step stayed in the parent."""
    for block in blocks:
        ctypes.c_int64.from_address(block.lock).value = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Tables:
    """Rows of 64-bit words that native code reads, and the objects that must outlive them."""

    def __init__(self) -> None:
        self.owners: list[object] = []

    def words(self, values: Sequence[int]) -> int:
        """The address of a copy of the values."""
        memory = np.array(values or [0], np.int64)
        self.owners.append(memory)
        return int(memory.ctypes.data)

    def object(self, value: object) -> int:
        """The address of an object, kept alive."""
        self.owners.append(value)
        return id(value)

    def counter(self, value: Counter) -> int:
        """The address of a counter, kept alive."""
        self.owners.append(value)
        return ctypes.addressof(value)

    def rows(self, kind: Struct, rows: Sequence[Mapping[str, int]]) -> int:
        return self.words([row.get(column, 0) for row in rows for column in kind.names])


def _native_entry(spec: EntrySpec, slots: Mapping[str, int], measured: object_layout.Layout) -> Callable[..., object]:
    tables, block = _Tables(), Block()
    arrays = spec.arrays
    n_data = sum(not isinstance(arg, Constant) for arg in spec.args)
    first_output = n_data + len(arrays)
    numbers = [tables.words([0]) if k in spec.numbers else 0 for k in range(len(spec.outputs))]
    pointers = tables.words([0] * n_data + [array.ctypes.data for array in arrays] + numbers + spec.fixed)

    def array_columns(given: ArraySpec) -> dict[str, int]:
        return {"nd": len(given.shape), "dims": tables.words(given.shape)}

    def argument(given: Argument, target: int) -> dict[str, int]:
        if isinstance(given, Constant) and type(given.value) is tuple:
            items = tables.words([tables.object(item) for item in given.value])
            return {"kind": TUPLE, "nd": len(given.value), "dims": items}
        if isinstance(given, Constant) and type(given.value) is float:
            return {"kind": NUMBER, "nd": int(np.float64(given.value).view(np.int64))}
        if isinstance(given, Constant):
            return {"kind": CONSTANT, "expected": tables.object(given.value)}
        if isinstance(given, FloatCell):
            cell = tables.words([0])
            ctypes.c_int64.from_address(target).value = cell
            return {"kind": FLOAT, "target": cell}
        expected = tables.object(np.dtype(given.dtype))
        return {"kind": TENSOR, "expected": expected, "target": target, **array_columns(given)}

    rows, place = [], 0
    for given in spec.args:
        rows.append(argument(given, pointers + WORD * place))
        place += not isinstance(given, Constant)
    outputs = [
        {
            "expected": 0 if numbers[i] else tables.object(np.dtype(output.dtype)),
            "target": pointers + WORD * (first_output + i),
            "lent": 0 if spec.lent is None else int(spec.lent.ctypes.data) + WORD * i,
            "handler": allocation.handler().capsule if _bytes(output) >= allocation.LARGE else 0,
            **array_columns(output),
        }
        for i, output in enumerate(spec.outputs)
    ]
    output_rows = tables.rows(OUTPUT, outputs)

    def result(found: Returned) -> dict[str, int]:
        kind, row = RESULTS.index(found.kind), {}
        if found.kind == "output":
            row = {"of": output_rows + OUTPUT.nbytes * found.of}
        elif found.kind == "argument":
            row = {"number": found.of}
        else:
            row = {"of": tables.object(found.of) if found.kind == "object" else numbers[found.of]}
        return {"kind": kind, **row}

    results, is_tuple = spec.returned
    places = [row for place in spec.places for row in place.rows(measured, tables.words)]
    header = {
        "lock": tables.counter(spec.lock),
        "n_args": len(spec.args),
        "args": tables.rows(entry_block.ARG, rows),
        "fallback": tables.object(spec.fallback),
        "on_status": tables.object(spec.on_status),
        "step": spec.step,
        "release_gil": int(spec.release_gil),
        "pointers": pointers,
        "n_epochs": len(spec.epochs),
        "epochs": tables.rows(
            entry_block.EPOCH,
            [{"address": tables.counter(now), "seen": tables.counter(seen)} for now, seen in spec.epochs],
        ),
        "n_contexts": len(spec.contexts),
        "contexts": tables.rows(
            entry_block.CONTEXT,
            [{"variable": tables.object(var), "expected": tables.object(value)} for var, value in spec.contexts],
        ),
        "n_places": len(places),
        "places": tables.rows(entry_block.PLACE, places),
        "tensor_type": tables.object(spec.tensor_type),
        "array_slot": slots[spec.array_slot],
        "n_nones": len(spec.require_none_slots),
        "nones": tables.words([slots[name] for name in spec.require_none_slots]),
        "n_captured": len(arrays),
        "captured": tables.rows(
            entry_block.CAPTURED,
            [
                {"tensor": tables.object(tensor), "array": tables.object(array)}
                for tensor, array in zip(spec.captured, arrays, strict=True)
            ],
        ),
        "n_outputs": len(outputs),
        "outputs": output_rows,
        "n_results": len(results) if is_tuple else 0,
        "results": tables.rows(entry_block.RESULT, [result(found) for found in results]),
        "n_updated": len(spec.updated),
        "updated": tables.rows(entry_block.UPDATED, [{"tensor": k} for k in spec.updated]),
        "n_apart": len(spec.apart),
        "apart": tables.rows(entry_block.APART, [{"first": j, "second": k} for j, k in spec.apart]),
        "stamps": 0 if spec.stamps is None else _stamps(tables, spec.stamps, slots),
        "n_defaults": len(spec.slot_defaults),
        "defaults": tables.rows(
            entry_block.DEFAULT,
            [{"offset": slots[name], "value": tables.object(value)} for name, value in spec.slot_defaults.items()],
        ),
        "none": id(None),
        "float_type": id(float),
        "array_type": id(np.ndarray),
        "tuple_type": id(tuple),
        "list_type": id(list),
    }
    for name, value in header.items():
        setattr(block, name, value)
    block.owners = (tables.owners, spec.arena, spec.sizes, spec.lent, spec.places, spec.keep, _code())
    blocks.add(block)
    return builtin("entry", _code().address("hml_entry"), block, METH_FASTCALL | METH_KEYWORDS)


def _stamps(tables: _Tables, stamps: Stamps, slots: Mapping[str, int]) -> int:
    caller, called = map(tables.object, stamps.through)
    tables.owners.append(stamps)
    row = {
        "clock": id(stamps.clock), "writes": ctypes.addressof(stamps.writes), "known_user": id(stamps.known_user),
        "known_number": ctypes.addressof(stamps.known_number), "helper": id(stamps.helper),
        "caller": caller, "called": called, "version": slots[stamps.slot],
    }  # fmt: skip
    return tables.rows(entry_block.STAMPS, [row])


def _bytes(output: ArraySpec) -> int:
    return int(np.prod(output.shape, dtype=np.int64)) * np.dtype(output.dtype).itemsize


NEW_FROM_DESCR = 94  # slot of PyArray_NewFromDescr in NumPy's C-API table, which only ever grows


# Functions of CPython that native.py calls.
API = (
    "Py_IncRef", "Py_DecRef", "PyType_GenericAlloc", "PyObject_Vectorcall", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyContextVar_Get", "PyTuple_New", "PyTuple_SetItem", "PyLong_FromLongLong",
    "PyDict_GetItemWithError", "PyDict_Next", "PyErr_Clear", "PyErr_Occurred", "PyEval_GetFrame", "PyFrame_GetCode",
    "PyFrame_GetBack", "PyFrame_GetLasti", "PyIter_Next", "PyLong_AsLongLong", "PyObject_CallNoArgs",
    "PyList_SetItem", "PyLong_FromDouble", "PyFloat_FromDouble", "PyBool_FromLong",
)  # fmt: skip


@once
def _code() -> loader.Library:
    """The one native function of all entries."""
    imports = {name: loader.address_of(getattr(ctypes.pythonapi, name)) for name in API}
    imports["PyArray_NewFromDescr"] = allocation.numpy_function(NEW_FROM_DESCR)
    imports["PyDataMem_SetHandler"] = allocation.numpy_function(allocation.SET_HANDLER)

    def emit() -> str:
        from hybridml_compiler.targets.cpu.python_entry import native  # once per machine

        return native.text()

    source = jit.emitted_source(
        f"entry {object_layout.layout()}", emit, "targets.cpu.python_entry.*", "targets.cpu.eager_calls.tables"
    )
    return loader.load([jit.compile_source(source)], imports, ("hml_entry",))
