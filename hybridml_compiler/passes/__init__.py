"""Graph -> graph: the passes, in order, each with the reason it exists.

There is no pass for dead code and none for common subexpressions. A graph is what its outputs reach, so a node that
nothing needs is gone when the next pass rebuilds (inputs stay: they are the signature); and nodes are hash-consed, so
two equal expressions are one node from the moment they are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from .. import time_limit
from ..errors import CompileError
from ..graph.body import Body, body_of
from ..graph.checks import alone
from ..graph.facts import CALLED
from ..graph.ir import Graph
from ..graph.verify import verify as verify_graph
from . import patterns
from .fold import fold_constants
from .simplify import simplify

Pass = Callable[[Graph], Graph]


def _late(name: str, module: str, concerns: Callable[[Graph], bool]) -> Pass:
    """A pass that is imported with the first graph which it may change: half of what a first call imports is passes."""

    def run(graph: Graph) -> Graph:
        if not concerns(graph):
            return graph
        found: Pass = getattr(import_module(f"{__name__}.{module}"), name)
        return found(graph)

    return run


def _has(*names: str) -> Callable[[Graph], bool]:
    """Whether a graph has an operation of one of these names."""
    return lambda graph: any([node.op is not None and node.op.name in names for node in graph.nodes()])


def checks_alone(graph: Graph) -> Graph:
    """Graph whose checks are reduced to the nodes that decide them."""
    return graph.with_roots([*graph.outputs, *map(alone, graph.checks)])


def control_flow(graph: Graph) -> Graph:
    """Graph whose loops and branches are simplified, and their bodies optimized."""
    if not any([node.kind == "control" for node in graph.nodes()]):
        return graph
    from .control import simplify_control

    return simplify_control(graph, optimized)


def optimized(body: Body) -> Body:
    """The body after all passes."""
    if body.after_passes is None:
        graph = run_passes(body.graph, verify=False)[0]
        done = body if graph is body.graph else body_of(graph)
        body.after_passes = done.after_passes = done
    return body.after_passes


FIRST: tuple[tuple[str, Pass, str], ...] = (
    ("checks_alone", checks_alone, "whether an index exists is known without what it is looked up in"),
    (
        "roll_loops",
        _late("roll_loops", "roll", lambda graph: len(graph.nodes()) > patterns.LONG),
        "a long Python loop compiles in the time of one step",
    ),
)
PASSES: tuple[tuple[str, Pass, str], ...] = (
    ("simplify", simplify, "one form a view, which rules and fusion see through; less arithmetic, the same bits"),
    ("fold_constants", fold_constants, "what does not depend on the inputs is computed once, here"),
    (
        "step_tables",
        _late("step_tables", "step_tables", _has(*CALLED)),
        "functions of NumPy and of Python of the number of a step are no calls in each step",
    ),
    (
        "channels_last",
        _late("channels_last", "layout", _has("convolution", "permute_dims")),
        "between convolutions nothing is transposed",
    ),
    (
        "convolutions_as_products",
        _late("convolutions_as_products", "contractions", _has("convolution")),
        "one tap or one window: the library of products is better",
    ),
    (
        "transpose_products",
        _late("transpose_products", "contractions", _has("matmul")),
        "a transposed product is a product: nothing to copy",
    ),
    (
        "dots_as_sums",
        _late("dots_as_sums", "contractions", _has("matmul")),
        "one row and one column: a sum of products, fused with what is around it",
    ),
    ("control_flow", control_flow, "loops and branches compute what is read of them, and bodies go through all passes"),
)
ASSUMING: tuple[tuple[str, Pass, str], ...] = (
    (
        "sparse_updates",
        _late("sparse_updates", "sparse_updates", lambda _: True),
        "a step on a table does not read the rows that it leaves as they are",
    ),
)
_ROUNDS = 4  # passes feed each other; a graph settles in two rounds, the bound keeps a bad rule from looping for ever


class Step(NamedTuple):
    """One run of a pass: its time, and the nodes before and after."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int


def run_passes(
    graph: Graph,
    *,
    verify: bool = True,
    passes: Sequence[tuple[str, Pass, str]] = PASSES,
    first: Sequence[tuple[str, Pass, str]] = FIRST,
    watch: Callable[[str, Graph], object] = lambda name, graph: None,
) -> tuple[Graph, list[Step]]:
    """Runs the passes of `first`, then `passes` in order, again and again until none of them changes the graph.

    With `verify` the graph is checked before and after each; `CompileError` names the pass that broke it.
    `watch` is called with every pass that changed the graph, and its result.
    """
    if verify:
        verify_graph(graph, "capture")
    steps: list[Step] = []
    count, quiet = len(graph.nodes()), 0
    for number, (name, run, _) in enumerate((*first, *tuple(passes) * _ROUNDS)):
        if quiet == len(passes):  # every pass has seen this very graph and kept it
            break
        time_limit.check()
        start = time.perf_counter()
        after = run(graph)
        seconds = time.perf_counter() - start
        quiet = quiet + 1 if after is graph and number >= len(first) else 0
        before = count
        if after is not graph:
            if verify:
                _check(graph, after, name)
            count = len(after.nodes())
            watch(name, after)
        steps.append(Step(name, seconds, before, count))
        graph = after
    return graph, steps


def _check(before: Graph, after: Graph, name: str) -> None:
    verify_graph(after, name)
    old, new = [node.aval for node in before.outputs], [node.aval for node in after.outputs]
    if after.inputs != before.inputs or old != new:
        raise CompileError(
            f"pass {name}: a pass keeps the signature of a graph; {len(before.inputs)} inputs and outputs "
            f"{', '.join(map(str, old))} became {len(after.inputs)} inputs and {', '.join(map(str, new))}"
        )
