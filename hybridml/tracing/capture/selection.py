"""`x[mask]` in a trace. How many elements it has is a matter of data, which a program is for; so they wait until
something asks for them. Sums, means and logic over all of them are computed from x and the mask, whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybridml_compiler.ops.op import Op

from ...core.context import current_interpreter, grad_is_off, set_grad_enabled
from ...core.interpreter import interpret
from ...core.tensor import Tensor
from .traced_tensor import Traced

_slots: dict[str, Any] = {name: Tensor.__dict__[name] for name in ("_array", "_node")}


class Selection(Traced):
    """The elements of `of[0]` where `of[1]` is true; without `of` they are a tensor as any other."""

    __slots__ = ("of", "settle")
    of: tuple[Tensor, Tensor] | None
    settle: Callable[[], None]

    @property
    def _array(self) -> Any:
        if self.of is not None:
            self.settle()
        return _slots["_array"].__get__(self)

    @_array.setter
    def _array(self, value: Any) -> None:
        self.of = None
        _slots["_array"].__set__(self, value)

    @property
    def _node(self) -> Any:
        if self.of is not None:
            self.settle()
        return _slots["_node"].__get__(self)

    @_node.setter
    def _node(self, value: Any) -> None:
        _slots["_node"].__set__(self, value)

    def _reduced(self, op: Op, params: dict[str, Any]) -> Tensor | None:
        rest = dict(params)
        axis, keepdims = rest.pop("axis", None), rest.pop("keepdims", False)
        axis = axis[0] if type(axis) is tuple and len(axis) == 1 else axis
        plain = (axis is None or type(axis) is int) and axis in (None, 0, -1) and not keepdims
        if op.over_mask is None or self.of is None or not plain:
            return None
        found: Tensor = op.over_mask(*self.of, **rest)
        return found


def selected(x: Tensor, mask: Tensor, select: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    """A selection of the values that x and the mask have now; None where no tracer is on top."""
    tracer: Any = current_interpreter()
    kind = getattr(tracer, "selection", None)
    if kind is None or not all(issubclass(type(t), tracer.cls) for t in (x, mask)):
        return None
    recorded = not grad_is_off()
    x, mask = _present(tracer, x, recorded), _present(tracer, mask, False)
    made: Selection = kind()

    def settle() -> None:
        with set_grad_enabled(recorded):
            found = interpret(tracer, lambda: select(x, mask))
        made._array, made._node = found._array, found._node
        tracer.note(made)

    made.of, made.settle, made._version = (x, mask), settle, 0
    return made


def _present(tracer: Any, t: Tensor, recorded: bool) -> Tensor:
    """The tensor as it is now, whatever is written to it later."""
    now: Tensor = tracer.wrap(t._array)
    now._node = t._node if recorded else None
    return now
