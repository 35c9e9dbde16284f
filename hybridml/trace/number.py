"""Numbers inside a trace: what stands for a Python float that is an input, or that `item()` has given.

Arithmetic of such numbers is part of the graph, as float64, as Python computes it, so another value is no other
program.
All that only Python can do with a number (format it, hash it, give it to `math`) asks for the value, which the trace
then holds for: see branches.py. `isinstance(number, float)` is true, as it is in eager code.
"""

from __future__ import annotations

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

    def item(self) -> Any:
        return self

    def tolist(self) -> Any:
        return self

    def is_integer(self) -> bool:
        return bool(self % 1 == 0.0)  # type: ignore[comparison-overlap]

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

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __reduce__(self) -> Any:
        return float, (self._value(),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_view":
            raise AttributeError(name)
        return getattr(self._value(), name)


def is_number(t: Tensor) -> bool:
    return type(t).is_number
