"""`__array_function__`: calls of what the table has, and the error of a NumPy function without a row."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import DTypeError

from ...core.native_methods import direct
from .table import name_of, refusal, takes_as_given, target_of
from .table import run as call


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Function that runs in the place of a NumPy function; DTypeError if none does."""
    target = target_of(func)
    if target is None:
        raise DTypeError(f"{name_of(func)}: {refusal(func)}")
    if not kwargs and takes_as_given(func, target, len(args)):
        direct[func, len(args)] = target
    return call(func, target, args, kwargs)
