"""Stances: how calls of traced functions are done inside of a block, whatever they have compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..core.context import Way, call_var, way

STANCES = ("default", "eager", "eager_on_retrace", "fail_on_retrace")


class stance:
    """Context manager or decorator: how traced functions run inside.

    "default"           compiled
    "eager"             as the plain functions that they are, line by line: no traced function runs compiled
    "eager_on_retrace"  compiled where a program fits; a call that would be traced again runs eagerly
    "fail_on_retrace"   a call that would be traced again raises TraceError, which says what is new

    The first trace of a function is none that is made again. It holds for this thread or task, and inside of a stance
    for the innermost one. Functions of the library that run compiled by themselves (`softmax`, steps of optimizers)
    go on to do so. Raises ArgumentError for any other name.

    >>> import hybridml as hm
    >>> f = hm.trace(lambda x: x * 2)
    >>> y = f(hm.ones((2,)))
    >>> with hm.stance("fail_on_retrace"):
    ...     y = f(hm.ones((2,)))
    >>> with hm.stance("eager"):
    ...     y = f(hm.ones((2, 2)))
    >>> f.cache_info().compiles
    1
    """

    __slots__ = ("_mode", "_outer")

    def __init__(self, mode: str) -> None:
        if mode not in STANCES:
            raise ArgumentError(f"stance: must be one of {', '.join(STANCES)}, got {mode!r}")
        self._mode = None if mode == "default" else mode
        self._outer: list[Way | None] = []  # what to go back to, innermost last

    def __enter__(self) -> None:
        outer = call_var.get()
        self._outer.append(outer)
        call_var.set(_with(self._mode, outer))

    def __exit__(self, *exc: object) -> None:
        call_var.set(self._outer.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        mode = self._mode

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            outer = call_var.get()
            call_var.set(_with(mode, outer))
            try:
                return fn(*args, **kwargs)
            finally:
                call_var.set(outer)

        return wrapper


def _with(mode: str | None, outer: Way | None) -> Way | None:
    """The way of calls around, in another stance."""
    return way(mode, () if outer is None else outer.settings)


def eager() -> stance:
    """`stance("eager")`: a block in which traced functions run line by line, for a debugger or to compare.

    >>> import hybridml as hm
    >>> f = hm.trace(lambda x: x * 2)
    >>> with hm.eager():
    ...     y = f(hm.ones((2,)))
    >>> f.cache_info().compiles
    0
    """
    return stance("eager")
