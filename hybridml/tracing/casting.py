"""Traced functions that are called under `autocast`: for each narrow float another one, with programs of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.interpreter import interpret
from ..core.precision.autocast import Autocast


def twin(traced: Any, dtype: np.dtype) -> Any:
    """The traced function with this narrow float in force while it runs."""
    found = traced.twins.get(dtype)
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
