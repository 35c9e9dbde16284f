"""Names for what a function reaches: `model.layer.weight`, as its user would write it.

Found by walking from the function's variables and the objects among its arguments, nearest first, through attributes,
containers and methods; by identity, so that what has no name keeps none. A tensor is named by a variable or attribute
before it is by a place in a container: `model.layers[0].conv.weight`, not `optimizer.param_groups[0]['params'][3]`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...core import pytree
from ...core.proxies.base import Proxy
from ...core.tensor import Tensor
from .libraries import is_library

_ATOMS = (Proxy, bool, int, float, complex, str, bytes, type(None), np.generic, np.ndarray, np.dtype, Tensor, type)
roots: dict[str, Any] = {}  # what code reaches through the library itself, by name: the default generator

_MOST = 20000  # objects that are looked at, as in guards.py
_MOST_ITEMS = 1000  # of one container


class Names:
    """`of(obj)`. The walk is made when first asked for, and once more when something new is not found."""

    def __init__(self, fn: Any, objects: Mapping[str, Any]) -> None:
        self._fn, self._objects = fn, objects
        self._found: dict[int, str] | None = None
        self._walks = 0
        self._attributes: set[int] = set()  # dicts that hold the attributes of an object

    def of(self, obj: Any) -> str | None:
        """The shortest way to an object; None where there is none."""
        if self._found is None or (id(obj) not in self._found and self._walks < 2):
            self._found, self._walks = self._walk(), self._walks + 1
        return self._found.get(id(obj))

    def forget(self) -> None:
        """The names that were found: a trace is kept for long."""
        self._found, self._walks = None, 0
        self._attributes.clear()

    def item(self, container: Any, key: Any) -> str:
        """An entry of a dict or list (or attribute) as the function writes it; the key where it does not."""
        path = self.of(container)
        if path is None:
            return str(key)
        return _attribute(path, str(key)) if id(container) in self._attributes else f"{path}[{key!r}]"

    def attribute(self, obj: Any, name: str) -> str:
        """An attribute of an object as the function writes it; its name where it does not."""
        path = self.of(obj)
        return name if path is None else f"{path}.{name}"

    def _walk(self) -> dict[int, str]:
        pending: list[tuple[str, Any]] = [*self._objects.items(), *_variables(self._fn)]
        pending += roots.items()
        found: dict[int, str] = {}
        kept: list[Any] = []  # an id is only good while its object lives
        items: list[tuple[str, Any]] = []  # tensors in containers, after all other ways to them
        late: list[tuple[str, Any]] = []  # the state of optimizers, after the names of its keys
        while pending and len(found) < _MOST:
            after: list[tuple[str, Any]] = []
            for path, item in pending:
                value = item._container if issubclass(type(item), Proxy) and item._container is not None else item
                if id(value) in found:
                    continue
                found[id(value)] = path
                kept.append(value)
                if isinstance(value, dict) and any(type(key) is Tensor for key in value):
                    late.append((path, value))
                else:
                    children = self._inside(path, value, found)
                    items += [child for child in children if _is_item(value, child[1])]
                    after += [child for child in children if not _is_item(value, child[1])]
            if not after:
                after, items = items, []
            if not after:
                after = [child for path, value in late for child in self._inside(path, value, found)]
                late = []
            pending = after
        return found

    def _inside(self, path: str, value: Any, found: Mapping[int, str]) -> Sequence[tuple[str, Any]]:
        children = _children(path, value, found)
        self._attributes.update(id(child) for of, child in children if of == path and type(child) is dict)
        return children


def _is_item(container: Any, child: Any) -> bool:
    return isinstance(container, dict | list | tuple) and issubclass(type(child), Tensor)


def _variables(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yields the variables that a function's code names: `self`, those of the enclosing function, globals; before them
    those of a function that it wraps."""
    if isinstance(fn, types.MethodType):
        yield "self", fn.__self__
        fn = fn.__func__
    if not isinstance(fn, types.FunctionType):
        if not isinstance(fn, types.BuiltinFunctionType):
            yield getattr(fn, "__name__", type(fn).__name__), fn
        return
    if "__wrapped__" in vars(fn):
        yield from _variables(vars(fn)["__wrapped__"])
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _named(fn.__code__):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _named(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant)


def _children(path: str, value: Any, found: Mapping[int, str]) -> Sequence[tuple[str, Any]]:
    if issubclass(type(value), _ATOMS):
        return ()
    if isinstance(value, dict):
        items = list(value.items())[:_MOST_ITEMS]
        return [
            (f"{path}[{repr(key) if isinstance(key, str | int) else found.get(id(key), '...')}]", child)
            for key, child in items
        ]
    if isinstance(value, list | tuple):
        return [(f"{path}[{k}]", child) for k, child in enumerate(value[:_MOST_ITEMS])]
    if isinstance(value, types.MethodType):
        return [(path, value.__self__), (path, value.__func__)]
    if isinstance(value, types.FunctionType):
        return [] if is_library(value.__module__ or "") else list(_variables(value))
    if isinstance(value, types.ModuleType):
        return [] if is_library(value.__name__) else _attributes(path, vars(value))
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None:
        return [(path, wrapped)]
    attributes = getattr(value, "__dict__", None)
    parts = _attributes(path, attributes) if isinstance(attributes, dict) else []
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                parts.append((_attribute(path, name), getattr(value, name)))
    return parts


def _attributes(path: str, attributes: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(path, attributes)] + [(_attribute(path, name), child) for name, child in list(attributes.items())]


def _attribute(path: str, name: str) -> str:
    return f"{path}[{name}]" if name.isdigit() else f"{path}.{name}"


def arguments(fn: Callable[..., Any], structure: pytree.Structure) -> Iterator[str]:
    """A name for each leaf of a call: `x`, `batch['mask']`, `layers[0]`."""
    for name, child in _parameters(fn, structure):
        yield from _leaves(child, name)


def changed(
    fn: Callable[..., Any], was: tuple[pytree.Structure, Sequence[Any]], now: tuple[pytree.Structure, Sequence[Any]]
) -> str:
    """The first argument whose structure or leaves are others."""
    before, after = iter(was[1]), iter(now[1])
    for (name, a), (_, b) in zip(_parameters(fn, was[0]), _parameters(fn, now[0]), strict=True):
        leaves = [[next(source) for _ in _leaves(child, name)] for source, child in ((before, a), (after, b))]
        if a != b or any(x is not y for x, y in zip(*leaves, strict=True)):
            return name
    return ""


def _parameters(fn: Callable[..., Any], structure: pytree.Structure) -> Iterator[tuple[str, pytree.Structure]]:
    args, *by_name = structure.children
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for k, child in enumerate(args.children):
        named = k < len(parameters) and parameters[k].kind is not inspect.Parameter.VAR_POSITIONAL
        yield parameters[k].name if named else f"number {k}", child
    for group in by_name:  # keyword arguments, and places that the function rebinds
        yield from zip(group.keys, group.children, strict=True)


def _leaves(s: pytree.Structure, name: str) -> Iterator[str]:
    if s.kind is None:
        yield name
    for k, child in enumerate(s.children):
        yield from _leaves(child, f"{name}[{s.keys[k]!r}]" if k < len(s.keys) else f"{name}[{k}]")
