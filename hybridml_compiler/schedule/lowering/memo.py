"""Groups that do the same to other arrays have the same kernels: they are lowered once.

The layers of a model, the steps of a recurrence and the parameters of an optimizer repeat each other. Two groups are
equal if their expressions are the same up to which array is read where; kernels name their operands by position, so
only the operands differ. A step of an LSTM over 64 times has 500 groups, 100 of them different.

Each parameter's update reads factors of its own from arrays that hold those of all: groups that are equal but for where
such numbers are have one kernel too, moved there. A GPT of 32 layers has 888 groups, of which 60 are lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...aval import Aval
from ...graph.ir import Node, input_node
from ...loops.ir import Kernel
from ...sizes.values import has_dims
from ...walk import postorder
from ..fusion.group import Group
from ..kept import Kept, Reuse
from .offset_hoisting import moved, rebase

Lowered = Sequence[tuple[Kernel, tuple[Node, ...]]]  # kernels, each with the nodes whose memory it is given


class LoweringMemo:
    """Lowers groups, or finds the result for an equal one, of this graph or one before, or for one that reads other
    numbers of an array."""

    def __init__(
        self, in_memory: Callable[[Node], bool], overwrites: Mapping[Node, Node], kept: Kept, reuse: Reuse
    ) -> None:
        self.in_memory, self.overwrites, self.kept, self.reuse = in_memory, overwrites, kept, reuse

    def lowered(self, group: Group, lower: Callable[[], Lowered]) -> Lowered:
        """`lower()`, or the same for the nodes of this group. A node of no graph is temporary, and made again."""
        key, nodes, places = self.signature(group)
        self.reuse.groups += 1
        found: _Found | None = self.kept.groups.get(key)
        if found is not None:
            kernels, before = found
            temporary: dict[int, Node] = {}
            by = {n: place - before[n] for n, place in places.items() if place != before[n]}
            return [
                (self._further(kernel, given, by), tuple([_operand(x, nodes, temporary) for x in given]))
                for kernel, given in kernels
            ]
        made = lower()
        self.reuse.lowered += 1
        number: dict[Node, int | _Temporary] = {node: k for k, node in enumerate(nodes)}
        for _, operands in made:
            for node in operands:
                of_graph = node.op is not None and self.in_memory(node)
                assert node in number or not of_graph, f"{node} is an operand, and not of the group"
                number.setdefault(node, _Temporary(len(number), node.aval))
        self.kept.groups[key] = [(kernel, [number[node] for node in operands]) for kernel, operands in made], places
        return made

    def _further(self, kernel: Kernel, given: Sequence[int | _Temporary], by: Mapping[int, int]) -> Kernel:
        """The kernel with operands, by the number of the node, used so many elements further on."""
        operands = zip(kernel.operands, given, strict=True)
        named = {buffer.name: by[x] for buffer, x in operands if isinstance(x, int) and x in by}
        if not named:
            return kernel
        key = id(kernel), *named.items()
        new = self.kept.specs.get(key)
        if new is None:
            new = moved(kernel, named)
            self.kept.moved[id(new)] = new, kernel, named
            self.kept.specs[key] = new
        assert isinstance(new, Kernel)
        return new

    def rebased(self, kernel: Kernel) -> tuple[Kernel, Mapping[str, int]]:
        """`rebase(kernel)`, with one kernel for all that are equal but for where they read."""
        _, kernel, by = self.kept.moved.get(id(kernel), (kernel, kernel, {}))
        found = self.kept.rebased.get(id(kernel))
        if found is None:
            found = self.kept.rebased[id(kernel)] = kernel, *rebase(kernel)
        _, made, shifts = found
        return made, {**shifts, **{name: shifts.get(name, 0) + n for name, n in by.items()}}

    def signature(self, group: Group) -> tuple[Any, list[Node], Mapping[int, int]]:
        """(key that equal groups have in common, nodes of this one in the order in which it names them, and of arrays,
        by number, of which the group reads single numbers and nothing else, the place of the first)."""
        roots, number, lines = set(group.roots), dict[Node, int](), list[Any]()
        cuts: dict[Node, int] = {}  # single numbers of arrays in memory: where they are
        leaves: set[Node] = set()

        def operands(node: Node) -> Sequence[Node]:
            if node.op is None or (node not in roots and self.in_memory(node)):
                leaves.add(node)
                return ()
            return node.inputs

        for node in postorder(group.roots, operands):
            number[node] = len(number)
            leaf = node in leaves
            if not leaf and node.kind == "movement" and node.inputs[0] in leaves and _is_single(node):
                cuts[node] = _place(node)
            lines.append(self._line(node, leaf, number))
        written = [n for n in number if n in self.overwrites]
        for node in written:
            number.setdefault(self.overwrites[node], len(number))  # in whose memory it is, whether or not that is read
        first: dict[Node, int] = {}
        if cuts:
            others = {n for node in number if node not in cuts and node not in leaves for n in node.inputs}
            others.update(roots, [self.overwrites[n] for n in written])
            for node, place in cuts.items():
                (array,) = node.inputs
                if array not in others and array not in self.overwrites and self.in_memory(array):
                    first[array] = min(first.get(array, place), place)
            for node, place in cuts.items():
                (array,) = node.inputs
                if array in first:
                    lines[number[node]] = "number", number[array], place - first[array]
        places = tuple([(number[n], number[self.overwrites[n]]) for n in written])
        named = tuple([(number[n], n in group.local) for n in group.roots])
        key = tuple(lines), named, places, None if group.call is None else group.call[0]
        return key, [*number], {number[array]: place for array, place in first.items()}

    def _line(self, node: Node, leaf: bool, number: Mapping[Node, int]) -> Any:
        if not leaf and node.op is not None:
            return node.op.key, node.text, tuple([number[n] for n in node.inputs])
        in_memory = self.in_memory(node)
        value = None if node.value is None or in_memory else node.value.tobytes()
        return node.aval, in_memory, node.is_input, value


def _is_single(node: Node) -> bool:
    """Whether the node is one element of an array, at a known place, with the array's number of axes."""
    cut = node.op is not None and node.op.is_view and "starts" in node.params and not has_dims(node.params["starts"])
    return cut and type(node.aval.size) is int and node.aval.size == 1


def _place(node: Node) -> int:
    """The place of a single number in its array."""
    place = 0
    for start, size in zip(node.params["starts"], node.inputs[0].shape, strict=True):
        place = place * size + start
    return place


class _Temporary:
    """A node of no graph: which of them, and its type."""

    def __init__(self, number: int, aval: Aval) -> None:
        self.number, self.aval = number, aval


# Kernels, each with the numbers of its operands; and the places of `LoweringMemo.signature`.
_Found = tuple[list[tuple[Kernel, list[int | _Temporary]]], Mapping[int, int]]


def _operand(given: int | _Temporary, nodes: Sequence[Node], temporary: dict[int, Node]) -> Node:
    if not isinstance(given, _Temporary):
        return nodes[given]
    if given.number not in temporary:
        temporary[given.number] = input_node(given.aval)
    return temporary[given.number]
