"""A fusion group: the nodes that one kernel writes, and the nodes that it reads and inlines to compute them.

A *row* group reduces trailing axes of a space and may compute over the whole of it in the same kernel: softmax, layer
normalisation and their gradients read each row once and keep it in cache. Its nodes have one of three forms:

    full    the shape of the space                              (4096, 1024)
    row     the space with its reduced axes 1                   (4096, 1)
    column  the space without its reduced axes                  (4096,)
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from ...graph.facts import reduced_axes
from ...graph.ir import Node
from ...record import record
from ...walk import reachable

if TYPE_CHECKING:
    from ..kernels.library import Matched

# Kinds that cannot be inlined into another loop.
OWN_LOOP = ("reduction", "contraction", "convolution", "scan", "scatter", "random", "control", "opaque")
# Kinds that are given arrays in memory and compute by themselves, one or more results in a run.
TAKE_MEMORY = {"control": "given to a loop or a branch", "opaque": "given to a call"}
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
        self.shape: tuple[int, ...] = self.roots[0].shape if self.roots else ()
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
            if not inside and (operand.op is None or operand in in_memory):
                continue
            if not _keeps_rows(n, operand, space, axes):
                if inside or _reaches(operand, roots, in_memory):
                    return False
            elif not inside and operand not in seen:
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


@record
class Expression:
    """Nodes that the kernel of a value computes it from: those in memory, those computed with it; and of those in
    memory the ones that it reads elsewhere than at the element at hand, counted in row-major order."""

    reads: set[Node]
    inlined: set[Node]
    displaced: set[Node]


def expression_of(node: Node, materialised: Container[Node]) -> Expression:
    """The expression of a value, computed or not.

    An operand is read in place where all nodes above it are elementwise over one shape, or reshapes; one path that
    moves elements displaces it.
    """
    reads: set[Node] = set()
    displaced: set[Node] = set()
    in_place: set[Node] = set()  # inlined nodes, by how they are read; some are in both
    moved: set[Node] = set()
    stack = [(node, True)]
    while stack:
        n, at_hand = stack.pop()
        element_map, shape = n.op.element_map if n.op is not None else "", n.shape
        for operand in n.inputs:
            stays = at_hand and (element_map == "flat" or (element_map == "broadcast" and operand.shape == shape))
            if operand in materialised or (operand.op is None and operand.value is None):
                reads.add(operand)
                if not stays:
                    displaced.add(operand)
            elif operand not in (inlined := in_place if stays else moved):
                inlined.add(operand)
                stack.append((operand, stays))
    return Expression(reads, in_place | moved, displaced)


class Expressions:
    """Expressions of values for a choice of those in memory; of the choice before those that are the same."""

    def __init__(self, materialised: Collection[Node], before: Expressions | None = None) -> None:
        self.materialised = materialised
        self._known: dict[Node, Expression] = {}
        if before is not None:
            changed = set(before.materialised).symmetric_difference(materialised)
            self._known = {
                node: x
                for node, x in before._known.items()
                if changed.isdisjoint(x.reads) and changed.isdisjoint(x.inlined)
            }

    def of(self, node: Node) -> Expression:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = expression_of(node, self.materialised)
        return found

    def in_place(self, node: Node, read: Node) -> bool:
        """Whether the kernel of `node` at element i reads `read` only at element i."""
        return node.op is not None and read not in self.of(node).displaced
