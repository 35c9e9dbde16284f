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
# Kinds that are given arrays in memory and compute by themselves, one or more results in a run.
TAKE_MEMORY = {"control": "given to a loop or a branch", "opaque": "given to NumPy"}
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

    def __post_init__(self) -> None:
        # map, or the kind of its root with a loop of its own: how the kernel is built
        self.kind = "map"
        # the index space of its results (of its rows, for a row group)
        self.shape: tuple[int, ...] = self.roots[0].shape
        # (shape, reduced axes) of the space that its reductions run over
        self.space: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        for node in self.roots:
            self._note(node)

    def add(self, node: Node, reads: set[Node], inlined: set[Node]) -> None:
        """Adds a root that is computed from these nodes in memory and inlined ones."""
        self.roots.append(node)
        self.reads |= reads.difference(self.roots)
        self.inlined |= inlined
        self._note(node)

    def _note(self, node: Node) -> None:
        if node.kind in OWN_LOOP:
            ranks = [OWN_LOOP.index(kind) for kind in (node.kind, self.kind) if kind != "map"]
            self.kind = OWN_LOOP[min(ranks)]
        if self.space is None and (axes := reduced_axes(node)):
            self.shape, self.space = node.shape, (node.inputs[0].shape, axes)


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
    reads: set[Node] = set()
    inlined: set[Node] = set()
    stack = list(node.inputs)
    while stack:
        n = stack.pop()
        if n in reads or n in inlined:
            continue
        if n in materialised or n.is_input:
            reads.add(n)
        else:
            inlined.add(n)
            stack.extend(n.inputs)
    return reads, inlined


def reads_in_place(node: Node, read: Node, materialised: Container[Node]) -> bool:
    """Whether the kernel of `node` at element i, counted in row-major order, reads `read` only at element i.

    True if all nodes between are elementwise over one shape, or reshapes; false as soon as one path moves elements.
    """
    if node.op is None:
        return False
    stack = [(node, True)]
    seen = {(node, True)}
    while stack:
        n, in_place = stack.pop()
        assert n.op is not None
        element_map, shape = n.op.element_map, n.shape
        for operand in n.inputs:
            stays = in_place and (
                element_map == "flat"
                or (element_map == "broadcast" and (operand.shape is shape or operand.shape == shape))
            )
            if operand is read:
                if not stays:
                    return False
            elif operand.op is not None and operand not in materialised:
                state = operand, stays
                if state not in seen:
                    seen.add(state)
                    stack.append(state)
    return True
