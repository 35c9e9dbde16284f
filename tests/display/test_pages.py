"""The pages that people look at: one design, read by ear and by keyboard, with colours that can be told from paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.display.reports import Report
from hybridml.display.tables import COUNTS, SIZES, TIMES, Column, Table, numbers
from hybridml.profiler.timeline import COLOURS, OTHERS
from tests.support.markup import accessible, whole_page

TEMPLATES = Path(hm.__file__).parent / "display" / "templates"
X = hm.asarray(np.arange(12.0).reshape(3, 4))
MODEL = hm.nn.Sequential(hm.nn.Linear(4, 3), hm.nn.ReLU())


def looked_at(x: hm.Tensor) -> hm.Tensor:
    y = hm.where(x < 1, x, hm.exp(-x)).sum(axis=0)
    if y.sum() > 0:
        y = y * 2
    return y


PAGES: dict[str, Callable[[], Report]] = {
    "compare": lambda: hm.compare(looked_at, X, repeats=2),
    "devices": lambda: hm.compare(looked_at, X, repeats=2, devices=["cpu"]),
    "explain": lambda: hm.explain(looked_at, X),
    "audit": lambda: hm.audit(looked_at, X),
    "profile": lambda: hm.profile(looked_at, X),
    "nothing": hm.profile,
    "memory": lambda: hm.memory_timeline(looked_at, X),
    "summary": lambda: hm.summary(MODEL, hm.ones((2, 4))),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages_of_reports(name: str, tmp_path: Path) -> None:
    report = PAGES[name]()
    report.save_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    whole_page(text)
    assert report.heading in text and re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d, .*core.*Python.*hybridml", text)
    for figure in report.figures:
        assert figure.label in text
    part = accessible(report._repr_html_())
    assert not part.all("h1", "h2", "h3")  # those would enter the outline of the notebook
    assert next(a["aria-level"] for _, a, _ in part.elements if a.get("role") == "heading") == "3"


def test_pages_of_programs_and_tensors() -> None:
    traced = hm.trace(looked_at)
    traced(X)
    page = whole_page(traced.show().html)
    assert len(page.all("section")) == 4
    keyed = [a for _, a, _ in page.elements if "data-keys" in a]
    assert keyed and all(a["tabindex"] == "-1" and a["role"] == "button" for a in keyed)
    accessible(traced.graph.draw().svg)
    accessible(hm.ones((20,))._repr_html_())


# -- tables


def test_numbers_of_a_column_have_one_unit() -> None:
    assert numbers("self", [6.38, 221e-6, 0.0, None], TIMES) == Column("self, ms", ["6.38", "<0.01", "0", ""], "number")
    assert numbers("moved", [3 * 2**20, 2**19], SIZES) == Column("moved, MiB", ["3.00", "0.50"], "number")
    assert numbers("flop", [336, 96], COUNTS) == Column("flop", ["336", "96"], "number")
    assert numbers("25 %", [0.5], TIMES, largest=2000.0).head == "25 %, s"
    assert numbers("none", [], TIMES).cells == []


def test_tables_as_text() -> None:
    table = Table("t", [Column("name", ["a", "b\nc", "d"], "code"), Column("n", ["1", "20", "300"], "number")])
    assert table.lines() == ["name    n", "a       1", "b      20", "c", "d     300"]
    assert table.lines(1, name_last=True)[:2] == ["n  name", "1  a"]
    assert "2 more" in table.lines(1)[-1]


# -- colours

PAPERS = {  # paper, text: of browsers and of JupyterLab, light and dark
    "light": ((255, 255, 255), (0, 0, 0)),
    "dark": ((18, 18, 18), (255, 255, 255)),
    "JupyterLab light": ((255, 255, 255), (33, 33, 33)),
    "JupyterLab dark": ((17, 17, 17), (224, 224, 224)),
}
Colour = tuple[float, ...]


def rgb(text: str) -> Colour:
    return tuple(int(text[k : k + 2], 16) for k in (1, 3, 5))


def mixed(a: Colour, b: Colour, share: float) -> Colour:
    return tuple(share * x + (1 - share) * y for x, y in zip(a, b, strict=True))


def contrast(a: Colour, b: Colour) -> float:
    """The contrast ratio of WCAG 2."""
    lighter, darker = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    parts = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def variables() -> dict[str, tuple[str, float, str]]:
    """Name -> (colour, its share, the other colour) of the mixtures in style.css."""
    mix = re.compile(r"--(\w+): color-mix\(in srgb, (\S+) (\d+)%, (\w+)\)")
    found = mix.findall((TEMPLATES / "style.css").read_text(encoding="utf-8"))
    return {name: (colour, int(share) / 100, other) for name, colour, share, other in found}


@pytest.mark.parametrize("place", PAPERS)
def test_contrast(place: str) -> None:
    paper, text = PAPERS[place]
    named: dict[str, Any] = {"currentColor": text, "transparent": paper}
    seen = {
        name: mixed(named.get(colour) or rgb(colour), named[other], share)
        for name, (colour, share, other) in variables().items()
    }
    for name in ("soft", "good", "bad"):  # of text
        assert contrast(seen[name], paper) >= 4.5, name
    for name in ("eager", "traced"):  # of bars
        assert contrast(seen[name], paper) >= 3, name
    assert min(contrast(rgb(colour), paper) for colour in (*COLOURS, OTHERS)) >= 3
    css = (TEMPLATES / "drawing.css").read_text(encoding="utf-8")
    fills = re.findall(r"rect \{ fill: (#\w+); fill-opacity: (\S+); \}", css)
    assert len(fills) == 5
    for colour, share in fills:
        box = mixed(rgb(colour), mixed(text, paper, 0.05), float(share))
        assert contrast(mixed(text, box, 0.75), box) >= 4.5, colour  # of the notes, the faintest text


def test_text_has_no_colours_but_those_that_are_checked() -> None:
    for file in ("style.css", "page.css", "program.css"):
        css = (TEMPLATES / file).read_text(encoding="utf-8")
        used = set(re.findall(r"[\s{;]color: ([^;}]+)", css))
        assert used <= {"var(--soft)", "var(--good)", "var(--bad)", "CanvasText"}, file
    assert not {*COLOURS} & {colour for colour, *_ in variables().values()}  # eager's and traced's are theirs
