"""`deadline`: a block whose work ends at a time, wherever it is then.

Eagerly every operation looks at the clock, a compiled program before it runs and then about every 20 ms. A program that
is stopped has written nothing (see targets/cpu/runtime/polling.py).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import ArgumentError, DeadlineError
from hybridml_compiler.record import replace
from hybridml_compiler.runtime.host_callback import deadline_var

from ..core.context import watch_var
from .nans import Watching, watch


class deadline:
    """Context manager or decorator: work inside that goes on for more than so many seconds raises DeadlineError.

    That is a TimeoutError, raised by the first operation that ends after the deadline, and within about 0.1 s by a
    compiled program. A traced call that raises it leaves parameters, optimizers and generators as they were before the
    call. It holds for this thread or task, and of several deadlines the first one. Code that calls nothing of hybridml
    goes on. Raises ArgumentError for anything but a number of seconds from 0 on.

    >>> import hybridml as hm
    >>> try:
    ...     with hm.deadline(0.05):
    ...         while True:
    ...             y = hm.ones((3,)) + 1
    ... except TimeoutError as error:
    ...     print(str(error).splitlines()[0])
    the deadline of 0.05 s has passed
    """

    __slots__ = ("_outer", "_seconds")

    def __init__(self, seconds: float) -> None:
        given: object = seconds
        if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
            raise ArgumentError(f"deadline: needs a number of seconds from 0 on, got {seconds!r}")
        self._seconds = seconds
        self._outer: list[tuple[Any, Any]] = []  # what to go back to, innermost last

    def __enter__(self) -> None:
        watching, outer = watch_var.get(), deadline_var.get()
        check = _check(self._seconds, outer)
        self._outer.append((watching, outer))
        deadline_var.set(check)
        watch(replace(watching or Watching(), deadline=check))

    def __exit__(self, *exc: object) -> None:
        watching, outer = self._outer.pop()
        deadline_var.set(outer)
        watch(watching)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with deadline(self._seconds):
                return fn(*args, **kwargs)

        return wrapper


def _check(seconds: float, outer: Callable[[], object] | None) -> Callable[[], None]:
    """A function that raises from now plus so many seconds on, or when the outer deadline has passed."""
    end = time.monotonic() + seconds

    def check() -> None:
        if outer is not None:
            outer()
        if time.monotonic() >= end:
            raise DeadlineError(f"the deadline of {seconds:g} s has passed")

    return check
