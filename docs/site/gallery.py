"""The gallery: a card for each example and notebook, with what it shows, a few of its lines, and its command."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"``(python -m [^`]+)``")
LINES = 24  # of a program that a card shows


class Card(NamedTuple):
    """What the gallery tells of a program."""

    title: str
    about: str
    code: str
    command: str
    link: str  # from docs/


def examples() -> list[Card]:
    """Modules of `hybridml_examples` whose docstring has the command that runs them."""
    cards = []
    for path in sorted((ROOT / "hybridml_examples").glob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        doc = ast.get_docstring(tree) or ""
        command = COMMAND.search(doc)
        if command and path.stem != "__init__":
            first, _, about = COMMAND.sub("", doc).partition("\n")
            about = " ".join(about.split())
            link = f"../hybridml_examples/{path.name}"
            cards.append(Card(path.stem.replace("_", " ").capitalize(), f"{first} {about}".strip(), _shown(tree, text), command[1], link))
    return cards


def _shown(tree: ast.Module, text: str) -> str:
    """A class with `forward` or else a function that trains: the shortest, which says most in few lines."""
    nodes = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    for word in ("forward", "backward", "compare"):
        found = [ast.get_source_segment(text, node) or "" for node in nodes if f"'{word}'" in ast.dump(node)]
        if found:
            return min(found, key=len)
    return ""


def notebooks() -> list[Card]:
    """The notebooks, by their first lines."""
    cards = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        heading, _, about = "".join(cells[0]["source"]).partition("\n")
        first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and len(cell["source"]) > 3)
        cards.append(Card(heading.lstrip("# "), about.strip().split("\n\n")[0], first, f"jupyter lab notebooks/{path.name}", f"../notebooks/{path.name}"))
    return cards


def page() -> str:
    """The gallery as Markdown."""
    parts = ["# Gallery\n", "Programs that come with hybridml, each run by its tests.\n"]
    for title, cards in (("Examples", examples()), ("Notebooks", notebooks())):
        parts.append(f"## {title}\n")
        for card in cards:
            lines = card.code.splitlines()
            code = "\n".join(lines[:24] + (["..."] if len(lines) > 24 else []))
            parts.append(f"### [{card.title}]({card.link})\n\n{card.about}\n\n```python\n{code}\n```\n\n```console\n{card.command}\n```\n")
    return "\n".join(parts)
