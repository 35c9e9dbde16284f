"""Interpreters: what an operation does here and now, and the stack of those in force.

Dispatch brings the operands of an operation to their dtypes, checks its parameters and then asks the interpreter on
top of the stack to apply it. Without any, NumPy computes (see eager.py). The tracer of a traced function is one: it
applies an operation by adding a node to a graph. An interpreter may use those beneath it: inside `below`, operations
go to the next one. So one that batches runs the batched operation below, where it is computed or traced.

An interpreter makes its own tensors: objects of a class of its own, with its own kind of value in `_array` (anything
that has a shape, a dtype and an `aval`), or those of the level below as they are. The tape lies above: dispatch
records what `apply` returns, whatever the interpreter is.

The names are those of JAX's `Trace` where the ideas are ("Autodidax: JAX core from scratch", JAX's documentation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from hybridml_compiler.ops.op import Op

R = TypeVar("R")
# The class of tensors. A parameter, as `Tensor` itself asks the interpreter and modules make no circles.
T = TypeVar("T")

# How Python reads a value:
#   array    as a read-only NumPy array
#   item     as `item()` gives it: a Python number, or what stands for one in a trace
#   bool, int, float
#            as that conversion of Python gives it
#   number   as the Python number itself
#   nonzero  whether it may be divided by
#   text     as an array to print; None where it cannot be known
Reading = Literal["array", "item", "bool", "int", "float", "number", "nonzero", "text"]


class Interpreter(Protocol[T]):
    """Protocol of interpreters: the members that dispatch, indexing and in-place updates use."""

    def lift(self, value: T | np.ndarray) -> T:
        """The tensor of this interpreter that stands for a tensor or array from anywhere; its own as they are.

        TraceError for a tensor of an interpreter that is no longer in force.
        """

    def constant(self, t: T, weak: bool = False) -> T:
        """A literal of the program as a tensor of this interpreter; `weak` if a Python number, which takes the dtype of
        the tensors that it meets.
        """

    def apply(self, op: Op, operands: Sequence[T], params: Mapping[str, Any]) -> tuple[T, ...]:
        """The results of an operation on tensors of this interpreter, as new tensors without history.

        The operands have the dtypes that `op` takes and the parameters are canonical (see `Op.canonical_params`). One
        result, unless `op.results` names several.
        """

    def read(self, t: T, how: Reading, what: str) -> Any:
        """The value of `t` as Python reads it; `what` is the user's name of that in errors ("bool()").

        TraceError where the value cannot be known.
        """

    def write(self, t: T, value: T) -> None:
        """Stores `value`, of the shape and dtype of `t`, into `t` in place. History and stamps are the caller's."""

    def layout(self, t: T) -> np.ndarray:
        """An array with the shape, dtype and strides that `t` has in eager code. Its elements must not be read."""

    def trust(self, t: T) -> None:
        """Notes that `t` is a look-up whose indices exist, so that nothing need check them."""

    def watch(self, tensors: Iterable[T]) -> Callable[[], list[tuple[T, T]]]:
        """Returns a function that gives the `tensors` written to since this call, each with its value from before."""


class Level(NamedTuple):
    """An interpreter on the stack, with the levels beneath it."""

    interpreter: Interpreter[Any]
    beneath: Level | None


# The stack of this thread or task, innermost level first; None where operations run eagerly. One variable, so that a
# single store changes it, which Ctrl-C cannot split.
interpreter_var: ContextVar[Level | None] = ContextVar("hybridml_interpreter", default=None)
interpreter_stack = interpreter_var.get


def interpret(interpreter: Interpreter[Any], fn: Callable[[], R]) -> R:
    """Runs `fn()` with the interpreter on top of the stack."""
    return _with_stack(Level(interpreter, interpreter_stack()), fn)


def below(interpreter: Interpreter[Any], fn: Callable[[], R]) -> R:
    """Runs `fn()` with the levels beneath the interpreter's innermost place on the stack, where it must be."""
    level = interpreter_stack()
    while level is not None and level.interpreter is not interpreter:
        level = level.beneath
    assert level is not None, f"{interpreter} is not on the stack"
    return _with_stack(level.beneath, fn)


def is_in_force(interpreter: object) -> bool:
    """Whether an interpreter is on the stack."""
    level = interpreter_stack()
    while level is not None and level.interpreter is not interpreter:
        level = level.beneath
    return level is not None


def regions_around() -> Any:
    """The blocks of the trace in force, in which what a backward computes belongs too; None where it has none."""
    level = interpreter_stack()
    while level is not None:
        found = getattr(level.interpreter, "regions", None)
        if found is not None:
            return found
        level = level.beneath
    return None


def eagerly(fn: Callable[[], R]) -> R:
    """Runs `fn()` with no interpreter in force."""
    return _with_stack(None, fn)


def _with_stack(stack: Level | None, fn: Callable[[], R]) -> R:
    """Runs `fn()` with another stack; whatever happens (Ctrl-C too), the one before is in force again afterwards."""
    outer = interpreter_stack()
    try:
        interpreter_var.set(stack)
        return fn()
    finally:
        interpreter_var.set(outer)
