"""Numbers that steps add up, taken out of a loop whose steps threads may share.

    for i in prange(n):                     for i in prange(n):          threads share them
        out[i] = f(x[i])          ->            out[i] = f(x[i])
        s += g(x[i])                            terms[i] = g(x[i])
                                            for i in range(n):           in order: the bits are those of one loop
                                                s += terms[i]

So it is with any value that goes from step to step and leads to none of what the other carries become: the largest so
far, or what the last step has computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph.facts import dependent, is_expensive
from ..graph.independence import dependence_of
from ..graph.ir import Graph, Node, input_node, topological
from ..sizes.dims import hint, steps_of
from .loop_parts import Loop, Optimize, Results

_STEP_BYTES = 1 << 12  # of terms that a step keeps; it would read and write more than it computes
_BYTES = 1 << 26
_ELEMENTS = 32  # of a value that is worth a thread
_FREE = ("movement", "creation")


def sums_apart(node: Node, operands: Sequence[Node], read: list[int], optimized: Optimize) -> Results:
    """The results of two loops, or nothing where one is as good, or cannot be two."""
    p, body = node.params, node.params["body"]
    graph: Graph = body.graph
    if not p["parallel"] or p["condition"] is not None or p["counted"] or body.after_passes is not body:
        return {}
    sums = [k for k in range(p["carries"]) if dependence_of(graph, p, k) is not None]
    if not sums:
        return {}
    loop = Loop.of(node, operands)
    later = dependent([*(after for *_, after in loop.carries), *loop.others], [loop.carries[k][1] for k in sums])
    others = [k for k in range(p["carries"]) if k not in sums]
    if any(loop.carries[k][2] in later for k in others) or not later.isdisjoint(loop.checks):
        return {}
    given = {own for _, own in (*loop.consts, *loop.xs)}
    own_ys = [k for k, y in enumerate(loop.ys) if y not in later]
    late_ys = [k for k, y in enumerate(loop.ys) if y in later]
    ends = [*(loop.carries[k][2] for k in sums), *(loop.ys[k] for k in late_ys)]
    terms = [*dict.fromkeys(_terms(ends, later, given))]
    before = topological([*terms, *(loop.carries[k][2] for k in others)])
    if not any(map(_is_worth, before)) or not all(steps_of(*n.shape) == set() for n in terms):
        return {}
    a_step = sum(n.aval.nbytes for n in terms)
    if a_step > _STEP_BYTES or a_step * hint(p["length"]) > _BYTES:
        return {}
    first = Loop(
        [], loop.consts, [loop.carries[k] for k in others], loop.xs, [*(loop.ys[k] for k in own_ys), *terms],
        loop.checks, None, loop.length, loop.reverse, loop.step, loop.first, True,
    )  # fmt: skip
    m = len(others) + len(own_ys)
    at = {k: place for place, k in enumerate([*others, *(p["carries"] + k for k in own_ys)])}
    found = first.nodes(sorted({*(at[k] for k in read if k in at), *range(m, m + len(terms))}), optimized)
    stand = {term: input_node(term.aval) for term in terms}
    second = Loop(
        [], loop.consts, [loop.carries[k] for k in sums],
        [*loop.xs, *((found[m + k], own) for k, own in enumerate(stand.values()))], [loop.ys[k] for k in late_ys],
        [], None, loop.length, loop.reverse, loop.step, loop.first, False,
    )  # fmt: skip
    second.substituted(stand)
    late = {k: place for place, k in enumerate([*sums, *(p["carries"] + k for k in late_ys)])}
    after = second.nodes(sorted(late[k] for k in read if k in late), optimized)
    return {k: found[at[k]] if k in at else after[late[k]] for k in read}


def _terms(ends: Sequence[Node], later: set[Node], given: set[Node]) -> Iterator[Node]:
    """The values that the loop in order needs of the steps before: those computed, and no views of its operands."""
    pending, seen = [*ends], set[Node]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in later or (node.kind in _FREE and node not in given and _is_free(node, given)):
            pending += node.inputs
        elif node not in given and node.value is None:
            yield node


def _is_free(node: Node, given: set[Node]) -> bool:
    return all(n in given or n.value is not None or n.kind in _FREE for n in topological([node]))


def _is_worth(node: Node) -> bool:
    """Whether a value takes longer than to go from thread to thread."""
    if node.op is None or node.kind in _FREE:
        return False
    return node.kind != "elementwise" or node.aval.hinted.size >= _ELEMENTS or is_expensive(node)
