"""The class of the tensors that a trace computes with."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor


class Traced(Tensor):
    """A tensor inside a trace: `_array` is a graph node. Every trace has its own subclass, so that a leak is
    noticed; code that asks for the class is told `Tensor`.
    """

    __slots__ = ()

    @property
    def __class__(self) -> Any:
        return Tensor

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError("the class of a tensor cannot be assigned while it is traced")


class Weak(Traced):
    """A 0-d tensor with a scalar proxy in front of it (see core/proxies/scalar.py)."""

    __slots__ = ()
    is_number = True


def is_number(t: Tensor) -> bool:
    return type(t).is_number
