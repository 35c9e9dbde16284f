"""Library functions operation by operation, as a reference for their native calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from hybridml.core.context import watchers
from hybridml.tracing.library_function import LibraryFunction

R = TypeVar("R")


def by_operation(call: Callable[[], R]) -> R:
    """The result where library functions run operation by operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LibraryFunction, "call", lambda self, args, kwargs: self.fn(*args, **kwargs))
        watchers.value += 1  # native calls take nothing then
        try:
            return call()
        finally:
            watchers.value -= 1
