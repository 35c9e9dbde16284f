"""The classes of the tensors that a trace computes with, and of the leaves of those that stand for real ones."""

from __future__ import annotations

from typing import Any

from ...core.autodiff.tape import Leaf
from ...core.tensor import StandIn, Tensor
from ..specialize.errors import Untraceable


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


class ShadowLeaf(Leaf):
    """The leaf of a shadow: `.grad` and hooks start as those of the real leaf, read only when the program reads
    them.
    """

    __slots__ = ("_grad", "changed", "dropped", "input", "known", "tracer")

    def __init__(self, tracer: Any, source: Any) -> None:
        self.tracer, self.input = tracer, source
        self.known = self.changed = False
        self.dropped = False  # the real `.grad` is done without, unread, before anything may fail
        self._grad: Tensor | None = None
        self.shape, self.dtype = source.start.shape, source.start.dtype
        self.hooks = getattr(source.real._node, "hooks", None)

    @property
    def inner(self) -> bool:  # type: ignore[override]
        recorded: bool = self.input.recorded
        return recorded

    @property
    def reduction(self) -> Any:  # type: ignore[override]
        return getattr(self.input.real._node, "reduction", None)  # a trace may attach one

    @property
    def grad(self) -> Tensor | None:
        if not self.known:
            self.known = True
            self._grad = self.tracer.read_grad(self.input)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if self.input.recorded and value is not None:
            raise Untraceable(
                "backward() inside a traced function reached a tensor that was computed outside of it with history; "
                "trace the whole computation, or pass the tensor through detach()"
            )
        self.dropped = self.dropped or (value is None and not self.known and not self.tracer.may_fail)
        self.known = self.changed = True
        self._grad = value
