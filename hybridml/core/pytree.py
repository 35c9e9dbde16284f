"""Nested containers of leaves: tuples, lists, dicts, named tuples and dataclasses, taken apart and put together."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from numbers import Number
from typing import Any, NamedTuple

from hybridml_compiler.errors import ArgumentError


class Structure(NamedTuple):
    """Shape of a container: hashable and comparable. A leaf has kind None; where a container comes once more there is
    kind `Again`, with its number in `keys`.
    """

    kind: Any
    keys: tuple[Any, ...]
    children: tuple[Any, ...]
    factory: Any = None  # of a class of dicts: the default_factory, and the names of its attributes
    kinds: Any = None  # of a dict's keys in a call, where one is no str (see `kind_of_key`)


class Again:
    """Kind of a container's second occurrence (see `Structure`)."""


class Made:
    """Kind of a leaf that is made of others, by the function in `keys` (see `graft`)."""


LEAF = Structure(None, (), ())


# Id of a container that has been taken apart -> its number; negative: it is known, and stays whole.
Met = dict[int, int]
_kinds: dict[type, bool] = {}
_structure = partial(tuple.__new__, Structure)  # a third of the time of `Structure(...)`, which every call pays


def is_container(tree: Any) -> bool:
    """Whether `flatten` takes it apart."""
    kind = type(tree)
    found = _kinds.get(kind)
    if found is None:
        if len(_kinds) > 1000:  # every trace has classes of its own
            _kinds.clear()
        named = issubclass(kind, tuple) and hasattr(kind, "_fields")
        found = kind in (tuple, list) or issubclass(kind, dict) or named or dataclasses.is_dataclass(kind)
        _kinds[kind] = found
    return found


def flatten(tree: Any, leaves: list[Any], met: Met | None = None) -> Structure:
    """Appends the leaves of `tree` to `leaves`, left to right; the result says how to put them back.

    With `met` a container that is there twice is taken apart once, and is one again when it is put back; without, there
    will be two. Keys that are equal are the same ones without `met`; with it they must be of one kind, too.
    """
    kind = type(tree)
    found = _kinds.get(kind)
    if not (is_container(tree) if found is None else found):
        leaves.append(tree)
        return LEAF
    if met is not None:
        number = met.get(id(tree))
        if number is not None:
            return Structure(Again, (number,), ())
        met[id(tree)] = len(met)
    if kind is tuple or kind is list or isinstance(tree, tuple):
        return _structure((kind, (), tuple([flatten(child, leaves, met) for child in tree]), None, None))
    if kind is dict:
        children = tuple([flatten(child, leaves, met) for child in tree.values()])
        return _structure((kind, tuple(tree), children, None, None if met is None else _kinds_of_keys(tree)))
    if isinstance(tree, dict):
        children = tuple([flatten(child, leaves, met) for child in (*tree.values(), *_attributes(tree).values())])
        factory = tree.default_factory if isinstance(tree, defaultdict) else None
        kinds = None if met is None else _kinds_of_keys(tree)
        return Structure(kind, tuple(tree), children, (factory, *_attributes(tree)), kinds)
    names = _names(tree)
    return _structure((kind, names, tuple([flatten(getattr(tree, n), leaves, met) for n in names]), None, None))


def _kinds_of_keys(tree: dict[Any, Any]) -> tuple[Any, ...] | None:
    for key in tree:
        if type(key) is not str:
            return tuple(map(kind_of_key, tree))
    return None


def kind_of_key(key: Any) -> Any:
    """The classes of a key and of its parts, which tell it from others that it is equal to; of a number also its text,
    as 0.0 == -0.0."""
    kind = type(key)
    if issubclass(kind, tuple):
        return kind, *map(kind_of_key, key)
    if issubclass(kind, frozenset):
        return kind, frozenset((item, kind_of_key(item)) for item in key)
    if dataclasses.is_dataclass(kind):
        return kind, *(kind_of_key(getattr(key, field.name, None)) for field in dataclasses.fields(kind))
    return (kind, repr(key)) if kind not in (int, bool) and issubclass(kind, Number) else kind


def is_same_key(key: Any, other: Any) -> bool:
    """Whether a program made with one key is that of the other."""
    return type(key) is type(other) and key == other and kind_of_key(key) == kind_of_key(other)


def _names(tree: Any) -> tuple[str, ...]:
    """The attributes of a dataclass."""
    return tuple(dict.fromkeys([*(f.name for f in dataclasses.fields(tree)), *getattr(tree, "__dict__", ())]))


