"""Calls of NumPy in the middle of a compiled step: native code calls back with the text of a graph and pointers.

A call takes a little more than NumPy itself ([Note: Opaque operations]). An exception there cannot pass through native
code: it is kept for this thread, the step ends as at a failed index check, and the runner of the step raises it
(`reraise`).

A signal that has come while native code ran is handled at the first instruction of the next Python function, which here
is outside of any `try`: ctypes gives such an error to `sys.unraisablehook`, and the caller gets no result. So a call
says when it is done, and is taken to have failed where it has not.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from ..errors import HybridmlError
from ..hooks import hooks
from ..once import once

CALL = "hml_numpy"  # void hml_numpy(ptr text, ptr buffers, ptr done): 1 is written to `done` at the end
MOST = 4096  # graphs parsed

_Run = Callable[[Any], None]
Compute = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]  # operands of a graph, arrays for results
_runs: dict[bytes, _Run] = {}

_kept = threading.local()
# A function that raises when the deadline has passed.
deadline_var: ContextVar[Callable[[], object] | None] = ContextVar("hybridml_deadline", default=None)


def reraise() -> None:
    """Raises, once, the error of this thread's last call. Errors of the library are left to whoever runs the program
    again, and finds the user's line; others (an interrupt, no memory) might not come a second time."""
    error: BaseException | None = getattr(_kept, "error", None)
    _kept.error = None
    if error is not None and not isinstance(error, HybridmlError):
        hooks.forget_effects()  # nobody runs it again
        raise error


def _call(text: bytes, buffers: Any, done: Any) -> None:
    try:
        run = _runs.get(text)
        if run is None:
            if len(_runs) >= MOST:
                _runs.clear()
            run = _runs[text] = _parse(text)
        run(buffers)
        done[0] = 1
    except BaseException as error:
        _kept.error = error


def _look(found: Any) -> None:
    """Lets handlers of signals run, and looks at the deadline; leaves 0 in `found` where one of them raises."""
    try:
        time.sleep(0)  # between two instructions inside of this block the interpreter looks for signals
        deadline = deadline_var.get()
        if deadline is not None:
            deadline()
        alone = deadline is None and threading.get_ident() != threading.main_thread().ident
        found[0] = 2 if alone else 1
    except BaseException as error:
        _kept.error = error


CALLBACKS = (_call, _look)


def _catch(unraisable: Any, others: Any) -> None:
    """An error before the first line of a callback is kept; all else is the affair of the hook before."""
    message = unraisable.err_msg or ""  # from Python 3.13 on, it alone names the function
    if unraisable.object in CALLBACKS or any(repr(callback) in message for callback in CALLBACKS):
        _kept.error = unraisable.exc_value
    else:
        others(unraisable)


def _parse(text: bytes) -> _Run:
    taken, made, compute = hooks.read_graph(text.decode())
    makers, count = [_array(shape, dtype) for shape, dtype in (*taken, *made)], len(taken)

    def run(buffers: Any) -> None:
        arrays = [make(buffers[k]) for k, make in enumerate(makers)]
        compute(arrays[:count], arrays[count:])

    return run


def _array(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[int], np.ndarray]:
    """The array at a pointer."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return lambda pointer: np.empty(shape, dtype)
    memory: Any = ctypes.c_char * size
    return lambda pointer: np.ndarray(shape, dtype, memory.from_address(pointer))


_entry = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))(_call)
_look_entry = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64))(_look)


@once
def _listen() -> None:
    sys.unraisablehook = partial(_catch, others=sys.unraisablehook)


def symbols() -> dict[str, int]:
    """Addresses of the functions that generated code imports."""
    return {CALL: _address(_entry)}


def look() -> int:
    """Address of `void look(ptr found)`, which native code that takes long calls now and then."""
    return _address(_look_entry)


def _address(entry: Any) -> int:
    _listen()
    address = ctypes.cast(entry, ctypes.c_void_p).value
    assert address is not None
    return address
