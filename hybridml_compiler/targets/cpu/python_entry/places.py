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

from hybridml_compiler.targets.cpu.python_entry.block import PLACE, column, row, word
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
        fields = [at + offset for offset in (layout.array_nd, layout.array_flags, layout.array_descr)]
        found = [{"kind": PLACE_WORD, "owner": p, "expected": ctypes.c_int64.from_address(p).value} for p in fields]
        sizes = words([*self.owner.shape, *self.owner.strides])
        return [*found, {"kind": PLACE_ITEMS, "owner": at + layout.array_dims, "key": count, "expected": sizes}]


Place = CellHolds | ListHolds | EntryHolds | DictSize | KeysHold | FunctionHolds | ClassHolds | OrderHolds | FormHolds


def places() -> str:
    """LLVM IR of a test whether all places hold the same objects. Looking into a dict may run code of its keys, so this
    is no part of a step."""
    return f"""
define internal i1 @places_hold(ptr %block) {{
entry:
  %at = alloca i64
  %its.key = alloca ptr
{word("n_places")}
{word("places", "ptr")}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %word], [%i.next, %items.all], [%i.next, %keys.each], [%i.next, %found]
  %end = icmp eq i64 %i, %n_places
  br i1 %end, label %yes, label %one
one:
{row("%places", PLACE, "%i", "row")}
{column("kind", "%row", PLACE, "kind")}
{column("owner", "%row", PLACE, "owner", "ptr")}
{column("key", "%row", PLACE, "key")}
{column("expected", "%row", PLACE, "expected")}
  %i.next = add i64 %i, 1
  switch i64 %kind, label %entry.of [
    i64 {PLACE_WORD}, label %word
    i64 {PLACE_ITEMS}, label %items
    i64 {PLACE_KEYS}, label %keys
  ]
word:
  %now = load i64, ptr %owner
  %same = icmp eq i64 %now, %expected
  br i1 %same, label %loop, label %no
items:
  %have = load ptr, ptr %owner
  %want = inttoptr i64 %expected to ptr
  br label %each
each:
  %k = phi i64 [0, %items], [%k.next, %item]
  %different = phi i64 [0, %items], [%different.next, %item]
  %items.end = icmp eq i64 %k, %key
  br i1 %items.end, label %items.all, label %item
item:
  %have.p = getelementptr i64, ptr %have, i64 %k
  %want.p = getelementptr i64, ptr %want, i64 %k
  %its = load i64, ptr %have.p
  %was = load i64, ptr %want.p
  %change = xor i64 %its, %was
  %different.next = or i64 %different, %change
  %k.next = add i64 %k, 1
  br label %each
items.all:
  %items.same = icmp eq i64 %different, 0
  br i1 %items.same, label %loop, label %no
keys:
  %keys.want = inttoptr i64 %expected to ptr
  store i64 0, ptr %at
  br label %keys.each
keys.each:
  %n = phi i64 [0, %keys], [%n.next, %keys.one]
  %keys.end = icmp eq i64 %n, %key
  br i1 %keys.end, label %loop, label %keys.one
keys.one:
  %there = call i32 @PyDict_Next(ptr %owner, ptr %at, ptr %its.key, ptr null)
  %key.now = load ptr, ptr %its.key
  %key.want.p = getelementptr ptr, ptr %keys.want, i64 %n
  %key.want = load ptr, ptr %key.want.p
  %key.same = icmp eq ptr %key.now, %key.want
  %key.there = icmp ne i32 %there, 0
  %key.holds = and i1 %key.same, %key.there
  %n.next = add i64 %n, 1
  br i1 %key.holds, label %keys.each, label %no
entry.of:
  %name = inttoptr i64 %key to ptr
  %value = call ptr @PyDict_GetItemWithError(ptr %owner, ptr %name)
  %value.word = ptrtoint ptr %value to i64
  %value.same = icmp eq i64 %value.word, %expected
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %unfound, label %found.or.not
unfound:
  %raised = call ptr @PyErr_Occurred()
  %quiet = icmp eq ptr %raised, null
  br i1 %quiet, label %found.or.not, label %clear
clear:
  call void @PyErr_Clear()
  br label %no
found.or.not:
  br i1 %value.same, label %found, label %no
found:
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}}
"""
