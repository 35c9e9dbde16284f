"""Signal handlers run where the signal meets the main thread, in the middle of a capture, too: what they compute there
is no part of the program. So while a function is captured a handler is called with no interpreter in force.

It finds tensors as they are before the call that is captured: updates are made when the program runs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hybridml_compiler.once import once

from ..core.interpreter import eagerly


@contextmanager
def handled_outside() -> Iterator[None]:
    """A context in which handlers that are functions of Python run outside of the capture."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found: dict[int, Any] = {n: h for n in _signals() if callable(h := signal.getsignal(n)) and not _is_pythons(h)}
    put: dict[int, Any] = {}
    try:
        for number, handler in found.items():
            put[number] = _outside(handler)
            signal.signal(number, put[number])
        yield
    finally:
        for number, wrapped in put.items():
            if signal.getsignal(number) is wrapped:  # otherwise a handler has set another one
                signal.signal(number, found[number])


@once
def _signals() -> tuple[int, ...]:
    """The numbers of this system's signals. Asking for them takes 0.08 ms, which a capture would wait for."""
    return tuple(map(int, signal.valid_signals()))


def _is_pythons(handler: Any) -> bool:
    """Whether a handler only raises KeyboardInterrupt, or is a constant of the module."""
    return handler is signal.default_int_handler or isinstance(handler, signal.Handlers)


def _outside(handler: Callable[..., Any]) -> Callable[..., Any]:
    def handle(number: int, frame: Any) -> Any:
        return eagerly(partial(handler, number, frame))

    return handle
