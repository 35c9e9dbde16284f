"""How a tensor looks in a notebook."""

from __future__ import annotations

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
