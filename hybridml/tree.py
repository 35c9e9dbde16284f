"""Nested containers of leaves: tuples, lists, dicts, named tuples and dataclasses, taken apart and put together."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hybridml_compiler.errors import ArgumentError


class Structure(NamedTuple):
    """Shape of a container: hashable and comparable. A leaf has kind None."""

    kind: Any
    keys: tuple[Any, ...]
    children: tuple[Any, ...]
    factory: Any = None  # of a defaultdict


LEAF = Structure(None, (), ())


def flatten(tree: Any, leaves: list[Any]) -> Structure:
    """Append the leaves of `tree` to `leaves`, left to right; the result says how to put them back."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return Structure(kind, (), tuple([flatten(child, leaves) for child in tree]))
    if isinstance(tree, dict):
        children = tuple([flatten(child, leaves) for child in tree.values()])
        return Structure(kind, tuple(tree), children, getattr(tree, "default_factory", None))
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return Structure(kind, (), tuple([flatten(child, leaves) for child in tree]))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = tuple(dict.fromkeys([*(f.name for f in dataclasses.fields(tree)), *getattr(tree, "__dict__", ())]))
        return Structure(kind, names, tuple([flatten(getattr(tree, n), leaves) for n in names]))
    leaves.append(tree)
    return LEAF


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The inverse of `flatten`."""
    return _build(structure, iter(leaves))


def _build(s: Structure, leaves: Any) -> Any:
    kind = s.kind
    if kind is None:
        return next(leaves)
    children = [_build(child, leaves) for child in s.children]
    if kind is list:
        return children
    if kind is tuple:
        return tuple(children)
    if issubclass(kind, dict):
        items = zip(s.keys, children, strict=True)
        return kind(s.factory, items) if issubclass(kind, defaultdict) else kind(items)
    if issubclass(kind, tuple):
        return kind(*children)
    made = object.__new__(kind)  # a dataclass as it was, whatever its __init__ computes
    for name, child in zip(s.keys, children, strict=True):
        object.__setattr__(made, name, child)
    return made


def tree_map(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`fn` of the corresponding leaves of containers with one structure.

    >>> tree_map(lambda a, b: a + b, {"x": 1, "y": (2, 3)}, {"x": 10, "y": (20, 30)})
    {'x': 11, 'y': (22, 33)}
    """
    leaves: list[Any] = []
    structure = flatten(tree, leaves)
    columns = [leaves]
    for other in others:
        column: list[Any] = []
        if flatten(other, column) != structure:
            raise ArgumentError("tree_map: the containers differ in structure")
        columns.append(column)
    return unflatten(structure, [fn(*row) for row in zip(*columns, strict=True)])


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves, left to right."""
    leaves: list[Any] = []
    flatten(tree, leaves)
    return leaves
