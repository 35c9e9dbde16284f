"""Local variables of a running function."""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any


def assign(frame: FrameType, values: dict[str, Any]) -> None:
    """Gives local variables of a running function values."""
    if not values:
        return
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
