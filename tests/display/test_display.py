"""How a tensor looks in a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hybridml as hm
from tests.support.markup import balanced


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bfloat16"])
def test_histogram(dtype: str) -> None:
    x = hm.asarray(np.arange(100)).astype(dtype)
    page = x._repr_html_()
    balanced(page)
    drawing = page[page.index("<svg") : page.index("</svg>")]
    assert sum(int(part.split("</title>")[0]) for part in drawing.split(": ")[1:]) == 100
    assert ">0</text>" in drawing
    assert ">99</text>" in drawing


@pytest.mark.parametrize(
    "values", [np.zeros(3), np.zeros((0, 3)), np.ones(50, bool), np.full(30, np.inf), np.array([1e308, -1e308] * 20)]
)
def test_what_has_no_histogram(values: np.ndarray) -> None:
    page = hm.asarray(values)._repr_html_()
    balanced(page)
    assert "<svg" not in page


def test_nan_is_left_out() -> None:
    page = hm.asarray(np.array([1.0, np.nan] * 20))._repr_html_()
    assert "<svg" in page
    assert "not finite" in page


@pytest.mark.parametrize("value", [hm.tensor(3.0), hm.tensor(2), hm.tensor(True), hm.tensor(1.5, requires_grad=True)])
def test_a_scalar_is_one_line(value: hm.Tensor) -> None:
    assert "\n" not in repr(value)
    assert value._repr_html_() == f"<code>{value!r}</code>"
    assert "&lt;multiply&gt;" in (hm.tensor(1.5, requires_grad=True) * 2)._repr_html_()


TEMPLATES = sorted((Path(hm.__file__).parent / "display/templates").iterdir())
COLOUR = re.compile(r"#[0-9a-f]{6}\b|#[0-9a-f]{3}\b")


def lightness(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    red, green, blue = (int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_colours_suit_light_and_dark_pages(path: Path) -> None:
    """Text and lines have parts of the page's own colour; other colours can be seen on white and on black. A drawing
    that stands alone brings its paper, in both schemes."""
    text = path.read_text(encoding="utf-8")
    alone = [line for line in text.splitlines() if line.startswith("svg:root")]
    assert not alone or "prefers-color-scheme: dark" in text
    rest = [line for line in text.splitlines() if line not in alone]
    extreme = [c for line in rest for c in COLOUR.findall(line) if not 0.2 < lightness(c) < 0.85]
    assert not extreme and not re.search(r"(?<![-\w])(?:black|white)\b(?!-)", "\n".join(rest))
