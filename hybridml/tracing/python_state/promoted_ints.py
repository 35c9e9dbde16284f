"""Choice of the ints, and numbers in attributes, that are inputs: one becomes an input of the program at its second
value, as a size becomes a symbol.

The first value is compiled for itself: most ints never change, and many steer the program. Where another one comes, the
function is traced with an `IntProxy` in its place. If Python looks at the value in that trace,
the program is for this value. An argument that is not negative is then taken for a position, `x[:n]`, and comes to
later programs as the length of an array, whose sizes become symbols; any other stays a part of the signature, and a
global variable, a closure cell or an attribute a guarded value.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import field
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.record import record

from ...core.proxies.integer import LARGEST
from ..specialize.signature import Fields, Position, Signature, ValueSpec
from .guard_types import elements_guard
from .guards import Watch
from .scalar_source import ScalarSource


@record(frozen=False)
class Family:
    """Calls whose arguments differ in nothing but ints."""

    first: dict[int, int] = field(default_factory=dict)  # leaf -> the first value seen
    promoted: set[int] = field(default_factory=set)
    fixed: set[int] = field(default_factory=set)  # at whose value Python looks


class Integers:
    """The integers that one traced function has met, and which of them are inputs."""

    def __init__(self) -> None:
        self._families: dict[Signature, Family] = {}
        self._around: dict[tuple[int, str], tuple[Any, float]] = {}  # (id of the holder, name) -> holder, first value
        self._fixed: set[tuple[int, str]] = set()
        # Arrays by their id: what they held when a program was traced, and that program.
        self._arrays: dict[int, tuple[np.ndarray, bytes, Any]] = {}
        self._only_inputs: set[int] = set()
        self._positions: dict[Any, set[int]] = {}  # leaves that come as lengths, by the structure of the arguments

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    # -- arguments

    def key(self, fields: Fields) -> Fields:
        """The signature in which an int that is an input has no value."""
        if not self._families:
            return fields
        raw = Signature.of(fields)
        family = self._families.get(_name(raw))
        return raw.without_integers(family.promoted) if family is not None and family.promoted else fields

    def seen(self, raw: Signature) -> Signature:
        """The key for a new program: what has another value than in earlier calls is an input from now on."""
        specs = enumerate(raw.specs)
        values = {k: spec.value for k, spec in specs if isinstance(spec, ValueSpec) and spec.is_integer}
        if not values:
            return raw
        family = self._families.setdefault(_name(raw), Family())
        for k, value in values.items():
            if family.first.setdefault(k, value) != value and k not in family.fixed:
                family.promoted.add(k)
        return raw.without_integers(family.promoted)

    def fix(self, raw: Signature, leaves: Iterable[int]) -> Signature:
        """Makes arguments part of the signature for good; returns the key of this call then."""
        family = self._families[_name(raw)]
        family.fixed.update(leaves)
        family.promoted -= family.fixed
        return raw.without_integers(family.promoted)

    def place(self, raw: Signature, leaves: Iterable[int]) -> Signature:
        """Lets arguments be lengths of arrays in later calls; returns what the signature of this one is then."""
        self._positions.setdefault(raw.structure, set()).update(leaves)
        return Signature.of(self.placed(raw, [None] * len(raw.specs)))

    def placed(self, fields: Fields, leaves: list[Any]) -> Fields:
        """The signature with the positions of a call, which become arrays among its leaves."""
        structure, given, *rest = fields
        specs = list(given)
        for k in self._positions.get(structure, ()):
            kind, *value = specs[k]
            if kind is int and value and 0 <= value[0] <= Position.MOST:
                specs[k], leaves[k] = (Position, (value[0],), dtypes.uint8, None), Position.array(value[0])
        return (structure, tuple(specs), *rest)

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

    def fix_all(self, given: Any, integers: Iterable[int], scalars: Iterable[ScalarSource]) -> None:
        """Makes the numbers of an entry constants for good, after a trace has failed with proxies in their places."""
        if integers:
            self.fix(given, integers)
        for scalar in scalars:
            if scalar.is_new:
                self.fix_around(scalar.holder, scalar.name)

    def fix_around(self, holder: Any, name: str) -> None:
        self._fixed.add((id(holder), name))


def _name(raw: Signature) -> Signature:
    """The part that the signatures of a family have in common."""
    return raw.without_sizes().without_integers()
