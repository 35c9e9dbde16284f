"""The decorator of library functions that run compiled: one native call each (see tracing/library_function.py)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from hybridml_compiler.compile_policy import COMPOSITE, PAIRS, STEPS, WORTH_TRACER

from .interpreter import interpreter_stack
from .precision.autocast import Autocast
from .tensor import Tensor, place_var
from .tracebacks import shorten

P = ParamSpec("P")
R = TypeVar("R")

MISS = object()  # what a native call returns for arguments that it does not take


def missed(*args: Any, **kwargs: Any) -> Any:
    """The native call that takes nothing."""
    return MISS


_early = WORTH_TRACER


def is_early(args: Sequence[Any]) -> bool:
    """Whether a call of what has the same bits operation by operation goes without the tracer: it is not loaded, there
    have been few calls beside the time that loading it takes, and the arrays are small."""
    global _early
    if not _early or "hybridml.tracing.function" in sys.modules:
        _early = 0
        return False
    _early -= 1
    return not any([type(a) is Tensor and a._array.size >= COMPOSITE for a in args])


# Makes what finds the native calls of a function. The tracer, which stands above, registers it.
factories: list[Callable[..., Any]] = []


def compiled(
    fn: Callable[P, R],
    dynamic: bool = False,
    work: int = 1,
    exact: bool = False,
    row: bool = False,
    small: bool = False,
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> Callable[P, R]:
    """Decorator of a function of tensors: its calls are native ones, made at the first call of each signature.

    `dynamic`: sizes that change become symbols also where arrays are large. `work`: what an element of an argument
    counts for where arrays are told to be large. `exact`: operation by operation the function has the same bits, so
    that its first calls may run so, and only signatures that come again are compiled. `row`: it is one operation, which
    NumPy does on memory with gaps as well. `small`: calls with large arrays run operation by operation.
    `sizes`: axes of arguments, counted from the last one, -1, that are symbols in every program of small arrays.
    """
    library: Any = None

    @functools.wraps(fn)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal library
        try:
            if library is None:
                if (row or small) and place_var.get() is None and is_early(args):
                    return fn(*args, **kwargs)
                library = factories[0](fn, dynamic, work, exact, row, small, sizes=sizes)
            if kwargs:
                result: R = library.forms.get((len(args), *kwargs), missed)(*args, *kwargs.values())
            else:
                result = library.direct(*args)
            if result is not MISS:
                return result
            level = interpreter_stack()
            if level is None:
                return library.call(args, kwargs)
            if type(level.interpreter) is Autocast:
                cast: Any = level.interpreter.call(fn.__name__, composite, args, kwargs)
                if cast is not NotImplemented:
                    return cast
            return library.beside(args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    return composite


def compiled_for_all_sizes(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a function of sequences, whose batches differ in length: its second program takes all."""
    return compiled(fn, dynamic=True, work=STEPS)


def compiled_for_lengths(**axes: Sequence[int]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`compiled`, for a function with products: one program of small arrays takes all sizes of these axes of arguments,
    from the first call on, as their sums are in another order where sizes are symbols. A sequence that grows by one
    with each call, as a language model writes it, needs one program, where each took 30 ms."""
    return lambda fn: compiled(fn, sizes=axes)


def compiled_for_pairs(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a function of all pairs of what its arguments have."""
    return compiled(fn, work=PAIRS)


def compiled_when_repeated(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a function that has the same bits operation by operation."""
    return compiled(fn, exact=True)


def compiled_when_small(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled_when_repeated`, for a function that is as fast operation by operation where arrays are large."""
    return compiled(fn, exact=True, small=True)
