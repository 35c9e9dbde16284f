"""Dimensions that calls have seen with a second size: which of them are symbolic, and which programs take a call.

Calls whose arguments differ in nothing but sizes are a *family*. The first one is compiled for its sizes. A dimension
that then comes with another size is symbolic in the program that is traced next, which takes every call that holds to
its guards (see `hybridml_compiler.sizes`); dimensions that were equal in every call share one symbol. Sizes 0 and 1 are
never symbolic. Where the function has asked for a number, as `np.eye(n)` does, the dimension stays what it is: each of
its sizes is compiled for itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from hybridml_compiler.graph.ir import Node
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import LEAST, symbol, symbols_of
from hybridml_compiler.sizes.guards import Guards, collecting
from hybridml_compiler.sizes.values import bindings, check_of, name_of

from .errors import NotGeneralizable
from .signature import Signature

MOST_TAKEN = 8  # programs of one family: one whose guards keep failing has a size that it looks at
MOST_KNOWN = 1 << 12  # signatures that are known to be taken, so that their guards are not checked again


@record
class Pattern:
    """Sizes of a family: a number, or a symbol, for each dimension of each array."""

    shapes: Mapping[int, tuple[Any, ...]]  # of the leaf
    places: Mapping[str, tuple[int, ...]]  # of a symbol: dimensions, counted through all arrays
    flat: tuple[Any, ...]
    positions: frozenset[int] = frozenset()  # leaves that are ints, and come as lengths

    def values(self, sizes: Sequence[int]) -> tuple[int, ...] | None:
        """The value of each symbol; None for sizes that the pattern does not have."""
        for here, given in zip(self.flat, sizes, strict=True):
            if type(here) is int and here != given:
                return None
        found = []
        for places in self.places.values():
            first, *others = (sizes[k] for k in places)
            if first < LEAST or any(n != first for n in others):
                return None
            found.append(first)
        return tuple(found)

    def describe(self, names: Iterable[str]) -> list[str]:
        """`size of axis 0 of x` for each symbol."""
        axes = [
            name if k in self.positions else f"size of axis {axis} of {name}"
            for k, name in enumerate(names) for axis in range(len(self.shapes.get(k, ())))
        ]  # fmt: skip
        return [axes[k] for k, *_ in self.places.values()]


class Sized:
    """Pattern of sizes and guards that an entry with symbols relies on."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern, self.guards = pattern, Guards()
        self._checked: tuple[int, Any] = (-1, None)

    def takes(self, sizes: Sequence[int]) -> bool:
        """Whether sizes fit the pattern and the guards."""
        values = self.pattern.values(sizes)
        if values is None:
            return False
        guards = self.guards.list
        if self._checked[0] != len(guards):
            self._checked = len(guards), check_of(list(self.pattern.places), guards)
        return bool(self._checked[1](*values))

    def settle(self, leaves: Sequence[Any]) -> None:
        """Checks the trace: `NotGeneralizable` if it left a symbol one value, or is not right for these sizes."""
        sizes = [n for leaf in self.pattern.shapes for n in leaves[leaf].shape]
        fixed = {s.name: g for g in sorted(self.guards.list, key=lambda g: g.asked) for s in g.fixes}
        if fixed or not self.takes(sizes):
            raise NotGeneralizable(fixed, "its trace is for other sizes")


@contextmanager
def decisions(guards: Guards | None) -> Iterator[None]:
    """A context in which decisions on sizes become guards of this collection; no effect where no size is symbolic."""
    if guards is None:
        yield
        return
    with collecting(guards):
        yield


def binders(computed: Iterable[Node], inputs: Sequence[Node], candidates: Iterable[Node]) -> list[Node]:
    """Inputs that a graph does not read but for the values of symbols that no other of its inputs has."""
    found: list[Node] = []
    missing = {s.name for node in computed for s in symbols_of(node.shape, *node.params.values())}
    missing -= bindings([n.shape for n in inputs], [n.shape for n in inputs]).keys() if missing else set()
    for node in candidates if missing else ():
        bound = missing & bindings([node.shape], [node.shape]).keys()
        if bound:
            found.append(node)
            missing -= bound
    return found


@record(frozen=False)
class Family:
    seen: list[tuple[int, ...]] = field(default_factory=list)  # the sizes of calls that were traced
    fixed: dict[int, str] = field(default_factory=dict)  # dimension -> the line that asked for its number
    alone: set[tuple[int, int]] = field(default_factory=set)  # dimensions with a size that is a program of its own
    entries: list[Any] = field(default_factory=list)


