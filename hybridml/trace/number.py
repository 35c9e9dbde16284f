"""Numbers inside a trace: what stands for a Python float that is an input, or that `item()` has given.

Arithmetic of such numbers is part of the graph, as float64, as Python computes it, so another value is no other
program.
All that only Python can do with a number (format it, hash it, give it to `math`) asks for the value, which the trace
then holds for: see branches.py. `isinstance(number, float)` is true, as it is in eager code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..context import current_interpreter
from ..tensor import Tensor, leaked


class Traced(Tensor):
    """A tensor inside a trace: `_array` is a graph node. Every trace has its own subclass, so that a leak is
    noticed.
    """

    __slots__ = ()


class Number(Traced):
    """A traced 0-d tensor that is a Python number."""

    __slots__ = ()
    is_number = True

    @property
    def __class__(self) -> Any:  # what `isinstance` looks at after the type itself
        return bool if self._array.dtype.kind == "b" else float

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError("the class of a number cannot be assigned")

    def _value(self) -> Any:
        interp = current_interpreter()
        if interp is None or not isinstance(self, interp.cls):
            raise leaked(self)
        return interp.scalar(self, "bool()" if self._array.dtype.kind == "b" else "the value of a number")

    def item(self, *place: int) -> Any:
        return self

    def tolist(self) -> Any:
        return self

    def is_integer(self) -> bool:
        return bool(self % 1 == 0.0)

    def __hash__(self) -> int:
        return hash(self._value())

    def __format__(self, spec: str) -> str:
        return format(self._value(), spec)

    def __repr__(self) -> str:
        return repr(self._value()) if current_interpreter() is not None else super().__repr__()

    __str__ = __repr__

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._value(), digits)

    def __trunc__(self) -> int:
        return int(self)

    def __floor__(self) -> int:
        return int(self // 1)

    def __ceil__(self) -> int:
        return -int(-self // 1)

    def __truediv__(self, other: Any) -> Any:
        _check_divisor(self, other, operator.truediv)
        return super().__truediv__(other)

    def __rtruediv__(self, other: Any) -> Any:
        _check_divisor(other, self, operator.truediv)
        return super().__rtruediv__(other)

    def __floordiv__(self, other: Any) -> Any:
        _check_divisor(self, other, operator.floordiv)
        return super().__floordiv__(other)

    def __rfloordiv__(self, other: Any) -> Any:
        _check_divisor(other, self, operator.floordiv)
        return super().__rfloordiv__(other)  # type: ignore[misc]

    def __mod__(self, other: Any) -> Any:
        _check_divisor(self, other, operator.mod)
        return super().__mod__(other)

    def __rmod__(self, other: Any) -> Any:
        _check_divisor(other, self, operator.mod)
        return super().__rmod__(other)  # type: ignore[misc]

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __reduce__(self) -> Any:
        return float, (self._value(),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_view":
            raise AttributeError(name)
        return getattr(self._value(), name)


def _check_divisor(x: Any, y: Any, op: Callable[[float, float], float]) -> None:
    """Python divides no number by zero; tensors give inf or nan."""
    number = (float, int, bool)
    if not all(type(v) in number or isinstance(v, Number) for v in (x, y)):
        return
    interp = current_interpreter()
    if isinstance(y, Number):
        if interp is None or not isinstance(y, interp.cls) or interp.check_divisor(y):
            return
    elif y != 0:
        return
    op(1.0, 0.0)  # raises the error of Python


def is_number(t: Tensor) -> bool:
    return type(t).is_number
