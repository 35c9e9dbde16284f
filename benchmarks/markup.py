"""Numbers and tables as they are printed and put on pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Row = Sequence[str]


def duration(seconds: float) -> str:
    """Three digits and the unit that fits: `3.91 ms`."""
    unit, scale = next((u for u in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if seconds * u[1] >= 1), ("ns", 1e9))
    return f"{digits(seconds * scale)} {unit}"


def digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def table(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    yield ""
    yield "| " + " | ".join(head) + " |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""
