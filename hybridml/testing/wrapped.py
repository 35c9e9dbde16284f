"""Functions, methods and operators that run through `@trace`, on arrays that wrap tensors.

A function has one traced function, so that new shapes, dtypes and values meet its guards, its symbolic sizes and its
earlier programs, as they do in a program that runs for long.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from hybridml.core.pytree import tree_map
from hybridml.core.tensor import Device, Tensor
from hybridml.tracing.function import TracedFunction

FRESH_AFTER = 200  # programs of one traced function; with 256 it would start to run new signatures eagerly


class Array:
    """A tensor whose methods and operators are traced calls. `tensor` is the tensor itself."""

    __slots__ = ("tensor",)
    __hash__ = object.__hash__

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    shape = property(lambda self: self.tensor.shape)
    dtype = property(lambda self: self.tensor.dtype)
    ndim = property(lambda self: self.tensor.ndim)
    size = property(lambda self: self.tensor.size)
    device = property(lambda self: self.tensor.device)

    def __repr__(self) -> str:
        return repr(self.tensor)

    def __len__(self) -> int:
        return len(self.tensor)

    def __setitem__(self, key: Any, value: Any) -> None:
        _setitem(self, key, value)

    # What belongs to no program: memory and names.

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return self.tensor.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.tensor.__array__(dtype, copy)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        self.tensor.__array_namespace__(api_version=api_version)  # raises for versions that are not known
        return sys.modules[f"{__package__}.traced"]

    def to_device(self, device: Device, /, *, stream: Any = None) -> Array:
        return Array(self.tensor.to_device(device, stream=stream))


def _bare(x: Any) -> Any:
    return tree_map(lambda leaf: leaf.tensor if isinstance(leaf, Array) else leaf, x)


def _wrapped(x: Any) -> Any:
    return tree_map(lambda leaf: Array(leaf) if isinstance(leaf, Tensor) else leaf, x)


def through_trace(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function on `Array`s that runs `fn` traced."""
    traced = TracedFunction(fn, silent=True)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal traced
        if traced.cache_info().entries >= FRESH_AFTER:
            traced = TracedFunction(fn, silent=True)
        return _wrapped(traced(*_bare(args), **_bare(kwargs)))

    return call


def namespace(source: Any, names: Iterable[str]) -> dict[str, Any]:
    """The members of a module: functions through trace; everything else, and what it says of itself, as they are."""
    members = {name: getattr(source, name) for name in names}
    traced = {n for n, m in members.items() if isinstance(m, types.FunctionType) and not n.startswith("__")}
    return {n: through_trace(m) if n in traced else m for n, m in members.items()}


# -- methods and operators


def _method(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *others: Any) -> Any:
        return getattr(Tensor, name)(self, *others)

    call = through_trace(method)
    unary: Callable[..., Any] = lambda self: call(self)  # noqa: E731
    binary: Callable[..., Any] = lambda self, other: call(self, other)  # noqa: E731
    return unary if name in ("__abs__", "__invert__", "__neg__", "__pos__") else binary


def _in_place(name: str) -> Callable[..., Any]:
    def update(x: Tensor, other: Any) -> None:
        getattr(operator, name)(x, other)

    call = through_trace(update)

    def method(self: Array, other: Any) -> Array:
        call(self, other)
        return self

    return method


def _property(name: str) -> property:
    return property(through_trace(lambda x: getattr(x, name)))


def _number(convert: Callable[[Any], Any]) -> Callable[[Array], Any]:
    call = through_trace(lambda x: convert(x))
    return lambda self: call(self)


def _getitem(self: Array, key: Any, /) -> Array:
    found: Array = _get(self, key)
    return found


_get = through_trace(lambda x, key: x[key])
_setitem = through_trace(lambda x, key, value: x.__setitem__(key, value))
_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
)
_METHODS = (
    *("__abs__", "__invert__", "__neg__", "__pos__"),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", *_ARITHMETIC)),
    *(f"__r{name}__" for name in _ARITHMETIC),
)

_SLOTS: dict[str, Any] = {
    **{name: _method(name) for name in _METHODS},
    **{f"__i{name}__": _in_place(f"i{name}") for name in _ARITHMETIC},
    **{name: _property(name) for name in ("T", "mT")},
    **{f"__{convert.__name__}__": _number(convert) for convert in (bool, int, float, complex)},
    "__index__": _number(operator.index),
    "__getitem__": _getitem,
}
for _name, _slot in _SLOTS.items():
    setattr(Array, _name, _slot)
