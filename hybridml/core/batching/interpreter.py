"""The interpreter that batches: inside of `vmap` a tensor is one element of a batch, and an operation is that of all.

A tensor of this interpreter has the shape of one element. The level below holds the batch, with its axis first, or one
value that all elements share. The rules (rules.py) say how an operation of one element becomes one of the batch; it
then runs below, where it is computed, traced, or batched once more. Source: "Autodidax: JAX core from scratch", part
"Vectorized batching with vmap" (JAX's documentation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from hybridml_compiler.errors import ArgumentError, GradientError, TraceError
from hybridml_compiler.ops.op import Op

from .. import context
from ..autodiff.tape import Mark, Node, Refusing, is_node, make_node, parents_of
from ..context import grad_is_off
from ..interpreter import Reading, below, interpret
from ..nested import Nested, NestedTensor, Nesting, as_tensor, called, top_nesting, with_history
from ..tensor import Tensor
from .rules import Operand, batched, spread

R = TypeVar("R")
Randomness = Literal["error", "different", "same"]


class Element(Nested["Batching"]):
    """The value behind a tensor of one element: the tensor below, and whether its first axis is the batch."""

    __slots__ = ("is_batch",)

    def __init__(self, batching: Batching, tensor: Tensor, is_batch: bool, is_shared: bool) -> None:
        super().__init__(batching, tensor, is_shared)
        self.is_batch = is_batch

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape[1:] if self.is_batch else self.tensor.shape

    def detached(self) -> Element:
        tensor = below(self.interpreter, lambda: self.tensor.detach())
        return Element(self.interpreter, tensor, self.is_batch, self.is_shared)

    def with_history(self, old: Tensor) -> Element:
        beneath = old._array.tensor if type(old._array) is Element else old
        return Element(self.interpreter, with_history(self.tensor, beneath), self.is_batch, self.is_shared)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> None:
        batching, is_batch = self.interpreter, self.is_batch
        if self.tensor._node is None or (self.is_shared and not is_batch):  # there its history is that of the element
            return
        if self.is_shared:
            raise GradientError(
                "register_hook: inside of vmap this is an element of an argument; register it outside, on the tensor"
            )

        def of_batch(g: Tensor) -> Tensor | None:
            given = batching.wrap(g if is_batch else g / batching.size, is_batch)
            changed = interpret(batching, lambda: hook(given))
            if changed is None:
                return None
            found: Element = interpret(batching, lambda: batching.lift(changed))._array
            if is_batch:
                return found.tensor if found.is_batch else spread(found.tensor, batching.size)
            total: Tensor = found.tensor.sum(axis=0) if found.is_batch else found.tensor * batching.size
            return total

        below(batching, lambda: self.tensor.register_hook(of_batch))


class _End(Refusing):
    """The leaf where the history of an argument's elements ends: that of the batch is the outside's."""

    __slots__ = ()
    reached = "inside of vmap it reaches an argument that requires grad outside"


def _passed(g: Tensor, node: Node) -> list[tuple[Any, Tensor]]:
    return [(parents_of(node)[0], g)]


class ElementTensor(NestedTensor):
    """A tensor inside of `vmap`."""

    __slots__ = ()
    made_by = "a function under vmap"

    def __format__(self, spec: str) -> str:
        return str(self) if not spec and varies(self) else Tensor.__format__(self, spec)


class Batching(Nesting):
    """The interpreter of one call of `vmap` (see core/interpreter.py for the members).

    `size`: elements of the batch. `name`: that of its axis, for `psum` and `pmean`.
    """

    def __init__(self, size: int, randomness: Randomness = "error", name: Any = None) -> None:
        super().__init__()
        self.size, self.randomness, self.name = size, randomness, name

    def wrap(self, tensor: Tensor, is_batch: bool, is_shared: bool = False) -> Tensor:
        """The element tensor of a tensor below. One that is somebody's has its history, so that transforms inside know
        what is wanted outside; that of results is dispatch's to record.
        """
        t = ElementTensor()
        t._array = Element(self, tensor, is_batch, is_shared)
        t._node, t._version = tensor._node if is_shared else None, 0
        if type(t._node) is Mark:
            t._node = Mark(t.shape)
        elif is_batch and t._node is not None:  # that of the batch is of another shape
            end = _End(t.shape, t.dtype)
            t._node = make_node(_passed, t.shape, [end]) if is_node(tensor._node) else end
        return t

    def wrap_shared(self, tensor: Tensor) -> Tensor:
        return self.wrap(tensor, False, True)

    def wrap_constant(self, tensor: Tensor) -> Tensor:
        return self.wrap(tensor, False)

    def batch_of(self, t: Tensor) -> Tensor:
        """The tensor below with the batch as its first axis; a value that all share is repeated."""
        element = self.lift(t)._array
        return element.tensor if element.is_batch else below(self, lambda: spread(element.tensor, self.size))

    def any(self, t: Tensor) -> bool:
        """Whether a flag is set for any element."""
        batch = self.batch_of(t)

        def run() -> bool:
            flag, around = batch.any(), top_nesting()
            return bool(flag) if around is None else around.any(flag)

        return below(self, run)

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        elements = [t._array for t in operands]
        is_batch = any([e.is_batch for e in elements])

        def run() -> Any:
            if is_batch:
                return batched(op, self.size, [Operand(e.tensor, e.is_batch) for e in elements], params)
            tensors = [e.tensor for e in elements]
            return called(op, tensors, params)

        if op.results:
            params = {p: value for p, value in params.items() if p != "result"}
        found = below(self, run)
        results = found if op.results else (found,)
        return tuple([self.wrap(*t) if type(t) is Operand else self.wrap(t, is_batch) for t in results])

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        element = t._array
        if type(element) is not Element or not element.is_batch or how == "text":
            return super().read(t, how, what)
        raise TraceError(
            f"{what}: under vmap this tensor has another value for each of {self.size} elements, and Python can take "
            "only one way; use where, cond or while_loop, which do, or keep the value a tensor"
        )

    def write(self, t: Tensor, value: Tensor) -> None:
        element, new = t._array, value._array
        if not element.is_shared:  # views follow, see aliasing.py
            self.check_depth(t, "vmap")
            tensor = self.batch_of(value) if element.is_batch else new.tensor
            if new.is_shared or type(tensor._version) is list:  # its memory is that of others, who may write to it
                tensor = below(self, tensor.clone)
            if grad_is_off():  # the batch keeps its history, as the element does
                tensor = with_history(tensor, element.tensor)
            t._array = Element(self, tensor, element.is_batch or new.is_batch, False)
            return
        if new.is_batch and not element.is_batch:
            raise ArgumentError(
                f"vmap: a value of each of {self.size} elements is written in place to a tensor of shape {t.shape} "
                "that all of them share; return it from the function, or pass the tensor as an argument with a batch"
            )
        written = self.batch_of(value) if element.is_batch else new.tensor
        below(self, lambda: element.tensor.copy_(written))

    def reserve(self, reserve: Callable[[Any], Tensor], shape: tuple[int, ...]) -> Tensor:
        """The state that an element draws numbers of a shape from, where `reserve(shape)` gives one below."""
        if self.randomness != "different":
            return self.draw(reserve, shape)
        blocks = (math.prod(shape) + 3) // 4  # of four numbers, as in `Generator.reserve`
        offsets = np.arange(self.size, dtype=np.uint64)[:, None] * np.array([0, blocks], np.uint64)

        def states() -> Tensor:
            return reserve((self.size, 4 * blocks)) + context.literal(as_tensor(offsets))

        return self.wrap(below(self, states), True)

    def draw(self, bits: Callable[[Any], Tensor], shape: tuple[int, ...]) -> Tensor:
        """Random bits for an element, `bits(shape)` below. TraceError where nothing says what the elements get."""
        if self.randomness == "same":
            return self.wrap(below(self, lambda: bits(shape)), False)
        if self.randomness == "different":
            return self.wrap(below(self, lambda: bits((self.size, *shape))), True)
        raise TraceError(
            "vmap: random numbers are drawn for an element of a batch; say vmap(..., randomness='different') for "
            "numbers of its own, or 'same' for those of all elements"
        )


def varies(value: Any) -> bool:
    """Whether a tensor has a value of its own for each element of a `vmap`, this one or one around it."""
    array = value._array if issubclass(type(value), NestedTensor) else None
    return array is not None and ((type(array) is Element and array.is_batch) or varies(array.tensor))
