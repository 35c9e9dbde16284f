"""Integers inside a trace: what stands for a Python int that is an input of the program.

An int comes to be one at its second value (see trace/integers.py). In arithmetic with floats and tensors it is a weak
number of the graph, as a Python int is; sums, differences and products of such integers are integers again. They are
computed as float64, which is exact up to 2**53: each knows how large it can become, and beyond that is a Python int.
Whatever else Python does with one (`range`, an index, a comparison, `%`, a key of a dict) is given the int itself, and
the program holds for that value: code that knows nothing of this class makes a less general program, never a wrong one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import TraceError

from .context import current_interpreter
from .tensor import Tensor, leaked

LARGEST = 1 << 31  # of an int that is an input
_EXACT = 1 << 53  # of what is computed from them


class Integer:
    """`value` in this trace, `real`: the same as a number of the graph; `bound`: of its absolute value in any call."""

    __slots__ = ("_tracer", "bound", "real", "value")
    __array_ufunc__ = None  # NumPy leaves arithmetic to us

    def __init__(self, tracer: Any, real: Tensor, value: int, bound: int = LARGEST) -> None:
        self._tracer, self.real, self.value, self.bound = tracer, real, value, bound

    @property
    def __class__(self) -> Any:  # what `isinstance` looks at after the type itself
        return int

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError("the class of a number cannot be assigned")

    def __int__(self) -> int:
        """The value, which the program holds for from here on."""
        if current_interpreter() is not self._tracer:
            raise leaked(self.real)
        if self._tracer.ask is None:
            raise TraceError(
                f"the value {self.value} of an int that is an input is asked for where a gradient is derived, which "
                "has none; derive the gradient inside of the traced function"
            )
        self._tracer.look_at(self.real._array)
        return self.value

    __index__ = __trunc__ = __floor__ = __ceil__ = __int__

    def _combined(self, other: Any, op: Callable[[Any, Any], Any], swapped: bool) -> Any:
        """`self op other`, for sums, differences and products."""
        kind = type(other)
        if kind is Integer or kind is int or kind is bool:
            value, size, real = (
                (other.value, other.bound, other.real) if kind is Integer else (other, abs(other), other)
            )
            bound = self.bound * size if op is operator.mul else self.bound + size
            if bound <= _EXACT:
                mine, other = (self.real, self.value), (real if kind is Integer else float(real), value)
                (a, m), (b, n) = (other, mine) if swapped else (mine, other)
                return Integer(self._tracer, op(a, b), op(m, n), bound)
        return self._applied(other, op, swapped)

    def _applied(self, other: Any, op: Callable[[Any, Any], Any], swapped: bool) -> Any:
        """With floats and numbers of the trace: as a float; with anything but a tensor: as the int that it is."""
        kind = type(other)
        number = kind is float or getattr(kind, "is_number", False)
        if issubclass(kind, Tensor) and not number:
            return NotImplemented
        one: Any = self.real if number else int(self)
        return op(other, one) if swapped else op(one, other)

    def _divided(self, other: Any, swapped: bool) -> Any:
        kind = type(other)
        if kind is Integer or (kind is int and abs(other) <= _EXACT):
            divisor = self if swapped else other
            if (divisor.value if type(divisor) is Integer else divisor) == 0:
                return int(other) / int(self) if swapped else int(self) / int(other)  # with the error of Python
            number: Any = other.real if kind is Integer else float(other)
            return number / self.real if swapped else self.real / number
        return self._applied(other, operator.truediv, swapped)

    def __truediv__(self, other: Any) -> Any:
        return self._divided(other, False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._divided(other, True)

    def __neg__(self) -> Any:
        return Integer(self._tracer, -self.real, -self.value, self.bound)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> int:
        return ~int(self)

    def __repr__(self) -> str:
        return repr(int(self)) if current_interpreter() is self._tracer else f"Integer({self.value})"

    def __str__(self) -> str:
        return str(int(self))

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __hash__(self) -> int:
        return hash(int(self))

    def __reduce__(self) -> Any:
        return int, (int(self),)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.array(int(self), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(int(self), name)


def _computed(op: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Integer, Any], Any]:
    return lambda self, other: self._combined(other, op, swapped)


def _asked(op: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Integer, Any], Any]:
    return lambda self, other: self._applied(other, op, swapped)


def _of_value(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: function(int(self), *args)


def _operators() -> None:
    """The methods that Python looks up on the class."""
    for name in ("add", "sub", "mul"):
        op = getattr(operator, name)
        setattr(Integer, f"__{name}__", _computed(op, False))
        setattr(Integer, f"__r{name}__", _computed(op, True))
    for name in ("pow", "floordiv", "mod", "divmod", "lshift", "rshift", "and_", "or_", "xor", "matmul"):
        op = divmod if name == "divmod" else getattr(operator, name)
        setattr(Integer, f"__{name.rstrip('_')}__", _asked(op, False))
        setattr(Integer, f"__r{name.rstrip('_')}__", _asked(op, True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Integer, f"__{name}__", _asked(getattr(operator, name), False))
    for function in (bool, float, complex, abs, round):
        setattr(Integer, f"__{function.__name__}__", _of_value(function))


_operators()


def plain(value: Any) -> Any:
    """The int itself, of an Integer; anything else as it is."""
    return int(value) if type(value) is Integer else value
