"""Reports, shown as text, HTML and JSON: what `compare`, `explain`, `audit` and `profile` return."""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from .tables import Figure, Table

if TYPE_CHECKING:
    from typing import Self

    from jinja2 import Environment


class Report:
    """Base class of reports: text by `to_text()`, plain data by `to_dict()`, HTML from the class's template.

    A page has a head (`heading`, the time and the machine), `figures`, and below them the template, which reads the
    report by its attributes, as `report`: that of this class shows `remarks` and `tables`. Frozen dataclasses pass
    `repr=False`, so that `repr` is the text.
    """

    SCHEMA: ClassVar[int] = 1  # of `to_dict`; it grows when a name changes its meaning or goes away
    TEMPLATE: ClassVar[str] = "report.html.jinja"
    made: float  # seconds since 1970

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """A report that knows when it was made."""
        self = super().__new__(cls)
        object.__setattr__(self, "made", time.time())
        return self

    @property
    def title(self) -> str:
        """The first line of the text."""
        return self.to_text().partition("\n")[0]

    @property
    def heading(self) -> str:
        """A few words on what a page is about."""
        return self.title

    @property
    def figures(self) -> Sequence[Figure]:
        """The numbers that a reader looks for first."""
        return ()

    @property
    def remarks(self) -> Sequence[str]:
        """Conclusions from the numbers, one sentence each."""
        return ()

    @property
    def tables(self) -> Sequence[Table]:
        """The details, as tables."""
        return ()

    def to_text(self) -> str:
        """The report as text, several lines."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain Python data, by the names of the fields."""
        return {"schema": self.SCHEMA, **asdict(self)}  # type: ignore[call-overload]

    def to_json(self, indent: int | None = 1) -> str:
        """`to_dict()` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as an HTML file that needs nothing but itself."""
        Path(path).write_text(render("page.html.jinja", report=self, origin=origin(self.made)), encoding="utf-8")

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return render("fragment.html.jinja", report=self, is_page=False)


def origin(made: float) -> str:
    """When and where a report was made: `2026-05-04 10:31, Xeon Platinum 8488C, 2 of 4 cores, Python 3.11.7, ...`."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(made))
    face = __name__.partition(".")[0]
    versions = [f"{name} {sys.modules[module].__version__}" for name, module in (("NumPy", "numpy"), (face, face))]
    return ", ".join([when, _machine(), f"Python {platform.python_version()}", *versions])


@functools.cache
def _machine() -> str:
    """The name of the CPU, and its cores."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        told = []
    names = [line.partition(":")[2].strip() for line in told if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return f"{name}, {usable} of {cores} cores" if usable < cores else f"{name}, {cores} core{'s' * (cores != 1)}"


def render(template: str, **values: Any) -> str:
    """The text of a template of `templates/` with these values, which are escaped."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    found.filters |= {"duration": duration, "bytes": size}
    return found


def duration(ms: float) -> str:
    """Three digits and the unit that fits: `3.91 ms`."""
    unit, scale = next((u for u in (("s", 1e-3), ("ms", 1.0), ("us", 1e3)) if ms * u[1] >= 1), ("ns", 1e6))
    return f"{_three(ms * scale)} {unit}"


def size(count: float) -> str:
    """Three digits and the unit that fits, in powers of 1024: `16.0 MiB`."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count:.0f} B" if units[0] == "B" else f"{_three(value)} {units[0]}"


def count(value: float) -> str:
    """Three digits, a space and the prefix that fits: `8.18 G`, to stand before a unit."""
    units = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
    prefix, scale = next((u for u in units if value >= 0.9995 * u[1]), ("", 1))  # 999,950 is 1 M
    return f"{value / scale:.3g} {prefix}" if prefix else f"{value:.0f} "


def _three(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
