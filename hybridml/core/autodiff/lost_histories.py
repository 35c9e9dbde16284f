"""Conversions of a tensor to NumPy's arrays and to numbers, and the errors where its gradient would be lost without
notice: memory of NumPy's has numbers alone, and no history."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from opcode import opmap
from typing import Any

import numpy as np

from hybridml_compiler.errors import GradientError

from ..context import grad_is_off
from ..tensor import Tensor, method, real_value, single_value, values

_STORES = frozenset(opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap)
_INSTEAD = "use hm.stack([...]), or hm.zeros(...) to write into; where no gradient is wanted, .detach()"


def is_lost(t: Tensor) -> bool:
    """Whether a tensor requires grad or has a history, of which its numbers alone know nothing: outside of `no_grad`,
    where nobody wants it."""
    return t._node is not None and not grad_is_off()


def check_history(t: Tensor, what: str = "conversion to a NumPy array", instead: str = _INSTEAD) -> None:
    """Raises `GradientError` where the numbers of a tensor would lose its gradient."""
    if is_lost(t):
        raise GradientError(f"{what}: this tensor requires grad, and NumPy's arrays keep no gradients; {instead}")


def check_stored(t: Tensor) -> None:
    """Raises it where the function that converts a tensor is called by the store of an element: `array[k] = t` takes
    `float(t)`."""
    if is_lost(t):
        frame = sys._getframe(2)
        if frame.f_code.co_code[frame.f_lasti] in _STORES:
            check_history(t, "array[...] = tensor")


def raise_written(t: Tensor, as_element: bool) -> None:
    """Raises it for a tensor that is written to an array: what NumPy makes of that error where it is one element."""
    try:
        check_history(t)
    except GradientError as error:
        if as_element:
            raise ValueError("setting an array element with a sequence.") from error
        raise


@contextmanager
def without_numpys_error() -> Iterator[None]:
    """Raises the `GradientError` itself where NumPy has made an error of its own of it."""
    try:
        yield
    except ValueError as error:
        if type(error.__cause__) is GradientError:
            raise error.__cause__ from None
        raise


# -- methods


@method
def numpy(self: Tensor) -> np.ndarray:
    """The values as a NumPy array over this tensor's memory, a new view each time. Inside a traced function:
    `TraceError`.

    A tensor that requires grad must be detached first, so that no gradient is lost without notice, but under `no_grad`;
    so for `np.asarray(t)` and `array[k] = t`.
    """
    array = values(self, "numpy()")
    check_history(self, "numpy()", "use .detach().numpy()")
    return array.view()  # the tensor keeps its form, whatever is done to that of the array


@method
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    array = values(self, "conversion to a NumPy array")
    check_history(self)
    found = np.array(array, dtype=dtype, copy=copy)
    return found.view() if found is array else found


@method
def __float__(self: Tensor) -> float:
    value = float(real_value(self, "float", "float()"))
    check_stored(self)
    return value


@method
def __complex__(self: Tensor) -> complex:
    value = complex(single_value(self, "number", "complex()"))
    check_stored(self)
    return value
