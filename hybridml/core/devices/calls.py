"""Calls of rows on a device whose like has come before: a look into a dict, and the program.

`dispatch.general` promotes, checks and asks for the program, which takes 50 us. What it finds depends on the row, the
types of tensors, the classes of numbers beside them and the parameters alone, so it is kept by these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op, hash_key

from .. import aliasing
from ..autodiff.history import record
from ..context import homes, watch_var
from ..interpreter import interpreter_stack
from ..library import MISS
from ..tensor import Tensor, constant, place_var

if TYPE_CHECKING:
    from ..device_tensor import OnDevice

_NUMBERS = frozenset((float, int, bool))
_KEYED = frozenset((tuple, float, complex))  # classes of parameters that equality alone does not tell apart
_MOST = 4096  # kinds of calls, and numbers; a program that makes more starts over
_CONSTANT = 1 << 10  # bytes of what is created, up to which it is kept: values of a device never change


class _Known(NamedTuple):
    run: Callable[[list[Any]], Sequence[Any]]
    numbers: Sequence[tuple[int, np.dtype]]  # operands that are numbers, and the dtypes that they take
    params: dict[str, Any]  # canonical ones
    several: bool  # results
    links: bool  # whether results may be views in eager code


def keep(
    home: OnDevice, op: Op, values: Sequence[Any], tensors: Sequence[Tensor], given: Mapping[str, Any],
    params: dict[str, Any], outs: Sequence[Tensor],
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
    key += _keys(given) if values else _created_keys(given)
    run = home.program(op, [t._array for t in tensors], params)
    if not values and sum(t._array.nbytes for t in outs) <= _CONSTANT:
        arrays = [t._array for t in outs]
        run = lambda _: arrays  # noqa: E731
    if len(home.known) >= _MOST:
        home.known.clear()
    try:
        links = op.kind == "movement" and not op.variadic
        home.known[tuple(key)] = _Known(run, numbers, params, bool(op.results), links)
    except TypeError:  # a list as axis
        pass


def _number(home: OnDevice, value: float, dtype: np.dtype) -> Tensor:
    """A number in the memory of the device."""
    key = value or str(value), dtype  # 0.0 and -0.0 are equal
    found = home.numbers.get(key)
    if found is None:
        if len(home.numbers) >= _MOST:
            home.numbers.clear()
        found = home.numbers[key] = home.constant(constant(value, dtype))
    return found


def _keys(params: Mapping[str, Any]) -> list[Any]:
    return [hash_key(param) if param.__class__ in _KEYED else param for param in params.values()]


def _created_keys(params: Mapping[str, Any]) -> list[Any]:
    """The keys of a row without operands, whose parameters' classes decide the dtype: True equals 1."""
    return [dtypes.default_float(), *map(type, params.values()), *_keys(params)]


def on_device(op: Op, args: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """The result of a call on a device whose like has come before; else MISS. Frames take 0.1 us each: it is one."""
    if interpreter_stack() is not None:
        return MISS
    given: Any = args
    if op.variadic:
        given = args[0]
        if type(given) is not list and type(given) is not tuple:
            return MISS
    key: list[Any] = [op]
    home: Any = None
    cls: Any = None
    recorded = False
    for value in given:
        kind = type(value)
        if kind is cls or (cls is None and (home := getattr(kind, "home", None)) is not None):
            cls = kind
            key.append(value._array.kind)
            if value._node is not None:
                recorded = True
        elif kind in _NUMBERS:
            key.append(kind)
        else:
            return MISS
    if cls is None:
        home = None if given else homes.get(place_var.get())  # type: ignore[arg-type]
        if home is None:
            return MISS
        cls = home.cls
        key += _created_keys(params)
    elif params:
        key += _keys(params)
    try:
        known = home.known.get(tuple(key))
    except TypeError:  # a list as axis
        return MISS
    if known is None or watch_var.get() is not None:
        return MISS
    run, numbers, canonical, several, links = known
    if numbers:
        given = [*given]
        for k, dtype in numbers:
            given[k] = _number(home, given[k], dtype)
    found = run([t._array for t in given])
    if several:
        outs = [home.wrap(array) for array in found]
        if recorded:
            record(op, outs, given, canonical)
        return tuple(outs)
    out = cls()
    out._array, out._node, out._version = found[0], None, 0
    if recorded:
        record(op, (out,), given, canonical)
    if links:
        aliasing.link(given[0], out, (op, canonical))
    return out
