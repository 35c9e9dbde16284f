"""Partial execution: any value inside of a traced function, computed from others, without the call.

The graph of the path that a call takes is cut at the values that are fed, and what is fetched is compiled alone.
Graphs have no effects, so nothing is written: no state, no gradient, no generator moves on.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError, TraceError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.sizes.values import bindings

from ..core.context import stance
from ..core.device_tensor import wrapped
from ..core.source_location import split_line
from ..core.tensor import Tensor, adopt, wrap
from ..tracing.capture.line_observer import Observer
from ..tracing.capture.memory_order import in_memory
from ..tracing.capture.subgraph import between, cut
from ..tracing.capture.tracer import inputs_of as inputs_behind
from ..tracing.run.backend import INTERPRET
from ..tracing.run.compiled_path import CompiledPath, array_of, real_of
from ..tracing.run.program import compile_graph, dense
from ..tracing.specialize.errors import RunEagerly
from ..tracing.specialize.path_tree import Arrays, way

if TYPE_CHECKING:
    from ..tracing.function import Call, TracedFunction

Name = str | int
Fetch = Name | Sequence[Name]
_LINE = re.compile(r"(?:(.+):)?(\d+)")
MOST_KEPT = 64  # compiled fetches of one path


def run(
    traced: TracedFunction, args: tuple[Any, ...], kwargs: dict[str, Any], fetch: Fetch, feed: Mapping[Name, Any]
) -> Any:
    """The values of `fetch` alone; see `TracedFunction.run`."""
    single = isinstance(fetch, str | int)
    wanted: list[Name] = [fetch] if isinstance(fetch, str | int) else _names(fetch)
    call = traced.resolve(args, kwargs)
    path = call.path
    arrays = inputs_of(path, call.leaves)
    sizes = bindings([n.shape for n in path.program.whole.inputs], [a.shape for a in arrays])
    with traced._lock:
        taken, named = _named(call, feed, sizes)
    targets = [named.find(name) for name in wanted]
    fed = {named.find(name): (name, value) for name, value in feed.items()}
    graph, reads = cut(targets, fed, traced._name)
    values = dict(zip(taken.program.whole.inputs, inputs_of(taken, call.leaves), strict=True))
    values |= {node: _fed(node, value, name, sizes) for node, (name, value) in fed.items()}
    key = tuple(targets), tuple(fed), tuple(sizes.items())
    executable = path.fetches.get(key)
    if executable is None:
        while len(path.fetches) >= MOST_KEPT:
            path.fetches.pop(next(iter(path.fetches)))
        backend = INTERPRET if stance() == "eager" else traced._backend
        executable = compile_graph(at_sizes(graph, sizes) if sizes else graph, {}, backend)
        if backend == traced._backend:
            path.fetches[key] = executable
    found = [
        wrap(np.array(a)) if isinstance(a, np.ndarray) else wrapped(a)
        for a in executable([dense(values[node]) for node in reads])
    ]
    return found[0] if single else found


def _names(fetch: Any) -> list[Name]:
    if isinstance(fetch, Sequence) and all(isinstance(name, str | int) for name in fetch):
        return list(fetch)
    raise ArgumentError(f"run: fetch is a name, a line number or a list of them, got {fetch!r}")


def inputs_of(path: CompiledPath, leaves: Sequence[Any]) -> list[np.ndarray]:
    """The arrays that a call with these arguments starts from, as its program reads them."""
    found = [real_of(i, leaves) for i in path.inputs]
    arrays = [t._array if isinstance(t, Tensor) and type(t).home is not None else array_of(t) for t in found]
    return [dense(in_memory(a, i.order)) for a, i in zip(arrays, path.inputs, strict=True)]


def _named(call: Call, feed: Mapping[Name, Any], sizes: Mapping[str, int]) -> tuple[CompiledPath, Values]:
    """The path that a call takes with the fed values, and the values on it. What variables hold is known once the
    function has been traced again; where a fed value is asked for, the answer is what it is with that value.
    """
    path = call.path
    may_steer = bool(feed and way(call.entry.root, path))
    if path.named is not None and not may_steer:
        return path, path.named

    seen = Values(path, {})

    def answer(
        variables: Mapping[str, ir.Node], node: ir.Node, known: Mapping[ir.Node, np.ndarray]
    ) -> np.ndarray | None:
        named = seen.with_variables(variables)
        fed: dict[ir.Node, np.ndarray] = {}
        for name, value in feed.items():
            try:
                at = named.find(name)
                fed[at] = _fed(at, value, name, sizes)
            except ArgumentError:  # not computed yet
                continue
        if not any(n in fed for n in between([node], fed)):
            return None
        graph, reads = cut([node], fed, named.name)
        arrays = [fed[n] if n in fed else known[n] for n in reads]
        return np.asarray(interpret(at_sizes(graph, sizes) if sizes else graph, arrays)[0])

    observer = Observer(answer if may_steer else None)
    try:
        taken, _ = call.entry.again().grow(call.structure, call.leaves, Arrays(_unknown), observer)
    except RunEagerly as error:
        raise TraceError(f"{path.program.name} {error}, with the values that are fed") from None
    if not may_steer:
        path.named = Values(path, observer.variables)
        return path, path.named
    return taken, Values(path, observer.variables, taken)


def _unknown(node: ir.Node) -> np.ndarray:
    raise KeyError(node)


class Values:
    """The values of a path by the names that a user has for them; `variables` are those of Python.

    `taken`: another path of the function, where its inputs, lines and variables are wanted; nodes are always numbered
    as in the graph of `path`.
    """

    def __init__(self, path: CompiledPath, variables: Mapping[str, ir.Node], taken: CompiledPath | None = None) -> None:
        whole = path.program.whole
        self.name = path.program.name
        self.nodes = whole.nodes()
        self.ids = {f"%{k}": node for k, node in enumerate(self.nodes)}
        # An input whose memory has another order of axes is what the program sees of it.
        taken = path if taken is None else taken
        whole = taken.program.whole
        starts = {i.node: i.start for i in taken.inputs}
        self.inputs = {node.name: starts.get(node, node) for node in whole.inputs}
        self.there = set(whole.inputs)  # others are those of the body of a loop
        self.variables = self._known(variables)
        self.lines: dict[tuple[str, int], ir.Node] = {}
        for node in values_of_lines(whole.nodes(), whole.outputs[: taken.n_results]):
            self.lines[split_line(node.where)[:2]] = node

    def _known(self, variables: Mapping[str, ir.Node]) -> dict[str, ir.Node]:
        return {name: node for name, node in variables.items() if self.there.issuperset(inputs_behind(node))}

    def with_variables(self, variables: Mapping[str, ir.Node]) -> Values:
        """A copy of these values, with other values of variables."""
        other = copy.copy(self)
        other.variables = self._known(variables)
        return other

    def find(self, name: Name) -> ir.Node:
        """The value of a name; ArgumentError with the nearest names where there is none."""
        if isinstance(name, int):
            return self._line("", name, name)
        if name in self.ids:
            return self.ids[name]
        for known in (self.variables, self.inputs):
            if name in known:
                return known[name]
        line = _LINE.fullmatch(name)
        if line is not None:
            return self._line(line[1] or "", int(line[2]), name)
        names = list(dict.fromkeys([*self.variables, *self.inputs]))
        near = difflib.get_close_matches(name, names, 3, 0.4)
        known_names = near or [*names[:8], *(["..."] if len(names) > 8 else [])]
        raise ArgumentError(
            f"{self.name}: no value is called {name!r}; names are those of arguments, captured tensors and variables "
            f"({', '.join(known_names) or 'none here'}), nodes of `graph` (%0 to %{len(self.nodes) - 1}) and lines "
            f"({', '.join(self._shown_lines())})"
        )

    def _line(self, file: str, number: int, name: Name) -> ir.Node:
        found = {f: node for (f, n), node in self.lines.items() if n == number and (not file or _is_file(f, file))}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise ArgumentError(f"{self.name}: {name!r} is a line of {' and of '.join(sorted(found))}; name the file")
        raise ArgumentError(
            f"{self.name}: line {name!r} computes nothing; lines that do are {', '.join(self._shown_lines())}"
        )

    def _shown_lines(self) -> list[str]:
        shown = [f"{file}:{number}" for file, number in sorted(self.lines)]
        return shown if len(shown) <= 8 else [*shown[:8], "..."]


def values_of_lines(nodes: Sequence[ir.Node], results: Container[ir.Node]) -> Iterator[ir.Node]:
    """Yields the value of each line of the user: the last that no operation of the same line reads, and that another
    line reads or the function returns (the next state of a random generator is none).
    """
    users = ir.users(nodes)
    found: dict[tuple[str, int], tuple[bool, ir.Node]] = {}
    for node in nodes:
        if node.op is None or not node.where or any(user.where == node.where for user in users[node]):
            continue
        place, counts = split_line(node.where)[:2], bool(users[node]) or node in results
        if counts or not found.get(place, (False,))[0]:
            found[place] = counts, node
    yield from (found[place][1] for place in sorted(found))


def _is_file(file: str, given: str) -> bool:
    return file == given or given.endswith(f"/{file}") or given.endswith(f"\\{file}")


def _fed(node: ir.Node, value: Any, name: Name, sizes: Mapping[str, int]) -> np.ndarray:
    array = (
        value._array if isinstance(value, Tensor) else adopt(value)._array if isinstance(value, np.ndarray) else None
    )
    aval = node.aval.at(sizes) if sizes else node.aval
    if array is None:
        array = np.asarray(value, dtype=aval.dtype)
    if array.shape != aval.shape:
        raise ShapeError(f"feed of {name!r}: the value is {aval}, got an array of shape {array.shape}")
    if array.dtype != aval.dtype:
        raise DTypeError(f"feed of {name!r}: the value is {aval}, got an array of {array.dtype}; cast it with astype")
    return array
