"""One self-contained HTML page of training runs: curves and bars as inline SVG, no script, nothing from outside.

The page is `templates/demo.html.jinja`, on the frame and the style of hybridml's own pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import time as time_now

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

from hybridml.display.reports import origin

from .training import TOLERANCE, Agreement, Run, allowed


def page(pairs: Sequence[tuple[Run, Run, Agreement]], seconds: float) -> str:
    """The report on (eager, traced, agreement) of each example."""
    loader = ChoiceLoader(
        [FileSystemLoader(Path(__file__).parent / "templates"), PackageLoader("hybridml", "display/templates")]
    )
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.filters["time"] = time
    return pages.get_template("demo.html.jinja").render(
        pairs=pairs,
        good=all(agreement.within for *_, agreement in pairs),
        seconds=seconds,
        tolerance=TOLERANCE,
        origin=origin(time_now()),
        plot=Plot,
        relative=relative,
        decade=decade,
    )


class Plot:
    """Where the points of a chart are drawn, with steps from 0 to `last` from left to right."""

    width, height, left, bottom, top = 460, 250, 52, 30, 26

    def __init__(self, steps: int) -> None:
        self.last = steps - 1

    def x(self, step: float) -> float:
        """Pixels from the left."""
        return self.left + (self.width - self.left - 8) * step / max(self.last, 1)

    def y(self, share: float) -> float:
        """Pixels from above, of a share of the height."""
        return self.height - self.bottom - (self.height - self.bottom - self.top) * share

    def curve(self, losses: Sequence[float], top: float) -> str:
        """The points of a polyline through the losses, which reaches the upper edge at `top`."""
        return self._points(loss / top for loss in losses)

    def limit(self) -> str:
        """The points of a polyline through the allowed differences."""
        return self._points(decade(allowed(step)) for step in range(self.last + 1))

    def _points(self, shares: Iterable[float]) -> str:
        return " ".join(f"{self.x(step):.1f},{self.y(share):.1f}" for step, share in enumerate(shares))


def relative(eager: Run, traced: Run) -> list[float]:
    """The difference of the two losses at each step, relative to the larger."""
    pairs = zip(eager.losses, traced.losses, strict=False)
    return [abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs]


def decade(value: float) -> float:
    """The share of the height of a chart from 1e-9 to 1 with a logarithmic scale."""
    return min(max(1 + math.log10(max(value, 1e-30)) / 9, 0), 1)


def time(seconds: float) -> str:
    """Two digits after the point and the unit that fits: `3.91 ms`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.0f} us"
