"""Control flow: bodies go through all passes, and hold no more than the nodes that are read.

loops over the same, where one computes all that the other does        -> one loop
results, carries and operands that nothing reads                      -> gone
a carry that goes on as it came                                       -> an operand, read in place
a number that steps which threads share add up                         -> a loop of its own (see sums_apart.py)
steps that do not need each other, of few numbers    -> an axis of arrays, without a loop (see steps_as_axis.py)
a carry that products are added to in every step                      -> one product, after it (summed_products.py)
a product by a matrix that no step changes                             -> one product, before it (common_products.py)
numbers that steps decide, which functions of NumPy's take              -> a table (see step_tables.py)
an array that steps update through a reshape                           -> flat, as it is updated (see carry_shapes.py)
a count that goes on as a float                                       -> an int (see counts.py)
each element is computed from itself alone                            -> a loop of each element (see interchange.py)
a number that is given to a body                                      -> part of the body
an array that a body holds                                            -> an operand of it
a branch whose predicate is known, a loop of no step                  -> its results
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..graph.body import body_of, family
from ..graph.checks import alone
from ..graph.ir import Graph, Node, apply, input_node, topological, with_inputs
from ..graph.rewrite import make
from ..ops.control import COND, LOOP
from ..record import replace
from .carry_shapes import in_shapes_of_updates, with_shapes
from .common_products import products_before
from .counts import as_floats, counts_as_ints
from .interchange import interchanged
from .loop_parts import Loop, Optimize, Results, substitute
from .step_tables import arrays_decided, numbers_before, numbers_carried, numbers_sunk
from .steps_as_axis import steps_as_axis
from .summed_products import one_product
from .sums_apart import sums_apart


def simplify_control(graph: Graph, optimized: Optimize) -> Graph:
    """Graph with simpler control flow, see the module docstring. `optimized` puts a body through all passes, this one
    too."""
    nodes = graph.nodes()
    if not any(_is_control(node) for node in nodes):
        return graph
    merged = _merge(graph, nodes)
    nodes = nodes if merged is graph else merged.nodes()
    read: dict[Any, set[int]] = {}
    for node in nodes:
        if _is_control(node):
            read.setdefault(family(node), set()).add(node.params["result"])
    made: dict[Any, Results] = {}
    checks: dict[Node, None] = {}

    def simpler(node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not _is_control(node):
            return None
        key = family(node)
        if key not in made:
            numbers = sorted(read[key])
            if node.op is LOOP:
                made[key] = (
                    interchanged(node, operands, numbers, optimized)
                    or sums_apart(node, operands, numbers, optimized)
                    or steps_as_axis(node, operands, numbers, optimized)
                    or one_product(node, operands, numbers, optimized)
                    or _simpler_loop(node, operands, numbers, optimized)
                )
            else:
                made[key] = _simpler_cond(node, operands, numbers, checks, optimized)
        return made[key][node.params["result"]]

    done = _rebuilt(merged, nodes, simpler)
    return replace(done, checks=(*done.checks, *checks)) if checks else done


def _is_control(node: Node) -> bool:
    return node.kind == "control"


def _rebuilt(graph: Graph, nodes: Iterable[Node], change: Callable[[Node, tuple[Node, ...]], Node | None]) -> Graph:
    final: dict[Node, Node] = {}
    for node in nodes:
        operands = tuple([final[n] for n in node.inputs])
        found = change(node, operands)
        if found is None:
            found = node if operands == node.inputs else with_inputs(node, operands)
        final[node] = found
    return graph.with_roots([final[n] for n in graph.roots])


# -- one of two loops


def _merge(graph: Graph, nodes: Sequence[Node]) -> Graph:
    loops: dict[Any, Node] = {}
    for node in nodes:
        if node.op is LOOP:
            loops.setdefault(family(node), node)
    becomes: dict[Any, tuple[Node, list[int]]] = {}
    for key, node in loops.items():
        for other_key, other in loops.items():
            if (
                other_key != key
                and other_key not in becomes
                and len(other.params["body"].outputs) >= len(node.params["body"].outputs)
            ):
                places = _within(node, other)
                if places is not None and node not in topological([other]):
                    becomes[key] = other, places
                    break
    if not becomes:
        return graph

    def change(node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.op is not LOOP or family(node) not in becomes:
            return None
        other, places = becomes[family(node)]
        return apply(LOOP, other.inputs, {**other.params, "result": places[node.params["result"]]})

    return _rebuilt(graph, nodes, change)


def _within(node: Node, other: Node) -> list[int] | None:
    """Numbers of this loop's results among those of the other loop; None if not all are there."""
    if any(
        node.params[name] != other.params[name]
        for name in ("length", "counted", "reverse", "step", "first", "parallel")
    ):
        return None
    a, b = Loop.of(node, node.inputs), Loop.of(other, other.inputs)
    if a.counts != b.counts or (a.go is None) is not (b.go is None):
        return None
    stand: dict[Node, Node] = {}
    for start, own in b.consts:
        stand.setdefault(start, own)
    slices = dict(b.xs)
    becomes = {own: stand.get(start) for start, own in a.consts} | {own: slices.get(x) for x, own in a.xs}
    if any(value is None for value in becomes.values()):
        return None
    pairs: list[int] = []  # the other's carry for each of ours: taken where both start the same, and checked below
    for start, own, _ in a.carries:
        k = next((k for k, c in enumerate(b.carries) if c[0] is start and k not in pairs), None)
        if k is None:
            return None
        pairs.append(k)
        becomes[own] = b.carries[k][1]
    given = {own: value for own, value in becomes.items() if value is not None}
    if not set(substitute(a.checks, given)) <= set(b.checks):
        return None
    values = [*(after for *_, after in a.carries), *a.ys, *([] if a.go is None else [a.go])]
    values = substitute(values, given)
    if any(value is not b.carries[k][2] for value, k in zip(values, pairs, strict=False)):
        return None
    if a.go is not None and values.pop() is not b.go:
        return None
    found = {y: len(b.carries) + k for k, y in reversed(list(enumerate(b.ys)))}
    places = [found.get(y) for y in values[len(pairs) :]]
    return None if None in places else [*pairs, *(k for k in places if k is not None)]


