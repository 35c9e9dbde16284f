"""A traced function as one HTML page: source lines, kernels, IR and LLVM IR side by side, each leading to the others.

The page needs nothing but itself: the drawing is SVG that is laid out here, and a script lights up what belongs to the
line, kernel, operation or IR line under the pointer. In notebooks it is shown in a frame of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hybridml_compiler.graph.flops import operations
from hybridml_compiler.graph.ir import Graph, Node
from hybridml_compiler.graph.text import graph_lines

from ..core.source_location import split_line
from ..display.reports import origin, render, size
from .drawing import draw_program
from .kernels import kernel_name, shares, work_by_line

_MOST_LLVM = 2_000_000  # characters of LLVM IR in a page; kernels beyond it say where theirs is
_LONGEST = 20_000  # of one kernel


@dataclass(frozen=True)
class View:
    """Page that `fn.show()` returns. Shown in notebooks; `save` writes it, `html` is its text."""

    title: str
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page as a file for any browser."""
        Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<{self.title}: {size(len(self.html))} of HTML; show it in a notebook, or save(path) it>"

    def _repr_html_(self) -> str:
        """The page in a frame: neither its style nor its script meets those of the notebook."""
        return render("frame.html.jinja", title=self.title, page=self.html)


def view(name: str, executable: Any, captured: Graph) -> View:
    """The page of a compiled program. Without a compiler (`backend="interpret"`) it has the graph alone."""
    stages = getattr(executable, "stages", None)
    graph: Graph = captured if stages is None else stages.graph
    return _Page(name, graph, stages).view()


class _Page:
    """Numbers for lines, launches and operations, and which belong together."""

    def __init__(self, name: str, graph: Graph, stages: Any) -> None:
        self.name, self.graph, self.stages = name, graph, stages
        self.nodes = [node for node in graph.nodes() if node.op is not None]
        self.launches: Sequence[Any] = stages.launches if stages is not None else [_Interpreted(self.nodes)]
        self.number = {node: k for k, node in enumerate(self.nodes)}
        self.kernels: dict[Node, list[int]] = {}
        for k, launch in enumerate(self.launches):
            for node in launch.nodes:
                self.kernels.setdefault(node, []).append(k)
        self.places: dict[str, list[Node]] = {}
        for node in self.nodes:
            for where in dict.fromkeys([node.where, *(n.where for n, _ in operations([node]))]):
                if where:
                    self.places.setdefault(where, []).append(node)
        self.lines_of: dict[Node, list[str]] = {}
        for where, nodes in self.places.items():
            for node in nodes:
                self.lines_of.setdefault(node, []).append(where)
        self.line = {where: k for k, where in enumerate(sorted(self.places, key=_by_file))}

    def view(self) -> View:
        count, launched = len(self.nodes), len(self.launches)
        subtitle = f"{count} operations in {launched} kernel{'s' * (launched != 1)}"
        page = render(
            "program.html.jinja",
            name=self.name,
            subtitle=subtitle,
            origin=origin(time.time()),
            files=self._lines(),
            drawing=draw_program(self.launches, self.graph.outputs, self._keys),
            ir=self._ir(),
            launches=self._details(),
        )
        return View(f"{self.name}: {subtitle}", page)

    def _keys(self, kind: str, what: Any) -> list[str]:
        """The key of an element, then those of what it belongs to: lines "l", operations "n", kernels "k"."""
        if kind == "k":
            nodes: Sequence[Node] = self.launches[what].nodes
            keys = [f"k{what}", *(f"n{self.number[node]}" for node in nodes if node in self.number)]
        else:
            nodes = [what] if kind == "n" else self.places[what]
            own = [f"n{self.number[node]}" for node in nodes if node in self.number]
            keys = [*([f"l{self.line[what]}"] if kind == "l" else []), *own]
            keys += [f"k{k}" for k in sorted({k for node in nodes for k in self.kernels.get(node, ())})]
        if kind != "l":
            keys += [f"l{k}" for k in sorted({self.line[w] for node in nodes for w in self.lines_of.get(node, ())})]
        return keys

    def _lines(self) -> dict[str, list[Line]]:
        """The source lines of each file."""
        spec = work_by_line(self.nodes)
        whole = max(sum(spec.values()), 1)
        files: dict[str, list[Line]] = {}
        for where in self.line:
            file, number, text = split_line(where)
            files.setdefault(file, []).append(Line(number, text, spec.get(where, 0) / whole, self._keys("l", where)))
        return files

    def _ir(self) -> list[tuple[str, list[str]]]:
        """The lines of the graph's text, each with its keys."""
        lines, line_of = graph_lines(self.graph)
        node_at = {at: node for node, at in line_of.items() if node.op is not None}
        return [(text, self._keys("n", node_at[at]) if at in node_at else []) for at, text in enumerate(lines)]

    def _details(self) -> list[Detail]:
        code, left = self._code(), _MOST_LLVM
        found = []
        for k, launch in enumerate(self.launches):
            lines = dict.fromkeys([*launch.where, *(line for line in shares(launch) if line)])
            text = code.get(k, "")
            if text and left < len(text):
                text = "(this page has enough LLVM IR; all of it is in fn.llvm)"
            left -= len(text)
            facts = [*launch.reasons, *(f"at {line}" for line in lines)]
            found.append(Detail(kernel_name(launch), launch.nbytes, facts, text))
        return found

    def _code(self) -> Mapping[int, str]:
        """Launch -> LLVM IR of its kernel, where no launch before it has the same."""
        if not hasattr(getattr(self.stages, "code", None), "module"):  # the CPU's has one per kernel
            return {}
        code = self.stages.code
        known: dict[str, int] = {}
        found: dict[int, str] = {}
        code.modules(self.stages.plan)
        for k, launch in enumerate(self.launches):
            module = code.module(launch.spec)
            if module is None:
                continue
            if module.symbol in known:
                found[k] = f"; the kernel of launch {known[module.symbol]}"
                continue
            known[module.symbol] = k
            text = module.emit()
            more = f"\n; ... {len(text) - _LONGEST} more characters in fn.llvm" if len(text) > _LONGEST else ""
            found[k] = text[:_LONGEST] + more
        return found


class Line(NamedTuple):
    """A source line with its share of the program's arithmetic."""

    number: int
    text: str
    share: float
    keys: list[str]


class Detail(NamedTuple):
    """A launch: its kernel, the bytes that it reads and writes, reasons and source lines, LLVM IR."""

    name: str
    nbytes: int
    facts: list[str]
    llvm: str


class _Interpreted:
    """Stand-in for a launch where a graph is interpreted."""

    spec, nbytes, reasons, where = None, 0, (), ()

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)


def _by_file(where: str) -> tuple[str, int]:
    name, number, _ = split_line(where)
    return name, number
