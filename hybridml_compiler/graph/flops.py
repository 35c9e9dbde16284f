"""Floating-point operations of nodes: estimates from shapes, for profiles, explanations and audits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..ops.composite import COMPOSITE
from ..sizes.dims import hint
from .body import bodies_of
from .ir import Node


def flops(kind: str, inputs: Sequence[Any], shape: Sequence[int]) -> int:
    """Floating-point operations of an operation of this kind on operands of these shapes.

    A product and a convolution have two for each multiplication. Elementwise operations, sums, scans, scatters and
    random numbers have one for each element of the result or of the largest operand, whatever it is made of. Moving
    data has none; of NumPy's own functions (`opaque`) the number is not known, and none are counted.
    """
    if kind in ("movement", "creation", "gather", "opaque", "control", "transfer"):
        return 0
    size = _size(shape)
    if kind == "contraction":
        return 2 * size * hint(inputs[0][-1])
    if kind == "convolution":  # by (kh, kw, groups, c, o)
        kh, kw, _, channels, _ = inputs[1]
        return 2 * size * _size((kh, kw, channels))
    return max([size, *map(_size, inputs)])


def node_flops(node: Node) -> int:
    """Floating-point operations of a node; for loops and branches, see `operations`."""
    assert node.op is not None
    found = flops(node.op.kind, [n.shape for n in node.inputs], node.shape)
    if node.op is not COMPOSITE:
        return found
    return found * sum(n.op is not None for n in node.params["body"].graph.nodes())


def operations(nodes: Iterable[Node]) -> Iterator[tuple[Node, int]]:
    """Operations with how often they run: for a loop (one node per result) those of its body, in every step that it has
    at most; for a branch those of either way."""
    known: set[Any] = set()
    for node in nodes:
        bodies = list(bodies_of(node)) if node.kind == "control" else []
        if not bodies:
            yield node, 1
            continue
        key = *(body.key for body in bodies), *map(id, node.inputs)
        if key not in known:
            known.add(key)
            trips = hint(node.params.get("length") or 1)
            for body in bodies:
                inner = (n for n in body.graph.nodes() if n.op is not None)
                yield from ((n, times * trips) for n, times in operations(inner))


def total_flops(nodes: Iterable[Node]) -> int:
    """Floating-point operations of nodes, with every step of loops."""
    return sum(node_flops(node) * times for node, times in operations(n for n in nodes if n.op is not None))


def _size(shape: Sequence[int]) -> int:
    return math.prod(map(hint, shape))
