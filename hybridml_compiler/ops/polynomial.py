"""The hook through which eager transcendentals run: the same polynomials that compiled code runs, so the same bits.

The polynomials are written once over the abstract scalar builder (`loops/transcendental.py`). This room knows no loops:
`hybridml_compiler/__init__.py` registers the NumPy evaluation, the reference meaning; a compiled evaluator, which is
bit-equal and faster, replaces it when there is a compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# (name, *arrays of one float dtype) -> array of the broadcast shape
Evaluator = Callable[..., np.ndarray]


def _unset(name: str, *arrays: Any) -> np.ndarray:
    raise RuntimeError(f"{name}: no evaluator is registered; import hybridml_compiler first")


_evaluator: Evaluator = _unset


def set_evaluator(fn: Evaluator) -> Evaluator:
    """Use `fn(name, *arrays)` from now on; returns the previous one, so that it can be put back."""
    global _evaluator
    previous, _evaluator = _evaluator, fn
    return previous


def evaluate(name: str, *arrays: np.ndarray) -> np.ndarray:
    return _evaluator(name, *arrays)
