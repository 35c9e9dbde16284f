"""Text of the graph dialect: `print_graph` and its exact inverse `parse_graph`.

    text   = {graph NEWLINE} graph                            the bodies of control operations, then the graph itself
    graph  = "graph" name [sizes] "(" [input {", " input}] ") {" NEWLINE {node NEWLINE} return NEWLINE "}"
    sizes  = "[" symbol {", " symbol} "]"
    symbol = word "=" digits ["<=" size]                      a size, and what it was when the graph was captured; a
                                                              step of a loop, and the greatest that it can be
    input  = id [" " string] ": " aval                        %0 "x": f32[4,8]    %1: f32[n,2*n+1]
    node   = id " = " op "(" [id {", " id}] ")" [" {" param {", " param} "}"] " : " aval
           | id " = const " data " : " aval
    return = ["check " id {", " id} NEWLINE] "return" [" " id {", " id}]     checks: computed for their errors alone
    data   = literal | "base64 " string                       1.5    [[1, 2], [3, 4]]    base64 "AACAPw=="
    param  = word "=" value
    value  = True | False | None | number | nan | inf | string | dtype | size | "(" {value ","} ")" | name of a body
           | "complex(" value ", " value ")"
    op     = word ["@" word]        the version of a user's row (ops/custom.py)
    name   = word | string          word: letters, digits, "_" and "."; string: a JSON string
    id     = "%" digits             numbered in order: the inputs, then operands before their users

A comment is `#` to the end of the line. Equal graphs have equal text, so the text is also the key of a compiled kernel.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import aval as avals
from .. import dtypes
from ..aval import Aval
from ..errors import LOCATION, ArgumentError, HybridmlError
from ..ops.custom import CUSTOM
from ..ops.op import Op
from ..ops.table import OPS, WITH_BODIES
from ..sizes.dims import symbol
from ..sizes.guards import Guards, collecting
from ..sizes.values import parse as parse_size
from .body import Body, bodies_of, body_of
from .ir import Graph, Node, apply, constant, input_node, symbols_in

_LITERAL_SIZE = 16  # elements; more would make a line that nobody reads


def print_graph(graph: Graph, *, locations: bool = False) -> str:
    """The graph as text, one node per line; `locations` adds the user's line of each node as a comment.

    >>> x = input_node(avals.parse("f32[3]"), "x")
    >>> print(print_graph(Graph((x,), (apply(OPS["negative"], [x]),), "step")))
    graph step(%0 "x": f32[3]) {
      %1 = negative(%0) : f32[3]
      return %1
    }
    """
    lines, _ = graph_lines(graph, locations=locations)
    return "\n".join(lines)


def graph_lines(graph: Graph, *, locations: bool = False) -> tuple[list[str], dict[Node, int]]:
    """The lines of the text, and for each node of `graph` itself the line it is on. Also prints graphs that `verify`
    refuses."""
    names: dict[Body, str] = {}
    lines: list[str] = []
    for body in _bodies(graph, {}):
        names[body] = f"body{len(names)}"
        lines += _lines_of(body.graph, names[body], names, locations)[0]
    own, line_of = _lines_of(graph, graph.name, names, locations)
    return lines + own, {node: len(lines) + line for node, line in line_of.items()}


def _bodies(graph: Graph, found: dict[Body, None]) -> dict[Body, None]:
    """The bodies that a graph holds, each after those that it holds itself."""
    for node in graph.nodes():
        for body in bodies_of(node):
            if body not in found:
                _bodies(body.graph, found)
                found[body] = None
    return found


def _lines_of(graph: Graph, name: str, names: Mapping[Body, str], locations: bool) -> tuple[list[str], dict[Node, int]]:
    nodes = graph.nodes()
    ids = {node: f"%{k}" for k, node in enumerate(nodes)}
    inputs = ", ".join(f"{ids[n]}{' ' + _quote(n.name) if n.name else ''}: {n.aval}" for n in graph.inputs)
    name = name if _WORD.fullmatch(name) else _quote(name)
    symbols = ", ".join(s.text for s in symbols_in(nodes))
    lines = [f"graph {name}{f'[{symbols}]' if symbols else ''}({inputs}) {{"]
    line_of = dict.fromkeys(graph.inputs, 0)
    for node in nodes[len(line_of) :]:
        if node.op is not None:
            what = f"{node.op.key}({', '.join([ids[n] for n in node.inputs])})"
            if node.params:
                what += (
                    f" {{{', '.join([f'{key}={_show(value, names)}' for key, value in sorted(node.params.items())])}}}"
                )
        else:
            what = f"input {_quote(node.name)}" if node.value is None else f"const {_show_data(node.value)}"
        line_of[node] = len(lines)
        where = f"  # {node.where}" if locations and node.where else ""
        lines.append(f"  {ids[node]} = {what} : {node.aval}{where}")
    outputs, checks = (", ".join(ids[n] for n in roots) for roots in (graph.outputs, graph.checks))
    if checks:
        lines.append(f"  check {checks}")
    lines.append(f"  return {outputs}".rstrip())
    lines.append("}")
    return lines, line_of


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _show(value: Any, names: Mapping[Body, str]) -> str:
    if isinstance(value, Body):
        return names[value]
    if isinstance(value, np.dtype):
        return dtypes.short(value) if dtypes.is_known(value) else repr(value)
    if type(value) is tuple:
        return f"({', '.join([_show(v, names) for v in value])}{',' if len(value) == 1 else ''})"
    if type(value) is complex:
        return f"complex({value.real!r}, {value.imag!r})"
    return _quote(value) if type(value) is str else repr(value)


def _show_data(value: np.ndarray) -> str:
    if value.size <= _LITERAL_SIZE and value.dtype in dtypes.ALL and value.dtype.kind != "c":
        text = _show_literal(value)
        if _read_data(text, Aval(value.shape, value.dtype)).tobytes() == value.tobytes():  # not so for a marked nan
            return text
    return f'base64 "{base64.b64encode(value.tobytes()).decode()}"'


def _show_literal(value: np.ndarray) -> str:
    if value.ndim:
        return f"[{', '.join(map(_show_literal, value))}]"
    return str(value[()])  # the shortest digits that give back this value in its own dtype


_WORD = re.compile(r"[A-Za-z_][\w.]*")
_OP = re.compile(r"[A-Za-z_][\w.]*(@\w+)?")
_ID = re.compile(r"%\d+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_AVAL = re.compile(r"[a-z]+\d*\[[^\]]*\]~?(?:@[^\s,)#]+)?")
_SIZES = re.compile(r"\[[^\]]*\]")
_PARAMS = re.compile(r"""\{((?:"(?:[^"\\]|\\.)*"|[^{}"])*)\}""")
_LITERAL = re.compile(r"[-+\w.\[\], ]*?(?= :)")
_SPACE = re.compile(r"[ \t]*(?:#.*)?")
NO_SYMBOLS: Mapping[str, Any] = {}
_NAMES: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    **{dtypes.short(d): d for d in (*dtypes.ALL, dtypes.float16)},
}


class _Line:
    """One line and how far it has been read."""

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number, self.at = text, number, 0
        self.skip()

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def read(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.error(f"expected {what}")
        self.at = found.end()
        self.skip()
        return found.group()

    def reads(self, token: str) -> bool:
        """Step over `token` if it comes next."""
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        self.skip()
        return True

    def expect(self, token: str) -> None:
        if not self.reads(token):
            raise self.error(f"expected {token!r}")

    def end(self) -> None:
        if self.at < len(self.text):
            raise self.error("expected the end of the line")

    def error(self, message: str) -> ArgumentError:
        rest = self.text[self.at :]
        got = repr(rest[:40] + "..." * (len(rest) > 40)) if rest else "the end of the line"
        shown = f"\n  {self.text.strip()[:120]}" if self.text.strip() else ""
        return ArgumentError(f"parse_graph: line {self.number}, column {self.at + 1}: {message}, got {got}{shown}")


class _Parser:
    def __init__(self, text: str, ops: Mapping[str, Op]) -> None:
        numbered = (_Line(line, k) for k, line in enumerate(text.split("\n"), 1))
        self.lines = [line for line in numbered if line.at < len(line.text)]
        self.last = text.count("\n") + 1
        self.ops = ops
        self.nodes: dict[str, Node] = {}
        self.symbols: dict[str, Any] = {}
        self.params: dict[str, dict[str, Any]] = {}  # parsed text: most nodes repeat the parameters of another
        self.bodies: dict[str, Body] = {}  # graphs above the present one, by name

    def text(self) -> Graph:
        """The last graph of the text; those before it are bodies."""
        graph = self.graph()
        while self.lines:
            self.bodies[graph.name] = body_of(graph)
            graph = self.graph()
        return graph

    def graph(self) -> Graph:
        if not self.lines:
            raise _Line("", self.last).error("expected 'graph'")
        self.nodes = {}
        name, inputs = self.header(self.lines[0])
        checks: tuple[Node, ...] = ()
        for k, line in enumerate(self.lines[1:], 1):
            if line.reads("check"):
                checks = tuple(self.ids(line))
                line.end()
                continue
            if not line.reads("return"):
                self.node(line)
                continue
            outputs = tuple(self.ids(line)) if line.at < len(line.text) else ()
            line.end()
            close = self.lines[k + 1] if k + 1 < len(self.lines) else _Line("", self.last)
            close.expect("}")
            close.end()
            self.lines = self.lines[k + 2 :]
            return Graph(inputs, outputs, name, checks)
        raise _Line("", self.last).error("expected 'return'")

    def header(self, line: _Line) -> tuple[str, tuple[Node, ...]]:
        line.expect("graph")
        quoted = line.text.startswith('"', line.at)
        name = self.name(line) if quoted else line.read(_WORD, "the name of the graph")
        if line.text.startswith("[", line.at):
            self.symbols = self.sizes(line)
        line.expect("(")
        inputs: list[Node] = []
        while not line.reads(")"):
            if inputs:
                line.expect(",")
            key = self.new_id(line)
            label = self.name(line)
            line.expect(":")
            self.nodes[key] = input_node(self.aval(line), label)
            inputs.append(self.nodes[key])
        line.expect("{")
        line.end()
        return name, tuple(inputs)

    def sizes(self, line: _Line) -> dict[str, Any]:
        at = line.at
        found: dict[str, Any] = {}
        try:
            for text in line.read(_SIZES, "sizes").strip("[]").split(","):
                given, _, most = text.partition("<=")
                name, size = (part.strip() for part in given.split("="))
                found[name] = symbol(name, int(size), parse_size(most, found) if most else None)
            return found
        except (ValueError, ArgumentError):
            line.at = at
            raise line.error("expected sizes such as [n=64, m=10]") from None

    def node(self, line: _Line) -> None:
        key = self.new_id(line)
        line.expect("=")
        op_at = line.at
        name = line.read(_OP, "an operation or 'const'")
        if name == "const":
            self.nodes[key] = self.constant(line)
        else:
            line.expect("(")
            inputs = [] if line.text.startswith(")", line.at) else self.ids(line)
            line.expect(")")
            params = self.parameters(line) if line.text.startswith("{", line.at) else {}
            line.expect(":")
            aval_at = line.at
            aval = self.aval(line)
            if name not in self.ops:
                line.at = op_at
                raise line.error("expected the name of a row of the operation table")
            op = self.ops[name]
            try:
                if not op.variadic and len(inputs) != len(op.inputs):
                    raise ArgumentError(f"{name}: takes {len(op.inputs)} inputs, got {len(inputs)}")
                node = apply(op, inputs, params, device=aval.device)
            except (HybridmlError, TypeError) as error:
                line.at = op_at
                reason = str(error).partition(LOCATION)[0]  # the line that matters is the one of this text
                raise line.error(f"expected an application that {name} accepts ({reason})") from error
            if node.aval != aval:
                line.at = aval_at
                raise line.error(f"expected {node.aval}, which is what {name} makes of these inputs")
            self.nodes[key] = node
        line.end()

    def constant(self, line: _Line) -> Node:
        at = line.at
        text = "base64 " + line.read(_STRING, "a string") if line.reads("base64") else line.read(_LITERAL, "a literal")
        line.expect(":")
        aval = self.aval(line)
        try:
            return constant(_read_data(text, aval), weak=aval.weak, device=aval.device)
        except (ValueError, SyntaxError, TypeError, OverflowError) as error:
            line.at = at
            raise line.error(f"expected data of {aval} ({error})") from error

    def parameters(self, line: _Line) -> dict[str, Any]:
        at = line.at
        text = line.read(_PARAMS, "'{name=value, ...}'")
        found = self.params.get(text)
        if found is None:
            try:
                call = ast.parse(f"_({text[1:-1]})", mode="eval").body
                if not isinstance(call, ast.Call) or call.args:
                    raise ValueError("a parameter is name=value")
                found = self.params[text] = {str(k.arg): self.value(k.value) for k in call.keywords}
            except (ValueError, SyntaxError) as error:
                line.at = at
                raise line.error(f"expected '{{name=value, ...}}' ({error})") from error
        return found

    def value(self, node: ast.expr) -> Any:
        return (
            self.bodies[node.id]
            if isinstance(node, ast.Name) and node.id in self.bodies
            else _value(node, self.symbols)
        )

    def ids(self, line: _Line) -> list[Node]:
        found = [self.known(line)]
        while line.reads(","):
            found.append(self.known(line))
        return found

    def known(self, line: _Line) -> Node:
        at = line.at
        key = line.read(_ID, "a value such as %0")
        if key not in self.nodes:
            line.at = at
            raise line.error("expected a value that is defined above")
        return self.nodes[key]

    def new_id(self, line: _Line) -> str:
        at = line.at
        key = line.read(_ID, "a value such as %0")
        if key in self.nodes:
            line.at = at
            raise line.error("expected a value that is not yet defined")
        return key

    def name(self, line: _Line) -> str:
        """A quoted name, or "" when none comes next."""
        return str(json.loads(line.read(_STRING, "a string"))) if line.text.startswith('"', line.at) else ""

    def aval(self, line: _Line) -> Aval:
        at = line.at
        text = line.read(_AVAL, "a type such as f32[4,8]")
        try:
            return avals.parse(text, self.symbols)
        except (KeyError, ValueError):
            line.at = at
            raise line.error("expected a type such as f32[4,8]") from None


def parse_graph(text: str, ops: Mapping[str, Op] = ChainMap(OPS, WITH_BODIES, CUSTOM)) -> Graph:
    """Inverse of `print_graph`. Nodes go through `apply`: shapes are checked and equal nodes become one.

    `ArgumentError` names the line, what was expected there, and what was found.
    """
    with collecting(Guards()):
        return _Parser(text, ops).text()


def _read_data(text: str, aval: Aval) -> np.ndarray:
    if text.startswith("base64"):
        data: Any = np.frombuffer(base64.b64decode(text[8:-1], validate=True), aval.dtype)
    else:
        data = _value(ast.parse(text, mode="eval").body)
        if aval.dtype.kind != "f":
            data = np.array(data, dtype=aval.dtype) if data != [] else np.zeros(0, aval.dtype)
    return np.asarray(data, dtype=aval.dtype).reshape(aval.shape)


def _value(node: ast.expr, symbols: Mapping[str, Any] = NO_SYMBOLS) -> Any:
    """A Python literal, a size, or a name for one value: nan, inf, a dtype."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.Name(id="bf16"):
            return dtypes.from_short("bf16")
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Name() | ast.BinOp() if symbols:
            return parse_size(ast.unparse(node), symbols)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, symbols)
        case ast.Call(func=ast.Name(id="complex"), args=[real, imag]):
            return complex(_value(real), _value(imag))
        case ast.Tuple(elts=items):
            return tuple([_value(item, symbols) for item in items])
        case ast.List(elts=items):
            return [_value(item, symbols) for item in items]
    raise ValueError(f"{ast.unparse(node)!r} is not a value of the graph dialect")
