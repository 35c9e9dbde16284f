"""The proxy of a complex number inside a trace: one that steps of a loop decide, `cmath.exp(1j * k)`, `z = z * w`.

To `isinstance` it is Python's complex, or NumPy's complex128, that it is in eager code, with the bits of that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..context import current_interpreter
from ..tensor import Tensor, leaked
from .base import UFUNCS, NumberProxy, concrete_value, is_array


class ComplexProxy(NumberProxy):
    """A complex number inside a trace. `tensor`: the 0-d tensor of the trace that computes it."""

    __slots__ = ("__weakref__", "_tensor")
    # (function, numbers) -> what it makes of them, as a number of the trace; None where their values are asked for.
    # Set by tracing/capture/numbers/complex_numbers.py.
    compute: ClassVar[Callable[..., Any]] = staticmethod(lambda *_: None)

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    @property
    def _kind(self) -> Any:
        return np.complex128 if self._tensor.is_double else complex

    def _concrete(self) -> Any:
        interp = current_interpreter()
        if interp is None:
            raise leaked(self._tensor)
        return self._kind(interp.read(self._tensor, "array", "the value of a complex number").item())

    def __bool__(self) -> bool:
        return bool(operator.ne(self, 0))

    __hash__ = NumberProxy.__hash__

    def __repr__(self) -> str:
        return repr(self._concrete() if current_interpreter() is not None else self._tensor)

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        if self._kind is np.complex128 and name == "dtype":
            return self._tensor._array.dtype
        return super().__getattr__(name)


def conjugate(z: Any) -> Any:
    return z.conjugate()


def _computed(function: Callable[..., Any], *operands: Any) -> Any:
    if any(getattr(type(x), "is_late", False) for x in operands):
        return NotImplemented
    if any(map(is_array, operands)):
        found = NumberProxy.by_numpy(UFUNCS[function], operands)
    else:
        found = ComplexProxy.compute(function, *operands)
    return function(*map(concrete_value, operands)) if found is None else found


def _method(op: Callable[..., Any], name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    slot = getattr(Tensor, f"__{'r' * swapped}{name}__", None)

    def method(self: ComplexProxy, other: Any) -> Any:
        if isinstance(other, Tensor) and slot is not None:
            return slot(self._tensor, other)
        return _computed(op, other, self) if swapped else _computed(op, self, other)

    return method


def _of_one(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda self: _computed(function, self)


def install() -> None:
    """Adds the methods that Python looks up on the class, when those of tensors are there."""
    for name in ("add", "sub", "mul", "truediv", "pow"):
        for swapped in (False, True):
            setattr(ComplexProxy, f"__{'r' * swapped}{name}__", _method(getattr(operator, name), name, swapped))
    for name in ("eq", "ne"):
        setattr(ComplexProxy, f"__{name}__", _method(getattr(operator, name), name, False))
    for name, op in (("neg", operator.neg), ("abs", abs), ("conjugate", conjugate)):
        key = name if name == "conjugate" else f"__{name}__"
        setattr(ComplexProxy, key, _of_one(op))
    for name in ("real", "imag"):
        setattr(ComplexProxy, name, property(_of_one(operator.attrgetter(name))))
