"""NumPy's creation functions in a trace: the arrays that the function's own code makes are values of the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from .memory import holds
from .program_arrays import ProgramArray, ProgramValue, given_back, plain
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


PATCHES = {name: _patch(name, function) for name, function in FUNCTIONS.items()}
