"""Tables and figures of reports: the same cells as text and as HTML, a column of numbers in one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

TIMES = (("s", 1e3), ("ms", 1.0), ("us", 1e-3), ("ns", 1e-6))  # of milliseconds
SIZES = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
COUNTS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_WHOLE = ("B", "")  # units of which there are no parts


class Figure(NamedTuple):
    """One of the numbers at the head of a page. `verdict`: "good", "bad", or nothing where it is neither."""

    value: str
    label: str
    verdict: str = ""


class Column(NamedTuple):
    """A column: its head, its cells, and their `kind`: "text", "code" (as it is), or "number" (aligned at the right).

    `style` is "eager" or "traced" where the column is about one of them.
    """

    head: str
    cells: Sequence[str]
    kind: str = "text"
    style: str = ""


class Bar(NamedTuple):
    """The bar of a row: its length as a part of the longest, and whether it is "eager", "traced" or neither."""

    share: float
    style: str = ""


@dataclass(frozen=True)
class Table:
    """Columns of equal length under a caption. The first is what the rows are called. A cell may have several lines.

    `bars` are drawn in a column of their own before the one numbered `bars_at`. `folded`: closed when a page is opened.
    """

    caption: str
    columns: Sequence[Column]
    bars: Sequence[Bar] = ()
    bars_at: int = 1
    folded: bool = False

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row, without the heads."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    def lines(self, most: int | None = None, name_last: bool = False) -> list[str]:
        """Lines of text: the heads, the first `most` rows, and how many rows there are beyond them. `name_last`: with
        the first column at the end, where names are long."""
        if name_last:
            return replace(self, columns=[*self.columns[1:], self.columns[0]]).lines(most)
        heads, rows = tuple(column.head for column in self.columns), self.rows
        shown = [heads, *rows[:most]] if any(heads) else rows[:most]
        widths = [max(len(part) for cell in cells for part in cell.split("\n")) for cells in zip(*shown, strict=True)]
        signs = [">" if column.kind == "number" else "<" for column in self.columns]
        lines = [
            "  ".join(f"{part:{sign}{wide}}" for part, sign, wide in zip(parts, signs, widths, strict=True)).rstrip()
            for row in shown
            for parts in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
        ]
        if most is not None and len(rows) > most:
            lines.append(f"... and {len(rows) - most:,} more, which to_dict() and the page have")
        return lines


def numbers(
    head: str, values: Sequence[float | None], units: Sequence[tuple[str, float]], largest: float = 0.0
) -> Column:
    """A column of numbers in the unit that fits the largest, which the head has: `total, ms`. None is an empty cell.
    `largest`: of columns beside it that have the same unit.

    >>> numbers("time", [1250.0, 31.0, None], TIMES)
    Column(head='time, s', cells=['1.25', '0.03', ''], kind='number', style='')
    """
    largest = max(largest, *(value for value in values if value), 0.0)
    unit, scale = next((u for u in units if largest >= 0.9995 * u[1]), units[-1])
    places = 0 if unit in _WHOLE else 2 if largest / scale < 99.995 else 1
    least = 0.5 * 10.0**-places

    def cell(value: float | None) -> str:
        if value is None:
            return ""
        if 0 < value / scale < least:
            return f"<{10.0**-places:.{places}f}"
        return f"{value / scale:,.{places}f}" if value else "0"

    return Column(f"{head}, {unit}" if unit else head, [cell(value) for value in values], "number")
