"""Traced functions that are called under `autocast`: for each narrow float another one, with programs of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.precision.autocast import under_autocast


def twin(traced: Any, dtype: np.dtype) -> Any:
    """The traced function with this narrow float in force while it runs, and the same options."""
    found = traced.twins.get(dtype)
    if found is None:
        casting, dynamic = under_autocast(traced._fn, dtype), traced._families is not None
        options = (traced._backend, traced._most, traced._strict, traced._silent, dynamic, traced._check)
        found = traced.twins[dtype] = type(traced)(casting, *options)
    return found
