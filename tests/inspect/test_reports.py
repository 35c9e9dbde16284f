"""Reports: each is text, JSON, HTML in a notebook, and a file that needs nothing but itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hybridml as hm
from hybridml.display.reports import Report, count, render
from tests.support.markup import balanced, whole_page

X = hm.asarray(np.arange(12.0).reshape(3, 4))


def compared(x: hm.Tensor) -> hm.Tensor:
    return hm.where(x < 1, x, hm.exp(-x)).sum(axis=0)


REPORTS: dict[str, Callable[[], Report]] = {
    "compare": lambda: hm.compare(compared, X, repeats=2),
    "explain": lambda: hm.explain(compared, X),
    "explain_speed": lambda: hm.explain_speed(compared, X, repeats=2, seconds=0.0),
    "audit": lambda: hm.audit(compared, X),
    "profile": lambda: hm.profile(compared, X),
    "memory": lambda: hm.memory_timeline(compared, X),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_text_json_and_html(name: str, tmp_path: Path) -> None:
    report = REPORTS[name]()
    assert str(report) == report.to_text() != ""
    assert report.to_text().startswith(report.title)
    assert json.loads(report.to_json()) == json.loads(json.dumps(report.to_dict()))
    assert report.to_dict()["schema"] == report.SCHEMA >= 1
    shown = report._repr_html_()
    balanced(shown)
    assert "<html" not in shown  # a part of a notebook
    report.save_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    whole_page(page)
    assert page.startswith("<!DOCTYPE html>")


def test_templates_escape_what_they_show_and_numbers_have_three_digits() -> None:
    shown = render("tensor.html.jinja", rows=[("<b>", "a & b")], bars=(), body="<script>")
    assert "<script>" not in shown
    assert "&lt;b&gt;" in shown
    assert "a &amp; b" in shown
    assert [count(n) for n in (999, 999_499, 999_950, 2 * 10**15)] == ["999 ", "999 k", "1 M", "2 P"]


def test_markup_is_in_templates() -> None:
    """Only a notice in `<pre>` is written in Python."""
    tag = re.compile(r"</?(div|svg|g|table|tr|td|th|style|script|rect|text|path|html|iframe)[ >]")
    package = Path(hm.__file__).parent
    found = [str(path) for path in package.rglob("*.py") if tag.search(path.read_text(encoding="utf-8"))]
    assert not found, f"move their markup to hybridml/display/templates: {found}"
