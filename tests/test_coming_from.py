"""The pages for those who come from another library: the code of every row runs, and where both are values they agree.

Ours always runs; that of the other library where it is installed (NumPy's always). A row is the code of two cells, each
read from top to bottom after the blocks of its page.
"""

from __future__ import annotations

import ast
import linecache
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "docs/coming_from"
PAGES = {"numpy": "numpy", "pytorch": "torch", "jax": "jax", "tensorflow": "tensorflow"}  # page -> module
BLOCK = re.compile(r"^```python( title=[^\n]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of a table with code in its first two cells."""

    line: int
    there: str
    here: str
    note: str


def rows(text: str) -> list[Row]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.strip("|").split(" | ")
        if line.startswith("| ") and CODE.search(line) and len(cells) >= 2:
            there, here = ("\n".join(CODE.findall(cell)) for cell in cells[:2])
            found.append(Row(number, there, here, " ".join(cells[2:]).strip(" |")))
    return found


def space(text: str, theirs: bool) -> dict[str, Any]:
    """What the blocks of a page define, ours or theirs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for title, block in BLOCK.findall(text):
        if bool(title) == theirs:
            exec(block, names)
    return names


def value(code: str, names: dict[str, Any], place: str) -> Any:
    """Runs the code of a cell: the value of its last line where that is an expression, or else None."""
    linecache.cache[place] = len(code), None, code.splitlines(keepends=True), place  # kernels read their source
    body = ast.parse(code, place).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), place, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), place, "eval"), names)


def plain(found: Any) -> Any:
    """A value as arrays, numbers and lists of them, or None where it is no value."""
    if isinstance(found, (bool, int, float, complex, str, np.ndarray, np.generic)):
        return np.asarray(found)
    if isinstance(found, Mapping):
        return {str(key): plain(item) for key, item in found.items()}
    if isinstance(found, Sequence):
        return [plain(item) for item in found]
    if hasattr(found, "__array__") and hasattr(found, "shape"):
        detached = found.detach() if hasattr(found, "detach") else found
        return np.asarray(detached)
    return None


def assert_same(there: Any, here: Any, place: str) -> bool:
    """Compares two plain values; whether there was something to compare."""
    if there is None or here is None:
        return False
    if isinstance(there, dict):
        assert isinstance(here, dict) and there.keys() == here.keys(), place
        return all([assert_same(there[key], here[key], place) for key in there])
    if isinstance(there, list) or isinstance(here, list):
        assert len(there) == len(here), f"{place}: {there} and {here}"
        return all([assert_same(a, b, place) for a, b in zip(there, here, strict=True)])
    if there.dtype.kind in "US":
        assert str(there) == str(here), place
    else:
        np.testing.assert_allclose(here, there, rtol=2e-5, atol=1e-6, err_msg=place)
    return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder", "own_devices")
@pytest.mark.parametrize("page", PAGES)
def test_our_code_runs(page: str) -> None:
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    names = space(text, theirs=False)
    for row in rows(text):
        assert row.here or row.note, f"{page}.md:{row.line} has neither code nor a word"
        value(row.here, names, f"{page}.md:{row.line}")


@pytest.mark.usefixtures("folder", "own_devices")
@pytest.mark.parametrize("page", PAGES)
def test_their_code_gives_the_same(page: str) -> None:
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        pytest.importorskip(PAGES[page])
        theirs = space(text, theirs=True)
        names = space(text, theirs=False)
        compared = 0
        for row in rows(text):
            place = f"{page}.md:{row.line}"
            there, here = value(row.there, theirs, place), value(row.here, names, place)
            compared += assert_same(plain(there), plain(here), place)
    assert compared >= len(rows(text)) // 2


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_the_rows_that_people_need(page: str) -> None:
    found = rows((FOLDER / f"{page}.md").read_text("utf-8"))
    assert 25 <= len(found) <= 65 and all(row.there for row in found)


def test_a_difference_is_found() -> None:
    text = "| `f(1)` | `g(1)`<br>`h(2)` | a note |\n| no code | none | |\n"
    assert rows(text) == [Row(1, "f(1)", "g(1)\nh(2)", "a note")]
    assert assert_same(plain([1.0, {"a": "b"}]), plain([1.0, {"a": "b"}]), "")
    with pytest.raises(AssertionError, match=r"page\.md:3"):
        assert_same(plain(1.0), plain(1.001), "page.md:3")
