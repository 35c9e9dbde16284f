"""Symbols, and quotients that do not divide out: the atoms of the polynomials of dims.py."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal

from ..record import record
from ..weak import WeakValues

DIVIDE: dict[str, Callable[[int, int], int]] = {"//": operator.floordiv, "%": operator.mod}


@record(eq=False)
class Symbol:
    """`most`: its greatest value, of the number of a step of a loop; None where it is the size of an input.

    Equal symbols are one object (`symbol_of`): Python's hash of each was half of the time of a sum.
    """

    name: str
    hint: int
    most: Any = None

    def __reduce__(self) -> Any:
        return symbol_of, (self.name, self.hint, self.most)

    @property
    def text(self) -> str:
        """`n=64`, `i0=51<=101`."""
        return f"{self.name}={self.hint}" + ("" if self.most is None else f"<={self.most}")

    def __str__(self) -> str:
        return self.name


_known: WeakValues[Any, Symbol] = WeakValues()


def symbol_of(name: str, size: int, most: Any) -> Symbol:
    """The symbol of this name, hint and greatest value."""
    key = name, size, getattr(most, "terms", most)
    return _known.get(key) or _known.add(key, Symbol(name, size, most))


@record(eq=False)
class Quotient:
    """`over // by`, or the remainder, of two polynomials where neither is known from their form; `by` is positive."""

    kind: Literal["//", "%"]
    over: Any
    by: Any

    @property
    def hint(self) -> int:
        return DIVIDE[self.kind](getattr(self.over, "hint", self.over), getattr(self.by, "hint", self.by))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotient) and (self is other or str(self) == str(other))

    def __hash__(self) -> int:
        return hash((self.kind, self.over, self.by))

    def __str__(self) -> str:
        over, by = (str(x) if str(x).isalnum() else f"({x})" for x in (self.over, self.by))
        return f"({over}{self.kind}{by})"


Atom = Symbol | Quotient
Monomial = tuple[Atom, ...]  # factors in the order of their text
