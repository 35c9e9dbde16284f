"""Which ints, and numbers in attributes, are inputs: one becomes an input of the program at its second value, as a size
becomes a symbol.

The first value is compiled for itself: most ints never change, and many steer the program. Where another one comes, the
function is traced with an `Integer` in its place. If Python looks at the value in that trace,
the program is for this value, as every later one is, and the int stays a part of the signature (of an argument) or a
guarded value (of a global variable, a closure cell, an attribute).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.proxies.integer import LARGEST
from ..specialize.symbolic_shapes import apart
from .guard_types import elements_guard
from .guards import Watch
from .scalar_source import ScalarSource

Key = Any  # see `signature.signature`


@dataclass
class Family:
    """Calls whose arguments differ in nothing but ints."""

    first: dict[int, int] = field(default_factory=dict)  # leaf -> the first value seen
    lifted: set[int] = field(default_factory=set)
    fixed: set[int] = field(default_factory=set)  # at whose value Python looks


class Integers:
    """Those of one traced function."""

    def __init__(self) -> None:
        self._families: dict[Key, Family] = {}
        self._around: dict[tuple[int, str], tuple[Any, float]] = {}  # (id of the holder, name) -> holder, first value
        self._fixed: set[tuple[int, str]] = set()
        # Arrays by their id: what they held when a program was traced, and that program.
        self._arrays: dict[int, tuple[np.ndarray, bytes, Any]] = {}
        self._only_inputs: set[int] = set()

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    # -- arguments

    def key(self, raw: Key) -> Key:
        """The signature in which an int that is an input has no value."""
        if not self._families:
            return raw
        family = self._families.get(_apart(raw))
        return raw if family is None else _without(raw, family.lifted)

    def seen(self, raw: Key) -> Key:
        """The key for a new program: what has another value than in earlier calls is an input from now on."""
        values: dict[int, int] = {k: spec[1] for k, spec in enumerate(raw[1]) if _is_int(spec)}
        if not values:
            return raw
        family = self._families.setdefault(_apart(raw), Family())
        for k, value in values.items():
            if family.first.setdefault(k, value) != value and k not in family.fixed:
                family.lifted.add(k)
        return _without(raw, family.lifted)

    def fix(self, raw: Key, leaves: Iterable[int]) -> Key:
        """Arguments that are part of the signature for good; the key of this call then."""
        family = self._families[_apart(raw)]
        family.fixed.update(leaves)
        family.lifted -= family.fixed
        return _without(raw, family.lifted)

    # -- what lies around the function

    def other(self, holder: Any, name: str, value: float) -> bool:
        """Whether a number is an input: it has had another value before."""
        if type(value) is int and abs(value) > LARGEST:
            return False
        return self._around.setdefault((id(holder), name), (holder, value))[1] != value

    def is_fixed(self, holder: Any, name: str) -> bool:
        return (id(holder), name) in self._fixed

    def only_inputs(self, watch: Watch, arrays: Iterable[np.ndarray], program: Any) -> set[int]:
        """The ids of those arrays around the function that its program reads and nothing else does: with other elements
        in them it was the same program, which is told by what it is compared by."""
        named = watch.named_arrays(sys.maxsize)
        captured = {id(array): array for array in arrays}
        made = [array.tobytes() for k, array in captured.items() if all(k != other for other, _ in named)]
        now = program, made
        for k, array in named:
            if k in captured:
                held = elements_guard(array).value
                _, was, before = self._arrays.setdefault(k, (array, held, now))
                if was != held and before == now:
                    self._only_inputs.add(k)
                self._arrays[k] = array, held, now
        return self._only_inputs

    def fix_all(self, given: Any, integers: Iterable[int], places: Iterable[ScalarSource]) -> None:
        """The numbers of an entry that fails with what stands for them are themselves from now on."""
        if integers:
            self.fix(given, integers)
        for place in places:
            if place.is_new:
                self.fix_around(place.holder, place.name)

    def fix_around(self, holder: Any, name: str) -> None:
        self._fixed.add((id(holder), name))


def lifted_in(key: Key) -> frozenset[int]:
    """The leaves that are inputs and ints."""
    return frozenset(k for k, spec in enumerate(key[1]) if spec is int or spec is np.int64)


def _is_int(spec: Any) -> bool:
    return type(spec) is tuple and len(spec) == 2 and spec[0] in (int, np.int64) and -LARGEST <= spec[1] <= LARGEST


def _apart(raw: Key) -> Key:
    structure, specs, *rest = apart(raw)[0]  # sizes apart, as well
    return (structure, tuple([spec[0] if _is_int(spec) else spec for spec in specs]), *rest)


def _without(raw: Key, lifted: set[int]) -> Key:
    if not lifted:
        return raw
    structure, specs, *rest = raw
    return (structure, tuple([s[0] if k in lifted and _is_int(s) else s for k, s in enumerate(specs)]), *rest)
