"""A traced function as one HTML page: source lines, kernels, IR and LLVM IR side by side, each leading to the others.

The page needs nothing but itself: the drawing is SVG that is laid out here, and forty lines of script light up what
belongs to the line, kernel, operation or IR line under the pointer. In notebooks it is shown in a frame of its own.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridml_compiler.graph.ir import Graph, Node
from hybridml_compiler.graph.text import graph_lines

from ..reports import size
from .drawing import draw_program
from .kernels import kernel_name, operations, shares, work_by_line

_MOST_LLVM = 2_000_000  # characters of LLVM IR in a page; kernels beyond it say where theirs is
_LONGEST = 20_000  # of one kernel

_STYLE = """
body{margin:0;font:12px sans-serif;color:#1a202c}
.page{display:grid;grid-template-columns:minmax(220px,26%) 1fr minmax(240px,30%);grid-template-rows:auto 1fr 32%;
 height:100vh;gap:4px}
.top{grid-column:1/4;padding:6px 10px;background:#edf2f7}.top button{margin-left:6px}
.pane{overflow:auto;border:1px solid #e2e8f0}.pane h4{margin:0;padding:4px 8px;background:#f7fafc;position:sticky;
 top:0;font-size:12px;z-index:1}.bottom{grid-column:1/4}
.row{font:11px/1.5 monospace;white-space:pre;padding:0 8px;cursor:default}.row .n{color:#718096}
.file{padding:4px 8px 0;color:#718096}
.bar{display:inline-block;height:.7em;background:#2b6cb0;margin-right:6px}
.edge{fill:none;stroke:#a0aec0;stroke-width:1.1}.e{cursor:pointer}
svg{display:block}svg text{font:11px sans-serif}svg text[font-size='9']{font-size:9px}
svg text[font-size='10']{font-size:10px}
.on{background:#fefcbf}g.on>rect{stroke:#b7791f;stroke-width:2.5;fill:#fefcbf}
.kernel.on>rect{fill:#fffff0;stroke:#b7791f;stroke-width:3}.picked{outline:2px solid #2b6cb0}
.detail{display:none;padding:4px 10px}.detail pre{font:11px/1.4 monospace;margin:4px 0}
"""

# `data-s` of an element: what it is, then what it belongs to. The pointer lights up all that belongs to one of them.
_SCRIPT = """
(function(){var all=[].slice.call(document.querySelectorAll('[data-s]')),by={},lit=[];
all.forEach(function(e){e.dataset.s.split(' ').forEach(function(k){(by[k]=by[k]||[]).push(e)})});
function of(t){return t&&t.closest?t.closest('[data-s]'):null}
function light(e){lit.forEach(function(x){x.classList.remove('on')});
 lit=e?(by[e.dataset.s.split(' ')[0]]||[]):[];lit.forEach(function(x){x.classList.add('on')})}
function seen(pane,e){var p=document.querySelector(pane);if(!p||!e)return;var a=p.getBoundingClientRect(),
 b=e.getBoundingClientRect();p.scrollTop+=b.top-a.top-a.height/3;if(b.left<a.left||b.right>a.right)
 p.scrollLeft+=b.left-a.left-a.width/3}
document.addEventListener('mouseover',function(v){light(of(v.target))});
document.addEventListener('click',function(v){var e=of(v.target);if(!e)return;light(e);
 ['.source','.graph','.ir'].forEach(function(p){if(!e.closest(p)){var f=lit.filter(function(x){return x.closest(p)});
 seen(p,f[0])}});
 var k=e.dataset.s.split(' ').filter(function(x){return x[0]=='k'})[0];if(k)show(k)});
function show(k){[].forEach.call(document.querySelectorAll('.detail'),function(d){
 d.style.display=d.id==k?'block':'none'});document.querySelector('.bottom').scrollTop=0}
show('k0');
var s=document.querySelector('.graph svg'),w=+s.getAttribute('width'),h=+s.getAttribute('height'),z=1;
function zoom(by){z=by?z*by:Math.min(1,(document.querySelector('.graph').clientWidth-20)/w);
 s.setAttribute('width',w*z);s.setAttribute('height',h*z)}
[].forEach.call(document.querySelectorAll('[data-zoom]'),function(b){
 b.addEventListener('click',function(){zoom(+b.dataset.zoom)})});
if(w>document.querySelector('.graph').clientWidth)zoom(Math.max(.7,Math.min(1,
 document.querySelector('.graph').clientWidth/w)))})();
"""


@dataclass(frozen=True)
class View:
    """What `fn.show()` returns: a page. Shown in notebooks; `save` writes it, `html` is its text."""

    title: str
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page as a file for any browser."""
        Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<{self.title}: {size(len(self.html))} of HTML; show it in a notebook, or save(path) it>"

    def _repr_html_(self) -> str:
        """In a frame: neither its style nor its script meets those of the notebook."""
        return (
            f"<iframe srcdoc='{html.escape(self.html, quote=True)}' title='{html.escape(self.title, quote=True)}' "
            "style='width:100%;height:680px;border:1px solid #cbd5e0'></iframe>"
        )


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
        title = f"{self.name}: {count} operations in {launched} kernel{'s' * (launched != 1)}"
        drawing = draw_program(self.launches, self.graph.outputs, self._keys)
        width, height = drawing.width + 40, drawing.height + 40
        zoom = "".join(
            f"<button data-zoom='{by}'>{label}</button>" for by, label in (("1.25", "+"), ("0.8", "−"), ("0", "fit"))
        )
        page = (
            f"<!DOCTYPE html><html><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
            f"<style>{_STYLE}</style></head><body><div class='page'>"
            f"<div class='top'><b>{html.escape(self.name)}</b> {html.escape(title[len(self.name) + 2 :])}{zoom} "
            "<span style='color:#718096'>Point at a line, kernel or operation to see what belongs to it; click to go "
            "there.</span></div>"
            f"<div class='pane source'><h4>Source lines, with their part of the arithmetic</h4>{self._lines()}</div>"
            f"<div class='pane graph'><svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' "
            f"height='{height:.0f}' viewBox='-20 -20 {width:.0f} {height:.0f}'>{drawing.body}</svg></div>"
            f"<div class='pane ir'><h4>Graph IR</h4>{self._ir()}</div>"
            f"<div class='pane bottom'>{self._details()}</div></div><script>{_SCRIPT}</script></body></html>"
        )
        return View(title, page)

    def _keys(self, kind: str, what: Any) -> str:
        """What an element is, then what it belongs to."""
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
        return f"data-s='{' '.join(keys)}'"

    def _lines(self) -> str:
        work = work_by_line(self.nodes)
        whole = max(sum(work.values()), 1)
        rows, file = [], ""
        for where in self.line:
            name, number, text = _parts(where)
            if name != file:
                rows.append(f"<div class='file'>{html.escape(name)}</div>")
                file = name
            share = work.get(where, 0) / whole
            bar = f"<span class='bar' style='width:{40 * share:.1f}px' title='{share:.1%}'></span>"
            space = f"<span style='display:inline-block;width:{46 - 40 * share:.1f}px'></span>"
            rows.append(
                f"<div class='row' {self._keys('l', where)}><span class='n'>{number:>4}</span> {bar}{space}"
                f"{html.escape(text)}</div>"
            )
        return "".join(rows)

    def _ir(self) -> str:
        lines, line_of = graph_lines(self.graph)
        node_at = {at: node for node, at in line_of.items() if node.op is not None}
        rows = []
        for at, text in enumerate(lines):
            keys = self._keys("n", node_at[at]) if at in node_at else ""
            rows.append(f"<div class='row' {keys}>{html.escape(text)}</div>")
        return "".join(rows)

    def _details(self) -> str:
        code, left = self._code(), _MOST_LLVM
        found = []
        for k, launch in enumerate(self.launches):
            lines = dict.fromkeys([*launch.where, *(line for line in shares(launch) if line)])
            facts = [*launch.reasons, *(f"at {line}" for line in lines)]
            text = code.get(k, "")
            if text and left < len(text):
                text = "(this page has enough LLVM IR; all of it is in fn.llvm)"
            left -= len(text)
            llvm = f"<pre>{html.escape(text)}</pre>" if text else ""
            found.append(
                f"<div class='detail' id='k{k}'><b>launch {k}: {html.escape(kernel_name(launch))}</b>, "
                f"{size(launch.nbytes)} read and written"
                f"<pre>{html.escape(chr(10).join(facts))}</pre>{llvm}</div>"
            )
        return "".join(found)

    def _code(self) -> Mapping[int, str]:
        """Launch -> LLVM IR of its kernel, where no launch before it has the same."""
        if self.stages is None:
            return {}
        works = self.stages.works
        known: dict[str, int] = {}
        found: dict[int, str] = {}
        _ = self.stages.modules
        for k, launch in enumerate(self.launches):
            if launch.work not in works:
                continue
            module = works.modules(launch.work)[-1]
            if module.symbol in known:
                found[k] = f"; the kernel of launch {known[module.symbol]}"
                continue
            known[module.symbol] = k
            text = module.emit()
            more = f"\n; ... {len(text) - _LONGEST} more characters in fn.llvm" if len(text) > _LONGEST else ""
            found[k] = text[:_LONGEST] + more
        return found


class _Interpreted:
    """What stands for a launch where a graph is interpreted."""

    work, nbytes, reasons, where = None, 0, (), ()

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)


def _parts(where: str) -> tuple[str, int, str]:
    """`file.py:12: y = x @ w` -> file, number, text."""
    place, _, text = where.partition(": ")
    name, _, number = place.rpartition(":")
    return name, int(number) if number.isdigit() else 0, text


def _by_file(where: str) -> tuple[str, int]:
    name, number, _ = _parts(where)
    return name, number
