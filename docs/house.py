"""The house: rooms of both packages, their floors and arrows, read from the imports; a table and a drawing of them.

A room is a folder or a file of a package. Every import counts: at module level, deferred into a function, and for type
checking. A room stands one floor above the highest room that it imports. `python -m docs.house CHECKOUT` prints the
drawing of another checkout, as that of the house before its rooms.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
from jinja2 import Environment

DOCS = Path(__file__).parent
FRONT, COMPILER = "hybridml", "hybridml_compiler"
# Files of the compiler that know nothing of operations: one room in the table and in the drawing.
BASE = frozenset(
    ("locks", "in_force", "once", "time_limit", "walk", "weak", "errors", "hooks", "config", "dtypes", "sizes", "aval")
)
# The first clause of a docstring's first line, where it says enough.
SHORT = re.compile(r"^(.{26,}?)[.:]( .*|$)")
# Rooms of below that reach up when they are asked, each with the reason.
DOORS = {
    ("tracing", "inspect"): "`fn.explain`, `fn.graph`, `fn.run` load the inspector when they are called",
    ("tracing", "profiler"): "`fn.show`, `fn.save_html` load the pages when they are called",
    ("interop", FRONT): "tensors hand out the public namespace to whoever asks for it",
}


def sources(root: Path, package: str) -> dict[str, Path]:
    """Module -> file; a package is named without its `__init__`."""
    files = sorted((root / package).rglob("*.py"))
    return {".".join(f.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


def imported(path: Path, package: list[str]) -> Iterator[str]:
    """Dotted names that a file imports, each a module or a name in one; `package` is where the file stands."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    # Statements are a tenth of the nodes, and few files have an import among their expressions.
    for node in ast.walk(tree) if "import_module" in text else _statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func).endswith("import_module"):
            yield from (str(name.value) for name in node.args[:1] if isinstance(name, ast.Constant))


def _statements(body: list[Any]) -> Iterator[ast.AST]:
    """Statements in order, each before those inside of it, with the handlers and cases between them."""
    for node in body:
        yield node
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):
            yield from _statements(getattr(node, part, []))


def _name(function: ast.expr) -> str:
    """The last name of what is called: `import_module` for `importlib.import_module`."""
    return getattr(function, "attr", getattr(function, "id", ""))


def modules(root: Path, *packages: str) -> nx.DiGraph:
    """The modules of packages (both, unless they are named); an edge from each to every module that it imports."""
    files = {name: path for package in packages or (FRONT, COMPILER) for name, path in sources(root, package).items()}
    graph = nx.DiGraph()
    graph.add_nodes_from(files)
    for name, path in files.items():
        package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
        for target in imported(path, package):
            while target and target not in files:
                target = target.rpartition(".")[0]
            if target and target != name:
                graph.add_edge(name, target)
    return graph


def circles(graph: nx.DiGraph) -> list[set[str]]:
    """Sets of nodes that reach each other, the largest first."""
    return sorted((c for c in nx.strongly_connected_components(graph) if len(c) > 1), key=len, reverse=True)


def room(module: str) -> str:
    """The room of a module: `hybridml.core.autodiff.tape` is in `core`, the package itself is the room of its name."""
    package, _, rest = module.partition(".")
    name = rest.split(".")[0] or package
    return "base" if package == COMPILER and name in BASE else name


def rooms(graph: nx.DiGraph, package: str) -> nx.DiGraph:
    """The rooms of one package; an edge from each to every other that it imports."""
    inside = [module for module in graph if module.split(".")[0] == package]
    found = nx.DiGraph()
    found.add_nodes_from(map(room, inside))
    found.add_edges_from((room(a), room(b)) for a, b in graph.subgraph(inside).edges if room(a) != room(b))
    return found


def without_doors(found: nx.DiGraph) -> nx.DiGraph:
    """The rooms with the arrows that lead down."""
    return nx.restricted_view(found, [], [door for door in DOORS if found.has_edge(*door)])


def floors(found: nx.DiGraph) -> list[list[str]]:
    """The rooms by floor, the lowest first; rooms of one circle are on one floor."""
    whole = nx.condensation(found)
    names = whole.nodes(data="members")
    floors = nx.topological_generations(whole.reverse(copy=False))
    return [sorted(set().union(*(names[group] for group in floor))) for floor in floors]


def nearest(found: nx.DiGraph) -> nx.DiGraph:
    """The arrows that no chain of others replaces; within a circle all of them."""
    whole = nx.condensation(found)
    group = whole.graph["mapping"]
    kept = nx.transitive_reduction(whole)
    edges = [(a, b) for a, b in found.edges if group[a] == group[b] or kept.has_edge(group[a], group[b])]
    return found.edge_subgraph(edges).copy()


def about(package: str, name: str) -> str:
    """The first clause of a room's docstring."""
    if name == "base":
        return "errors, settings, data types, symbolic sizes, abstract values; locks and tables for threads and forks"
    place = DOCS.parent / package if name == package else DOCS.parent / package / name
    text = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text("utf-8")
    line = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return re.sub(SHORT, r"\1", line.removeprefix(f"{name}: ")).replace("|", "\\|")


def table(graph: nx.DiGraph, package: str) -> str:
    """Rows of a Markdown table: rooms from the top floor down, what each is for, the nearest rooms that it imports."""
    found = without_doors(rooms(graph, package))
    arrows = nearest(found)
    lines = ["| room | what it is for | imports, and what these import |", "|---|---|---|"]
    for floor in reversed(floors(found)):
        for name in floor:
            below = ", ".join(sorted(arrows.successors(name))) if name in arrows else ""
            folder = (DOCS.parent / package / name).is_dir()
            lines.append(f"| `{name}{'/' * folder}` | {about(package, name)} | {below} |")
    return "\n".join(lines)


