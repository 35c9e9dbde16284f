"""A fusion group: the nodes that one kernel writes, and the nodes that it reads and inlines to compute them.

A *row* group reduces trailing axes of a space and may compute over the whole of it in the same kernel: softmax, layer
normalisation and their gradients read each row once and keep it in cache. Its nodes have one of three forms:

    full    the shape of the space                              (4096, 1024)
    row     the space with its reduced axes 1                   (4096, 1)
    column  the space without its reduced axes                  (4096,)
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import field
from typing import Literal

from ...graph.facts import reduced_axes
from ...graph.ir import Node
from ...record import record
from ...walk import reachable
from ..kernels.library import Matched

# Kinds that cannot be inlined into another loop.
OWN_LOOP = ("reduction", "contraction", "convolution", "scan", "scatter", "random", "control", "opaque")
Form = Literal["full", "row", "column"]


@record(frozen=False, eq=False)
class Group:
    """Materialised nodes computed by one kernel. `reads` are the materialised nodes and inputs that it loads."""

    roots: list[Node]
    reads: set[Node]
    inlined: set[Node]
    after: set[Group] = field(default_factory=set)  # groups that must run before this one
    reasons: list[str] = field(default_factory=list)
    local: set[Node] = field(default_factory=set)  # roots that nothing outside reads: they need no memory
    call: Matched | None = None  # the library code that computes the first root, if any; the others are its epilogue

    @property
    def kind(self) -> str:
        """map, or the kind of its root with a loop of its own: how the kernel is built."""
        kinds = {n.kind for n in self.roots if n.op is not None}
        return next((kind for kind in OWN_LOOP if kind in kinds), "map")

    @property
    def shape(self) -> tuple[int, ...]:
        """The index space of its results (of its rows, for a row group)."""
        return next((n.shape for n in self.roots if reduced_axes(n)), self.roots[0].shape)

    @property
    def space(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """(shape, reduced axes) of the space that its reductions run over."""
        return next(((n.inputs[0].shape, reduced_axes(n)) for n in self.roots if reduced_axes(n)), None)


def form_of(shape: tuple[int, ...], space: tuple[int, ...], axes: tuple[int, ...]) -> Form | None:
    if shape == space:
        return "full"
    if shape == tuple(1 if k in axes else n for k, n in enumerate(space)):
        return "row"
    return "column" if shape == tuple(n for k, n in enumerate(space) if k not in axes) else None


def row_aligned(
    node: Node, roots: Container[Node], in_memory: Container[Node], space: tuple[int, ...], axes: tuple[int, ...]
) -> bool:
    """Whether `node` reads the group's own nodes only in its own row.

    Followed from node to operand: elementwise operations between forms that broadcast onto each other, the reduction
    itself, and views that only add or drop the reduced axes. Any other way to a node of the group crosses rows.
    """
    stack, seen = [node], {node}
    while stack:
        n = stack.pop()
        for operand in n.inputs:
            inside = operand in roots
            inlined = operand.op is not None and operand not in in_memory and not inside
            if not inside and not (inlined and _reaches(operand, roots, in_memory)):
                continue
            if not _keeps_rows(n, operand, space, axes):
                return False
            if inlined and operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return True


def _reaches(node: Node, roots: Container[Node], in_memory: Container[Node]) -> bool:
    def inlined(n: Node) -> list[Node]:
        return [operand for operand in n.inputs if operand.op is not None and operand not in in_memory]

    return any(operand in roots for n in reachable([node], inlined) for operand in n.inputs)


def _keeps_rows(node: Node, operand: Node, space: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    assert node.op is not None
    here, there = form_of(node.shape, space, axes), form_of(operand.shape, space, axes)
    if here is None or there is None:
        return False
    if node.op.element_map == "broadcast":
        return there == here or (here, there) == ("full", "row")
    if node.op.element_map == "flat":
        return {here, there} <= {"row", "column"}
    return node.kind == "reduction" and there == "full" and reduced_axes(node) == axes


def expression_of(node: Node, materialised: Container[Node]) -> tuple[set[Node], set[Node]]:
    """(nodes in memory, nodes inlined) that the kernel of `node` computes it from."""

    def in_memory(n: Node) -> bool:
        return n in materialised or n.is_input

    parts = set(reachable(node.inputs, lambda n: () if in_memory(n) else n.inputs))
    reads = set(filter(in_memory, parts))
    return reads, parts - reads


def reads_in_place(node: Node, read: Node, materialised: Container[Node]) -> bool:
    """Whether the kernel of `node` at element i, counted in row-major order, reads `read` only at element i.

    True if all nodes between are elementwise over one shape, or reshapes; false as soon as one path moves elements.
    """
    if node.op is None:
        return False
    stack = [(node, True)]
    seen: set[tuple[Node, bool]] = set()
    while stack:
        n, in_place = stack.pop()
        assert n.op is not None
        for operand in n.inputs:
            same = n.op.element_map == "broadcast" and operand.shape == n.shape
            stays = in_place and (same or n.op.element_map == "flat")
            if operand is read and not stays:
                return False
            inlined = operand.op is not None and operand not in materialised
            if inlined and (operand, stays) not in seen:
                seen.add((operand, stays))
                stack.append((operand, stays))
    return True
