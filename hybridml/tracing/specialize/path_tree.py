"""Data-dependent Python: a traced function is a tree of paths.

Where the running Python asks for a value (`if`, `while`, `int(t)`, `t.tolist()`), the trace computes it from the
arguments of its call and goes on with it. What lies between two asked values is a *segment*, a straight-line compiled
program; a node of the tree (`ValueBranch`) maps the value that its segment gives to what comes next, and a path ends in
a `CompiledPath`. A later call walks the tree. Segments are pure: only the end of a path writes anything, so where a
call meets an unknown value nothing has happened yet,
and the function is traced again from its start, with the values known so far.

A segment also gives out what Python still holds when it asks (live tensors, and what the tape of gradients keeps):
Python can go on in many ways from here, but only with what it holds. Should a path need another value, its segment
computes it again. Programs of whole paths would need no such values, but compute all of a wrong guess before they know,
with whatever errors that holds, and a loop of n rounds would have n programs of up to n rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler import time_limit
from hybridml_compiler.aval import CPU
from hybridml_compiler.errors import HybridmlError, TraceError, user_location
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.checks import uncovered
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.record import record
from hybridml_compiler.sizes.guards import Guards
from hybridml_compiler.targets.device import on_host

from ...core.autodiff.tape import is_node
from ...core.tensor import Tensor
from ..capture.subgraph import between, cut
from ..capture.tracer import Tracer
from ..rolling.code_loops import loop_around, unrolled
from ..run.backend import Backend
from ..run.program import Interpreted, compile_graph
from .eager_calls import in_time
from .errors import CheckFailed, RunEagerly, TakesLong, of_loop
from .parts import Part, parts_of

if TYPE_CHECKING:
    from ..capture.line_observer import Observer

Build = Callable[[ir.Graph], Any]
MOST_ASKED = 2000  # values that one trace may ask for: a loop that goes on for longer is eager
_SMALL = 16  # operations on single numbers: an interpreter does them in the time of a compiled call, without compiling
_MOST_PARTS = 16  # of arrays, that a segment takes as arrays of their own
_KEY_BYTES = 64  # a longer value is told by its hash

# What to write instead of asking for a value, by what asks.
_NUMBERS = "use tensor operations instead of Python numbers"
_OF_NUMBERS = dict.fromkeys(("int()", "float()", "index", "the value of an int", "the value of a number"), _NUMBERS)
_ADVICE = {**_OF_NUMBERS, "bool()": "use hm.where instead of `if`"}
_ADVICE["x[mask]"] = "use hm.where(mask, x, 0)"
_ADVICE["the gradient of a loop that data ends"] = (
    "use a `for` over a range with `break`, or max_steps of hm.while_loop"
)
_ADVICE["the way out of a loop"] = "assign a number before `break`, and return it after the loop"
_ADVICE["the type of a number"] = 'begin with a tensor, `hm.tensor(0.0, dtype="float64")`'
_ADVICE["how long a list has become"] = "fill an array that is as long as it may become"
_ADVICE["whether a list is longer than was thought"] = _ADVICE["how long a list has become"]
_IN_A_BODY = {**_OF_NUMBERS, "bool()": "use hm.cond or hm.where instead of `if`"}
_OF_SIZES = "make an array as long as it may become, and return `out[:n]`"
_READ_LATER = "return the tensor and read it after the call"


def advice(what: str) -> str:
    """Returns what to write instead of asking for a value."""
    return _OF_SIZES if what == "the value of an int" else _ADVICE.get(what, _READ_LATER)


class Arrays(dict[ir.Node, np.ndarray]):
    """The values of nodes in one call; those of inputs are looked up when they are first needed."""

    def __init__(self, source: Callable[[ir.Node], np.ndarray]) -> None:
        self.source = source

    def __missing__(self, node: ir.Node) -> np.ndarray:
        found = self[node] = self.source(node)
        return found


class PathEnd:
    """A leaf of the tree: the end of a path, which runs there (see run/compiled_path.py)."""

    taken: int  # calls that have asked their way to it


@record(frozen=False, eq=False)
class Segment:
    """A pure program from arrays that are known (`reads`) to arrays that become known (`gives`)."""

    graph: ir.Graph
    # Every argument, then what earlier segments have given and parts of that, then what is captured.
    reads: Sequence[ir.Node]
    gives: Sequence[ir.Node]
    executable: Any
    parts: Mapping[ir.Node, Part]  # of inputs, and of what earlier segments have given

    def run(self, known: Arrays) -> None:
        for node, part in self.parts.items():
            known[node] = part.of(known[part.base])
        try:
            known.update(zip(self.gives, self.executable([known[n] for n in self.reads]), strict=True))
        except HybridmlError as error:
            raise CheckFailed from error


@record(frozen=False, eq=False)
class ValueBranch:
    """An inner node of the tree: `node` is the value that Python asks for, `next` what follows each value seen."""

    node: ir.Node
    what: str  # "bool()", "item()", ...
    where: str  # the user's line
    segment: Segment | None  # None where the value is an input, or an earlier segment has given it
    next: dict[Any, Any] = field(default_factory=dict)
    hits: int = 0  # calls that found their value
    instead: int = 0  # questions that were asked here before, one after the other, and found no value twice

    @property
    def values(self) -> int:
        """Number of values that were found here."""
        return self.instead + len(self.next)

    def hopeless(self, most: int) -> bool:
        """Whether there were many values and none came again: this is not a branch but data."""
        return not self.hits and self.values >= most and (self.node.dtype.kind != "b" or self.instead >= most)


def key(array: np.ndarray) -> bytes:
    """A key that is equal for equal bits: 0.0 is not -0.0, nan is nan."""
    data = array.tobytes()
    return data if len(data) <= _KEY_BYTES else hashlib.blake2b(data).digest()


@record(frozen=False)
class ShapesAlone:
    """A call whose arguments have no values, for `what`. `stood_in`: whether tensors around the function had none
    either, and others stood in for them, which are of no use to calls with values."""

    what: str
    stood_in: bool = False


_no_values: ContextVar[ShapesAlone | None] = ContextVar("hybridml_no_values", default=None)


@contextmanager
def without_values(what: str) -> Iterator[ShapesAlone]:
    """A context in which arguments have no values: a TraceError, of `what`, where Python asks for one."""
    shapes = ShapesAlone(what)
    token = _no_values.set(shapes)
    try:
        yield shapes
    finally:
        _no_values.reset(token)


def are_without_values() -> bool:
    """Whether there are shapes and dtypes alone."""
    return _no_values.get() is not None


def stand_in() -> None:
    """Notes that a tensor stands in for one without values."""
    shapes = _no_values.get()
    assert shapes is not None
    shapes.stood_in = True


def check_values(asked: str, where: str = "") -> None:
    """TraceError where arguments have no values. `where`: the line that asks, if that is not running now."""
    shapes = _no_values.get()
    if shapes is not None:
        raise TraceError(
            f"{shapes.what}: {asked} needs the value of a tensor, and there are shapes and dtypes alone; keep it a "
            f"tensor (hm.where, hm.cond), or call the function with values{where and f'; it is {where}'}"
        )


def walk(root: ValueBranch | PathEnd | None, known: Arrays) -> tuple[Any, list[ValueBranch]]:
    """The end that the values of this call lead to (None after a new value), and the value branches on the way."""
    at = root
    passed: list[ValueBranch] = []
    while isinstance(at, ValueBranch):
        check_values(at.what, at.where)
        if at.segment is not None:
            at.segment.run(known)
        passed.append(at)
        at = at.next.get(key(on_host(known[at.node])))
    for ask in passed if at is not None else passed[:-1]:
        ask.hits += 1
    if at is not None:
        at.taken += 1
    return at, passed


def paths_of(root: ValueBranch | PathEnd | None) -> Iterable[Any]:
    """The compiled paths of a tree."""
    pending = [root]
    while pending:
        at = pending.pop()
        if isinstance(at, ValueBranch):
            pending += at.next.values()
        elif at is not None:
            yield at


def way(root: ValueBranch | PathEnd | None, end: PathEnd) -> list[tuple[ValueBranch, bytes]]:
    """The value branches on the way to a compiled path, with the values that lead there."""
    pending: list[tuple[ValueBranch | PathEnd | None, Any]] = [(root, None)]
    while pending:
        at, before = pending.pop()
        if at is end:
            found = []
            while before is not None:
                step, before = before
                found.append(step)
            return found[::-1]
        if isinstance(at, ValueBranch):
            pending += [(after, ((at, value), before)) for value, after in at.next.items()]
    return []


class Path:
    """A trace on its way through the tree: it answers what Python asks, and notes what was asked."""

    def __init__(
        self, tracer: Tracer, root: ValueBranch | PathEnd | None, known: Arrays, build: Build, strict: bool = False
    ) -> None:
        """Begins at the root. `known`: the values that the call has computed so far."""
        self.tracer, self.known, self.build, self.strict = tracer, known, build, strict
        self.observer: Observer | None = None
        self.at: ValueBranch | PathEnd | None = root
        self.asked: list[tuple[ValueBranch, bytes]] = []
        self.answers: dict[ir.Node, np.ndarray] = {}
        self.given: dict[ir.Node, None] = {}  # what the segments of this path give
        self.checked: dict[ir.Node, None] = {}  # what they raise for

    def answer(self, node: ir.Node, what: str) -> np.ndarray:
        """The value of a node for this call, read-only."""
        found = self.answers.get(node)
        if found is None:
            ends = [n for n in between([node], self.given) if n.is_input or n in self.given]
            asks = what == "a division" or (node.dtype.kind == "b" and self.tracer.are_updated(ends))
            settled = not ends or (self.tracer.are_around(ends) and not asks)
            found = self._evaluate(node) if settled else self._ask(node, what)
            if self.observer is not None and self.observer.answer is not None:
                other = self.observer.answer(self.observer.names(self.tracer), node, self.known)
                found = found if other is None else other
            found = found.view()
            found.flags.writeable = False
            self.answers[node] = found
        return found

    def _evaluate(self, node: ir.Node) -> np.ndarray:
        """The value of a node of literals and captured numbers, which are guarded from now on."""
        inputs = [n for n in ir.topological([node]) if n.is_input]
        self.tracer.looked_at.update(inputs)
        return np.asarray(interpret(ir.Graph(tuple(inputs), (node,)), [self.known[n] for n in inputs])[0])

    def _ask(self, node: ir.Node, what: str) -> np.ndarray:
        check_values(what)
        if self.strict:
            because, advice = "", _ADVICE.get(what, _READ_LATER)
            if loop := loop_around({**self.tracer.step_by_step, **self.tracer.unlike}, ""):
                because, advice = (
                    f", as {loop} is no loop of the program",
                    f"{of_loop(loop)}; in other places, {advice}",
                )
            raise TraceError(
                f"{what} needs the value of a tensor while {self.tracer.name} is traced with strict=True{because}; "
                f"{advice}, or do this step outside of the traced function"
            )
        if any(n.is_input and not self.tracer.has_input(n) for n in between([node], self.given)):
            raise TraceError(
                f"{what} needs the value of a tensor inside the body of a control operation, where it has none; "
                f"{_IN_A_BODY.get(what, _READ_LATER)}"
            )
        if len(self.asked) >= MOST_ASKED:
            raise RunEagerly(f"asks for more than {MOST_ASKED} values in one call, {self._last()}")
        if self.tracer.ends is not None and self.asked and time_limit.clock() > self.tracer.ends:
            so_far = f"asks for so many values that it {self.tracer.takes_long}"
            raise TakesLong(f"{so_far} ({len(self.asked)} so far, {self._last()})")
        ask = self.at
        if not isinstance(ask, ValueBranch) or ask.node is not node:
            there = node.is_input or node in self.given
            instead = ask.values if isinstance(ask, ValueBranch) and not ask.hits else 0
            ask = ValueBranch(node, what, user_location(), None if there else self._segment(node), instead=instead)
        if ask.segment is not None:
            if not all(n in self.known for n in ask.segment.gives):
                ask.segment.run(self.known)
            self.given.update(dict.fromkeys(ask.segment.gives))
            self.checked.update(self.tracer.checks)
        value = np.array(on_host(self.known[node]))  # a copy: the memory of an input may be written to
        self.asked.append((ask, key(value)))
        self.at = ask.next.get(key(value))
        return value

    def _last(self) -> str:
        """The words for where the last value is asked for."""
        loop = loop_around(self.tracer.step_by_step, "")
        return f"the last at {user_location()}{f', {unrolled(loop, self.tracer.step_by_step)}' if loop else ''}"

    def _segment(self, node: ir.Node) -> Segment:
        gives = [node, *(n for n in worth_keeping(live(self.tracer), self.given) if n is not node)]
        arguments = [i.node for i in self.tracer.inputs if i.kind == "argument"]
        checks = uncovered(gives, [n for n in self.tracer.checks if n not in self.checked and n not in self.given])
        parts = self._parts(between([*gives, *checks], self.given))
        graph, reads = cut(gives, {**self.given, **parts}, self.tracer.name, arguments, checks)
        parts = {n: part for n, part in parts.items() if n in reads}
        with in_time(self.tracer):
            return Segment(graph, reads, gives, self.build(graph), parts)

    def _parts(self, nodes: Sequence[ir.Node]) -> Mapping[ir.Node, Part]:
        """The parts of arrays that a segment is given in their place; none where there are many."""
        plain = {i.node for i in self.tracer.inputs if i.order is None and i.kind in ("argument", "held", "array")}
        found = parts_of(nodes, lambda n: n in plain or n in self.given)
        return found if len(found) <= _MOST_PARTS else {}

    def place(self, end: PathEnd) -> Any:
        """Puts the path into the tree; returns the root, a new one if the function has asked other things."""
        after: ValueBranch | PathEnd = end
        for ask, value in reversed(self.asked):
            ask.next[value] = after
            after = ask
        return after


def numbers_only(graph: ir.Graph) -> bool:
    """Whether a graph is a few operations on single numbers, which may be elements of arrays that are given."""
    nodes = graph.nodes()
    computed = [n for n in nodes if n.op is not None and n.kind != "movement"]
    if len(computed) > _SMALL or len(nodes) > 4 * _SMALL or not all(n.aval.device == CPU for n in nodes):
        return False
    return all(n.aval.size == 1 and n.kind != "control" for n in computed)


def live(tracer: Tracer) -> list[ir.Node]:
    """The values that Python can still use: those of traced tensors that are alive, and what their histories keep."""
    found: dict[ir.Node, None] = {}
    alive = [t for r in tracer.made if (t := r()) is not None]
    tracer.made = [r for r in tracer.made if r() is not None]
    pending: list[Any] = list(alive)
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if isinstance(item, ir.Node):
            found[item] = None
        elif issubclass(type(item), Tensor):
            if isinstance(item._array, ir.Node):
                found[item._array] = None
            if is_node(item._node):
                pending.append(item._node)
        elif type(item) in (list, tuple, dict) and id(item) not in seen:
            seen.add(id(item))
            pending += item.values() if type(item) is dict else item
    return list(found)


def worth_keeping(nodes: Iterable[ir.Node], known: Mapping[ir.Node, Any]) -> list[ir.Node]:
    """The live values that a segment should return: a view of a value kept anyway costs nothing to make again."""
    chosen = dict.fromkeys(n for n in nodes if n.inputs and n not in known)
    kept: dict[ir.Node, None] = {}
    for node in chosen:
        base = node
        while _is_view(base) and base not in known and (base is node or base not in chosen):
            base = base.inputs[0]
        if base is node or not (base in known or base in chosen or not base.inputs):
            kept[base if base.aval.size <= node.aval.size else node] = None
    return list(kept)


def _is_view(node: ir.Node) -> bool:
    return node.op is not None and node.op.is_view


def build_segment(backend: Backend, cache: dict[str, Any], guards: Guards | None = None) -> Build:
    """Returns the compiler of one function's segments, with a cache: rounds of a loop are often one program."""

    def build(graph: ir.Graph) -> Any:
        name = digest(graph)
        if name not in cache:
            interpreted = numbers_only(graph)
            cache[name] = Interpreted(graph, {}) if interpreted else compile_graph(graph, {}, backend, guards)
        return cache[name]

    return build
