"""Arrays that whoever computes with them may write to, instead of a copy: of this thread, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


class _Donated(threading.local):
    array: np.ndarray | None = None


_donated = _Donated()


@contextmanager
def donated(array: np.ndarray) -> Iterator[None]:
    """Lets the first row that would copy this array and write to the copy write to the array itself."""
    _donated.array = array
    try:
        yield
    finally:
        _donated.array = None


def taken(array: np.ndarray) -> bool:
    """Whether the array is donated; it is then the caller's."""
    if array is not _donated.array:
        return False
    _donated.array = None
    return True
