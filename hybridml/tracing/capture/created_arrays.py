"""NumPy's creation functions in a trace: the arrays that the function's own code makes are values of the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from .memory import holds
from .program_arrays import ProgramArray, ProgramValue, given_back, has_tensor, plain
from .tracer import current_tracer

_NAMES = (
    "arange array asanyarray asarray ascontiguousarray diag empty empty_like eye full full_like geomspace identity "
    "indices linspace logspace ones ones_like tri zeros zeros_like"
)
_AS_IT_IS = frozenset(("asarray", "asanyarray"))
_UNSET = frozenset(("empty", "empty_like"))
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in _NAMES.split()}


def _patch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the code that is traced finds it, and everybody else as it is."""

    def make(*args: Any, **kwargs: Any) -> Any:
        tracer = current_tracer()
        if tracer is None or sys._getframe(1).f_code not in tracer.codes:
            return function(*args, **kwargs)
        first = args[0] if args else None
        if issubclass(type(first), ProgramValue) and name in ("array", *_AS_IT_IS, "ascontiguousarray"):
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
            if len(args) < 3 and kwargs.keys() <= {"dtype"}:
                same = dtype is None or np.dtype(dtype) == first.dtype
                if name in _AS_IT_IS and same and type(first) is ProgramArray:
                    return first
                found = first.astype(first.dtype if dtype is None else dtype)
                return found if type(found) is ProgramArray else found + np.zeros((), found.dtype)
        if name in ("array", *_AS_IT_IS) and type(first) in (list, tuple) and has_tensor(first):
            # Of the shape and dtype that NumPy finds.
            found = given_back(tracer, function(*[_model(x) for x in args], **kwargs))
            if type(found) is ProgramArray:
                for key, item in _leaves(first):
                    found[key] = item
                return found
        if name == "full" and len(args) > 1 and issubclass(type(args[1]), ProgramValue | Tensor):
            dtype = args[2] if len(args) > 2 else kwargs.get("dtype") or args[1].dtype
            found = given_back(tracer, np.empty(plain(args[0]), dtype))
            found[...] = args[1]
            return found
        found = function(*args, **kwargs)
        if name in _UNSET and holds(found):
            found[...] = 0  # what memory holds would be a literal of the program
        return given_back(tracer, found)

    return make


def _model(x: Any) -> Any:
    """Zeros in the places of tensors."""
    if type(x) in (list, tuple):
        return type(x)(map(_model, x))
    if issubclass(type(x), Tensor) or type(x) is ProgramArray:
        return np.zeros(x.shape, x.dtype)
    return x.dtype.type(0) if issubclass(type(x), ProgramValue) else 0.0 if type(x) is ScalarProxy else x


def _leaves(x: Any, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yields what is in nested lists, with its place."""
    if type(x) in (list, tuple):
        for k, item in enumerate(x):
            yield from _leaves(item, (*at, k))
    elif has_tensor(x):
        yield at, x


PATCHES = {name: _patch(name, function) for name, function in FUNCTIONS.items()}
