"""What NumPy computes in the middle of a compiled step: native code calls back with the text of a graph and pointers.

A call takes about 10 us more than NumPy itself. An error of NumPy's ends the step as a failed index check does: the
call only says that there was one, and what runs the program finds out which (see `pipeline.failure`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CALL = "hml_numpy"  # i64 hml_numpy(ptr text, ptr buffers): 0, or 1 where NumPy raised
MOST = 4096  # graphs parsed

_Run = Callable[[Any], None]
_Kind = tuple[tuple[int, ...], np.dtype]
Compute = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]  # what a graph takes, where its results go
# Text of a graph -> shapes and dtypes of what it takes and makes, and what computes it. Set by `pipeline`: this room
# knows no graphs.
Reader = Callable[[str], tuple[list[_Kind], list[_Kind], Compute]]
_runs: dict[bytes, _Run] = {}
_readers: list[Reader] = []


def set_reader(reader: Reader) -> None:
    """What reads the text of a graph from now on."""
    _readers[:] = [reader]


def _call(text: bytes, buffers: Any) -> int:
    try:
        run = _runs.get(text)
        if run is None:
            if len(_runs) >= MOST:
                _runs.clear()
            run = _runs[text] = _parse(text)
        run(buffers)
    except BaseException:
        return 1
    return 0


def _parse(text: bytes) -> _Run:
    taken, made, compute = _readers[0](text.decode())
    makers, count = [_array(shape, dtype) for shape, dtype in (*taken, *made)], len(taken)

    def run(buffers: Any) -> None:
        arrays = [make(buffers[k]) for k, make in enumerate(makers)]
        compute(arrays[:count], arrays[count:])

    return run


def _array(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[int], np.ndarray]:
    """Pointer -> the array that lies there."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return lambda pointer: np.empty(shape, dtype)
    memory: Any = ctypes.c_char * size
    return lambda pointer: np.ndarray(shape, dtype, memory.from_address(pointer))


_entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))(_call)


def symbols() -> dict[str, int]:
    """What generated code imports."""
    address = ctypes.cast(_entry, ctypes.c_void_p).value
    assert address is not None
    return {CALL: address}