# -- a loop


def _simpler_loop(node: Node, operands: tuple[Node, ...], read: list[int], optimized: Optimize) -> Results:
    loop = Loop.of(node, operands)
    if type(loop.length) is int and loop.length == 0:
        starts = [start for start, *_ in loop.carries]
        zeros = [(y.dtype, (0, *y.shape)) for y in loop.ys]
        made = [*starts, *(make("full", shape=shape, value=0, dtype=dtype) for dtype, shape in zeros)]
        return {k: made[k] for k in read}
    loop.substituted(products_before(loop))
    loop.substituted(numbers_sunk(loop))
    loop.substituted(arrays_decided(loop))
    loop.substituted(numbers_carried(loop))
    loop.substituted(numbers_before(loop, optimized))
    shapes = in_shapes_of_updates(loop)
    counts = counts_as_ints(loop, optimized)
    numbers = [k for k in read if k < len(loop.carries)]
    results: Results = {}
    known: dict[Node, Node] = {}
    carries = []
    for k, (start, own, after) in enumerate(loop.carries):
        if after is own:  # it stays as it is
            loop.consts.append((start, own))
            results[k] = make("astype", start, dtype=start.dtype) if start.aval.weak else start  # no result is weak
        else:
            carries.append((k, start, own, after))
    results |= _repeated(loop, read)
    _given_numbers(loop, known, _in_memory([*(after for *_, after in carries), *loop.others]))
    read = [k for k in read if k not in results or k < len(loop.carries)]
    ys = [loop.ys[k - len(loop.carries)] for k in read if k >= len(loop.carries)]
    live = _live(carries, [*ys, *loop.others[len(loop.ys) :]], numbers)
    carries = [carry for carry in carries if carry[0] in numbers or carry[2] in live]
    wanted: dict[Node, int] = {}
    for k in read:
        if k >= len(loop.carries):
            wanted.setdefault(loop.ys[k - len(loop.carries)], len(wanted))
    places = {k: position for position, (k, *_) in enumerate(carries)}
    old = list(loop.ys)
    first = len(loop.carries)
    loop.carries = [(start, own, after) for _, start, own, after in carries]
    loop.ys = list(wanted)
    loop.substituted(known)
    _lift(loop)
    _drop(loop)
    left = [k for k in read if k not in results]
    at = {k: places[k] if k < first else len(loop.carries) + wanted[old[k - first]] for k in left}
    new = loop.nodes(sorted(set(at.values())), optimized)
    return as_floats(with_shapes(results | {k: new[at[k]] for k in left}, shapes), counts)


