"""Traced functions that are called under `autocast`: for each narrow float another one, with programs of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.precision.autocast import under_autocast


def twin(traced: Any, dtype: np.dtype) -> Any:
    """The traced function with this narrow float in force while it runs, and the same options."""
    found = traced.twins.get(dtype)
    if found is None:
        found = traced.twins[dtype] = alike(traced, under_autocast(traced._fn, dtype))
    return found


def alike(traced: Any, fn: Any) -> Any:
    """The traced function of `fn` with the options of another one, and programs of its own."""
    options = (traced._backend, traced._most, traced._strict, traced._silent, traced._families is not None)
    return type(traced)(fn, *options, traced._check)
