"""The interpreter of forward mode: inside of `jvp` a tensor is a dual number, a value and its tangent.

The level below holds both, as tensors of one shape. An operation runs there for the values, and its rule (rules.py) for
the tangents: so both are computed, traced, batched, recorded for a gradient that is taken outside, or are dual numbers
once more. A tensor that has no tangent stands for one of zeros, and costs nothing.

`requires_grad` says whether a tensor is differentiated; `detach` and `no_grad` end tangents as they end histories. The
tape lies above: a gradient that is taken inside records dual numbers; what nobody inside differentiates is only marked
(see `Mark` in autodiff/tape.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybridml_compiler.ops.op import Op

from ..autodiff.tape import Mark
from ..context import grad_is_off
from ..interpreter import below, interpret
from ..nested import Nested, NestedTensor, Nesting, called, top_nesting, with_history
from ..tensor import Tensor
from .rules import pushed, zeros_like


class Dual(Nested["Forward"]):
    """The value behind a tensor in forward mode: the tensor below, and its tangent there; None: zeros."""

    __slots__ = ("tangent",)

    def __init__(self, forward: Forward, tensor: Tensor, tangent: Tensor | None, is_shared: bool) -> None:
        super().__init__(forward, tensor, is_shared)
        self.tangent = tangent

    def detached(self) -> Dual:
        return Dual(self.interpreter, below(self.interpreter, lambda: self.tensor.detach()), None, self.is_shared)

    def with_history(self, old: Tensor) -> Dual:
        beneath = old._array.tensor if type(old._array) is Dual else old
        return Dual(self.interpreter, with_history(self.tensor, beneath), self.tangent, self.is_shared)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> None:
        forward = self.interpreter
        if self.tensor._node is None or self.is_shared:  # there its history is that of the dual number
            return

        def of_primal(g: Tensor) -> Tensor | None:
            given = forward.wrap(g)
            changed = interpret(forward, lambda: hook(given))
            return None if changed is None else interpret(forward, lambda: forward.lift(changed))._array.tensor

        below(forward, lambda: self.tensor.register_hook(of_primal))


class DualTensor(NestedTensor):
    """A tensor inside of `jvp`."""

    __slots__ = ()
    made_by = "a function under jvp"


class Forward(Nesting):
    """The interpreter of one call of `jvp` (see core/interpreter.py for the members).

    `takes_gradients`: whether one has been taken inside, for which operations are best recorded one by one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takes_gradients = False
        # Tensors from outside that have been written values with tangents to, by id, and these.
        self.written: dict[int, tuple[Tensor, Tensor]] = {}

    def wrap(self, tensor: Tensor, tangent: Tensor | None = None, is_shared: bool = False) -> Tensor:
        """The dual tensor of a value below and its tangent. One that is somebody's has its history, that of an argument
        is a mark; that of results is dispatch's to record.
        """
        t = DualTensor()
        t._array, t._version = Dual(self, tensor, tangent, is_shared), 0
        t._node = tensor._node if is_shared else None
        if tangent is not None and t._node is None:
            t._node = Mark(tensor.shape)
        return t

    def argument(self, tensor: Tensor, tangent: Tensor | None) -> Tensor:
        """The dual tensor of an argument of the function: differentiated, whatever it is outside."""
        t = self.wrap(tensor, tangent)
        t._node = Mark(tensor.shape)
        return t

    def wrap_shared(self, tensor: Tensor) -> Tensor:
        _, tangent = self.written.get(id(tensor), (tensor, None))
        return self.wrap(tensor, tangent, True)

    def wrap_constant(self, tensor: Tensor) -> Tensor:
        return self.wrap(tensor)

    def parts(self, t: Tensor) -> tuple[Tensor, Tensor | None]:
        """The value and the tangent below of a tensor from anywhere."""
        dual = self.lift(t)._array
        return dual.tensor, dual.tangent

    def any(self, t: Tensor) -> bool:
        """Whether a flag is set, for any element of the batches beneath."""
        flag, _ = self.parts(t)

        def run() -> bool:
            around = top_nesting()
            return bool(flag) if around is None else bool(around.any(flag))

        return below(self, run)

    def materialized(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """The value and the tangent below of a tensor of floats, with zeros where it has none."""
        tensor, tangent = self.parts(t)
        return tensor, below(self, lambda: zeros_like(tensor)) if tangent is None else tangent

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        duals = [t._array for t in operands]
        tensors = [d.tensor for d in duals]
        params = {p: value for p, value in params.items() if p != "result"} if op.results else params
        tangents = [None if grad_is_off() else d.tangent for d in duals]

        def run() -> Any:
            found = called(op, tensors, params)
            outs = found if op.results else (found,)
            if all([t is None for t in tangents]):
                return [(out, None) for out in outs]
            return list(zip(outs, pushed(op, tensors, tangents, outs, params), strict=True))

        return tuple([self._result(out, tangent) for out, tangent in below(self, run)])

    def _result(self, tensor: Tensor, tangent: Tensor | None) -> Tensor:
        t = DualTensor()
        t._array, t._node, t._version = Dual(self, tensor, tangent, False), None, 0
        return t

    def write(self, t: Tensor, value: Tensor) -> None:
        dual, new = t._array, value._array
        tangent = None if grad_is_off() else new.tangent
        if not dual.is_shared:  # views follow, see aliasing.py
            self.check_depth(t, "jvp")
            tensor = new.tensor
            if new.is_shared or type(tensor._version) is list:  # its memory is that of others, who may write to it
                tensor = below(self, tensor.clone)
            if grad_is_off():  # the value below keeps its history, as the dual number does
                tensor = with_history(tensor, dual.tensor)
            t._array = Dual(self, tensor, tangent, False)
            return
        below(self, lambda: dual.tensor.copy_(new.tensor))
        t._array = Dual(self, dual.tensor, tangent, True)
        if tangent is None:
            self.written.pop(id(dual.tensor), None)
        else:
            self.written[id(dual.tensor)] = dual.tensor, tangent

    def reserve(self, reserve: Callable[[Any], Tensor], shape: tuple[int, ...]) -> Tensor:
        """The state that numbers of a shape are drawn from, where `reserve(shape)` gives one below."""
        return self.wrap(below(self, lambda: reserve(shape)))

    def draw(self, bits: Callable[[Any], Tensor], shape: tuple[int, ...]) -> Tensor:
        """Random bits, `bits(shape)` below; they have no tangent."""
        return self.wrap(below(self, lambda: bits(shape)))
