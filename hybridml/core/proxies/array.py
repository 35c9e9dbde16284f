"""The proxy of a NumPy array among the arguments of a function that is traced, where it is no array of the program
(see tracing/capture/waiting_arrays.py): one with gaps in its memory, of another class, of a dtype without tensors.

What is computed with such an array and a tensor is a tensor, in eager code as in the graph; so the array is an input of
the program, whatever its values. What NumPy alone makes of it (`a * 2`, `a[0]`, `np.sin(a)`, `a.flags`) is NumPy's, and
no graph has it: such calls run eagerly, which is said with the line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.errors import DTypeError, is_internal

from ..tensor import Tensor
from .base import Proxy

_SAME = frozenset(("shape", "ndim", "nbytes", "itemsize"))


class ArrayProxy(Proxy):
    """An array among the arguments. `refuse` makes the exception for an operation, by name, that only NumPy can do."""

    __slots__ = ("__weakref__", "_given", "_lift", "_made", "_refuse")

    def __init__(self, array: np.ndarray, lift: Callable[[], Tensor], refuse: Callable[[str], BaseException]) -> None:
        self._given, self._lift, self._refuse = array, lift, refuse
        self._made: Tensor | None = None

    @property
    def _kind(self) -> Any:
        return type(self._given)

    def _class_error(self) -> BaseException:
        return self._refuse("__class__")

    @property
    def _tensor(self) -> Tensor:
        """The input of the graph, made when it is first asked for."""
        if self._made is None:
            if type(self._given) is not np.ndarray:
                raise self._refuse(f"a {type(self._given).__name__}")
            try:
                self._made = self._lift()
            except DTypeError:
                raise self._refuse(f"of {self._given.dtype}") from None
        return self._made

    @property
    def dtype(self) -> np.dtype:
        return self._given.dtype

    @property
    def size(self) -> int:
        return self._tensor.numel()

    def __len__(self) -> int:
        return len(self._tensor)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if type(self._given) is np.ndarray and (name in _SAME or (hasattr(Tensor, name) and _is_ours(2))):
            return getattr(self._tensor, name)
        if not hasattr(self._given, name):
            raise AttributeError(f"'{type(self._given).__name__}' object has no attribute {name!r}")
        raise self._refuse(name)

    def _store(self, result: Tensor) -> None:
        raise self._refuse("out=")

    def _by_numpy(self, ufunc: Any, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise self._refuse(f"np.{ufunc.__name__}")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(kind, Tensor) for kind in types):
            return NotImplemented
        raise self._refuse(f"np.{func.__name__}")


def _is_ours(depth: int) -> bool:
    """Whether the framework itself converts the array: the result will be a tensor."""
    return is_internal(sys._getframe(depth).f_code.co_filename)


def _operator(method: str) -> Callable[[ArrayProxy, Any], Any]:
    def computed(self: ArrayProxy, other: Any) -> Any:
        if not isinstance(other, Tensor) and not _is_ours(2):
            raise self._refuse(method)
        return getattr(self._tensor, method)(other)

    return computed


def _refused(method: str) -> Callable[..., Any]:
    def refused(self: ArrayProxy, *args: Any, **kwargs: Any) -> Any:
        if hasattr(Tensor, method) and method != "__iter__" and _is_ours(2):
            return getattr(self._tensor, method)(*args, **kwargs)
        raise self._refuse(method)

    return refused


_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_OTHERS = (
    "array bool bytes complex contains copy deepcopy delitem divmod dlpack float format getitem index int invert iter "
    "neg pos abs rdivmod reduce reduce_ex repr setitem str"
)


def install() -> None:
    """Adds the methods that Python looks up on the class."""
    for name in _BINARY.split():
        for method in (f"__{name}__", f"__r{name}__"):
            setattr(ArrayProxy, method, _operator(method))
        setattr(ArrayProxy, f"__i{name}__", _refused(f"__i{name}__"))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(ArrayProxy, f"__{name}__", _operator(f"__{name}__"))
    for name in _OTHERS.split():
        setattr(ArrayProxy, f"__{name}__", _refused(f"__{name}__"))


install()
