"""The decorator of library functions that run compiled: one native call each (see tracing/library_function.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hybridml_compiler.compile_policy import PAIRS, STEPS

from .interpreter import interpreter_stack
from .tracebacks import shorten

_FEW = 8  # calls of a row that come before its native ones

P = ParamSpec("P")
R = TypeVar("R")

MISS = object()  # what a native call returns for arguments that it does not take


def missed(*args: Any, **kwargs: Any) -> Any:
    """The native call that takes nothing."""
    return MISS


# Makes what finds the native calls of a function. The tracer, which stands above, registers it.
factories: list[Callable[..., Any]] = []


def compiled(
    fn: Callable[P, R], dynamic: bool = False, work: int = 1, exact: bool = False, row: bool = False
) -> Callable[P, R]:
    """Decorator of a function of tensors: its calls are native ones, made at the first call of each signature.

    `dynamic`: sizes that change become symbols also where arrays are large. `work`: what an element of an argument
    counts for where arrays are told to be large. `exact`: operation by operation the function has the same bits, so
    that its first calls may run so, and only signatures that come again are compiled. `row`: it is one operation, which
    NumPy does on memory with gaps as well.
    """
    library: Any = None

    @functools.wraps(fn)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal library
        try:
            if library is None:
                library = factories[0](fn, dynamic, work, exact, row)
            result: R = library.direct(*args, **kwargs)
            if result is not MISS:
                return result
            return library.call(args, kwargs) if interpreter_stack() is None else library.beside(args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    return composite


def compiled_for_all_sizes(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a function of sequences, whose batches differ in length: its second program takes all."""
    return compiled(fn, dynamic=True, work=STEPS)


def compiled_for_pairs(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a function of all pairs of what its arguments have."""
    return compiled(fn, work=PAIRS)


def compiled_when_repeated(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a function that has the same bits operation by operation."""
    return compiled(fn, exact=True)


class SmallCalls:
    """The native calls of a row, or of its gradient, of small tensors.

    They are looked for once there have been some calls: until then there is no tracer in memory. History is the
    caller's affair.
    """

    def __init__(self, operation: Callable[[], Callable[..., Any]], count: int, least: int = 0) -> None:
        """`operation` makes the function, of `count` arguments; `least`: operations in it that are worth a program."""
        self.operation, self.count, self.least = operation, count, least
        self.calls, self.worth, self.direct = 0, True, missed
        self._function: Any = None

    def looked_up(self, *args: Any) -> Any:
        """The result of a call, or MISS."""
        if self._function is None:
            self.calls += 1
            if self.calls < _FEW:
                return MISS
            self._function = factories[0](self.operation(), False, 1, True, True, self.count, self.least)
        out = self._function.of_row(args)
        self.direct, self.worth = self._function.direct, self._function.worth
        return out
