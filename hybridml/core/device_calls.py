"""Calls of rows on a device whose kind has come before: a look into a dict, and the program.

`dispatch.general` promotes, checks and asks for the program, which takes 50 us. What it finds depends on the row, the
types of tensors, the classes of numbers beside them and the parameters alone, so it is kept by these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hybridml_compiler.ops.op import Op, hash_key

from . import aliasing
from .constants import constant
from .context import watch_var
from .history import record
from .interpreter import interpreter_stack
from .library import MISS
from .tensor import Tensor

if TYPE_CHECKING:
    from .device_tensor import OnDevice

_NUMBERS = frozenset((float, int, bool))
_KEYED = frozenset((tuple, float, complex))  # classes of parameters that equality alone does not tell apart
_MOST = 4096  # kinds of calls, and numbers; a program that makes more starts over


class _Known(NamedTuple):
    run: Any  # arrays -> arrays
    numbers: Sequence[tuple[int, np.dtype]]  # operands that are numbers, and the dtypes that they take
    params: dict[str, Any]  # canonical ones
    several: bool  # results
    links: bool  # whether results may be views in eager code


class DeviceCalls:
    """The calls of one device that have come before."""

    def __init__(self, home: OnDevice) -> None:
        self.home, self.cls = home, home.cls
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._numbers: dict[tuple[Any, np.dtype], Tensor] = {}

    def call(self, op: Op, args: Sequence[Any], params: Mapping[str, Any]) -> Any:
        """The result of a call with no interpreter in force; MISS for one whose like has not come."""
        given = args[0] if op.variadic else args
        cls = self.cls
        key: list[Any] = [op]
        tensors: list[Any] = []
        recorded = False
        for value in given:
            kind = type(value)
            if kind is cls:
                key.append(value._array.kind)
                if value._node is not None:
                    recorded = True
            elif kind in _NUMBERS:
                key.append(kind)
            else:
                return MISS
            tensors.append(value)
        for param in params.values():
            key.append(hash_key(param) if param.__class__ in _KEYED else param)
        try:
            known = self._known.get(tuple(key))
        except TypeError:  # a list as axis
            return MISS
        if known is None or watch_var.get() is not None:
            return MISS
        for k, dtype in known.numbers:
            tensors[k] = self._number(tensors[k], dtype)
        found = known.run([t._array for t in tensors])
        outs = []
        for array in found:
            t = cls()
            t._array, t._node, t._version = array, None, 0
            outs.append(t)
        if recorded:
            record(op, outs, tensors, known.params)
        if known.links:
            aliasing.link(tensors[0], outs[0], op, known.params)
        return tuple(outs) if known.several else outs[0]

    def keep(
        self, op: Op, values: Sequence[Any], tensors: Sequence[Tensor], given: Mapping[str, Any],
        params: dict[str, Any],
    ) -> None:  # fmt: skip
        """Keeps the program of a call whose tensors it takes as they came. `given` are the parameters as they came,
        `params` the canonical ones."""
        key: list[Any] = [op]
        numbers = []
        for k, (value, tensor) in enumerate(zip(values, tensors, strict=True)):
            if value is tensor:
                key.append(tensor._array.kind)
            elif type(value) in _NUMBERS:
                key.append(type(value))
                numbers.append((k, tensor._array.dtype))
            else:
                return
        key += [hash_key(param) for param in given.values()]
        if len(self._known) >= _MOST:
            self._known.clear()
        run = self.home.program(op, [t._array for t in tensors], params)
        try:
            links = op.kind == "movement" and not op.variadic
            self._known[tuple(key)] = _Known(run, numbers, params, bool(op.results), links)
        except TypeError:
            pass

    def _number(self, value: float, dtype: np.dtype) -> Tensor:
        """A number in the memory of the device."""
        key = value or str(value), dtype  # 0.0 and -0.0 are equal
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) >= _MOST:
                self._numbers.clear()
            found = self._numbers[key] = self.home.constant(constant(value, dtype))
        return found


def on_device(op: Op, args: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """The result of a call with tensors of a device whose like has come before; else MISS."""
    given: Any = args
    if op.variadic:
        given = args[0]
        if type(given) is not list and type(given) is not tuple:
            return MISS
    for value in given:
        home: Any = getattr(type(value), "home", None)
        if home is not None:
            return home.calls.call(op, args, params) if interpreter_stack() is None else MISS
    return MISS
