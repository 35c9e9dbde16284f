"""The proxy of a number that Python computes when the call ends: a duration, a loss that is rounded.

Nothing of it is in the graph: each call applies `op` to what the operands are in it, and the number can be returned,
printed, assigned and appended. All else that needs the number (a branch, a tensor, a key) asks for the values of its
operands, and the program is specialized on these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from .base import NumberProxy, concrete_value
from .integer import IntProxy
from .scalar import ScalarProxy


class LateProxy(NumberProxy):
    """`op(*operands)` in each call, of the type `kind`; without operands `op` reads a clock."""

    __slots__ = ("_kind", "op", "operands")
    is_late = True

    def __init__(self, kind: type, op: Callable[..., Any], operands: Sequence[Any] = ()) -> None:
        self._kind, self.op, self.operands = kind, op, operands

    def _concrete(self) -> Any:
        return self.op(*map(concrete_value, self.operands))

    def late(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return self.op, self.operands

    @property
    def is_timed(self) -> bool:
        """Whether it is computed from a clock."""
        return not self.operands or any(isinstance(x, LateProxy) and x.is_timed for x in self.operands)

    def __bool__(self) -> bool:
        return bool(self._concrete())

    def __int__(self) -> int:
        return int(self._concrete())

    def __repr__(self) -> str:
        return self._said(repr, False)

    def __str__(self) -> str:
        return self._said(str, False)


def _python_kind(x: Any) -> type | None:
    """The type of a number of Python's, or of a proxy of one; None for anything else."""
    kind: type = x._kind if issubclass(type(x), NumberProxy) else type(x)
    return int if kind is bool else kind if kind in (int, float) else None


def computed(op: Callable[..., Any], *operands: Any) -> Any:
    """The number that each call computes, or `op` of the values where an operand is no number of Python's."""
    kinds = list(map(_python_kind, operands))
    if None in kinds:
        return op(*map(concrete_value, operands))
    return LateProxy(float if op is operator.truediv or float in kinds else int, op, operands)


def _divided(op: Callable[..., Any], x: Any, y: Any) -> Any:
    """A quotient; of values where the divisor may be zero, but for a duration."""
    is_safe = y.is_timed if isinstance(y, LateProxy) else type(y) in (int, float) and y != 0
    return computed(op, x, y) if is_safe else op(concrete_value(x), concrete_value(y))


def _asked(op: Callable[..., Any], *operands: Any) -> Any:
    return op(*map(concrete_value, operands))


def _rounded(self: Any, digits: int | None = None) -> Any:
    """`round` of a number: to digits it fails for none, which to an int it may."""
    if digits is None and type(self) is IntProxy and self._kind is int:
        return self
    if digits is None and type(self) is ScalarProxy and (found := NumberProxy.whole(self, "round")) is not None:
        return found
    if digits is None and not (self.is_late and self.is_timed):
        return round(self._concrete())
    return LateProxy(int, round, (self,)) if digits is None else LateProxy(self._kind, round, (self, digits))


_WAYS: dict[Callable[..., Any], str] = {
    computed: "add sub mul",
    _divided: "truediv floordiv mod",
    _asked: "eq ne lt le gt ge pow divmod",
}


def _method(way: Callable[..., Any], op: Callable[..., Any], swapped: bool) -> Callable[[Any, Any], Any]:
    return lambda self, other: way(op, other, self) if swapped else way(op, self, other)


def _operators() -> None:
    """Adds the methods that Python looks up on the class."""
    for way, names in _WAYS.items():
        for name in names.split():
            op = divmod if name == "divmod" else getattr(operator, name)
            setattr(LateProxy, f"__{name}__", _method(way, op, False))
            if hasattr(float, f"__r{name}__"):
                setattr(LateProxy, f"__r{name}__", _method(way, op, True))
    for name, op in (("neg", operator.neg), ("abs", abs)):
        setattr(LateProxy, f"__{name}__", lambda self, op=op: computed(op, self))
    for name in ("index", "trunc", "floor", "ceil"):
        setattr(LateProxy, f"__{name}__", LateProxy.__int__)
    LateProxy.__hash__ = NumberProxy.__hash__  # type: ignore[method-assign]
    for cls in (ScalarProxy, IntProxy, LateProxy):
        cls.__round__ = _rounded  # type: ignore[method-assign]


_operators()
