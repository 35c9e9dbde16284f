"""Eager calls of the routines that compiled programs call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....once import once
from ..runtime.allocation import empty

_MOST = 4096
_known: dict[Any, Any] = {}


def run(
    name: str, operands: Sequence[np.ndarray], sizes: tuple[int, ...], results: Sequence[tuple[Any, np.dtype]]
) -> list[np.ndarray] | None:
    """The results of a row; None where a matrix is refused, or there is no routine."""
    routine = _routine(name, operands[0].dtype.char)
    if routine is None:
        return None
    dims = _known.get(sizes)
    if dims is None:
        if len(_known) >= _MOST:
            _known.clear()
        dims = _known[sizes] = (ctypes.c_int64 * len(sizes))(*sizes)
    given = [x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in operands]
    made = [empty(*result) for result in results]
    table = _table(len(given) + len(made))(*[x.ctypes.data for x in (*given, *made)])
    return None if routine(table, dims) else made


@once
def _table(count: int) -> Any:
    return ctypes.c_void_p * count


@once
def _routine(name: str, char: str) -> Any:
    """The routine as a ctypes function; None where there is no compiler or no BLAS."""
    try:
        from ..runtime.routines import symbols as routines
    except ImportError:
        return None
    if not routines.has(name):
        return None
    pointer = ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer)(routines.address(routines.symbol(name, char)))
