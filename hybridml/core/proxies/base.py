"""Base classes of the proxies: their class, and how Python copies, prints and computes with a number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from hybridml_compiler.sizes.dims import is_dim

from ..tensor import Tensor


class Proxy:
    """A value inside a trace that comes with the call. To `isinstance`, `hasattr` and `match` it is what it is in eager
    code: its class there is `_kind`. `_tensor` is what the graph has of it, None where only a part is in the graph.
    """

    __slots__ = ()
    _tensor: Any = None
    _container: Any = None  # the copy of a container that it stands for, if it stands for one
    _kind: Any

    @property
    def __class__(self) -> Any:  # what `isinstance` looks at after the type itself
        return self._kind

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise self._class_error()

    def _class_error(self) -> BaseException:
        return TypeError("the class of a number cannot be assigned")

    def late(self) -> tuple[Callable[..., Any], Sequence[Any]] | None:
        """The function that makes the value when a call ends, and its arguments; None where none is to be made."""
        return None

    def _store(self, result: Tensor) -> None:
        """Takes the result of a function of NumPy, whose `out=` it is."""
        raise TypeError("return arrays must be of ArrayType")

    def __array_ufunc__(self, ufunc: Any, call: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented  # the tensor knows
        return self._by_numpy(ufunc, call, inputs, kwargs)

    def _by_numpy(self, ufunc: Any, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Applies a ufunc of NumPy to operands without tensors."""
        named = {k: concrete_value(v) for k, v in kwargs.items()}
        return getattr(ufunc, call)(*map(concrete_value, inputs), **named)


class NumberProxy(Proxy):
    """A number: what only Python can do with one asks for its value, and the program is specialized on that."""

    __slots__ = ()
    is_late: ClassVar[bool] = False  # it knows what is computed with it and others (see late.py)
    # (ufunc, operands without tensors) -> what NumPy makes of them, as a number of the trace; None where it asks for
    # their values. Set by tracing/capture/numpy_rules.py.
    by_numpy: ClassVar[Callable[[Any, tuple[Any, ...]], Any]] = staticmethod(lambda *_: None)
    # (float, how it is rounded) -> the int of the trace; None where the value is asked for. Set by
    # tracing/capture/numbers/whole_numbers.py.
    whole: ClassVar[Callable[[Any, str], Any]] = staticmethod(lambda *_: None)
    # (number or tensor, what makes a text of its value, whether that is `format`) -> the mark of the text in a trace;
    # None where it must be known. Set by tracing/capture/texts.py.
    text_of: ClassVar[Callable[[Any, Callable[[Any], str], bool], str | None]] = staticmethod(lambda *_: None)

    def _concrete(self) -> Any:
        """The value, of the type that it has in eager code."""
        raise NotImplementedError

    def _by_numpy(self, ufunc: Any, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = None if kwargs or call != "__call__" else type(self).by_numpy(ufunc, inputs)
        return super()._by_numpy(ufunc, call, inputs, kwargs) if found is None else found

    def __float__(self) -> float:
        return float(self._concrete())

    def __complex__(self) -> complex:
        return complex(self._concrete())

    def __hash__(self) -> int:
        return hash(self._concrete())

    def __format__(self, spec: str) -> str:
        return self._said(partial(_formatted, spec), True)

    def _said(self, op: Callable[[Any], str], formats: bool) -> str:
        """The text that `op` makes of the value, or what stands for it."""
        text = type(self).text_of(self, op, formats)
        return op(self._concrete()) if text is None else text

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._concrete(), digits)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return ~self._concrete()

    def __reduce__(self) -> Any:
        value = self._concrete()
        return type(value), (value,)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._concrete(), dtype)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._kind, name):
            raise AttributeError(f"'{self._kind.__name__}' object has no attribute {name!r}")
        return getattr(self._concrete(), name)


def _formatted(spec: str, value: Any) -> str:
    return format(value, spec)


# Operators -> what they are of NumPy's arrays.
UFUNCS: dict[Any, np.ufunc] = {getattr(operator, short): getattr(np, name) for short, name in (
    ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide"), ("floordiv", "floor_divide"),
    ("mod", "remainder"), ("pow", "power"), ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"),
    ("gt", "greater"), ("ge", "greater_equal"),
)}  # fmt: skip


def is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy's, or stands for one that a trace makes."""
    kind = type(value)
    return kind is np.ndarray or (issubclass(kind, Proxy) and issubclass(kind, NDArrayOperatorsMixin) and value.ndim)


def plain_key(key: Any) -> Any:
    """The key of a dict without proxies and symbolic sizes, on whose numbers the program is specialized."""
    if type(key) is tuple:
        return tuple(map(plain_key, key))
    return int(key) if is_dim(key) else concrete_value(key)


def concrete_value(value: Any) -> Any:
    """The number itself, on which the program is then specialized; anything else as it is."""
    return value._concrete() if issubclass(type(value), NumberProxy) else value
