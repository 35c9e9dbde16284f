"""Notebooks as pages: text as it is, cells as code, and what they gave where `make notebooks` has executed them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXECUTED = ROOT / "build/notebooks"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LONGEST = 4000  # characters of a text that a cell gave
PICTURES = {"image/png": "png", "image/svg+xml": "svg"}


def _cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text("utf-8"))["cells"]


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def executed(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook, with their results where its executed copy has the same cells."""
    cells, copy = _cells(path), EXECUTED / path.name
    if copy.exists():
        found = _cells(copy)
        if [_text(cell["source"]) for cell in found] == [_text(cell["source"]) for cell in cells]:
            return found
    return cells


def markdown(path: Path, page: Path) -> str:
    """A notebook as Markdown; its pictures are written beside the page."""
    parts = []
    for number, cell in enumerate(executed(path)):
        source = _text(cell["source"]).strip("\n")
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts.append(f"```python\n{source}\n```")
            parts += [_output(output, page, f"{number}-{k}") for k, output in enumerate(cell.get("outputs", ()))]
    where = f"repository:notebooks/{path.name}"
    parts.insert(1, f"This is [a notebook]({where}); `make notebooks` executes it.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _output(output: dict[str, Any], page: Path, name: str) -> str:
    data = output.get("data", {})
    for kind, suffix in PICTURES.items():
        if kind in data:
            picture = page.with_name(f"{page.stem}-{name}.{suffix}")
            content = _text(data[kind])
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(base64.b64decode(content) if suffix == "png" else content.encode())
            return f"![]({picture.name})"
    text = COLOURS.sub("", _text(output.get("text", data.get("text/plain", ""))))[:LONGEST].strip("\n")
    return f'```text title="Output"\n{text}\n```' if text else ""
