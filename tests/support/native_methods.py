"""Tensors of several dtypes and shapes, for native methods beside the Python ones, and what is the same of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

import hybridml as hm
from hybridml.core import native_methods
from hybridml.core.tensor import Tensor

DTYPES = ("f8", "f4", "i8", "i4", "i2", "u1", "u8", "?", "c16", "c8")
SHAPES: dict[str, Any] = {
    "number": lambda x: x[0, 0, ...],
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "backward": lambda x: x[1, ::-1],
    "matrix": lambda x: x,
    "slices": lambda x: x[:, 1:4],
    "one column": lambda x: x[:, 1:2],
    "turned": lambda x: x[:3, :3].T,
    "cube": lambda x: x[None, ::2, ::2],
    "none": lambda x: x[:, :0],
}


@contextmanager
def alone() -> Iterator[None]:
    """Every call of a Python method that has a native one is an error."""
    codes = {function.__code__: name for name, function in native_methods.fallbacks.items()}
    called: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            called.append(codes[frame.f_code])

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert not called


def values(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    whole = rng.integers(0 if dtype[0] in "u?" else -9, 9, (3, 5)).astype(dtype)
    return whole + (rng.random((3, 5)) * 1e-3).astype(dtype) if dtype[0] in "fc" else whole


def tensor(dtype: str, shape: str) -> Tensor:
    return hm.asarray(SHAPES[shape](values(dtype)))


def outcome(function: Any, *given: Any, **named: Any) -> Any:
    """The result of a call: the bits, form and memory order of a tensor, or the text of its error."""
    try:
        found = function(*given, **named)
    except Exception as error:
        return type(error), str(error).partition("\n")[0]  # without the line
    if not isinstance(found, Tensor):
        return found
    array = found._array
    order = "F" if array.ndim > 1 and not array.flags.c_contiguous and array.flags.f_contiguous else ""
    return array.dtype, array.shape, order, array.tobytes()
