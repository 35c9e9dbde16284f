"""An entry in Python: the meaning of native.py, for interpreters whose structs could not be measured.

Its outputs are always fresh: nobody's memory is used again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from hybridml_compiler.locks import lock
from hybridml_compiler.targets.cpu.python_entry.spec import (
    ArraySpec,
    Constant,
    Counter,
    EntrySpec,
    FloatCell,
    Returned,
    call_step,
)
from hybridml_compiler.targets.cpu.runtime import allocation

NUMBERS: dict[str, Callable[[Any], object]] = {"float": float, "int": int, "bool": bool}
_choosing = lock()


def _taken(word: Counter) -> bool:
    """Whether the word was 0, and is 1 now."""
    with _choosing:
        if word.value:
            return False
        word.value = 1
        return True


def portable_entry(spec: EntrySpec) -> Callable[..., object]:
    """`entry.build_entry` without native code around the step."""
    arrays = spec.arrays
    word = spec.lock
    unset = object()

    def fits(given: object, wanted: ArraySpec | Constant | FloatCell) -> bool:
        if isinstance(wanted, Constant):
            if type(given) is float is type(wanted.value):
                return given.hex() == wanted.value.hex()
            return given is wanted.value or (
                type(given) is tuple is type(wanted.value)
                and len(given) == len(wanted.value)
                and all(map(operator.is_, given, wanted.value))
            )
        if isinstance(wanted, FloatCell):
            return type(given) is float
        if type(given) is not spec.tensor_type:
            return False
        array = getattr(given, spec.array_slot, None)
        return (
            type(array) is np.ndarray
            and array.dtype is np.dtype(wanted.dtype)
            and array.shape == wanted.shape
            and array.flags.c_contiguous
            and array.flags.aligned
            and all(getattr(given, name, unset) is None for name in spec.require_none_slots)
        )

    def held(variable: ContextVar[object], default: object) -> object:
        try:
            return variable.get()
        except LookupError:
            return default

    def holds(args: tuple[object, ...]) -> bool:
        return (
            len(args) == len(spec.args)
            and all(counter.value == seen.value for counter, seen in spec.epochs)
            and all(held(variable, value) is value for variable, value in spec.contexts)
            and all(place.holds() for place in spec.places)
            and all(fits(given, wanted) for given, wanted in zip(args, spec.args, strict=True))
            and all(
                getattr(tensor, spec.array_slot, None) is array
                for tensor, array in zip(spec.captured, arrays, strict=True)
            )
            and updates_fit(args)
        )

    def updates_fit(args: tuple[Any, ...]) -> bool:
        held: list[Any] = [getattr(given, spec.array_slot, None) for given in (*args, *spec.captured)]
        owners = [array if getattr(array, "base", None) is None else array.base for array in held]
        apart = all(owners[j] is not owners[k] for j, k in spec.apart)
        return apart and all(held[k].flags.writeable for k in spec.updated)

    def wrap(array: np.ndarray[Any, Any]) -> object:
        tensor = spec.tensor_type()
        object.__setattr__(tensor, spec.array_slot, array)
        for name, value in spec.slot_defaults.items():
            object.__setattr__(tensor, name, value)
        return tensor

    def run(args: tuple[Any, ...]) -> tuple[int, list[np.ndarray[Any, Any]]]:
        data: list[Any] = []
        for given, wanted in zip(args, spec.args, strict=True):
            if isinstance(wanted, ArraySpec):
                data.append(getattr(given, spec.array_slot))
            elif isinstance(wanted, FloatCell):
                data.append(np.array(given, np.float64))
        outputs = [allocation.empty(output.shape, np.dtype(output.dtype)) for output in spec.outputs]
        pointers = [array.ctypes.data for array in [*data, *arrays, *outputs]]
        return call_step(spec.step, pointers + spec.fixed) if spec.step else 0, outputs

    def entry(*args: object, **names: object) -> object:
        if names or not holds(args) or not _taken(word):
            return spec.fallback(*args, **names)
        try:
            status, outputs = run(args)
        finally:
            word.value = 0
        if status:
            return spec.on_status(status, *args)
        if spec.stamps is not None and spec.updated:
            spec.stamps.stamp(*[(*args, *spec.captured)[k] for k in spec.updated])
        found = tuple([result(part, outputs, args) for part in results])
        return found if is_tuple else found[0]

    results, is_tuple = spec.returned

    def result(part: Returned, outputs: list[np.ndarray[Any, Any]], args: tuple[Any, ...]) -> object:
        if part.kind in NUMBERS:
            return NUMBERS[part.kind](outputs[part.of].item())
        if part.kind == "output":
            return wrap(outputs[part.of])
        return args[part.of] if part.kind == "argument" else part.of

    return entry
