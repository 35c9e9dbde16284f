"""Traced functions that are called under `autocast`: for each narrow float another one, with programs of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.autocast import Autocast
from ..core.interpreter import interpret

if TYPE_CHECKING:
    from .function import TracedFunction


def twin(traced: TracedFunction[Any, Any], dtype: np.dtype) -> TracedFunction[Any, Any]:
    """The traced function with this narrow float in force while it runs."""
    found: TracedFunction[Any, Any] | None = traced.twins.get(dtype)
    if found is None:
        casting = _casting(traced._fn, dtype)
        found = type(traced)(casting, traced._backend, traced._most, traced._strict, traced._silent)
        traced.twins[dtype] = found
    return found


def _casting(fn: Callable[..., Any], dtype: np.dtype) -> Callable[..., Any]:
    @functools.wraps(fn)
    def casting(*args: Any, **kwargs: Any) -> Any:
        return interpret(Autocast(dtype), lambda: fn(*args, **kwargs))

    return casting
