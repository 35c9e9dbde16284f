"""The documentation is true: python blocks run, links lead somewhere, docstring examples give what they say.

The blocks of a page share one namespace, top to bottom, as a reader would type them.
"""

from __future__ import annotations

import doctest
import importlib
import linecache
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hybridml
import hybridml_compiler

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"`[^`\n]*`|\]\(([^)#\s]+)(#[^)\s]*)?\)")  # code is none


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.usefixtures("own_devices", "source_lines")
@pytest.mark.parametrize("path", PAGES, ids=name)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        above = "\n" * (text.count("\n", 0, block.start()) + 1)  # errors then name the line of the page
        exec(compile(above + block[1], str(path), "exec"), space)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_to_files(path: Path) -> None:
    found = [match[1] for match in LINK.finditer(path.read_text(encoding="utf-8"))]
    targets = [target for target in found if target and "://" not in target]
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing, f"{name(path)} links to files that are not there: {missing}"


def modules(package: ModuleType) -> list[str]:
    return [package.__name__, *(m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))]


@pytest.mark.parametrize("module", [*modules(hybridml_compiler), *modules(hybridml)])
def test_docstring_examples(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every docstring has a debugger of its own, which asks the system for all source files when it is made.
    monkeypatch.setattr(linecache, "checkcache", lambda filename=None: None)
    found = importlib.import_module(module)
    space = {**vars(found), "hm": hybridml}
    tests = doctest.DocTestFinder(exclude_empty=True).find(found, module, globs=space)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for test in tests:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
