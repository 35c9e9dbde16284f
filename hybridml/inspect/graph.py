"""Graph: what a traced function computes, as a read-only object (`fn.graph`).

It is the graph of a whole path as captured: all that leads to what the call returns and writes. Where Python asked for
values on the way, `fn.ir` is cut there and numbers the nodes of each segment anew; `fn.run(fetch=...)` has the names of
the graph. What only decides which path is taken (`x.sum() > 0`) is in `ir` alone.

Nodes of the compiler never change, and the graph keeps no tensor of the user, so it stays valid after other calls and
when the function is gone. Equal nodes are one (hash-consing), so an operation that no input leads to, as `hm.eye(3)` in
two programs, has the line of the program that made it first.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex, overload

import numpy as np

from hybridml_compiler.errors import ArgumentError, line_name
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import Body
from hybridml_compiler.graph.text import print_graph
from hybridml_compiler.once import lazy
from hybridml_compiler.sizes.dims import is_dim

from ..core.source_location import split_line
from ..tracing.run.compiled_path import CompiledPath

if TYPE_CHECKING:
    import networkx

    from .graph_svg import GraphDrawing


class _ReadOnly:
    """Base class of objects whose attributes are set by `_set` alone. A copy of one is itself."""

    def _set(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{name} of {self!r} cannot be set: it is read-only, as it shows what was traced; to_networkx() of a graph "
            "makes a copy to change"
        )

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle {self!r}: it belongs to the compiler of this process; pickle graph.to_networkx(), or "
            "its text, str(graph)"
        )


class Node(_ReadOnly):
    """A value of a graph: an input, a constant, or an operation applied to other nodes. Hashable, compared by `is`.

    >>> import hybridml as hm
    >>> f = hm.trace(lambda x: hm.exp(hm.sum(x, axis=0)))
    >>> y = f(hm.ones((3, 2)))
    >>> node = f.graph["%1"]
    >>> node.op, node.shape, node.dtype.name, node.params["axis"]
    ('sum', (2,), 'float32', (0,))
    >>> node.inputs, node.users
    ((<%0 = input "x" : f32[3,2]>,), (<%2 = exp(%1) : f32[2]>,))
    """

    name: str  # as in the text of the graph: "%3"
    op: str  # name of the operation; "input" or "const" for what none computes
    kind: str  # how it is computed: "elementwise", "reduction", "control" ...; "" for inputs and constants
    inputs: tuple[Node, ...]  # operands by their positions
    users: tuple[Node, ...]  # nodes that read this one, each once, in execution order
    shape: tuple[int | str, ...]  # a size that comes with the call is a string: "n"
    dtype: np.dtype[Any]
    type: str  # shape and dtype as in the text: "f32[3]"
    params: Mapping[str, Any]  # parameters of the operation, but for the subgraphs
    subgraphs: Mapping[str, Graph]  # of a loop ("body", "condition") or a branch ("true", "false")
    label: str  # of an input: the user's name for it, such as "x" or "model[0].weight"
    line: str  # the user's line that asked for it, "model.py:12", of an input the first; "" where there is none
    source: str  # text of that line
    value: np.ndarray | None  # data of a constant, read-only
    device: str  # that computes it, or that it is on

    def __init__(
        self, name: str, node: ir.Node, made: Mapping[ir.Node, Node], graphs: dict[Body, Graph], device: str
    ) -> None:
        """Wraps a node. `made`: nodes of the operands; `graphs`: subgraphs made so far, to which its own are added."""
        bodies = {key: value for key, value in node.params.items() if isinstance(value, Body)}
        for part, body in bodies.items():
            if body not in graphs:
                graphs[body] = Graph(body.graph, name=part)
        file, number, source = split_line(node.where)
        self._set(
            name=name,
            op=node.op.name if node.op is not None else "input" if node.is_input else "const",
            kind=node.kind,
            inputs=tuple([made[operand] for operand in node.inputs]),
            shape=_plain(node.shape),
            dtype=node.dtype,
            type=str(node.aval),
            params=MappingProxyType({key: _plain(v) for key, v in node.params.items() if key not in bodies}),
            subgraphs=MappingProxyType({key: graphs[body] for key, body in bodies.items()}),
            label=node.name,
            line=line_name(file, number) if number else file,
            source=source,
            value=node.value,
            device=device,
        )

    def __repr__(self) -> str:
        operands = f"({', '.join(node.name for node in self.inputs)})" if self.kind else ""
        label = f' "{self.label}"' if self.label else ""
        value = f" {self.value}" if self.value is not None and self.shape == () else ""
        return f"<{self.name} = {self.op}{label}{value}{operands} : {self.type}>"


@dataclass(frozen=True)
class _Ends:
    """Roles of a path's inputs and outputs: the captured tensors among its inputs; returned tensors, each as an input
    or the position of an output; names with the positions of the outputs that are new values and new gradients."""

    captured: frozenset[ir.Node]
    results: Sequence[int | ir.Node]
    updates: Mapping[str, int]
    gradients: Mapping[str, int]


class Graph(_ReadOnly):
    """The program of a traced function: nodes in execution order, inputs first. Made by `fn.graph`.

    Iteration and `len` are over the nodes. `graph["%3"]` and `graph[3]` are a node by its name and its number,
    `graph["x"]` is an input by the user's name for it; ArgumentError where there is none. `graph[:3]` is a tuple of
    nodes. `str(graph)` is the text of the graph IR. Nothing in it can be changed (AttributeError), so that a copy is
    the graph itself; it cannot be pickled (TypeError).

    >>> import hybridml as hm
    >>> f = hm.trace(lambda x, y: (x @ y).sum())
    >>> z = f(hm.ones((2, 3)), hm.ones((3, 4)))
    >>> f.graph
    <graph <lambda>: 4 nodes, 2 inputs, 1 output>
    >>> [node.op for node in f.graph]
    ['input', 'input', 'matmul', 'sum']
    >>> f.graph["x"].users
    (<%2 = matmul(%0, %1) : f32[2,4]>,)
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    captured: tuple[Node, ...]  # the inputs that are no arguments: parameters, state of optimizers and generators
    constants: tuple[Node, ...]
    outputs: tuple[Node, ...]  # tensors that the function returns; of one that is a view, what it is a view of
    updates: Mapping[str, Node]  # new values of what is updated in place, by the names of the inputs
    gradients: Mapping[str, Node]  # new values of `.grad`, by the names of the inputs
    checks: tuple[Node, ...]  # nodes that are computed only for the errors that they raise
    _graph: ir.Graph
    _ends: _Ends
    _stages: Any
    _where: Mapping[ir.Node, str]
    _known: Mapping[str, Node]

    def __init__(
        self,
        graph: ir.Graph,
        ends: _Ends | None = None,
        stages: Any = None,
        name: str = "",
        where: Mapping[ir.Node, str] = MappingProxyType({}),
    ) -> None:
        """Wraps a graph. `stages`: those of the compiler, for `optimized`; `name`: that of a subgraph; `where`: devices
        of operations that are computed elsewhere than on that of their value."""
        ends = ends or _Ends(frozenset(), range(len(graph.outputs)), {}, {})
        made: dict[ir.Node, Node] = {}
        graphs: dict[Body, Graph] = {}
        users: dict[Node, dict[Node, None]] = {}
        for k, node in enumerate(graph.nodes()):
            new = made[node] = Node(f"%{k}", node, made, graphs, where.get(node, node.aval.device))
            users[new] = {}
            for operand in new.inputs:
                users[operand][new] = None
        for new, readers in users.items():
            new._set(users=tuple(readers))
        outputs = [made[node] for node in graph.outputs]
        self._set(
            name=name or graph.name,
            nodes=tuple(users),
            inputs=tuple([made[node] for node in graph.inputs]),
            captured=tuple([made[node] for node in graph.inputs if node in ends.captured]),
            constants=tuple([new for new in users if new.op == "const"]),
            outputs=tuple([outputs[k] if isinstance(k, int) else made[k] for k in ends.results]),
            updates=MappingProxyType({name: outputs[k] for name, k in ends.updates.items()}),
            gradients=MappingProxyType({name: outputs[k] for name, k in ends.gradients.items()}),
            checks=tuple([made[node] for node in graph.checks]),
            _graph=graph,
            _ends=ends,
            _stages=stages,
            _where=where,
            _known={node.label: node for node in map(made.__getitem__, reversed(graph.inputs)) if node.label}
            | {node.name: node for node in users},
        )

    @lazy
    def _optimized(self) -> Graph:
        return self if self._stages is None else Graph(self._stages.graph, self._ends)

    @property
    def optimized(self) -> Graph:
        """The graph after the compiler's passes, from which kernels are made: simplified, with nodes of its own names.

        Where Python asked for values on the way (`if x.sum() > 0`), what is computed after the last of them. Itself
        where nothing is compiled (`backend="interpret"`), for a subgraph, and for an optimized graph.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: (x * 1) + 0 * 2)
        >>> y = f(hm.ones((3,)))
        >>> len(f.graph) > len(f.graph.optimized)
        True
        """
        return self._optimized

    @property
    def edges(self) -> tuple[tuple[Node, Node, int], ...]:
        """Triples (operand, node that reads it, position among the operands), in execution order."""
        return tuple([(a, b, k) for b in self.nodes for k, a in enumerate(b.inputs)])

    def nodes_at(self, line: str | int) -> tuple[Node, ...]:
        """Operations that a line of the user asked for: `"model.py:12"`, or 12 in whatever file. Empty for others.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x))
        >>> y = f(hm.ones((3,)))
        >>> f.graph.nodes_at(f.graph.outputs[0].line)
        (<%1 = exp(%0) : f32[3]>,)
        """
        operations = [node for node in self.nodes if node.kind]
        if isinstance(line, int):
            return tuple([node for node in operations if node.line.endswith(f":{line}")])
        return tuple([node for node in operations if node.line == line])

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __contains__(self, node: object) -> bool:
        return node in self._known if isinstance(node, str) else node in self.nodes

    @overload
    def __getitem__(self, name: str | SupportsIndex) -> Node: ...
    @overload
    def __getitem__(self, name: slice) -> tuple[Node, ...]: ...
    def __getitem__(self, name: str | SupportsIndex | slice) -> Node | tuple[Node, ...]:
        if isinstance(name, str):
            if name in self._known:
                return self._known[name]
        elif isinstance(name, slice) or hasattr(name, "__index__"):
            try:
                return self.nodes[name]
            except IndexError:
                pass
        near = difflib.get_close_matches(str(name), self._known, 3)
        labels = near or [node.label for node in self.inputs if node.label][:8]
        last = f"%0 to %{len(self.nodes) - 1}" if self.nodes else "none here"
        raise ArgumentError(
            f"graph {self.name}: no node is called {name!r}; names are those of nodes ({last}) and of inputs "
            f"({', '.join(labels) or 'none here'})"
        )

    def __repr__(self) -> str:
        counts = (("node", self.nodes), ("input", self.inputs), ("output", self.outputs))
        parts = [f"{len(nodes)} {noun}{'s' * (len(nodes) != 1)}" for noun, nodes in counts]
        return f"<graph {self.name}: {', '.join(parts)}>"

    def __str__(self) -> str:
        return print_graph(self._graph)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A copy as a `networkx.MultiDiGraph`: nodes by their names, an edge for each operand.

        Nodes have the attributes `op`, `shape`, `dtype`, `params`, `label`, `line`, `source`, `device`, and
        `subgraphs`, which are graphs of the same form; an edge has its position among the operands as its key and as
        `position`. The graph has `name`, and `inputs`, `outputs`, `updates` and `gradients` by the names of nodes.

        >>> import networkx as nx
        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x) * hm.sin(x))
        >>> y = f(hm.ones((3,)))
        >>> net = f.graph.to_networkx()
        >>> net.nodes["%1"]["op"], sorted(nx.descendants(net, "%0"))
        ('exp', ['%1', '%2', '%3'])
        """
        import networkx

        def names(nodes: tuple[Node, ...]) -> list[str]:
            return [node.name for node in nodes]

        net = networkx.MultiDiGraph(
            name=self.name,
            inputs=names(self.inputs),
            outputs=names(self.outputs),
            updates={name: node.name for name, node in self.updates.items()},
            gradients={name: node.name for name, node in self.gradients.items()},
        )
        for node in self.nodes:
            net.add_node(
                node.name,
                op=node.op,
                shape=node.shape,
                dtype=node.dtype.name,
                params=dict(node.params),
                label=node.label,
                line=node.line,
                source=node.source,
                device=node.device,
                subgraphs={name: graph.to_networkx() for name, graph in node.subgraphs.items()},
            )
        net.add_edges_from((a.name, b.name, k, {"position": k}) for a, b, k in self.edges)
        return net

    def draw(self, path: str | os.PathLike[str] | None = None) -> GraphDrawing:
        """The graph as a drawing, SVG: operations in boxes, those of one source line in a larger one.

        Shown in notebooks; written to `path` where it is given, for a browser. Of more than 160 operations the lines
        are closed boxes, of more than 120 boxes the first are drawn, which the drawing says.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x) * 2)
        >>> y = f(hm.ones((3,)))
        >>> f.graph.draw().svg[:4]
        '<svg'
        """
        from ..display.drawing import describe
        from .graph_svg import draw, some_names

        nodes = self._graph.nodes()

        def originals(shown: Iterable[Node]) -> list[ir.Node]:
            return [nodes[int(node.name[1:])] for node in dict.fromkeys(shown)]

        returned = originals(self.outputs)
        ends = [(f"returns {describe(returned)}", returned)]
        for label, named in (("updates", self.updates), ("sets .grad of", self.gradients)):
            if named:
                ends.append((f"{label} {some_names(named)}", originals(named.values())))
        found = draw(self._graph, repr(self)[1:-1], ends, self._where)
        if path is not None:
            found.save(path)
        return found

    def _repr_svg_(self) -> str:
        return self.draw().svg


def graph_of(path: CompiledPath) -> Graph:
    """The graph of a path, the same object whenever it is asked for."""
    if path.graph is None:
        captured = frozenset(i.node for i in path.inputs if i.kind != "argument")
        updates = _by_name((source.node.name, k) for k, source in path.writes)
        gradients = _by_name((source.node.name, k) for source, k in path.grads if k is not None)
        ends = _Ends(captured, list(_returned(path)), updates, gradients)
        executable = path.program.executable
        where = getattr(executable, "where", {})
        graph = Graph(path.program.whole, ends, getattr(executable, "stages", None), where=where)
        vars(path).setdefault("graph", graph)  # another thread may have been faster
    found: Graph = path.graph
    return found


def _returned(path: CompiledPath) -> Iterator[int | ir.Node]:
    """The returned tensors, in the order of the containers that hold them. What a call updates has its new value."""
    written = {id(source): k for k, source in path.writes}
    pending, count = [path.structure.children[0]], 0
    while pending:
        structure = pending.pop()
        count += structure.kind is None
        pending += structure.children
    for result in path.results[:count]:  # those of effects follow
        if result.kind in ("output", "float"):
            yield result.index
        elif result.kind in ("input", "view"):
            view = path.views[result.index] if result.kind == "view" else None
            index = result.index if view is None else view.index
            if view is not None and not view.of_input:
                yield index
            else:
                source = path.inputs[index]
                yield written.get(id(source), source.node)


def _by_name(outputs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Positions of outputs by their names; a name that is taken gets the position behind it."""
    found: dict[str, int] = {}
    for name, k in outputs:
        found[name if name not in found else f"{name} ({k})"] = k
    return found


def _plain(value: Any) -> Any:
    """A parameter or a shape with sizes that come with the call as text."""
    if type(value) is tuple:
        return tuple([_plain(v) for v in value])
    return str(value) if is_dim(value) else value
