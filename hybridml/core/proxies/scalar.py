"""The proxy of a float inside a trace: one that is an input, or that `item()` has given.

Arithmetic of such numbers is part of the graph, as float64, as Python computes it, so another value is no other
program. All that only Python can do with a number (format it, hash it, give it to `math`) asks for the value, which the
trace then holds for: see tracing/specialize/path_tree.py. No number is a `Tensor`: to `isinstance`, `hasattr` and
`match` it is the float, or NumPy's float64, that it is in eager code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.hooks import hooks
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import is_dim

from ..context import current_interpreter
from ..tensor import Tensor, leaked, wrap
from .base import UFUNCS, NumberProxy, Proxy, concrete_value, is_array
from .complex import ComplexProxy

_KINDS = (float, int, bool)
CHECKS = ("isfinite", "isinf", "isnan")  # of NumPy and of Python's `math`, and rows


class ScalarProxy(NumberProxy):
    """A float inside a trace. `tensor`: the 0-d tensor of the trace that computes it."""

    __slots__ = ("__weakref__", "_tensor")

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    @property
    def _kind(self) -> Any:
        return np.float64 if self._tensor.is_double else float

    def _concrete(self) -> Any:
        interp = current_interpreter()
        if interp is None:
            raise leaked(self._tensor)
        return self._kind(interp.read(self._tensor, "number", "the value of a number"))

    def __bool__(self) -> bool:
        return bool(self._tensor)

    def __int__(self) -> int:
        return int(self._tensor)

    def __trunc__(self) -> Any:
        found = NumberProxy.whole(self, "trunc")
        return int(self) if found is None else found

    def __index__(self) -> int:
        return operator.index(self._concrete())

    @property
    def real(self) -> Any:
        return self

    def is_integer(self) -> bool:
        return bool(operator.mod(self, 1) == 0.0)

    def __repr__(self) -> str:
        return self._said(repr, False) if current_interpreter() is not None else repr(self._tensor)

    def __str__(self) -> str:
        return self._said(str, False) if current_interpreter() is not None else repr(self._tensor)

    def __floor__(self) -> Any:
        found = NumberProxy.whole(self, "floor")
        return int(operator.floordiv(self, 1)) if found is None else found

    def __ceil__(self) -> Any:
        found = NumberProxy.whole(self, "ceil")
        return -int(-self // 1) if found is None else found

    def __neg__(self) -> Any:
        return _number(-self._tensor)

    def __abs__(self) -> Any:
        return _number(abs(self._tensor))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def check(self, name: str) -> bool:
        """Whether the number is finite, infinite or NaN, by the name of the row: a branch of the trace."""
        return bool(OPS[name].fn(self._tensor))

    def _by_numpy(self, ufunc: Any, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if ufunc.__name__ in CHECKS and call == "__call__" and not kwargs:
            return np.bool_(self.check(ufunc.__name__))
        return super()._by_numpy(ufunc, call, inputs, kwargs)

    def __getattr__(self, name: str) -> Any:
        if self._kind is np.float64 and name == "dtype":
            return self._tensor._array.dtype
        if self._kind is np.float64 and name == "item":
            return self._tensor.item
        return super().__getattr__(name)


def tensor_of(value: Any) -> Any:
    """The tensor behind the proxy of a number or an array; anything else as it is."""
    return value._tensor if issubclass(type(value), Proxy) and value._tensor is not None else value


def _number(t: Any) -> Any:
    return ScalarProxy(t) if isinstance(t, Tensor) and type(t).is_number else t


Op = Callable[[Any, Any], Any]
Method = Callable[[ScalarProxy, Any], Any]


def _computed(method: str, op: Op) -> Method:
    slot, swapped = getattr(Tensor, method), method[:3] == "__r"

    def computed(self: ScalarProxy, other: Any) -> Any:
        if getattr(type(other), "is_late", False):
            return NotImplemented
        if type(other) is np.float64 or is_array(other):
            found = type(self).by_numpy(UFUNCS[op], (other, self) if swapped else (self, other))
            if found is not None:
                return found
        if isinstance(other, np.float64) and type(other) is not np.float64 and (t := tensor_of(other)) is not other:
            return _number(slot(self._tensor, t))  # a scalar of NumPy's that the program computes
        if isinstance(other, complex):
            found = ComplexProxy.compute(op, *((other, self) if swapped else (self, other)))
            if found is not None:
                return found
        if type(other) is not ScalarProxy and isinstance(other, complex | np.generic):  # with rules of their own
            return op(other, self._concrete()) if swapped else op(self._concrete(), other)
        return _number(slot(self._tensor, tensor_of(hooks.size_as_float(other)) if is_dim(other) else other))

    return computed


def _compared(method: str, op: Op) -> Method:
    """A comparison as a Python bool: there are two of them, which `is` tells apart."""
    computed = _computed(method, op)

    def compared(self: ScalarProxy, other: Any) -> Any:
        out = computed(self, other)
        if type(out) is not ScalarProxy:  # NotImplemented, too
            return out
        double = any(isinstance(x, np.float64) for x in (self, other))
        return np.bool_(bool(out)) if double else bool(out)

    return compared


def _divided(method: str, op: Op) -> Method:
    """A quotient. Python divides no number by zero; tensors and NumPy's numbers give inf or nan."""
    computed, swapped = _computed(method, op), method[:3] == "__r"

    def divided(self: ScalarProxy, other: Any) -> Any:
        x, y = (other, self) if swapped else (self, other)
        if _are_pythons(x, y) and _is_zero(y):
            op(1.0, 0.0)  # raises the error of Python
        return computed(self, other)

    return divided


def _raised(method: str, op: Op) -> Method:
    """A power. The C library rounds one of Python's numbers in its own way; some are complex numbers or errors."""
    computed, swapped = _computed(method, op), method[:3] == "__r"
    row = OPS["python_power"]

    def raised(self: ScalarProxy, other: Any) -> Any:
        interp = current_interpreter()
        if interp is None or not _are_pythons(self, other):
            return computed(self, other)
        pair = (other, self) if swapped else (self, other)
        if any(isinstance(x, bool) for x in pair):
            return op(*map(concrete_value, pair))
        operands = [
            interp.lift(x._tensor) if type(x) is ScalarProxy else interp.constant(wrap(np.array(float(x))), True)
            for x in pair
        ]
        return ScalarProxy(*interp.apply(row, operands, {}))

    return raised


def _are_pythons(*values: Any) -> bool:
    return all(type(v) in _KINDS or is_dim(v) or (type(v) is ScalarProxy and not v._tensor.is_double) for v in values)


def _is_zero(y: Any) -> bool:
    if type(y) is not ScalarProxy:
        return bool(y == 0)  # of a step's number it may not be known
    interp = current_interpreter()
    return interp is not None and not interp.read(y._tensor, "nonzero", "a division")


_MAKERS: dict[Callable[[str, Op], Method], str] = {
    _computed: "add sub mul", _compared: "eq ne lt le gt ge", _divided: "truediv floordiv mod", _raised: "pow",
}  # fmt: skip


def install() -> None:
    """Adds the methods that Python looks up on the class, when those of tensors are there."""
    for make, names in _MAKERS.items():
        for name in names.split():
            op = getattr(operator, name)
            for method in (f"__{name}__", f"__r{name}__"):
                if hasattr(Tensor, method):
                    setattr(ScalarProxy, method, make(method, op))
