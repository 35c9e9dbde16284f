"""Errors of gradients that would be lost without notice: NumPy's memory has numbers alone, and no history."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from opcode import opmap

from hybridml_compiler.errors import GradientError

from ..context import grad_is_off
from ..tensor import Tensor

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


def check_element(t: Tensor) -> None:
    """Raises what NumPy makes of that error."""
    try:
        check_history(t, "array[...] = tensor")
    except GradientError as error:
        raise ValueError("setting an array element with a sequence.") from error


@contextmanager
def without_numpys_error() -> Iterator[None]:
    """Raises the `GradientError` itself where NumPy has made an error of its own of it."""
    try:
        yield
    except ValueError as error:
        if type(error.__cause__) is GradientError:
            raise error.__cause__ from None
        raise
