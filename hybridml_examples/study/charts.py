"""Charts as inline SVG: each 360 wide, so that its letters are as large as the text's on a phone and on a desk.

Marks have titles, which browsers show under the pointer; colours are classes, one a candidate, which the style names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360, 46, 10, 26, 34
HEIGHT = 230
ROW, BAR = 34, 12

Say = Callable[[float], str]
Point = tuple[float, float]


class Mark(NamedTuple):
    """A candidate's value, and the quartiles around it where there are some."""

    who: str
    value: float
    low: float | None = None
    high: float | None = None


def css(who: str) -> str:
    """The class of a candidate, of which GPU and CPU share the colour."""
    return "c-" + who.removesuffix(" cuda").replace(" ", "-").replace(".", "-")


def _svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    head = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
    return Markup("\n".join([head, *parts, "</svg>"]))


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"></line>'


def bars(title: str, marks: Sequence[Mark], say: Say) -> Markup:
    """A bar a candidate, its name above and its value beside; whiskers are the quartiles."""
    most = max(mark.high or mark.value for mark in marks)
    scale = (WIDTH - RIGHT - 78) / most
    parts = []
    for k, (who, value, low, high) in enumerate(marks):
        y = ROW * k + 14
        spread = "" if low is None or high is None else f", quartiles {say(low)} to {say(high)}"
        parts.append(f'<g class="{css(who)}"><title>{escape(f"{who}: {say(value)}{spread}")}</title>')
        parts.append(_text(0, y, who))
        parts.append(f'<rect x="0" y="{y + 4}" width="{max(value * scale, 1):.1f}" height="{BAR}" rx="2"></rect>')
        if low is not None and high is not None:
            parts.append(_line(low * scale, y + 4 + BAR / 2, high * scale, y + 4 + BAR / 2, "whisker"))
        parts.append(_text(max(high or 0, value) * scale + 6, y + 14, say(value), kind="value"))
        parts.append("</g>")
    return _svg(title, ROW * len(marks) + 4, parts)


def dots(title: str, rows: Mapping[str, Sequence[Mark]], label: str) -> Markup:
    """A row for each name with a dot for each candidate, on a logarithmic scale around 1; `label` says of what."""
    values = [mark.value for marks in rows.values() for mark in marks]
    low, high = min(0.8, *values) * 0.95, max(1.25, *values) * 1.05

    def place(value: float) -> float:
        return 6 + (WIDTH - 12) * math.log(value / low) / math.log(high / low)

    height = 24 + ROW * len(rows)
    parts = []
    for tick in _decades(low, high):
        parts.append(_line(place(tick), 18, place(tick), height - 4, "one" if tick == 1 else "grid"))
        parts.append(_text(place(tick), 12, f"{tick:g}", "middle", "tick"))
    for k, (name, marks) in enumerate(rows.items()):
        y = 24 + ROW * k
        parts.append(_text(0, y + 10, name))
        parts.append(_line(0, y + 20, WIDTH, y + 20))
        for who, value, *_ in marks:
            parts.append(
                f'<circle class="{css(who)}" cx="{place(value):.1f}" cy="{y + 20}" r="5">'
                f"<title>{escape(f'{name}, {who}: {value:.2f} {label}')}</title></circle>"
            )
    return _svg(title, height, parts)


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that lie between."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    found = [value for value in found if low <= value <= high]
    return found if len(found) <= 9 else [value for value in found if f"{value:e}"[0] == "1"]


def _nice(most: float) -> list[float]:
    """Four or five round values from 0 to at least `most`."""
    step = 10 ** math.floor(math.log10(most / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if 5 * step * factor >= most)
    return [step * k for k in range(math.ceil(most / step) + 1)]


def lines(
    title: str, series: Mapping[str, Sequence[Point]], x_label: str, y_label: str, say: Say, logarithmic: bool = False,
    dotted: float | None = None, marked: bool = True,
) -> Markup:  # fmt: skip
    """A curve for each candidate over x, which is logarithmic where it is asked for; `dotted` is a value to reach."""
    points = [point for curve in series.values() for point in curve]
    xs = sorted({x for x, _ in points})
    ticks = _nice(max(y for _, y in points))
    along: Callable[[float], float] = math.log if logarithmic else float
    first, last = along(xs[0]) if logarithmic else 0.0, along(xs[-1])

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (along(x) - first) / ((last - first) or 1)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / ticks[-1]

    parts = []
    for tick in ticks:
        y = up(tick)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y), _text(LEFT - 5, y + 4, f"{tick:g}", "end", "tick")]
    for x in xs if logarithmic else [tick for tick in _nice(xs[-1]) if tick <= xs[-1]]:
        parts.append(_text(across(x), HEIGHT - BOTTOM + 15, f"{x:g}", "middle", "tick"))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 3, x_label, "end"))
    parts.append(_text(0, 10, y_label))
    if dotted is not None:
        parts.append(_line(LEFT, up(dotted), WIDTH - RIGHT, up(dotted), "aim"))
    for who, curve in series.items():
        parts.append(f'<g class="{css(who)}">')
        at = [(across(x), up(y)) for x, y in curve]
        parts.append('<polyline points="{}"></polyline>'.format(" ".join(f"{x:.1f},{y:.1f}" for x, y in at)))
        shown = zip(at, curve, strict=True) if marked else [(at[-1], curve[-1])]
        for (x, y), (a, b) in shown:
            about = escape(f"{who}, {x_label} {a:.4g}: {say(b)}")
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{about}</title></circle>')
        parts.append("</g>")
    return _svg(title, HEIGHT, parts)


def legend(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(class, name) of each candidate, for the list beside a chart."""
    yield from ((css(name), name) for name in names)
