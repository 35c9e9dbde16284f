"""Groups that do the same to other arrays have the same kernels: they are lowered once.

The layers of a model, the steps of a recurrence and the parameters of an optimizer repeat each other. Two groups are
equal if their expressions are the same up to which array is read where; kernels name their operands by position, so
only the operands differ. A step of an LSTM over 64 times has 500 groups, 100 of them different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...aval import Aval
from ...graph.ir import Node, input_node
from ...loops.ir import Kernel
from ...walk import postorder
from ..fusion.group import Group

Lowered = Sequence[tuple[Kernel, tuple[Node, ...]]]  # kernels, each with the nodes whose memory it is given


class LoweringMemo:
    """Lowers groups, or finds the result for an equal one."""

    def __init__(self, in_memory: Callable[[Node], bool], overwrites: Mapping[Node, Node]) -> None:
        self.in_memory, self.overwrites = in_memory, overwrites
        self._known: dict[Any, list[tuple[Kernel, list[int | _Temporary]]]] = {}

    def lowered(self, group: Group, lower: Callable[[], Lowered]) -> Lowered:
        """`lower()`, or the same for the nodes of this group. A node of no graph is temporary, and made again."""
        key, nodes = self.signature(group)
        found = self._known.get(key)
        if found is not None:
            temporary: dict[int, Node] = {}
            return [(kernel, tuple([_operand(x, nodes, temporary) for x in given])) for kernel, given in found]
        made = lower()
        number: dict[Node, int | _Temporary] = {node: k for k, node in enumerate(nodes)}
        for _, operands in made:
            for node in operands:
                number.setdefault(node, _Temporary(len(number), node.aval))
        self._known[key] = [(kernel, [number[node] for node in operands]) for kernel, operands in made]
        return made

    def signature(self, group: Group) -> tuple[Any, list[Node]]:
        """(key that equal groups have in common, nodes of this one in the order in which it names them)."""
        roots, number, lines = set(group.roots), dict[Node, int](), list[Any]()

        def is_leaf(node: Node) -> bool:
            return node.op is None or (node not in roots and self.in_memory(node))

        for node in postorder(group.roots, lambda node: () if is_leaf(node) else node.inputs):
            number[node] = len(number)
            lines.append(self._line(node, is_leaf(node), number))
        written = [n for n in number if n in self.overwrites]
        for node in written:
            number.setdefault(self.overwrites[node], len(number))  # in whose memory it is, whether or not that is read
        places = tuple([(number[n], number[self.overwrites[n]]) for n in written])
        named = tuple([(number[n], n in group.local) for n in group.roots])
        return (tuple(lines), named, places, None if group.call is None else group.call[0]), [*number]

    def _line(self, node: Node, leaf: bool, number: Mapping[Node, int]) -> Any:
        if not leaf and node.op is not None:
            return node.op.name, node.text, tuple([number[n] for n in node.inputs])
        in_memory = self.in_memory(node)
        value = None if node.value is None or in_memory else node.value.tobytes()
        return node.aval, in_memory, node.is_input, value


class _Temporary:
    """A node of no graph: which of them, and its type."""

    def __init__(self, number: int, aval: Aval) -> None:
        self.number, self.aval = number, aval


def _operand(given: int | _Temporary, nodes: Sequence[Node], temporary: dict[int, Node]) -> Node:
    if not isinstance(given, _Temporary):
        return nodes[given]
    if given.number not in temporary:
        temporary[given.number] = input_node(given.aval)
    return temporary[given.number]
