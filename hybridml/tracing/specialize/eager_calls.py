"""Calls that run eagerly because their program would cost more than it gains: known by a look at their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor

_IN_A_ROW = 64  # calls: then one goes the long way, as what the function reads may have changed
_PLAIN = frozenset((bool, int, str, type(None)))


class EagerCalls:
    """Calls like one that runs eagerly. The long way asks the guards of the entry, which takes 40 us or more."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        known = [None if kwargs else _kind(x) for x in args]
        self.known = known if args and None not in known else None
        self.left = _IN_A_ROW

    def take(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether this is such a call."""
        if self.known is None or kwargs or not self.left:
            return False
        self.left -= 1
        return [_kind(x) for x in args] == self.known


def _kind(x: Any) -> tuple[Any, ...] | None:
    """A fact that tells calls apart; None where there may be others."""
    kind = type(x)
    if kind is Tensor:
        x = x._array
    elif kind is not np.ndarray:
        return (kind, x) if kind in _PLAIN else (kind,) if kind is float else None
    return kind, x.shape, x.dtype
