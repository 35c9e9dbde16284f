"""Guards beyond a call's arguments: places in Python's own objects that must hold the same objects as before.

Identity is compared: an equal object in the place of another is a call that goes to the fallback ([Note: Runtime] has
times).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

import numpy as np

from hybridml_compiler.targets.cpu.python_entry.object_layout import Layout

from ....record import record

ABSENT = object()  # the value of a key that a dict does not have
PLACE_WORD, PLACE_ITEMS, PLACE_ENTRY, PLACE_KEYS = 0, 1, 2, 3
Row = dict[str, int]


@record(eq=False)
class CellHolds:
    """A variable of an enclosing function."""

    cell: CellType
    value: object

    def holds(self) -> bool:
        try:
            return self.cell.cell_contents is self.value
        except ValueError:  # empty
            return False

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        return [{"kind": PLACE_WORD, "owner": id(self.cell) + layout.cell_contents, "expected": id(self.value)}]


@record(eq=False)
class ListHolds:
    """The length of a list and its items; `owner` is exactly a list."""

    owner: list[Any]
    items: tuple[object, ...]

    def holds(self) -> bool:
        same = len(self.owner) == len(self.items)
        return same and all(a is b for a, b in zip(self.owner, self.items, strict=True))

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        count, at = len(self.items), id(self.owner)
        items = words([id(item) for item in self.items])
        return [
            {"kind": PLACE_WORD, "owner": at + layout.list_size, "expected": count},
            {"kind": PLACE_ITEMS, "owner": at + layout.list_items, "key": count, "expected": items},
        ]


@record(eq=False)
class EntryHolds:
    """The value of a string key of a dict, or `ABSENT`."""

    owner: dict[Any, Any]
    key: str
    value: object

    def holds(self) -> bool:
        try:
            return dict.get(self.owner, self.key, ABSENT) is self.value
        except Exception:  # of a key that was compared
            return False

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        expected = 0 if self.value is ABSENT else id(self.value)
        return [{"kind": PLACE_ENTRY, "owner": id(self.owner), "key": id(self.key), "expected": expected}]


@record(eq=False)
class DictSize:
    """The number of entries of a dict."""

    owner: dict[Any, Any]
    size: int

    def holds(self) -> bool:
        return dict.__len__(self.owner) == self.size

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        return [{"kind": PLACE_WORD, "owner": id(self.owner) + layout.dict_size, "expected": self.size}]


@record(eq=False)
class KeysHold:
    """The keys of a dict, in their order; `owner` is exactly a dict."""

    owner: dict[Any, Any]
    keys: tuple[object, ...]

    def holds(self) -> bool:
        same = len(self.owner) == len(self.keys)
        return same and all(a is b for a, b in zip(self.owner, self.keys, strict=True))

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        count, at = len(self.keys), id(self.owner)
        keys = words([id(key) for key in self.keys])
        return [
            {"kind": PLACE_WORD, "owner": at + layout.dict_size, "expected": count},
            {"kind": PLACE_KEYS, "owner": at, "key": count, "expected": keys},
        ]


@record(eq=False)
class FunctionHolds:
    """The code of a function, or its default values (None is a null pointer)."""

    owner: FunctionType
    part: str  # one of layout.FUNCTION_PARTS
    value: object

    def holds(self) -> bool:
        return getattr(self.owner, self.part) is self.value

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        expected = 0 if self.value is None else id(self.value)
        return [{"kind": PLACE_WORD, "owner": id(self.owner) + layout.function[self.part], "expected": expected}]


@record(eq=False)
class ClassHolds:
    """The class of an object."""

    owner: object
    value: type

    def holds(self) -> bool:
        return type(self.owner) is self.value

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        return [{"kind": PLACE_WORD, "owner": id(self.owner) + layout.type, "expected": id(self.value)}]


@record(eq=False)
class OrderHolds:
    """The method resolution order of a class, which is another one where its bases are."""

    owner: type
    value: tuple[type, ...]

    def holds(self) -> bool:
        return self.owner.__mro__ is self.value

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        return [{"kind": PLACE_WORD, "owner": id(self.owner) + layout.type_order, "expected": id(self.value)}]


@record(eq=False)
class FormHolds:
    """Shape, dtype, strides and flags of an array."""

    owner: np.ndarray
    form: tuple[object, ...]  # shape, dtype, strides, whether it is writeable

    def holds(self) -> bool:
        a = self.owner
        return (a.shape, a.dtype, a.strides, a.flags.writeable) == self.form

    def rows(self, layout: Layout, words: Callable[[Sequence[int]], int]) -> list[Row]:
        at, count = id(self.owner), 2 * self.owner.ndim  # NumPy keeps the strides behind the shape
        fields = [at + layout.array.offset(name) for name in ("nd", "flags", "descr")]
        found = [{"kind": PLACE_WORD, "owner": p, "expected": ctypes.c_int64.from_address(p).value} for p in fields]
        sizes = words([*self.owner.shape, *self.owner.strides])
        return [
            *found,
            {"kind": PLACE_ITEMS, "owner": at + layout.array.offset("dims"), "key": count, "expected": sizes},
        ]


Place = CellHolds | ListHolds | EntryHolds | DictSize | KeysHold | FunctionHolds | ClassHolds | OrderHolds | FormHolds
