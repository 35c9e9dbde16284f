"""Placement over ranks: the process of a group that computes each node of a graph which all of them have captured.

What a region says is placed by it (`marks`). Else a node is where most bytes of its operands are, of equal ones on the
lowest rank; and with nothing but values that every process has, every process that needs it computes it, which has the
same bits sooner than it could receive them.

A tensor that the program leaves a value in lives where that is computed: its next value is made of this one. What
lives on a rank is an operand there as all others are, so that it may draw more to itself: places are looked for until
no tensor moves in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ..graph.ir import Graph, Node
from ..ops.collectives import is_collective

Where = Mapping[Node, int | None]  # None: every process has it, or may compute it
_FREE = ("movement", "creation")  # kinds that cost no more where they are read
_FEW = 64  # elements of a value that is not worth a message, nor to be on one rank alone


def where_of(graph: Graph, marks: Mapping[Node, int], homes: Mapping[Node, int]) -> dict[Node, int | None]:
    """The rank of each node, for inputs that live on ranks (`homes`)."""
    where: dict[Node, int | None] = {}
    for node in graph.nodes():
        if node.op is None:
            where[node] = homes.get(node)
        elif is_collective(node):
            where[node] = None
        else:
            where[node] = _rank_of(node, where, marks)
    return where


def _rank_of(node: Node, where: Where, marks: Mapping[Node, int]) -> int | None:
    weights = Counter[int]()
    for operand in dict.fromkeys(node.inputs):
        rank = where[operand]
        if rank is not None:
            weights[rank] += operand.aval.nbytes
    if node in marks and (weights or not (node.aval.size <= _FEW or node.kind in _FREE)):
        return marks[node]
    return min(weights, key=lambda rank: (-weights[rank], rank)) if weights else None


def settled(
    graph: Graph, marks: Mapping[Node, int], homes: Mapping[Node, int], left: Iterable[tuple[Node, Node]]
) -> tuple[dict[Node, int | None], dict[Node, int]]:
    """The rank of each node, and where inputs live. `homes`: of those that lived on a rank before. `left`: pairs of an
    input and the value that the program leaves in it, or in its gradient."""
    pairs, found = list(left), dict(homes)
    while True:
        where = where_of(graph, marks, found)
        new = {node: rank for node, value in pairs if node not in found and (rank := where[value]) is not None}
        if not new:
            return where, found
        found |= new


def needs_of(
    graph: Graph, where: Where, wanted: Iterable[tuple[Node, Iterable[int]]], size: int
) -> dict[Node, set[int]]:
    """The ranks that need the value of each node. `wanted`: values that some ranks want in the end."""
    everyone = frozenset(range(size))
    needs: dict[Node, set[int]] = {node: set() for node in graph.nodes()}
    for node, ranks in wanted:
        needs[node].update(ranks)
    for node in graph.checks:
        needs[node].update(computing(node, where, everyone))
    for node in reversed(graph.nodes()):
        if needs[node]:
            ranks = everyone if is_collective(node) else computing(node, where, needs[node])
            for operand in node.inputs:
                needs[operand].update(ranks)
    return needs


def computing(node: Node, where: Where, needs: Collection[int]) -> Collection[int]:
    """The ranks that compute a node which some ranks need."""
    rank = where[node]
    return needs if rank is None else (rank,)