def _repeated(loop: Loop, read: Sequence[int]) -> Results:
    """The results that are an operand for each step: they need no loop, and what is left may not depend on it."""
    if loop.counts or loop.go is not None:
        return {}  # steps that are not run give zeros
    given = {own: start for start, own in loop.consts}
    found: Results = {}
    for k in read:
        start = given.get(loop.ys[k - len(loop.carries)]) if k >= len(loop.carries) else None
        if start is not None:
            row = make("reshape", start, shape=(1, *start.shape))
            found[k] = make("broadcast_to", row, shape=(loop.length, *start.shape))
    return found


def _given_numbers(loop: Loop, known: dict[Node, Node], outputs: set[Node]) -> None:
    """Numbers, and operands that are given twice, are known in the body."""
    seen: dict[Node, Node] = {}
    for start, own in loop.consts:
        if start.is_constant and not start.shape and own not in outputs:
            known[own] = start
        elif start in seen:
            known[own] = seen[start]
        seen.setdefault(start, own)


def _live(carries: Sequence[tuple[int, Node, Node, Node]], read: Sequence[Node], numbers: Sequence[int]) -> set[Node]:
    """The inputs that are reached from the values that are read."""
    roots = [*read, *(after for k, _, _, after in carries if k in numbers)]
    while True:
        reached = set(topological(roots))
        more = [after for _, _, own, after in carries if own in reached and after not in reached]
        new = [after for after in more if after not in roots]
        if not new:
            return reached
        roots += new


def _lift(loop: Loop) -> None:
    """Arrays that the body holds, and numbers that it needs in memory, are given to it."""
    held = _constants([*(after for *_, after in loop.carries), *loop.others])
    stand = {n: input_node(n.aval) for n in held}
    loop.substituted(stand)
    loop.consts += stand.items()


def _in_memory(outputs: Sequence[Node]) -> set[Node]:
    """Nodes that must be in memory, numbers too: results of a body, and operands of control flow in it."""
    return {*outputs, *(n for node in topological(outputs) if _is_control(node) for n in node.inputs)}


def _constants(outputs: Sequence[Node]) -> list[Node]:
    """The constants in memory of a body."""
    needed = _in_memory(outputs)
    return [n for n in topological(outputs) if n.is_constant and (n.shape or n in needed)]


def _drop(loop: Loop) -> None:
    """Operands that are not read."""
    read = set(topological([*(after for *_, after in loop.carries), *loop.others]))
    loop.consts = [(start, own) for start, own in loop.consts if own in read]
    loop.xs = [(x, own) for x, own in loop.xs if own in read]


# -- a choice


def _simpler_cond(
    node: Node, operands: tuple[Node, ...], read: list[int], checks: dict[Node, None], optimized: Optimize
) -> Results:
    """The choice, or the results of the branch that is known to run; then `checks` takes in those of the branch."""
    predicate, given = operands[0], operands[1:]
    branches: list[Graph] = [node.params["true"].graph, node.params["false"].graph]
    if predicate.value is not None:
        branch = branches[0 if predicate.value else 1]
        roots = [*(branch.outputs[k] for k in read), *branch.checks]
        found = substitute(roots, dict(zip(branch.inputs, given, strict=True)))
        checks.update(dict.fromkeys(map(alone, found[len(read) :])))
        return dict(zip(read, found, strict=False))
    inputs = [input_node(n.aval, n.name) for n in given]
    outputs = [
        substitute([*(branch.outputs[k] for k in read), *branch.checks], dict(zip(branch.inputs, inputs, strict=True)))
        for branch in branches
    ]
    held = [n for own in outputs for n in _constants(own)]
    stand = {n: input_node(n.aval) for n in dict.fromkeys(held)}
    outputs = [substitute(own, stand) for own in outputs]
    pairs = [*zip(given, inputs, strict=True), *stand.items()]
    reached = {n for own in outputs for n in topological(own)}
    pairs = [(start, own) for start, own in pairs if own in reached]
    bodies = [
        optimized(
            body_of(Graph(tuple([own for _, own in pairs]), tuple(roots[: len(read)]), name, tuple(roots[len(read) :])))
        )
        for roots, name in zip(outputs, ("true", "false"), strict=True)
    ]
    params = {"true": bodies[0], "false": bodies[1]}
    arguments = [predicate, *(start for start, _ in pairs)]
    return {k: apply(COND, arguments, {**params, "result": at}) for at, k in enumerate(read)}
