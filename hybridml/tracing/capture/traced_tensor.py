"""The class of the tensors that a trace computes with."""

from __future__ import annotations

from ...core.tensor import StandIn, Tensor


class Traced(StandIn):
    """A tensor inside a trace: `_array` is a graph node. Each trace has its own subclass, so that a leak is noticed."""

    __slots__ = ()
    was_number = False  # true of a Python number in a dtype
    is_part = False  # true of what stands for an array of NumPy's in a step (see loops/step_tensors.py)


class Weak(Traced):
    """A 0-d tensor with a scalar proxy in front of it (see core/proxies/scalar.py)."""

    __slots__ = ()
    is_number = True


def is_number(t: Tensor) -> bool:
    return type(t).is_number
