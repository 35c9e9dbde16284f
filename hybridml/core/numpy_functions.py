"""Functions that take so many arguments of one of NumPy's as they are: 0.2 us, where binding them takes 3."""

from __future__ import annotations

from typing import Any

direct: dict[tuple[Any, int], Any] = {}
