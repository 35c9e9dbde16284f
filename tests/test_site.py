"""The documentation site: what is laid out for it. `make site` builds it, and fails for broken links."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from docs.site import check, gallery, notebooks, reference, stage

ROOT = Path(__file__).parent.parent
SECTIONS = reference.sections()
HOMES = reference.homes_of(SECTIONS)


def modules(module: Any, path: str = "") -> dict[int, str]:
    """Public modules by their identity, and those in them."""
    found = {}
    for name in dir(module) if module is hm else getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.ismodule(value):
            found |= {id(value): f"{path}{name}"} | modules(value, f"{path}{name}.")
    return found


def test_every_public_name_is_in_the_reference() -> None:
    paths = [path for _, paths in reference.MODULES.values() for path in paths]
    known = {id(reference.module_of(path)) for path in [*paths, "nn.functional"]}  # which has the names of functional
    missing = {name for key, name in modules(hm).items() if key not in known}
    assert not missing, f"modules that are on no page of docs/site/reference.py: {missing}"
    for path in paths:
        assert {f"hm.{path}.{name}" for name in reference.public_names(reference.module_of(path))} <= HOMES.keys()
    assert {f"hm.{name}" for name in reference.public_names(hm)} <= HOMES.keys()
    assert len(HOMES) > 1500


def _without_example(sections: dict[str, list[reference.Section]]) -> list[str]:
    entries = [entry for parts in sections.values() for part in parts for entry in part.entries]
    return [
        entry.path
        for entry in entries
        if callable(entry.value)
        and not (inspect.isclass(entry.value) and entry.value in reference.OTHERS)
        and ">>>" not in (inspect.getdoc(entry.value) or "")
    ]


def test_every_public_callable_has_an_example() -> None:
    assert _without_example(SECTIONS) == []


def test_a_callable_without_an_example_is_found() -> None:
    def bare() -> None:
        """Returns nothing, and shows nothing."""

    entries = [reference.Entry(f"hm.{name}", value) for name, value in {"bare": bare, "exp": hm.exp, "e": hm.e}.items()]
    assert _without_example({"page": [reference.Section("", "", entries, [])]}) == ["hm.bare"]


def test_an_entry_has_its_call_its_text_its_example_and_its_source() -> None:
    text = reference.pages()["reference/elementwise.md"]
    entry = text.partition("### `hm.acos`")[2].partition("\n### ")[0]
    assert "```python\nhm.acos(x)\n```" in entry or "```python\nhm.acos(x, /)\n```" in entry
    assert "```pycon\n>>> import hybridml as hm\n" in entry and "Also `hm.arccos`" in entry
    assert '<a id="hm.arccos"></a>' in entry and "repository:hybridml_compiler/ops/analytic.py" in entry


def test_a_method_is_called_without_its_tensor() -> None:
    text = reference.tensor_page()
    assert "\nx.max(axis=None, keepdims=False, *, dim=..., keepdim=...)\n" in text
    assert "\nx.abs()\n" in text and "\nx.backward(gradient=None" in text


def test_no_page_tells_where_something_is_in_memory() -> None:
    assert not [page for page, text in reference.pages().items() if re.search(r" at 0x[0-9a-f]{6}", text)]


def test_docstrings_become_markdown() -> None:
    text = "Sum of `a * b` * c_i.\n\nx: a long\n    argument\ny: another\n\n    code = 1"
    text += "\n\n>>> 1 + 1\n2\n>>> 2\n2\n\nMore."
    assert reference.markdown(text).split("\n\n") == [
        "Sum of `a * b` \\* c\\_i.", "- x: a long argument\n- y: another", "    code = 1",
        "```pycon\n>>> 1 + 1\n2\n>>> 2\n2\n```", "More.",
    ]  # fmt: skip


def test_links_of_the_repository_become_links_of_the_site() -> None:
    places = stage.sources()
    text = "[a](../tutorial.md#x) [b](../../hybridml/io/errors.py) [c](https://example.org) [d](#here) `f[1](x)`"
    text += "\n```\n[e](no.md)\n```\n"
    assert stage.with_links(text, "docs/notes/fft.md", "notes/fft.md", places) == (
        f"[a](../tutorial.md#x) [b]({stage.REPOSITORY}/hybridml/io/errors.py) [c](https://example.org) [d](#here) "
        "`f[1](x)`\n```\n[e](no.md)\n```\n"
    )
    with pytest.raises(LookupError, match=r"links to gone\.md"):
        stage.with_links("[a](gone.md)", "docs/notes/fft.md", "notes/fft.md", places)


def test_names_in_code_lead_to_their_entries() -> None:
    homes = {"hm.cond": "tracing.md#hm.cond"}
    text = "# `hm.cond`\n`hm.cond(p, f, g)`, `hm.nothing`, [`hm.cond`](x.md)\n```python\n`hm.cond`\n```\n"
    entry = "[`hm.cond(p, f, g)`](../reference/tracing.md#hm.cond)"
    assert stage.with_names(text, "notes/a.md", homes) == text.replace("`hm.cond(p, f, g)`", entry)


def test_all_pages_are_in_the_navigation() -> None:
    text = (ROOT / "docs/site/mkdocs.yml").read_text("utf-8")
    listed = set(re.findall(r"[\w/]+\.md", text)) | {"ops.md", "layers.md"}  # tables of the reference
    pages = {page for page in stage.sources().values() if page.partition("/")[0] not in ("notes", "notebooks")}
    assert pages - listed == set(), "pages that docs/site/mkdocs.yml does not list"


def test_what_a_page_fetches_from_elsewhere_is_found(tmp_path: Path) -> None:
    page, style = tmp_path / "a.html", tmp_path / "a.css"
    page.write_text(
        '<a href="https://a.org">x</a><link rel="canonical" href="https://a.org"><img src="b.png">', "utf-8"
    )
    style.write_text("a { background: url(data:image/png;base64,AA) }", "utf-8")
    assert check.from_elsewhere(page) == check.from_elsewhere(style) == []
    page.write_text('<script src="//cdn.org/x.js"></script><link rel="stylesheet" href="https://f.org/f.css">', "utf-8")
    style.write_text('@import "https://f.org/f.css"; a { src: url(https://f.org/f.woff) }', "utf-8")
    assert check.from_elsewhere(page) == ["//cdn.org/x.js", "https://f.org/f.css"]
    assert sorted(check.from_elsewhere(style)) == ["https://f.org/f.css", "https://f.org/f.woff"]


def test_a_name_without_an_entry_is_found(tmp_path: Path) -> None:
    page = tmp_path / "reference/io/index.html"
    page.parent.mkdir(parents=True)
    page.write_text('<h3 id="hm.save">hm.save</h3>', "utf-8")
    homes = {"hm.save": "io.md#hm.save", "hm.load": "io.md#hm.load"}
    assert check.faults(tmp_path, homes) == ["hm.load has no entry in the reference"]


def test_notebooks_become_pages_with_their_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sorted((ROOT / "notebooks").glob("*.ipynb"))[0]
    monkeypatch.setattr(notebooks, "EXECUTED", tmp_path)
    plain = notebooks.markdown(path, tmp_path / "page.md")
    assert plain.startswith("# ") and "```python\nimport time" in plain and 'title="Output"' not in plain
    picture = {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": "<Figure>"}}
    printed = {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n"]}
    cells = notebooks.executed(path)
    code = next(cell for cell in cells if cell["cell_type"] == "code")
    code["outputs"] = [picture, printed]
    (tmp_path / path.name).write_text(notebooks.json.dumps({"cells": cells}), "utf-8")
    shown = notebooks.markdown(path, tmp_path / "page.md")
    number = cells.index(code)
    assert f"![](page-{number}-0.png)" in shown and '```text title="Output"\nred\n```' in shown
    assert (tmp_path / f"page-{number}-0.png").read_bytes() == b"\0\0\0"


def test_the_gallery_has_each_program_with_its_command() -> None:
    cards = [*gallery.examples(), *gallery.notebooks()]
    assert {card.command for card in cards} >= {"python -m hybridml demo", "python -m hybridml_examples.digits"}
    assert all(card.title and card.about and (ROOT / "docs" / card.link).exists() for card in cards)
    assert len(gallery.notebooks()) == len(list((ROOT / "notebooks").glob("*.ipynb")))


def test_data_types_are_described_by_their_own_names() -> None:
    entries = {entry.path: entry for entry in SECTIONS["arrays"][0].entries}
    assert entries["hm.complex64"].others == ("hm.cfloat",) and isinstance(entries["hm.complex64"].value, np.dtype)
    assert reference.DTYPES["float32"] in reference.pages()["reference/arrays.md"]
