"""The proxy of an int inside a trace: one that is an input of the program.

An int comes to be one at its second value (see tracing/python_state/promoted_ints.py). In arithmetic with floats and
tensors it is a weak number of the graph, as a Python int is; sums, differences and products of such integers are
integers again. They are computed as float64, which is exact up to 2**53: each knows how large it can become, and beyond
that is a Python int. Whatever else Python does with one (`range`, an index, a comparison, `%`, a key of a dict) is
given the int itself, and the program holds for that value: code that knows nothing of this class makes a less general
program, never a wrong one.

A count that the function itself updates would be another program in each call then. So what is computed with one
`asks`: remainders and quotients by an int are integers of the graph as well, and a comparison (`self.step % 4 == 0`) is
a question that each call answers on its way, as one about data is. An int that data decides, the count of a loop that
ends when it has converged, asks as well, and has no `value` in the trace: `int()` of it is a question.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from hybridml_compiler.dtypes import int64
from hybridml_compiler.errors import TraceError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import Size, bounds, is_dim
from hybridml_compiler.sizes.steps import is_step

from ..interpreter import is_in_force
from ..tensor import Tensor, leaked
from .base import NumberProxy, concrete_value
from .scalar import ScalarProxy

LARGEST = 1 << 31  # of an int that is an input
EXACT = 1 << 53  # of what is computed from them


class IntProxy(NumberProxy):
    """`value` in this trace, if it has one, `number`: the same in the graph; `bound`: of its absolute value in any
    call; `kind`: int, or NumPy's int64; `asks`: comparisons are questions. `shares`: the factors with which numbers
    that go from step to step of a loop, each LARGEST at most, take part in it, as halves do in `lo + (hi - lo) // 2`.
    """

    __slots__ = ("_asks", "_bound", "_kind", "_number", "_shares", "_tracer", "_value")

    def __init__(
        self, tracer: Any, number: ScalarProxy, value: int | None, bound: int = LARGEST, kind: type = int,
        asks: bool = False, shares: Mapping[Any, float] | None = None,
    ) -> None:  # fmt: skip
        self._tracer, self._number, self._value, self._bound, self._kind = tracer, number, value, bound, kind
        self._asks, self._shares = asks, shares or {}

    @property
    def _gain(self) -> float:
        """The factor by which it grows with those numbers."""
        return sum(map(abs, self._shares.values()))

    @property
    def _rest(self) -> int:
        """The bound of what is not of those numbers."""
        return self._bound - math.ceil(self._gain * LARGEST)

    def _times(self, factor: float) -> dict[Any, float]:
        return {key: share * factor for key, share in self._shares.items()}

    def __int__(self) -> int:
        """The value, on which the program is then specialized."""
        if not is_in_force(self._tracer):
            raise leaked(self._number._tensor)
        if self._tracer.ask is None:
            raise TraceError(
                f"the value {self._value} of an int that is an input is asked for where a gradient is derived, which "
                "has none; derive the gradient inside of the traced function"
            )
        if self._value is None:
            return int(self._tracer.read(self._number._tensor, "number", "the value of an int"))
        self._tracer.look_at(self._number._tensor._array)
        return self._value

    __index__ = __int__

    def as_index(self) -> Tensor:
        """The int as an int64 of the graph."""
        return OPS["astype"].fn(self._number._tensor, int64)

    def __trunc__(self) -> Any:
        return self if self._kind is int else int(self)

    __floor__ = __ceil__ = __trunc__

    def _concrete(self) -> Any:
        """The value, of the type that it has in eager code."""
        return self._kind(int(self))

    def _combined(self, other: Any, op: Callable[[Any, Any], Any], swapped: bool) -> Any:
        """The result of `self op other`, for sums, differences and products."""
        other = self._beside(other)
        kind = type(other)
        if kind is IntProxy or kind is int or kind is bool:
            value, size, real = (
                (other._value, other._bound, other._number) if kind is IntProxy else (other, abs(other), other)
            )
            bound, shares = self._bound * size, self._times(0 if kind is IntProxy else other)
            if op is not operator.mul:
                shares = {**self._shares}
                for key, share in other._shares.items() if kind is IntProxy else ():
                    shares[key] = shares.get(key, 0) + share * (-1 if op is operator.sub else 1)
                rests = self._rest + (other._rest if kind is IntProxy else size)
                bound = math.ceil(sum(map(abs, shares.values())) * LARGEST) + rests
            asks = self._asks or (kind is IntProxy and other._asks)
            if bound <= EXACT:
                of = other._kind if kind is IntProxy and self._kind is int else self._kind
                mine, other = (self._number, self._value), (real if kind is IntProxy else float(real), value)
                (a, m), (b, n) = (other, mine) if swapped else (mine, other)
                number: Any = op(a, b)
                number = number + 0.0 if op is operator.mul else number  # 0 * -1 is no -0.0
                return IntProxy(self._tracer, number, _value(op, m, n), bound, of, asks, shares)
        return self._applied(other, op, swapped)

    def takes_step(self, step: Size | None) -> bool:
        """Whether it has no value, so that what is computed with numbers of steps, or this one, is of the graph."""
        return self._value is None and (step is None or bound_of_step(step) is not None)

    def _beside(self, other: Any) -> Any:
        """The number of a step of a loop, for which one step stands, as an int of the graph beside one that has no
        value; any other operand as it is."""
        bound = bound_of_step(other) if is_dim(other) and self._value is None else None
        return other if bound is None else IntProxy(self._tracer, ScalarProxy(self._tracer.size(other)), None, bound)

    def _applied(self, other: Any, op: Callable[[Any, Any], Any], swapped: bool) -> Any:
        """Applies `op`: with floats and scalar proxies as a float, with anything but a tensor as the int itself."""
        kind = type(other)
        if issubclass(kind, Tensor) or getattr(kind, "is_late", False):
            return NotImplemented
        one: Any = self._number if kind is float or kind is ScalarProxy else self._concrete()
        return op(other, one) if swapped else op(one, other)

    def _reduced(self, other: Any, op: Callable[[Any, Any], Any], swapped: bool) -> Any:
        """The remainder or quotient by a number of Python's, where it asks, or of two that have no values."""
        other = self._beside(other)
        kind = type(other)
        if self._value is None and ((kind is int and abs(other) <= LARGEST) or kind is IntProxy):
            a, b = (other, self) if swapped else (self, other)
            if type(b) is IntProxy and max(self._bound, abs(other) if kind is int else other._bound) <= EXACT:
                return self._of_two(a, b, op)
        if not self._asks or swapped or type(other) is not int or not 0 < other <= LARGEST:
            return self._applied(other, op, swapped)
        number: Any = self._number
        bound, shares = other, self._times(0 if op is operator.mod else 1 / other)
        if op is not operator.mod:
            bound = math.ceil(self._gain / other * LARGEST) + self._rest // other + 2  # downwards
        value = _value(op, self._value, other)
        return IntProxy(self._tracer, op(number, float(other)), value, bound, self._kind, True, shares)

    def _of_two(self, a: Any, b: IntProxy, op: Callable[[Any, Any], Any]) -> Any:
        """The remainder or quotient of an int by one that data decides, which is below it in size."""
        if b._is_zero():
            return op(concrete_value(a), b._concrete())
        real: Any = a._number if type(a) is IntProxy else float(a)
        of = a if op is not operator.mod else b
        bound, gain = (of._bound, of._gain) if type(of) is IntProxy else (abs(of), 0.0)
        number = op(real, b._number) + 0.0  # no -0.0
        return IntProxy(self._tracer, number, None, bound + 1, self._kind, True, {object(): gain})

    def _compared(self, other: Any, op: Callable[[Any, Any], Any], swapped: bool) -> Any:
        """A comparison, where it asks a question that each call answers; otherwise one of the int itself."""
        other = self._beside(other)
        of_int = type(other) is IntProxy or (type(other) is int and abs(other) <= EXACT)
        if self._kind is int and of_int and (self._asks or (type(other) is IntProxy and other._asks)):
            return op(self._number, other._number if type(other) is IntProxy else float(other))
        return self._applied(other, op, swapped)

    def __bool__(self) -> bool:
        return bool(self._compared(0, operator.ne, False))

    def __abs__(self) -> Any:
        number: Any = self._number
        value, shares = _value(abs, self._value), {object(): self._gain}
        return IntProxy(self._tracer, abs(number), value, self._bound, self._kind, self._asks, shares)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _is_zero(self) -> bool:
        if self._value is None:
            return not self._tracer.read(self._number._tensor, "nonzero", "a division")
        return self._value == 0

    def _divided(self, other: Any, swapped: bool) -> Any:
        given, other = other, self._beside(other)
        kind = type(other)
        if kind is IntProxy or (kind is int and abs(other) <= EXACT):
            divisor = self if swapped else other
            is_above = divisor is not self and is_dim(given) and (bounds(given) or 0) > 0
            if not is_above and (divisor._is_zero() if type(divisor) is IntProxy else divisor == 0):
                other = concrete_value(other)
                return other / self._concrete() if swapped else self._concrete() / other  # as Python does, or NumPy
            number: Any = other._number if kind is IntProxy else float(other)
            return number / self._number if swapped else self._number / number
        return self._applied(other, operator.truediv, swapped)

    def __truediv__(self, other: Any) -> Any:
        return self._divided(other, False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._divided(other, True)

    def __neg__(self) -> Any:
        number: Any = self._number
        value = _value(operator.neg, self._value)
        shares = self._times(-1)
        return IntProxy(self._tracer, 0.0 - number, value, self._bound, self._kind, self._asks, shares)

    def __repr__(self) -> str:
        return self._said(repr, False) if is_in_force(self._tracer) else f"IntProxy({self._value})"

    def __str__(self) -> str:
        return self._said(str, False)


# Methods of the class -> the operators that they do.
_WAYS: dict[Callable[..., Any], str] = {
    IntProxy._combined: "add sub mul",
    IntProxy._reduced: "floordiv mod",
    IntProxy._compared: "eq ne lt le gt ge",
    IntProxy._applied: "pow lshift rshift and_ or_ xor matmul",
}


def bound_of_step(step: Size) -> int | None:
    """The bound of the absolute value of the number of a step; None of other sizes."""
    low, high = bounds(step), bounds(-step)
    return None if not is_step(step) or low is None or high is None else max(abs(low), abs(high))


def _value(op: Callable[..., int], *values: int | None) -> int | None:
    """The value in a trace of what is computed from such values."""
    return None if None in values else op(*values)


def _method(way: Callable[..., Any], op: Callable[[Any, Any], Any], swapped: bool) -> Callable[[IntProxy, Any], Any]:
    return lambda self, other: way(self, other, op, swapped)


def _operators() -> None:
    """Adds the methods that Python looks up on the class."""
    for way, names in _WAYS.items():
        for name in names.split():
            op = getattr(operator, name)
            setattr(IntProxy, f"__{name.rstrip('_')}__", _method(way, op, False))
            if way is not IntProxy._compared:
                setattr(IntProxy, f"__r{name.rstrip('_')}__", _method(way, op, True))


_operators()
