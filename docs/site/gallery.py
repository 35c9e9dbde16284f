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
    """A program of the gallery, as its card tells it."""

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
            title = re.split(r"[:,.]", doc, maxsplit=1)[0]
            about = re.sub(r"\s*``python -m [^`]+``$", "", doc).replace("\n", " ")
            cards.append(Card(title, about, _shown(tree, text), command[1], f"../hybridml_examples/{path.name}"))
    return cards


def _shown(tree: ast.Module, text: str) -> str:
    """The shortest class with `forward`, or else the shortest function that trains."""
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for word in ("forward", "backward"):
        found = [ast.get_source_segment(text, node) or "" for node in nodes if f"'{word}'" in ast.dump(node)]
        if found:
            return min(found, key=len)
    return ""


def notebooks() -> list[Card]:
    """The notebooks, by their first lines and the first function that they define."""
    cards = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        heading, _, about = "".join(cells[0]["source"]).partition("\n")
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        shown = next((text for text in code if "def " in text), "")
        command = f"jupyter lab notebooks/{path.name}"
        about = about.strip().partition("\n\n")[0]
        cards.append(Card(heading.lstrip("# "), about, shown, command, f"../notebooks/{path.name}"))
    return cards


def _card(card: Card) -> str:
    lines = card.code.splitlines()
    code = "\n".join(lines[:LINES] + ["..."] * (len(lines) > LINES))
    shown = f"```python\n{code}\n```\n\n" if code else ""
    return f"### [{card.title}]({card.link})\n\n{card.about}\n\n{shown}```console\n{card.command}\n```\n"


def page() -> str:
    """The gallery as Markdown."""
    parts = ["# Gallery\n", "Programs that come with hybridml, each run by its tests."]
    for title, cards in (("Examples", examples()), ("Notebooks", notebooks())):
        parts += [f"## {title}\n", *map(_card, cards)]
    return "\n".join(parts)
