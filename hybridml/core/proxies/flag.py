"""The proxy of a bool that steps of a loop decide, `inside = True` under an `if` on data.

There are two values, so whatever Python does with one asks which it is: a question about data as any other. What `is`
would tell from a bool never is one (see `flags` in tracing/rolling/code_loops.py).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ..context import current_interpreter
from .base import NumberProxy, Proxy, concrete_value


class FlagProxy(NumberProxy):
    """A bool inside a trace. `tensor`: the 0-d tensor of the trace that computes it."""

    __slots__ = ("__weakref__", "_tensor")
    is_late = True  # other numbers leave to it what is computed with both
    _kind = bool

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __bool__(self) -> bool:
        return bool(self._tensor)

    _concrete = __bool__
    __hash__ = NumberProxy.__hash__

    def _said(self, op: Callable[[Any], str], formats: bool) -> str:
        return op(self._concrete())

    def _by_numpy(self, ufunc: Any, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return Proxy._by_numpy(self, ufunc, call, inputs, kwargs)

    def __repr__(self) -> str:
        return repr(self._concrete() if current_interpreter() is not None else self._tensor)

    __str__ = __repr__


_BINARY = "add sub mul truediv floordiv mod divmod pow lshift rshift and_ or_ xor"
_COMPARED = "eq ne lt le gt ge"
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "pos": operator.pos, "abs": abs, "invert": operator.invert, "int": int, "float": float,
    "index": operator.index, "round": round, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip


def _method(op: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def applied(self: FlagProxy, *others: Any) -> Any:
        given = concrete_value(self), *others
        return op(*(given[::-1] if swapped else given))

    return applied


def _operators() -> None:
    """Adds the methods that Python looks up on the class."""
    for name in (*_BINARY.split(), *_COMPARED.split()):
        op: Any = divmod if name == "divmod" else getattr(operator, name)
        setattr(FlagProxy, f"__{name.rstrip('_')}__", _method(op, False))
        if name in _BINARY.split():
            setattr(FlagProxy, f"__r{name.rstrip('_')}__", _method(op, True))
    for name, op in _UNARY.items():
        setattr(FlagProxy, f"__{name}__", _method(op, False))


_operators()