WIDTH, ROOM, GAP, FLOOR = 1180, 26, 14, 62
DRAWING = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}" font-family="sans-serif" font-size="12">
<style>
  svg { background: #fff } path { fill: none; stroke: #9aa7b5 } .circle { stroke: #c33 }
  rect { fill: #eef3f8; stroke: #56708a } rect.circle { fill: #fbe9e7 } .house { fill: none; stroke: #ccc }
</style>
{%- for house in houses %}
<rect class="house" x="4" y="{{ house.y }}" width="{{ width - 8 }}" height="{{ house.height }}" rx="8"/>
<text x="14" y="{{ house.y + 18 }}" font-weight="bold">{{ house.title }}</text>
{%- for arrow in house.arrows %}
<path d="{{ arrow.path }}"{% if arrow.circle %} class="circle"{% endif %}/>
{%- endfor %}
{%- for box in house.boxes %}
<rect x="{{ box.x }}" y="{{ box.y }}" width="{{ box.width }}" height="{{ room }}" rx="4"{%- if box.circle %} \
class="circle"{% endif %}/>
<text x="{{ box.x + box.width // 2 }}" y="{{ box.y + 17 }}" text-anchor="middle">{{ box.name }}</text>
{%- endfor %}
{%- endfor %}
</svg>
"""


def house(found: nx.DiGraph, title: str, top: int) -> dict[str, Any]:
    """Where the rooms and arrows of one package are drawn, from `top` downward."""
    arrows = nearest(found)
    red: set[str] = set().union(*circles(found))
    rows = [batch for names in reversed(floors(found)) for batch in batched(names, red)]
    boxes: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        middles = {
            name: [boxes[above]["middle"] for above in found.predecessors(name) if above in boxes] for name in row
        }
        ordered = sorted(row, key=lambda name: (sum(middles[name]) / (len(middles[name]) or 1), name))
        widths = [20 + 7 * len(name) for name in ordered]
        gap = min(90, (WIDTH - 40 - sum(widths)) // (len(ordered) + 1))
        x = (WIDTH - sum(widths) - gap * (len(ordered) - 1)) // 2
        y = top + 30 + FLOOR * number
        for name, width in zip(ordered, widths, strict=True):
            place = {"x": x, "y": y, "width": width, "middle": x + width // 2}
            boxes[name] = {"name": name, "circle": name in red, **place}
            x += width + gap
    paths = [arrow(boxes[above], boxes[below]) for above, below in sorted(arrows.edges)]
    return {"title": title, "y": top, "height": 30 + FLOOR * len(rows), "boxes": list(boxes.values()), "arrows": paths}


def batched(names: list[str], red: set[str]) -> list[list[str]]:
    """The rows that a floor is drawn in: a large circle has no order, and takes several."""
    rows = [[name for name in names if name not in red]]
    inside = [name for name in names if name in red]
    rows += [inside[k : k + 9] for k in range(0, len(inside), 9)]
    return [row for row in rows if row]


def arrow(above: dict[str, Any], below: dict[str, Any]) -> dict[str, object]:
    """An arrow from a room down to one that it imports; in a circle, a line between the two."""
    x, y, x2, y2 = above["middle"], above["y"] + ROOM, below["middle"], below["y"]
    if above["circle"] and below["circle"]:
        return {"path": f"M{x} {y - ROOM // 2} L{x2} {y2 + ROOM // 2}", "circle": True}
    middle = (y + y2) // 2
    return {"path": f"M{x} {y} C{x} {middle} {x2} {middle} {x2} {y2}", "circle": False}


def count(number: int, noun: str) -> str:
    """`1 room`, `2 rooms`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def drawing(graph: nx.DiGraph) -> str:
    """Both packages as SVG, each room above the rooms that it imports; circles of rooms in red."""
    houses: list[dict[str, Any]] = []
    top = 4
    for package in (FRONT, COMPILER):
        found = without_doors(rooms(graph, package))
        title = f"{package}: {count(len(found), 'room')} on {count(len(floors(found)), 'floor')}"
        if red := circles(found):
            title += f", {len(red[0])} of them in one circle"
        houses.append(house(found, title, top))
        top += houses[-1]["height"] + 12
    return Environment(autoescape=True).from_string(DRAWING).render(houses=houses, width=WIDTH, height=top, room=ROOM)


def section(graph: nx.DiGraph) -> str:
    """The generated part of the page: the rooms of both packages, and the doors."""
    parts = [f"### `{package}`\n\n{table(graph, package)}\n" for package in (FRONT, COMPILER)]
    found = rooms(graph, FRONT)
    reasons = [f"- `{a}` -> `{b}`: {DOORS[a, b]}.\n" for a, b in DOORS if found.has_edge(a, b)]
    return "\n".join(parts) + "\nDoors, imports that lead up and are made late:\n\n" + "".join(reasons)


BEGIN, END = "<!-- rooms, written by `make docs` from the imports -->\n", "<!-- end of the rooms -->\n"


def pages() -> dict[Path, str]:
    """The page about the architecture with its table as the imports are now, and the drawing, by their paths."""
    graph, page = modules(DOCS.parent), DOCS / "architecture.md"
    head, _, rest = page.read_text("utf-8").partition(BEGIN)
    return {
        page: head + BEGIN + section(graph) + END + rest.partition(END)[2],
        DOCS / "house.svg": drawing(graph),
    }


if __name__ == "__main__":
    sys.stdout.write(drawing(modules(Path(sys.argv[1]) if sys.argv[1:] else DOCS.parent)))
