"""`switch`: one of many functions, by a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError

from .branches import cond


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index below 0 is the first branch, one beyond the last the last.

    `index` is an int, or a tensor of one integer. Only the chosen branch runs; in a traced function all are captured,
    and must return containers of one structure, shapes, dtypes and devices, as those of `hm.cond`. Raises
    ArgumentError where there are no branches or one is no function, DTypeError for an index that is no integer.

    >>> import hybridml as hm
    >>> [hm.switch(k, (hm.sin, hm.cos, hm.exp), hm.tensor(0.0)).item() for k in (0, 1, 9)]
    [0.0, 1.0, 1.0]
    """
    branches = tuple(branches)
    if not branches or not all(map(callable, branches)):
        raise ArgumentError("switch: takes an index and functions: switch(index, branches, *operands)")
    dtype = np.dtype(float) if isinstance(index, float) else getattr(index, "dtype", np.dtype(int))
    if dtype.kind not in "iu":
        raise DTypeError(f"switch: index must be an integer, got {dtype.name}")
    return _among(index, branches, 0)(*operands)


def _among(index: Any, branches: tuple[Callable[..., Any], ...], first: int) -> Callable[..., Any]:
    """The branch of an index, where `branches` are those from the number `first` on: halves, and their halves."""
    if len(branches) == 1:
        return branches[0]
    half = len(branches) // 2
    low, high = _among(index, branches[:half], first), _among(index, branches[half:], first + half)
    return lambda *operands: cond(index < first + half, low, high, *operands)
