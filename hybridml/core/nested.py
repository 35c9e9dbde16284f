"""Interpreters that stand on another: their tensors hold tensors of the level below.

`Batching` is one, whose tensors are elements of a batch, and `Forward` is one, whose tensors have tangents beside them.
What is about tensors below as they are is here: lifting, literals, readings, layouts, watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from . import context
from .device_tensor import transfer
from .eager import active_interpreter
from .interpreter import Reading, below, interpret, interpreter_stack, is_in_force
from .tensor import StandIn, Tensor, adopt, aval_of, leaked, like

R = TypeVar("R")
N = TypeVar("N", bound="Nesting")


class Nested(Generic[N]):
    """The value behind a tensor of an interpreter that stands on another: a tensor of the level below.

    `is_shared`: the tensor is somebody's outside of the function, who sees what is written to it. `depth`: how many
    loops and branches of a traced program were around when it was made.
    """

    __slots__ = ("depth", "interpreter", "is_shared", "tensor")

    def __init__(self, interpreter: N, tensor: Tensor, is_shared: bool) -> None:
        self.interpreter, self.tensor, self.is_shared = interpreter, tensor, is_shared
        self.depth = interpreter.depth

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype:
        return self.tensor.dtype

    @property
    def aval(self) -> Aval:
        found = aval_of(self.tensor)
        return Aval(self.shape, found.dtype, found.weak, device=found.device)

    def detached(self) -> Nested[N]:
        """The same values without history, that of the tensor below included."""
        raise NotImplementedError

    def with_history(self, old: Tensor) -> Nested[N]:
        """The same values with the history of another tensor, of this interpreter or below."""
        raise NotImplementedError

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> None:
        """Calls a hook of tensors of this interpreter for the gradient of the tensor below, too, if that has a
        history.
        """
        raise NotImplementedError


class NestedTensor(StandIn):
    """A tensor of an interpreter that stands on another."""

    __slots__ = ()
    made_by = "a transformed function"


class Nesting:
    """Base of interpreters that stand on another (see core/interpreter.py for the members).

    `mask`: a flag, where some elements of a batch go another way, of those that in-place updates reach; None: of all.
    `depth`: how many loops and branches of a traced program are around.
    """

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self.depth = 0

    def wrap_shared(self, tensor: Tensor) -> Tensor:
        """The tensor of this interpreter for one below that is somebody's outside of the function."""
        raise NotImplementedError

    def wrap_constant(self, tensor: Tensor) -> Tensor:
        """The tensor of this interpreter for a literal below."""
        raise NotImplementedError

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def write(self, t: Tensor, value: Tensor) -> None:
        raise NotImplementedError

    def owns(self, value: Any) -> bool:
        """Whether a tensor is one of this interpreter's."""
        return issubclass(type(value), NestedTensor) and value._array.interpreter is self

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        given: Any = value
        if self.owns(given):
            return given
        if issubclass(type(given), NestedTensor) and not is_in_force(given._array.interpreter):
            raise leaked(given)
        return self.wrap_shared(below(self, lambda: context.lift(as_tensor(given))))

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        return t if self.owns(t) else self.wrap_constant(below(self, lambda: context.constant(t, weak)))

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        tensor = t._array.tensor if self.owns(t) else t
        return below(self, lambda: active_interpreter(tensor).read(tensor, how, what))

    def any(self, t: Tensor) -> bool:
        """Whether a flag is set, for any element where it is one of a batch."""
        raise NotImplementedError

    def only(self, flag: Tensor, fn: Callable[[], R]) -> R:
        """Runs `fn()`; its in-place updates reach those elements alone for which a flag is set."""
        outer = self.mask
        try:
            self.mask = flag if outer is None else OPS["logical_and"].fn(outer, flag)
            return fn()
        finally:
            self.mask = outer

    def kept(self, t: Tensor, value: Tensor) -> Tensor:
        """Values of a tensor after a write to it: elements outside of the mask stay."""
        if self.mask is None:
            return value
        left: Tensor = OPS["where"].fn(self.mask, value, like(t, t._array, t._node))
        return left

    def in_loop(self, fn: Callable[[], R]) -> R:
        """Runs `fn()`, a step of a loop of the level below."""
        try:
            self.depth += 1
            return interpret(self, fn)
        finally:
            self.depth -= 1

    def check_depth(self, t: Tensor, what: str) -> None:
        """ArgumentError for an update, in a loop or branch of a traced program, of a tensor that is made outside."""
        if t._array.depth < self.depth:
            raise ArgumentError(
                f"{what}: a loop or branch of a traced function updates a tensor of shape {t.shape} that is made "
                "outside of it in place; carry the value and return it instead"
            )

    def layout(self, t: Tensor) -> np.ndarray:
        return np.empty(t.shape, t.dtype)

    def trust(self, t: Tensor) -> None:
        tensor = self.lift(t)._array.tensor
        below(self, lambda: context.trusted(tensor))

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        given = list(tensors)
        own = [(t, like(t, t._array), t._version) for t in given if self.owns(t)]
        others = [t for t in given if not self.owns(t)]
        written = below(self, lambda: _watched(others))
        return lambda: written() + [(t, before) for t, before, version in own if t._version != version]


def called(op: Op, tensors: Sequence[Tensor], params: Mapping[str, Any]) -> Any:
    """The result of a row, or its results."""
    if op.kind == "transfer" and "device" in params:  # the row itself stays where it is called
        return transfer(tensors[0], params["device"])
    return op.fn(list(tensors), **params) if op.variadic else op.fn(*tensors, **params)


def staged(around: Nesting, fn: Callable[..., R]) -> Callable[..., R]:
    """The function that a transform calls with tensors of `around`, on top of what is in force now: a tracer may have
    captured it first (see tracing/staging)."""
    stages = getattr(context.current_interpreter(), "stages", None)
    return fn if stages is None else stages.of(around, fn)


def top_nesting() -> Any:
    """The interpreter on top of the stack, if it stands on another; None where a tracer or NumPy applies operations."""
    level = interpreter_stack()
    return level.interpreter if level is not None and isinstance(level.interpreter, Nesting) else None


def is_eager() -> bool:
    """Whether NumPy computes, at once, whatever transforms stand on it."""
    level = interpreter_stack()
    while level is not None and isinstance(level.interpreter, Nesting):
        level = level.beneath
    return level is None


def with_history(t: Tensor, old: Tensor) -> Tensor:
    """The values of a tensor with the history of another, at all levels that lie beneath too."""
    array = t._array
    return like(t, array.with_history(old) if isinstance(array, Nested) else array, old._node)


def as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else adopt(value)


def _watched(tensors: list[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
    level = interpreter_stack()
    return list if level is None else level.interpreter.watch(tensors)
