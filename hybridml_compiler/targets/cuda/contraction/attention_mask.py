"""Masks that arithmetic on rows and columns decides, such as a causal one: what a block of rows need not look at.

    select(row % m >= column, x, -inf)  ->  1 * i - 1 * j + 0 >= 0, and x

The conditions are read off the expressions of elements.
"""

from __future__ import annotations

import numpy as np

from ....loops.index import affine_terms
from ....loops.ir import Expr
from ....record import record

# a >= b as signs of a - b, and what is added: of integers a > b is a - b - 1 >= 0.
_SIGNS = {"ge": (1, 0), "gt": (1, -1), "le": (-1, 0), "lt": (-1, -1)}


@record
class Bound:
    """a * i + b * j + c >= 0 for row i and column j of a matrix."""

    a: int
    b: int
    c: int

    def at(self, i: str, j: str) -> str:
        """The text of its left side."""
        terms = [text if factor == 1 else f"{factor} * {text}" for factor, text in ((self.a, i), (self.b, j)) if factor]
        return " + ".join([*terms, str(self.c)])


@record
class Mask:
    """Elements count where all bounds hold; the others are -inf."""

    bounds: tuple[Bound, ...]

    def turned(self) -> Mask:
        """The mask of the transposed matrix."""
        return Mask(tuple(Bound(x.b, x.a, x.c) for x in self.bounds))

    def counts_in_each_row(self, rows: int, columns: int) -> bool:
        """Whether every row has an element that counts, as far as one bound tells."""
        if len(self.bounds) != 1:
            return False
        (x,) = self.bounds
        return all(x.a * i + max(0, x.b * (columns - 1)) + x.c >= 0 for i in (0, rows - 1))

    def holds(self, i: str, j: str) -> list[str]:
        """Conditions of an element."""
        return [f"{bound.at(i, j)} >= 0" for bound in self.bounds]

    def holds_everywhere(self, rows: tuple[str, str], columns: tuple[str, str]) -> list[str]:
        """Conditions of all elements of a tile, by its first and last rows and columns."""
        return [f"{x.at(rows[x.a < 0], columns[x.b < 0])} >= 0" for x in self.bounds]

    def holds_somewhere(self, rows: tuple[str, str], columns: tuple[str, str]) -> list[str]:
        """The condition that holds where a tile has an element that counts."""
        return [f"{x.at(rows[x.a > 0], columns[x.b > 0])} >= 0" for x in self.bounds]

    def limits(self, rows: tuple[str, str], tile: int) -> list[str]:
        """Lines that narrow `begin` and `end` of the columns that some row counts, in tiles of so many columns."""
        lines = []
        for x in self.bounds:
            rest = Bound(x.a, 0, x.c).at(rows[x.a > 0], "")
            if x.b == -1:
                lines.append(f"end = min(end, {rest} + 1);")
            elif x.b == 1:
                lines.append(f"begin = max(begin, -({rest}) / {tile} * {tile});")
        return lines


def masked(value: Expr, row: Expr, column: Expr, rows: int) -> tuple[Mask, Expr]:
    """(the mask at the root of the value of an element, what is masked), by its row, of so many in each of the matrices
    that are one below the other, and its column."""
    if value.op != "select" or value.args[2].op != "const" or value.args[2].attr != -np.inf:
        return Mask(()), value
    bounds = _bounds(value.args[0], row, column, rows)
    if bounds is None:
        return Mask(()), value
    inner, plain = masked(value.args[1], row, column, rows)
    return Mask((*bounds, *inner.bounds)), plain


def _bounds(condition: Expr, row: Expr, column: Expr, rows: int) -> list[Bound] | None:
    """The bounds that a condition is; None where it is something else."""
    if condition.op == "and_":
        both = [_bounds(part, row, column, rows) for part in condition.args]
        return None if None in both else [bound for part in both for bound in part or ()]
    if condition.op not in _SIGNS or condition.args[0].dtype.kind != "i":
        return None
    sign, constant = _SIGNS[condition.op]
    factors = {row: 0, column: 0}
    for part, side in zip(condition.args, (sign, -sign), strict=True):
        terms, rest = affine_terms(part)
        constant += side * int(rest)
        for leaf, factor in terms.items():
            variable = row if _is_row(leaf, row, rows) else leaf
            if variable not in factors or not isinstance(factor, int):
                return None
            factors[variable] += side * factor
    return [Bound(factors[row], factors[column], constant)]


def _is_row(leaf: Expr, row: Expr, rows: int) -> bool:
    """Whether an expression is the row within its matrix."""
    if leaf.op == "mod":
        return leaf.args[0] is row and leaf.args[1].op == "const" and leaf.args[1].attr == rows
    return leaf is row and row.high is not None and row.high < rows
