"""Steps that Ctrl-C does not split: they run in a thread beside the main one, where alone interrupts arrive.

llvmlite takes its lock in Python code. An interrupt between the acquisition and the end of `__enter__` leaves it held
for good, and every later call of LLVM waits for ever: random interrupts met that after 223 of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from traceback import clear_frames
from typing import TypeVar

from hybridml_compiler.locks import lock
from hybridml_compiler.runtime import stacks

T = TypeVar("T")

STEP = "hybridml-llvm"  # the name of such threads

_turn = lock()  # one step at a time: after an interrupt the step before may still be at work


def uninterrupted(step: Callable[[], T]) -> T:
    """The result of a step, or its exception. It goes on to its end where an interrupt ends the wait for it. In threads
    other than the main one it is just called; from the main one, 0.1 ms.
    """
    if threading.current_thread() is not threading.main_thread():
        return step()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        with _turn:
            try:
                results.append(step())
            except BaseException as error:
                _clear(error)
                errors.append(error)

    thread = threading.Thread(target=run, name=STEP)
    with stacks.roomy():
        thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return results.pop()


def _clear(error: BaseException | None) -> None:
    """Drop the variables of the frames that an error has left: objects of LLVM end here, and not where it is caught."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
