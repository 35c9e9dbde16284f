"""Checks of the numbers that stages take."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError


def at_least_one(stage: str, name: str, value: Any) -> int:
    """The number. Raises ArgumentError where it is none, or below 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{stage}: {name} must be a whole number from 1 on, got {value!r}")
    return int(value)
