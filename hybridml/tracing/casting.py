"""Traced functions that are called under `autocast`, or in other settings: another one, with programs of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler import config
from hybridml_compiler.record import replace

from ..core.context import settings_here
from ..core.precision.autocast import under_autocast


def twin(traced: Any, dtype: np.dtype) -> Any:
    """The traced function with this narrow float in force while it runs, and the same options."""
    found = traced.twins.get(dtype)
    if found is None:
        found = traced.twins[dtype] = alike(traced, under_autocast(traced._fn, dtype))
    return found


def configured(traced: Any) -> Any:
    """The traced function for the settings in force: itself, as it is one of the library or these are its own; or
    another one. Native calls know the blocks around, so each has its own."""
    key = config.of_program, settings_here()
    if key == traced.made_for or traced._silent:
        return traced
    found = traced.twins.get(key)
    if found is None:
        found = alike(traced, traced._fn, replace(traced._backend, settings=config.deciding()))
        found.made_for = key
        found.twins = {traced.made_for: traced, key: found}
        found = traced.twins.setdefault(key, found)
    return found


def settled(traced: Any) -> Any:
    """A new traced function, which from now on has the settings in force for its own, beside those that its backend
    has already: it hands no calls to another one for them."""
    settings = {**dict(config.deciding()), **dict(traced._backend.settings)}
    traced._backend = replace(traced._backend, settings=tuple(sorted(settings.items())))
    traced.made_for = config.of_program, settings_here()
    return traced


def alike(traced: Any, fn: Any, backend: Any = None) -> Any:
    """The traced function of `fn` with the options of another one, and programs of its own."""
    options = (traced._most, traced._strict, traced._silent, traced._families is not None)
    return type(traced)(fn, backend or traced._backend, *options, traced._check)
