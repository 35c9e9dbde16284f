"""The picture of a run for the front page: times of other libraries as multiples of a traced function's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from .record import TRACED, aimed, value

PICTURE = Path(__file__).parent.parent / "docs" / "benchmarks.svg"
SERIES = {  # name: (candidates, of which the better one stands, colour)
    "hybridml eager": (("hybridml eager",), "#d9822b"),
    "PyTorch": (("torch", "torch channels_last"), "#c53030"),
    "torch.compile": (("torch.compile", "torch.compile channels_last"), "#b83280"),
    "JAX": (("jax",), "#2f9e62"),
    "TensorFlow": (("tensorflow",), "#8a6fc0"),
}
TICKS = (1, 2, 5, 10, 20, 50, 100)
LEFT, WIDTH, TOP, ROW = 290, 860, 64, 22
STYLE = """
text { font: 12px sans-serif; fill: currentColor; }
.title { font-weight: 600; }
.soft { fill-opacity: .65; }
line { stroke: currentColor; stroke-opacity: .18; }
.one { stroke: #3b7fc4; stroke-opacity: 1; stroke-width: 2; }
svg:root { color: #1a202c; }
@media (prefers-color-scheme: dark) { svg:root { color: #e2e8f0; } }
"""


def chart(record: dict[str, Any]) -> str:
    """The picture as SVG: a row for each workload of float32, a dot for each library, a logarithmic scale."""
    rows = [entry for entry in aimed(record).values() if value(entry, "tensorflow", "median")]
    height = TOP + ROW * len(rows) + 12
    machine = f"{record['cpu']}, {record['threads']} threads"
    title = f"Time per call, as a multiple of a traced function's (right is slower), on {machine}"
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<text x="8" y="16" class="title">{escape(title)}</text>',
            *legend(),
            *axis(height),
            *(part for k, entry in enumerate(rows) for part in row(entry, TOP + ROW * k + ROW / 2)),
            "</svg>\n",
        ]
    )


def place(ratio: float) -> float:
    """Pixels from the left, of a multiple of the traced time."""
    share = math.log(max(ratio, 0.8) / 0.8) / math.log(TICKS[-1] / 0.8)
    return LEFT + (WIDTH - LEFT - 30) * min(share, 1.0)


def legend() -> Iterator[str]:
    for k, (name, (_, colour)) in enumerate(SERIES.items()):
        x = LEFT + 112 * k
        yield f'<circle cx="{x}" cy="34" r="4.5" fill="{colour}"/><text x="{x + 9}" y="38">{name}</text>'


def axis(height: int) -> Iterator[str]:
    for tick in TICKS:
        x = f"{place(tick):.1f}"
        kind = ' class="one"' if tick == 1 else ""
        yield f'<line{kind} x1="{x}" x2="{x}" y1="{TOP}" y2="{height - 8}"/>'
        yield f'<text class="soft" x="{x}" y="{TOP - 6}" text-anchor="middle">{tick}</text>'


def row(entry: dict[str, Any], y: float) -> Iterator[str]:
    ours = value(entry, TRACED, "median")
    assert ours is not None, "every workload runs traced"
    yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(entry["title"])}</text>'
    for name, (candidates, colour) in SERIES.items():
        found = [median for who in candidates if (median := value(entry, who, "median"))]
        if found:
            about = f"{name}: {min(found) / ours:.2f}"
            circle = f'<circle cx="{place(min(found) / ours):.1f}" cy="{y}" r="4.5" fill="{colour}" fill-opacity=".85">'
            yield f"{circle}<title>{about}</title></circle>"


def write(record: dict[str, Any]) -> Path:
    """Draws a run for the front page."""
    PICTURE.write_text(chart(record), encoding="utf-8")
    return PICTURE
