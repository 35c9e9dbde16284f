"""Numbers that the steps of loops decide, by functions that no kernel computes: they are looked up.

    %0 = full(value=i0-2) : f64[]                      %t = const f64[50]
    %1 = multiply(%0, -0.1) : f64[]             ->     %2 = slice(%t; starts=(i0-2), stops=(i0-1)) : f64[1]
    %2 = numpy_unary(%1; name=exp) : f64[]

`np.exp(-0.1 * k)` has the last bit of NumPy, `math.sin(k)` that of Python: a call from a compiled loop takes 6 us, the
table a few microseconds for all steps. What may raise in some step stays a call. Numbers that go from step to step,
`t += 0.1`, are looked up too, where such a function takes them and nothing else has a part in them; and small arrays,
`np.exp(-2j * np.pi * k * np.arange(n) / n)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import HybridmlError
from ..graph.body import steps_in
from ..graph.facts import CALLED
from ..graph.ir import Graph, Node, apply, constant, input_node, topological, with_inputs
from ..graph.rewrite import make
from ..ops.exact import one_by_one
from ..sizes.atoms import Symbol
from ..sizes.dims import LEAST, Size, _make, bounds, is_dim, symbol, symbols_of
from ..sizes.values import evaluate
from .loop_parts import Loop, Optimize

_SHAPES = ("reshape", "broadcast_to")
_MOST = 1 << 16  # elements of a table
_MOST_COMPUTED = 1 << 14  # rows that are computed for one of arrays, 5 us each


def step_tables(graph: Graph) -> Graph:
    """Looks up what called functions make of the numbers of steps, and of constants."""
    nodes = graph.nodes()
    if not any(map(_is_called, nodes)):
        return graph
    wanted = _frontier(nodes, graph.roots, _decided(nodes))
    values: dict[tuple[str, ...], dict[Node, np.ndarray]] = {}
    final: dict[Node, Node] = {}
    for node in nodes:
        found = _looked_up(node, values) if node in wanted else None
        if found is None:
            operands = tuple([final[n] for n in node.inputs])
            found = node if operands == node.inputs else with_inputs(node, operands)
        final[node] = found
    return graph if all(final[n] is n for n in graph.roots) else graph.with_roots([final[n] for n in graph.roots])


def _is_called(node: Node) -> bool:
    return node.op is not None and node.op.name in CALLED


def _decided(
    nodes: Iterable[Node], arrays: bool = False, known: Iterable[Node] = (), step: str | None = None
) -> dict[Node, bool]:
    """The values that steps decide, or this one alone, beside those known; and whether a call has a part in them."""
    called = dict.fromkeys(known, False)
    for node in nodes:
        own = step is None or steps_in(node) <= {step}
        if node not in called and own and _is_decided(node, called, arrays):
            called[node] = _is_called(node) or any([called[n] for n in node.inputs])
    return called


def arrays_decided(loop: Loop) -> dict[Node, Node]:
    """Look-ups in the place of small arrays that steps and constants decide, where called functions have a part in
    them: the body has constants of more than one element as operands."""
    roots = [*(after for *_, after in loop.carries), *loop.others]
    nodes = topological(roots)
    if not any(map(_is_called, nodes)):
        return {}
    starts = topological([start for start, _ in loop.consts])
    decided = _decided(starts, arrays=True)
    own = {own: start for start, own in loop.consts if start in decided and own.shape}
    called = _decided(nodes, arrays=True, known=own)
    final, values = dict[Node, Node](own), dict[tuple[str, ...], dict[Node, np.ndarray]]()
    for n in nodes:
        if called.get(n) is not None and n not in own:
            final[n] = n if n.op is None else with_inputs(n, tuple([final[m] for m in n.inputs]))
    frontier = [n for n in _frontier(nodes, roots, called) if own.keys() & {*topological([n])}]
    found = {n: _looked_up(final[n], values) for n in frontier}
    return {n: looked for n, looked in found.items() if looked is not None}


def numbers_carried(loop: Loop) -> dict[Node, Node]:
    """Look-ups in the place of calls of functions that take carries, where these depend on themselves, the step and
    constants. The carries stay, for what reads them after the loop."""
    if loop.step is None or loop.reverse or loop.counts or not _are_ints(loop.length, loop.first):
        return {}
    roots = [*(after for *_, after in loop.carries), *loop.others]
    nodes = topological(roots)
    if not any(map(_is_called, nodes)):
        return {}
    own = {c: (start, after) for start, c, after in loop.carries if start.is_constant and not start.shape}
    while True:
        called = _decided(nodes, known=own, step=loop.step)
        left = {c: ends for c, ends in own.items() if ends[1] in called}
        if len(left) == len(own):
            break
        own = left
    # Elements of arrays are no weak numbers: of these only those are looked up that nothing but the checks reads.
    read = {n for node in nodes for n in node.inputs} | {*roots[: len(loop.carries) + len(loop.ys)]}
    checks = {n for n in loop.checks if called.get(n) and n not in read}
    wanted = {n for n in _frontier(nodes, roots, called) if not n.aval.weak} | checks
    if not own or not wanted:
        return {}
    return _tables(loop, own, [n for n in nodes if n in called and n not in own], wanted)


def numbers_before(loop: Loop, optimized: Optimize) -> dict[Node, Node]:
    """Look-ups in the place of calls of functions of the step, of numbers that the loop is given, and of carries that
    depend on such numbers alone: a loop of its own computes what they take, and one call before the loop all of them.
    Not where data may end the loop before a step that raises."""
    if loop.step is None or loop.reverse or not _are_ints(loop.length, loop.first):
        return {}
    if not 0 < int(loop.length or 0) <= _MOST or loop.counts or loop.go is not None:
        return {}
    roots = [*(after for *_, after in loop.carries), *loop.others]
    nodes = topological(roots)
    if not any(map(_is_called, nodes)):
        return {}
    given = {own for _, own in loop.consts if not own.shape and own.dtype.kind in "fiubc"}
    carries = [carry for carry in loop.carries if not carry[1].shape]
    while True:
        called = _decided(nodes, known=[*given, *(own for _, own, _ in carries)], step=loop.step)
        left = [carry for carry in carries if called.get(carry[2]) is False]
        if len(left) == len(carries):
            break
        carries = left
    known, frontier = given | {own for _, own, _ in carries}, _frontier(nodes, roots, called)
    wanted = [n for n in nodes if n in frontier and not n.aval.weak and known & {*topological([n])}]  # else in a table
    # What the step alone decides is in a table, also where loops around this one would call it for all steps each time.
    between = {n: None for n in topological(wanted) if called.get(n) and known & {*topological([n])}}
    taken = list(dict.fromkeys(n for node in between for n in node.inputs if n not in between and n.value is None))
    if not taken:
        return {}
    first = Loop(
        [], [pair for pair in loop.consts if pair[1] in given], carries, [], taken, [], None, loop.length, False,
        loop.step, loop.first, False,
    )  # fmt: skip
    stacked = first.nodes(range(len(carries), len(carries) + len(taken)), optimized)
    final = {node: stacked[len(carries) + k] for k, node in enumerate(taken)}
    for n in between:
        assert n.op is not None
        final[n] = apply(n.op, [final.get(m, m) for m in n.inputs], n.params, n.where)
    number = _number(loop, nodes)
    found: dict[Node, Node] = {}
    for node in wanted:
        table = input_node(final[node].aval)
        loop.consts.append((final[node], table))
        found[node] = _looked(table, [number - loop.first])
    return found


def numbers_sunk(loop: Loop) -> dict[Node, Node]:
    """Numbers that the steps of loops around this one decide, computed in the body, where called functions take
    them."""
    nodes = topological([*(after for *_, after in loop.carries), *loop.others])
    if not any(map(_is_called, nodes)):
        return {}
    decided: dict[Node, bool] = {}
    for node in topological([start for start, _ in loop.consts]):
        if _is_decided(node, decided):
            decided[node] = False
    return {own: start for start, own in loop.consts if start in decided}


def _frontier(nodes: Sequence[Node], roots: Iterable[Node], called: Mapping[Node, bool]) -> set[Node]:
    """Numbers in which calls have a part, and that others read than such numbers."""
    wanted = {n for node in nodes if not called.get(node) for n in node.inputs if called.get(n)}
    return wanted | {n for n in roots if called.get(n)}


def _are_ints(*sizes: Any) -> bool:
    return all(type(size) is int for size in sizes)


def _tables(
    loop: Loop, own: Mapping[Node, tuple[Node, Node]], nodes: Sequence[Node], wanted: Iterable[Node]
) -> dict[Node, Node]:
    """Look-ups of numbers that these nodes compute from carries; nothing where some step may raise."""
    length, step = int(loop.length or 0), str(loop.step)
    if not 0 < length * len(nodes) <= _MOST:
        return {}
    tables = {n: np.empty(length, n.dtype) for n in wanted}
    now = {c: np.asarray(start.value, c.dtype) for c, (start, _) in own.items()}
    for k in range(length):
        values = dict(now)
        try:
            for node in nodes:
                _compute(node, {step: np.asarray(loop.first + k)}, values)
        except HybridmlError:
            return {}
        for node, table in tables.items():
            table[k] = values[node]
        now = {c: values[after] for c, (_, after) in own.items()}
    number = _number(loop, nodes)
    return {node: _at(table, [number - loop.first], node) for node, table in tables.items()}


def _number(loop: Loop, nodes: Iterable[Node]) -> Size:
    """The number of a step of a loop, as these nodes have it if they do."""
    step, length = str(loop.step), int(loop.length or 0)
    found = next((s for n in nodes if _is_full(n) for s in symbols_of(n.params["value"]) if s.name == step), None)
    return symbol(step, LEAST, length + loop.first - 1) if found is None else _make({(found,): 1})


def _is_full(node: Node) -> bool:
    return node.op is not None and node.op.name == "full"


def _is_decided(node: Node, others: Mapping[Node, Any], arrays: bool = False) -> bool:
    """Whether a number, or a small array, is computed from numbers of steps, whose ends are known, and constants."""
    if node.dtype.kind not in "fiubc" or (node.shape and not (arrays and _is_small(node))):
        return False
    if node.value is not None:
        return True
    if node.op is None:
        return False
    if _is_full(node):
        value = node.params["value"]
        return not is_dim(value) or all(_count(s) is not None for s in symbols_of(value))
    computes = node.kind == "elementwise" or _is_called(node) or (arrays and node.op.name in _SHAPES)
    return computes and all([n in others for n in node.inputs])


def _is_small(node: Node) -> bool:
    return _are_ints(*node.shape) and node.aval.size <= _MOST


def _count(symbol: Symbol) -> int | None:
    """The number of values that a symbol has at most; None where that comes with the call."""
    high = None if symbol.most is None else bounds(-symbol.most) if is_dim(symbol.most) else -symbol.most
    return None if high is None else 1 - LEAST - high


def _looked_up(node: Node, known: dict[tuple[str, ...], dict[Node, np.ndarray]]) -> Node | None:
    """The number in a table of all steps; None where there is none, or may be none in some step."""
    below = topological([node])
    of = {s.name: s for n in below if _is_full(n) for s in symbols_of(n.params["value"])}
    symbols = [of[name] for name in sorted(of)]
    shape = tuple([_count(s) or 0 for s in symbols])
    if not symbols or not 0 < math.prod(shape) * node.aval.size <= _MOST:
        return None
    place: list[Size] = [_make({(s,): 1}) - LEAST for s in symbols]
    if any(n.shape for n in below):
        arrays = _of_arrays(node, below, sorted(of), shape)
        return None if arrays is None else _looked(constant(arrays), place)
    grid = np.meshgrid(*[np.arange(LEAST, LEAST + n) for n in shape], indexing="ij", sparse=True)
    sizes = {s.name: axis for s, axis in zip(symbols, grid, strict=True)}
    values = known.setdefault(tuple(sizes), {})
    try:
        for n in below:
            if n not in values:
                _compute(n, sizes, values)
    except HybridmlError:
        return None
    found = _at(np.broadcast_to(values[node], shape), place, node)
    return found if found.aval == node.aval else None


def _of_arrays(
    node: Node, below: Sequence[Node], names: Sequence[str], shape: tuple[int, ...]
) -> np.ndarray | None:  # fmt: skip
    """The table of an array, or of a number in which arrays have a part; None where some step may raise."""
    if math.prod(shape) * len(below) > _MOST_COMPUTED or node.aval.weak:
        return None
    table = np.empty((*shape, *node.shape), node.dtype)
    for place in np.ndindex(shape):
        sizes = {name: np.asarray(LEAST + k) for name, k in zip(names, place, strict=True)}
        values: dict[Node, np.ndarray] = {}
        try:
            for n in below:
                _compute(n, sizes, values)
        except HybridmlError:
            return None
        table[place] = values[node]
    return table


def _at(table: np.ndarray, place: Sequence[Size], like: Node) -> Node:
    """The number at a place of a table, as a node of that type."""
    return _looked(constant(table, like.dtype, weak=like.aval.weak), place)


def _looked(table: Node, place: Sequence[Size]) -> Node:
    shape = table.shape[len(place) :]
    starts, stops = [*place, *(0 for _ in shape)], [*(k + 1 for k in place), *shape]
    return make("reshape", make("slice", table, starts=tuple(starts), stops=tuple(stops)), shape=shape)


def _compute(node: Node, sizes: Mapping[str, np.ndarray], values: dict[Node, np.ndarray]) -> None:
    """Adds the value of a node in these steps, by the row's own meaning: functions of NumPy of one number at a time, as
    eager code has them."""
    if node.value is not None:
        values[node] = node.value
    elif _is_full(node):
        value = np.asarray(evaluate(node.params["value"], sizes)).astype(node.dtype)
        values[node] = np.broadcast_to(value, node.shape) if node.shape else value
    else:
        assert node.op is not None
        operands = [values[n] for n in node.inputs]
        with np.errstate(all="ignore"):
            if node.op.name in ("numpy_unary", "numpy_binary") and not node.shape:
                values[node] = one_by_one(operands, node.dtype, node.params["name"])
            else:
                values[node] = np.asarray(node.op.run(operands, node.params))
