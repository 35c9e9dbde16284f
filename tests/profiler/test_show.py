"""`fn.show()`: a page that is whole, and whose parts lead to each other; the layout below it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from hybridml.display.layers import layered
from tests.support.markup import balanced, whole_page

X = hm.asarray(np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32))
W = hm.asarray(np.random.default_rng(1).standard_normal((32, 32), dtype=np.float32))


def model(x: hm.Tensor) -> hm.Tensor:
    h = hm.tanh(x @ W)
    return hm.functional.softmax(h).sum(axis=0)


def attribute_of(text: str, part: str) -> list[str]:
    """The keys of the element that has `part` in its text."""
    found = re.search(r'data-keys="([^"]*)"[^>]*>(?:<[^>]*>|[^<])*?' + re.escape(part), text)
    assert found is not None, part
    return found[1].split()


def test_a_page_is_whole() -> None:
    traced = hm.trace(model)
    traced(X)
    page = traced.show()
    whole_page(page.html)
    for part in ("h = hm.tanh(x @ W)", "matmul", "define void", "tanh(", "launch 0"):
        assert part in page.html
    assert page.title.startswith("model: ")
    assert "HTML" in repr(page)


def test_lines_operations_and_kernels_lead_to_each_other() -> None:
    traced = hm.trace(model)
    traced(X)
    text = traced.show().html
    source = text[text.index("pane source") : text.index("pane graph")]
    ir = text[text.index("pane ir") : text.index("pane details")]
    line = attribute_of(source, "h = hm.tanh(x @ W)")
    tanh = attribute_of(ir, "= tanh(")
    assert line[0][0] == "l"
    assert tanh[0][0] == "n"
    assert line[0] in tanh
    assert tanh[0] in line
    kernel = next(key for key in tanh if key[0] == "k")
    assert f'id="{kernel}"' in text
    box = re.search(rf'data-keys="{kernel} ([^"]*)"', text)
    assert box is not None
    assert {line[0], tanh[0]} <= set(box[1].split())


def test_files_and_notebooks(tmp_path: Path) -> None:
    traced = hm.trace(model)
    with pytest.raises(hm.ArgumentError, match="has not been called yet"):
        traced.show()
    assert "<iframe" not in traced._repr_html_()
    traced(X)
    traced.save_html(tmp_path / "model.html")
    assert (tmp_path / "model.html").read_text(encoding="utf-8") == traced.show().html
    frame = traced._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    balanced(frame)


def test_without_a_compiler() -> None:
    traced = hm.trace(model, backend="interpret")
    traced(X)
    page = traced.show()
    balanced(page.html)
    assert "tanh" in page.html


def test_control_flow_and_symbols() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        return hm.fori_loop(0, 5, lambda k, t: hm.sin(t) * 2, x)

    for size in (8, 9, 10):
        f(hm.ones((size,)))
    page = f.show().html
    balanced(page)
    loop = attribute_of(page[page.index("pane ir") : page.index("pane details")], "= loop(")
    assert attribute_of(page, "return hm.fori_loop")[0] in loop
    assert hm.profile(f, hm.ones((11,))).result.shape == (11,)


def test_large_programs_are_folded() -> None:
    layers = [hm.nn.Linear(16, 16) for _ in range(24)]

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        for layer in layers:
            x = hm.functional.gelu(layer(x)) + hm.sin(x) * hm.cos(x)
        loss = (x * x).mean()
        loss.backward()
        return loss.detach()

    step(hm.ones((4, 16)))
    page = step.show()
    count = int(page.title.split(" operations")[0].rpartition(" ")[2])
    assert count > 160
    drawing = page.html[page.html.index("<svg") : page.html.index("</svg>")]
    assert drawing.count("<rect") < count
    assert len(page.html) < 3_000_000
    balanced(page.html)


# -- layout


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=40), st.integers(1, 15))
def test_layers(pairs: list[tuple[int, int]], count: int) -> None:
    edges = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1] and max(p) < count})
    sizes = [(20.0 + 7 * k, 10.0 + k % 3) for k in range(count)]
    found = layered(sizes, edges, widest=200)
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(found.corners, sizes, strict=True)]
    for a, b in edges:  # downwards, from border to border
        assert boxes[a][3] < boxes[b][1]
        route = found.routes[a, b]
        assert route[0][1] == pytest.approx(boxes[a][3])
        assert route[-1][1] == pytest.approx(boxes[b][1])
        assert all(p[1] <= q[1] for p, q in itertools.pairwise(route))
    for a, b in itertools.combinations(boxes, 2):  # no two overlap
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for box in boxes:
        assert box[0] >= -1e-6
        assert box[2] <= found.width + 1e-6
        assert box[3] <= found.height + 1e-6


def test_an_empty_drawing() -> None:
    found = layered([], [])
    assert (found.width, found.height, found.corners) == (0.0, 0.0, [])
