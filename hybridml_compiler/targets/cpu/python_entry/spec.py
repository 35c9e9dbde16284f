"""Specification of an entry: its checks, the operands of its step, its result, in the order of `entry.build_entry`."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....record import record

if TYPE_CHECKING:
    from .places import Place

ARENA_ALIGNMENT = 64


class Arena(NamedTuple):
    """Memory for the intermediate values of a step. Entries may share it: one of them runs at a time."""

    address: int
    owner: np.ndarray[Any, Any]
    lock: Counter  # not 0 while one runs

    @property
    def nbytes(self) -> int:
        return self.owner.nbytes - ARENA_ALIGNMENT


@record
class ArraySpec:
    """An array of exactly this type and shape, C-contiguous."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@record
class Constant:
    """An argument that must be this very object (None, True, a small integer, an interned string), a float of the same
    bits, or a tuple of the very objects that this one holds."""

    value: object


@record
class FloatCell:
    """An argument that must be exactly a float; the step gets a pointer to its value as a double."""


Argument = ArraySpec | Constant | FloatCell
Counter = ctypes.c_int64


class Returned(NamedTuple):
    """A part of what a call returns: "output" `of`, a "float" or "int" of output `of`, which is one float64, or a
    "bool" of one that is, "argument" `of`, or the "object" itself."""

    kind: str
    of: Any = None


class Stamps(NamedTuple):
    """Makers of stamps of writes by lines of the user."""

    clock: Iterator[int]
    writes: ctypes.Array[ctypes.c_int64]  # see eager_calls/tables.py
    known_user: list[Any]  # a single item: the code that is known to be the user's
    known_number: Counter
    helper: Callable[[], int]  # a stamp where the code that calls is another one
    through: tuple[Any, Any]  # code that calls the entry for the user, and what that calls
    slot: str  # of a tensor, for its last stamp
    stamp: Callable[..., None]  # of tensors, in Python


@record(frozen=False)
class EntrySpec:
    """The checks of an entry, the operands that it gives the step, and the result that it makes.

    `step` is the address of `i64 step(ptr table)`, 0 where there are the checks alone. The table holds pointers, in
    this order: the data of each argument that is an ArraySpec or FloatCell, of each captured tensor's array, of each
    output, the arena and the sizes (if there are any).
    Outputs are uninitialised when the step starts. A status other than 0 drops the outputs and returns (or raises)
    `on_status(status, *args)`.
    """

    step: int
    tensor_type: type  # of `__slots__` only, without `__init__`
    array_slot: str
    args: tuple[Argument, ...]
    outputs: tuple[ArraySpec, ...]
    fallback: Callable[..., object]  # called with the arguments as given when a guard does not hold
    on_status: Callable[..., object]
    slot_defaults: Mapping[str, object] = field(default_factory=dict)  # of the other slots of an output tensor
    require_none_slots: tuple[str, ...] = ()  # of argument tensors
    captured: Sequence[Any] = ()  # tensors whose array must still be the one they hold now
    epochs: tuple[tuple[Counter, Counter], ...] = ()  # pairs that must be equal: a counter, where it was seen last
    contexts: tuple[tuple[ContextVar[Any], object], ...] = ()  # (variable, the object it must hold unless unset)
    places: Sequence[Place] = ()
    arena: Arena | None = None
    sizes: np.ndarray[Any, Any] | None = None  # values of symbols; beside an arena
    # Output k takes over the array that is item k, if one reference besides this one holds it; the item is gone after.
    lent: np.ndarray[Any, Any] | None = None
    results: Sequence[Returned] | None = None  # None: the outputs, alone or in a tuple
    is_tuple: bool = False  # of these results
    # Tensors that the step writes to, which gives them a stamp, and pairs of tensors with no memory in common: by the
    # numbers of arguments, and after those of captured tensors.
    updated: tuple[int, ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    stamps: Stamps | None = None
    release_gil: bool = False  # takes time: for steps of 50 us and more
    keep: tuple[object, ...] = ()  # owners of the step's code and of the objects that it points to

    @property
    def returned(self) -> tuple[Sequence[Returned], bool]:
        """Parts of what a call returns, and whether they are a tuple."""
        if self.results is not None:
            return self.results, self.is_tuple
        outputs = [Returned("output", k) for k in range(len(self.outputs))]
        return outputs or [Returned("object")], len(outputs) > 1

    @property
    def numbers(self) -> set[int]:
        """The outputs that are no arrays."""
        return {found.of for found in self.returned[0] if found.kind in ("float", "int", "bool")}

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The arrays of the captured tensors."""
        return [getattr(tensor, self.array_slot) for tensor in self.captured]

    @property
    def lock(self) -> Counter:
        """The word that is not 0 while the entry runs, or another one with its arena."""
        return Counter(0) if self.arena is None else self.arena.lock

    @property
    def fixed(self) -> list[int]:
        """The addresses at the end of the table."""
        arena = [] if self.arena is None else [self.arena.address]
        return arena if self.sizes is None else [*arena, int(self.sizes.ctypes.data)]


def arena(size: int) -> Arena:
    """Uninitialised memory on a cache line; pages are touched by their first use only."""
    owner = np.empty(size + ARENA_ALIGNMENT, np.uint8)
    return Arena(-(-owner.ctypes.data // ARENA_ALIGNMENT) * ARENA_ALIGNMENT, owner, Counter(0))


def call_step(step: int, pointers: Sequence[int]) -> int:
    """Calls `i64 step(ptr table)` through ctypes, with a table of these pointers and without the GIL."""
    return int(_step_function(step)((ctypes.c_void_p * max(1, len(pointers)))(*pointers)))


@functools.lru_cache(maxsize=1024)
def _step_function(step: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(step)