class Families:
    """The families of a traced function, by their signature without sizes."""

    def __init__(self) -> None:
        self._families: dict[Signature, Family] = {}

    def clear(self) -> None:
        self._families.clear()

    def entry(self, key: Signature) -> Any:
        """The entry with symbols that takes a call of this signature, or None."""
        name, shapes = key.without_sizes(), key.shapes
        family = self._families.get(name)
        if family is None:
            return None
        sizes = _flat(shapes)
        return next((e for e in family.entries if e.sized is not None and e.sized.takes(sizes)), None)

    def pattern(self, key: Signature) -> Pattern | None:
        """The symbols for a call that no program takes; None where it is to be compiled for its sizes."""
        name, shapes = key.without_sizes(), key.shapes
        family = self._families.setdefault(name, Family())
        sizes = _flat(shapes)
        calls = [*(s for s in family.seen if s != sizes), sizes]
        if len(family.entries) >= MOST_TAKEN:
            return None
        columns = list(zip(*calls, strict=True))
        symbols: dict[tuple[int, ...], Any] = {}
        places: dict[str, list[int]] = {}
        flat: list[Any] = []
        for k, column in enumerate(columns):
            others = {n for n in column if n >= LEAST}
            if k in family.fixed or (k, sizes[k]) in family.alone or len(others) < 2 or sizes[k] < LEAST:
                flat.append(sizes[k])
                continue
            size = symbols.setdefault(column, None)
            if size is None:
                size = symbols[column] = symbol(name_of(len(places)), sizes[k])
            places.setdefault(str(size), []).append(k)
            flat.append(size)
        if not places:
            return None
        rest = iter(flat)
        of_leaves = {leaf: tuple([next(rest) for _ in shape]) for leaf, shape in shapes.items()}
        return Pattern(of_leaves, {n: tuple(found) for n, found in places.items()}, tuple(flat), key.positions)

    def traced(self, key: Signature, entry: Any = None) -> None:
        """Notes that calls of this signature have a program now; without an entry, that there have been such calls."""
        name, shapes = key.without_sizes(), key.shapes
        family = self._families.setdefault(name, Family())
        sizes = _flat(shapes)
        if sizes not in family.seen:
            family.seen.append(sizes)
        if entry is not None and entry.sized is not None and entry not in family.entries:
            family.entries.insert(0, entry)

    def refuse(self, key: Signature, pattern: Pattern, refused: NotGeneralizable, names: Iterable[str]) -> list[str]:
        """Dimensions that stay what they are from now on, each with the line that asked for its number, or for this
        size alone, where it met another by chance. A trace that is not right for its own call asks in a way that sizes
        change: none of its symbols are tried again."""
        name, shapes = key.without_sizes(), key.shapes
        family, sizes = self._families[name], _flat(shapes)
        lines = []
        for (symbol_name, places), what in zip(pattern.places.items(), pattern.describe(names), strict=True):
            guard = refused.fixed.get(symbol_name)
            if guard is not None and not guard.asked:
                family.alone.update((k, sizes[k]) for k in places)
                lines.append(f"the {what} is {sizes[places[0]]} in a program of its own: compared at {guard.where}")
            elif guard is not None or not refused.fixed:
                family.fixed.update(dict.fromkeys(places, guard.where if guard is not None else ""))
                asked = f"{refused.what} is asked for at {guard.where}" if guard is not None else refused.why
                lines.append(f"the {what} stays as it is: {asked}")
        return lines


class StatedFamilies(Families):
    """The families of a function of which it is stated what is symbolic, in every program: which program takes a call
    depends on the call alone, and never on those before it."""

    def __init__(self, axes: Mapping[int, Sequence[int]]) -> None:
        """`axes`: of the leaf, those that are symbolic, counted from the last one, -1."""
        super().__init__()
        self._axes = axes
        self._refused: set[Signature] = set()

    def clear(self) -> None:
        super().clear()
        self._refused.clear()

    def entry(self, key: Signature) -> Any:
        pattern, sizes = self.pattern(key), _flat(key.shapes)
        if pattern is None:
            return None
        entries = (e for e in self._families[key.without_sizes()].entries if e.sized.pattern.places == pattern.places)
        return next((e for e in entries if e.sized.takes(sizes)), None)

    def pattern(self, key: Signature) -> Pattern | None:
        self._families.setdefault(key.without_sizes(), Family())
        symbols: dict[int, Any] = {}
        places: dict[str, list[int]] = {}
        of_leaves: dict[int, tuple[Any, ...]] = {}
        place = 0
        for leaf, shape in key.shapes.items():
            found = list(shape)
            for axis in range(len(shape)):
                size = shape[axis]
                if axis - len(shape) in self._axes.get(leaf, ()) and size >= LEAST:
                    found[axis] = symbols.setdefault(size, symbols.get(size) or symbol(name_of(len(symbols)), size))
                    places.setdefault(str(found[axis]), []).append(place)
                place += 1
            of_leaves[leaf] = tuple(found)
        if not places or key in self._refused:
            return None
        return Pattern(of_leaves, {n: tuple(k) for n, k in places.items()}, tuple(itertools.chain(*of_leaves.values())))

    def refuse(self, key: Signature, pattern: Pattern, refused: NotGeneralizable, names: Iterable[str]) -> list[str]:
        """Calls of this signature have a program of their own: it asks for a number that another may not ask for."""
        self._refused.add(key)
        return []


def _flat(shapes: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple([n for shape in shapes.values() for n in shape])
