"""Sizes that come with the call, as i64 values: polynomials of the entries of a table of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from .... import dtypes
from ....sizes.atoms import Symbol
from ....sizes.dims import Dim, Size, is_dim, steps_of, symbols_of
from ....sizes.values import number_of
from . import ir
from .types import I64, constant


class Sizes:
    """Sizes as values. `table`: an i64 for each symbol, at its number; those named here are loaded at the builder's
    position."""

    def __init__(self, b: ir.IRBuilder, table: Any, names: Sequence[str]) -> None:
        self.b = b
        self.symbols = {
            name: b.load(b.gep(table, [constant(number_of(name), dtypes.int64)], source_etype=I64), typ=I64, name=name)
            for name in names
        }
        self.known: dict[Dim, Any] = {}

    def inside(self, symbols: Mapping[str, Any]) -> Sizes:
        """The sizes in code that may not run, or runs for each value of these symbols."""
        made = copy(self)
        made.symbols = {**self.symbols, **symbols}
        made.known = {
            size: value for size, value in self.known.items() if symbols.keys().isdisjoint(map(str, symbols_of(size)))
        }
        return made

    def value(self, size: Size) -> Any:
        """The size, computed once, at the builder's position."""
        if not is_dim(size):
            return constant(size, dtypes.int64)
        found = self.known.get(size)
        if found is None:
            found = self.known[size] = self._compute(size)
        return found

    def _compute(self, size: Dim) -> Any:
        total: Any = None
        for monomial, coefficient in size.terms:
            product: Any = None
            for atom in monomial:
                if isinstance(atom, Symbol):
                    factor = self.symbols[atom.name]
                else:
                    by = self.value(atom.by)
                    if steps_of(atom.by):  # in some steps of a loop it may be 0, where nothing is to be done
                        one = constant(1, dtypes.int64)
                        by = self.b.select(self.b.icmp_signed(">", by, one), by, one)
                    factor = self._divided(atom.kind, self.value(atom.over), by)
                product = factor if product is None else self.b.mul(product, factor)
            if product is None:
                product = constant(coefficient, dtypes.int64)
            elif coefficient != 1:
                product = self.b.mul(product, constant(coefficient, dtypes.int64))
            total = product if total is None else self.b.add(total, product)
        return total

    def _divided(self, kind: str, over: Any, by: Any) -> Any:
        """Rounded down, as Python does; `by` is positive."""
        zero = constant(0, dtypes.int64)
        rest = self.b.srem(over, by)
        below = self.b.icmp_signed("<", rest, zero)
        if kind == "%":
            return self.b.select(below, self.b.add(rest, by), rest)
        return self.b.sub(self.b.sdiv(over, by), self.b.zext(below, I64))
