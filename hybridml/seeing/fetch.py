"""Partial execution: any value inside of a traced function, computed from others, without the call.

The graph of the path that a call takes is cut at the values that are fed, and what is fetched is compiled alone.
Graphs have no effects, so nothing is written: no state, no gradient, no generator moves on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.sizes.values import bindings

from ..context import stance_var
from ..tensor import Tensor, adopt, wrap
from ..trace.cut import cut
from ..trace.order import in_memory
from ..trace.outcome import Outcome, array_of, real_of
from ..trace.program import compile_graph, dense

if TYPE_CHECKING:
    from ..trace.function import TracedFunction

Name = str | int
Fetch = Name | Sequence[Name]
_LINE = re.compile(r"(?:(.+):)?(\d+)")
_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)(?:\s*:[^=]+)?\s*[-+*/@%&|^]?=(?!=)")
MOST_KEPT = 64  # compiled fetches of one path


def run(
    traced: TracedFunction, args: tuple[Any, ...], kwargs: dict[str, Any], fetch: Fetch, feed: Mapping[Name, Any]
) -> Any:
    """See `TracedFunction.run`."""
    single = isinstance(fetch, str | int)
    wanted: list[Name] = [fetch] if isinstance(fetch, str | int) else list(fetch)
    call = traced.resolve(args, kwargs)
    outcome = call.outcome
    named = Values(outcome)
    arrays = inputs_of(outcome, call.leaves)
    sizes = bindings([n.shape for n in outcome.program.whole.inputs], [a.shape for a in arrays])
    targets = [named.find(name) for name in wanted]
    fed = {named.find(name): (name, value) for name, value in feed.items()}
    graph, reads = cut(targets, fed, traced._name)
    values = dict(zip(outcome.program.whole.inputs, arrays, strict=True))
    values |= {node: _fed(node, value, name, sizes) for node, (name, value) in fed.items()}
    key = tuple(targets), tuple(fed), tuple(sizes.items())
    executable = outcome.fetches.get(key)
    if executable is None:
        while len(outcome.fetches) >= MOST_KEPT:
            outcome.fetches.pop(next(iter(outcome.fetches)))
        backend = "interpret" if stance_var.get() == "eager" else traced._backend
        executable = compile_graph(at_sizes(graph, sizes) if sizes else graph, {}, backend)
        if backend == traced._backend:
            outcome.fetches[key] = executable
    found = [wrap(np.array(a)) for a in executable([dense(values[node]) for node in reads])]
    return found[0] if single else found


def inputs_of(outcome: Outcome, leaves: Sequence[Any]) -> list[np.ndarray]:
    """The arrays that a call with these arguments starts from, as its program reads them."""
    return [dense(in_memory(array_of(real_of(i, leaves)), i.order)) for i in outcome.inputs]


class Values:
    """The values of a path by the names that a user has for them."""

    def __init__(self, outcome: Outcome) -> None:
        whole = outcome.program.whole
        self.name = outcome.program.name
        self.nodes = whole.nodes()
        self.ids = {f"%{k}": node for k, node in enumerate(self.nodes)}
        # An input whose memory has another order of axes is what the program sees of it.
        starts = {i.node: i.start for i in outcome.inputs}
        self.inputs = {node.name: starts.get(node, node) for node in whole.inputs}
        self.variables: dict[str, ir.Node] = {}
        self.lines: dict[tuple[str, int], ir.Node] = {}
        for node in values_of_lines(self.nodes, whole.outputs[: outcome.n_results]):
            place, text = _place(node.where)
            self.lines[place] = node
            assigned = _ASSIGNED.match(text)
            if assigned is not None:
                self.variables[assigned[1]] = node

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
        near = difflib.get_close_matches(name, [*self.inputs, *self.variables], 3, 0.4)
        known_names = near or [*self.inputs, *self.variables][:8]
        raise ArgumentError(
            f"{self.name}: no value is called {name!r}; names are those of arguments, captured tensors and variables "
            f"({', '.join(known_names) or 'none here'}), nodes of `ir` (%0 to %{len(self.nodes) - 1}) and lines "
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
    """What each line of the user computes: the last value that no operation of the same line reads, and that another
    line reads or the function returns (the next state of a random generator is none).
    """
    users = ir.users(nodes)
    found: dict[tuple[str, int], tuple[bool, ir.Node]] = {}
    for node in nodes:
        if node.op is None or not node.where or any(user.where == node.where for user in users[node]):
            continue
        place, counts = _place(node.where)[0], bool(users[node]) or node in results
        if counts or not found.get(place, (False,))[0]:
            found[place] = counts, node
    yield from (found[place][1] for place in sorted(found))


def _place(where: str) -> tuple[tuple[str, int], str]:
    """`file.py:12: y = x` as (("file.py", 12), "y = x")."""
    found = re.match(r"(.*?):(\d+)(?:: (.*))?$", where, re.DOTALL)
    return ((found[1], int(found[2])), found[3] or "") if found is not None else ((where, 0), "")


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
