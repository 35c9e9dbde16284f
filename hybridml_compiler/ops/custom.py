"""Rows of users, beside the table: by name and version, so that a graph's text and a kept program name the code that
they were made of; and their native functions, by symbol.

A native function is `int64_t f(void **arrays, const int64_t *sizes)`. `arrays`: the operands and then the results,
dense in row-major order. `sizes`: their shapes, one after the other, then the parameters: an integer or a bool as it
is, a float by the bits of its double. It returns 0; for anything else the row's `eager` runs, and raises its error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..record import record
from .op import Op

CUSTOM: dict[str, Op] = {}  # by key
_PREFIX = "hml_native_"
# What makes the native code of a row for dtypes and numbers of axes of its arrays; None where there is none.
Signature = tuple[tuple[tuple[np.dtype, int], ...], str]
_makers: dict[str, Callable[[Signature], int | None]] = {}  # by version
_addresses: dict[str, int | None] = {}  # by symbol
_KINDS = {bool: "b", int: "i", float: "f"}  # of parameters


def register(op: Op) -> Op:
    """The row, from now on known by its key."""
    CUSTOM[op.key] = op
    return op


def native_symbols(version: str, make: Callable[[Signature], int | None]) -> Callable[..., str | None]:
    """The column `native` of a row: the symbol for types of operands and results. `make` compiles a signature, when
    its address is first asked for."""
    _makers.setdefault(version, make)  # the first keeps the code whose addresses programs have

    def symbol(avals: Sequence[Aval], params: Mapping[str, Any]) -> str | None:
        kinds = [_KINDS.get(type(value)) for value in params.values()]
        if None in kinds or not all(-(1 << 63) <= x < 1 << 63 for x in params.values() if isinstance(x, int)):
            return None
        arrays = "_".join(f"{dtypes.short(aval.dtype)}x{aval.ndim}" for aval in avals)
        name = f"{_PREFIX}{version}_{arrays}_p{''.join(map(str, kinds))}"
        return name if address_of(name) is not None else None

    return symbol


def is_native(symbol: str) -> bool:
    """Whether a symbol is that of a native function of a user's row."""
    return symbol.startswith(_PREFIX)


def address_of(symbol: str) -> int | None:
    """The address of a native function, which is compiled now if it is new; None where this process has none."""
    if symbol not in _addresses:
        version, *arrays, params = symbol.removeprefix(_PREFIX).split("_")
        make = _makers.get(version)
        if make is None:  # its row may still be made
            return None
        types = [array.split("x") for array in arrays]
        _addresses[symbol] = make((tuple([(dtypes.from_short(code), int(ndim)) for code, ndim in types]), params[1:]))
    return _addresses[symbol]


def native_sizes(avals: Sequence[Any], params: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers that a native function is told."""
    numbers = [_bits(value) if type(value) is float else int(value) for value in params.values()]
    return (*(int(size) for aval in avals for size in aval.shape), *numbers)


def _bits(value: float) -> int:
    found: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return found


def _as_it_is(arguments: Sequence[Any]) -> Sequence[Any]:
    return arguments


@record(eq=False)
class CudaCode:
    """A user's code for a GPU.

    `launch`: takes the types of operands and results, and the parameters; gives the grid, the block and the arguments,
    in which a type stands for its array. `source`: takes the types and these arguments; gives CUDA C or PTX, and the
    name of its function. `passed`: the arguments as the function takes them.
    """

    launch: Callable[..., tuple[Any, Any, Sequence[Any]]]
    source: Callable[[Sequence[Aval], Sequence[Any]], tuple[str, str]]
    passed: Callable[[Sequence[Any]], Sequence[Any]] = _as_it_is