def _attributes(tree: Any) -> dict[str, Any]:
    """The attributes of a dict of some class."""
    return vars(tree) if hasattr(tree, "__dict__") else {}


def graft(s: Structure, leaves: Iterator[Any], parts: Callable[[Any], Any], found: list[Any]) -> Structure:
    """The structure in which leaves are made of their parts, where `parts(leaf)` is a function and its arguments and
    not None; `found` gets the leaves of this one."""
    if s.kind is not None:
        return s._replace(children=tuple([graft(child, leaves, parts, found) for child in s.children]))
    leaf = next(leaves)
    made = parts(leaf)
    if made is None:
        found.append(leaf)
        return LEAF
    op, operands = made
    return Structure(Made, (op,), tuple([graft(LEAF, iter((x,)), parts, found) for x in operands]))


def containers(tree: Any) -> dict[int, Any]:
    """The containers of a tree by the numbers that `flatten` gives them."""
    found: dict[int, Any] = {}  # by id, in this order
    pending = [tree]
    while pending:
        item = pending.pop()
        if is_container(item) and id(item) not in found:
            found[id(item)] = item
            if type(item) is list or isinstance(item, tuple):
                inside = list(item)
            elif isinstance(item, dict):
                inside = [*item.values(), *_attributes(item).values()]
            else:
                inside = [getattr(item, n) for n in _names(item)]
            pending += inside[::-1]
    return dict(enumerate(found.values()))


def unflatten(structure: Structure, leaves: Iterable[Any], made: dict[int, Any] | None = None, known: int = 0) -> Any:
    """The inverse of `flatten`. `made`: the containers by their numbers, with the known ones that are needed; it gets
    those that are made. `known`: how many `flatten` knew."""
    return _build(structure, iter(leaves), {} if made is None else made, count(known))


def _build(s: Structure, leaves: Any, made: dict[int, Any], numbers: Iterator[int]) -> Any:
    kind = s.kind
    if kind is None:
        return next(leaves)
    if kind is Again:
        if s.keys[0] not in made:
            raise ArgumentError("a container that contains itself has no copy if it is no list or dict; pass its parts")
        return made[s.keys[0]]
    if kind is Made:
        return s.keys[0](*[_build(child, leaves, made, numbers) for child in s.children])
    number = next(numbers)
    if kind is list or kind is dict:  # there before what it holds, which it may be part of
        built: Any = kind()
        made[number] = built
        children = [_build(child, leaves, made, numbers) for child in s.children]
        built.extend(children) if kind is list else built.update(zip(s.keys, children, strict=True))
    else:
        made[number] = built = _container(s, [_build(child, leaves, made, numbers) for child in s.children])
    return built


def _container(s: Structure, children: list[Any]) -> Any:
    kind = s.kind
    if kind is tuple:
        return tuple(children)
    if issubclass(kind, dict):
        base = next(base for base in kind.__mro__ if base in (OrderedDict, dict))  # whatever its __init__ computes
        copy = kind.__new__(kind)
        base.update(copy, zip(s.keys, children[: len(s.keys)], strict=True))
        factory, *names = s.factory
        if factory is not None:
            copy.default_factory = factory
        if names:
            vars(copy).update(zip(names, children[len(s.keys) :], strict=True))
        return copy
    if issubclass(kind, tuple):
        return kind(*children)
    made = object.__new__(kind)  # a dataclass as it was, whatever its __init__ computes
    for name, child in zip(s.keys, children, strict=True):
        object.__setattr__(made, name, child)
    return made


def is_cyclic(structure: Structure, known: int = 0) -> bool:
    """Whether a container contains itself in a way that none can be made: by what is no list or dict. `known`: how many
    `flatten` knew."""
    numbers, inside = count(known), set[int]()

    def found(s: Structure) -> bool:
        if s.kind is None or s.kind is Again:
            return s.kind is Again and s.keys[0] in inside
        number = next(numbers)
        if s.kind not in (list, dict):
            inside.add(number)
        answer = any([found(child) for child in s.children])
        inside.discard(number)
        return answer

    return found(structure)


def known_in(structure: Structure) -> set[int]:
    """The numbers of known containers that a structure has as a whole."""
    if structure.kind is Again:
        return {k for k in structure.keys if k < 0}
    return set().union(*map(known_in, structure.children))


def tree_map(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Applies `fn` to the corresponding leaves of containers with one structure.

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
    """The leaves, left to right.

    >>> import hybridml as hm
    >>> hm.tree_leaves({"w": 1, "b": [2, (3, None)]})
    [1, 2, 3, None]
    """
    leaves: list[Any] = []
    flatten(tree, leaves)
    return leaves
