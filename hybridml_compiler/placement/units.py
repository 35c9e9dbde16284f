"""Units: operations that are placed together, as one launch is going to compute them, and the work in each.

The schedule decides what is fused, for each device by itself and after the passes. Here is a guess at it that is the
same for all: an elementwise operation is computed with the one kernel that reads it, a reduction or a product with the
elementwise operations that follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..graph.body import family
from ..graph.facts import element_cost
from ..graph.flops import node_flops, operations
from ..graph.ir import Graph, Node
from ..once import lazy
from ..record import record
from ..schedule.cost import FLOP_NS, MAX_KERNEL_NODES, NUMPY_CALL_NS, memory_cost
from ..sizes.dims import hint
from ..walk import postorder
from .performance import Work

_LIGHT = ("elementwise", "movement", "creation", "gather")  # kinds that are computed where they are read
_TAIL = ("elementwise", "movement", "creation")  # kinds that a kernel may end in
_ALONE = ("control", "opaque")  # kinds that have no part in a kernel
_PRODUCTS = ("contraction", "convolution")


@record(eq=False)
class Unit:
    """Operations of one launch; `reads` are values of other units and inputs, `gives` those that others read."""

    nodes: Sequence[Node]
    reads: Sequence[Node]
    gives: Sequence[Node]
    work: Work


@record(eq=False)
class Units:
    """A graph by its units, each after those that it reads. `homes`: the device of each input that is read; `outputs`:
    values with the device that they have to be on in the end."""

    all: Sequence[Unit]
    homes: Mapping[Node, str]
    outputs: Sequence[tuple[Node, str]]

    @lazy
    def owner(self) -> dict[Node, int]:
        """The number of the unit that computes a value."""
        return {node: k for k, unit in enumerate(self.all) for node in unit.nodes}

    @lazy
    def readers(self) -> dict[Node, list[int]]:
        """The numbers of the units that read a value of others."""
        found: dict[Node, list[int]] = {}
        for k, unit in enumerate(self.all):
            for node in unit.reads:
                found.setdefault(node, []).append(k)
        return found


def units_of(graph: Graph, where: Mapping[Node, str]) -> Units:
    """The units of a graph. None has operations that `where` has on several devices."""
    nodes = [node for node in graph.nodes() if node.op is not None and node.kind != "transfer"]
    outputs = dict.fromkeys((value_of(node), node.aval.device) for node in graph.outputs)
    groups = _groups(nodes, where)
    owner = {node: id(group) for group in groups for node in group}
    read: dict[int, list[Node]] = {}
    given: dict[Node, None] = {node: None for node, _ in outputs}
    for group in groups:
        operands = dict.fromkeys(value_of(n) for node in group for n in node.inputs)
        read[id(group)] = [n for n in operands if not n.is_constant and owner.get(n) != id(group)]
        given |= dict.fromkeys(read[id(group)])
    by_id = {id(group): group for group in groups}
    order = postorder([owner[node] for node in nodes], lambda key: [owner[n] for n in read[key] if n in owner])
    made = []
    for key in order:
        group = by_id[key]
        gives = [node for node in group if node in given]
        made.append(Unit(group, read[key], gives, work_of(group, gives)))
    homes = {n: n.aval.device for n in given if n.is_input}
    kept = [(node, device) for node, device in outputs if not node.is_constant]
    return Units(made, homes, kept)


def value_of(node: Node) -> Node:
    """The value that a node has, whatever device it was moved to."""
    while node.kind == "transfer":
        node = node.inputs[0]
    return node


def _groups(nodes: Sequence[Node], where: Mapping[Node, str]) -> list[list[Node]]:
    """The nodes of each unit, operands first."""
    readers: dict[Node, list[Node]] = {}
    for node in nodes:
        for operand in node.inputs:
            readers.setdefault(value_of(operand), []).append(node)
    group_of: dict[Node, list[Node]] = {}
    families: dict[object, list[Node]] = {}
    for node in reversed(nodes):
        assert node.op is not None
        found: list[Node] | None = None
        if node.kind in _ALONE or node.op.results:
            found = families.setdefault(family(node), [])
        elif node in readers:
            groups = {id(group): group for group in (group_of[reader] for reader in readers[node])}
            if len(groups) == 1:
                (group,) = groups.values()
                found = group if where[group[0]] == where[node] and _joins(node, group, readers[node]) else None
        group_of[node] = [] if found is None else found
        group_of[node].append(node)
    unique = {id(group): group for group in group_of.values()}
    return [group[::-1] for group in unique.values()]


def _joins(node: Node, group: Sequence[Node], readers: Iterable[Node]) -> bool:
    """Whether the kernel of a group is going to compute a value that nobody else reads."""
    if len(group) >= MAX_KERNEL_NODES or any(reader.kind in _ALONE for reader in readers):
        return False
    if any(reader.kind in _PRODUCTS for reader in readers):
        return node.kind == "movement"
    return node.kind in _LIGHT or all(other.kind in _TAIL for other in group)


def work_of(nodes: Sequence[Node], gives: Iterable[Node]) -> Work:
    """The work in the nodes of a unit that gives these values to others."""
    own = set(nodes)
    if nodes[0].kind in _ALONE:
        return _work_alone(nodes)
    if all(node.kind in ("movement", "creation") for node in nodes):
        return Work()  # whoever reads it reads its operand in another order
    elements, products = Counter[int](), Counter[int]()
    read: dict[Node, float] = {}
    for node in nodes:
        _count(node, 1, elements, products)
        for operand in map(value_of, node.inputs):
            if operand not in own:
                part = min(_bytes(operand), _bytes(node)) if node.kind in _LIGHT else _bytes(operand)
                read[operand] = max(read.get(operand, 0), part)
    return Work(1, elements, products, sum(read.values()) + sum(map(_bytes, gives)))


def _work_alone(nodes: Sequence[Node]) -> Work:
    """The work of a loop or a branch, or of a call of NumPy."""
    elements, products = Counter[int](), Counter[int]()
    launches = nbytes = host_ns = host_bytes = 0.0
    host_calls, families = 0, set[object]()
    for node, times in operations(nodes):
        if node.kind == "opaque":
            if family(node) in families:
                continue
            families.add(family(node))
            moved = sum(map(_bytes, node.inputs)) + _bytes(node)
            host_ns += times * (NUMPY_CALL_NS + memory_cost(moved))
            host_calls, host_bytes = host_calls + times, host_bytes + times * moved
        elif node.kind not in ("movement", "creation", "control", "transfer"):
            _count(node, times, elements, products)
            launches += times
            nbytes += 2 * times * _bytes(node)
    return Work(launches, elements, products, nbytes, host_ns, host_calls, host_bytes)


def _count(node: Node, times: int, elements: Counter[int], products: Counter[int]) -> None:
    """Adds the operations of a node. What costs more than an addition counts as so many."""
    flops = node_flops(node) * times
    if node.kind in _PRODUCTS:
        products[node.dtype.itemsize] += flops
    else:
        largest = max([node, *node.inputs], key=_bytes).aval.size if node.kind == "reduction" else node.aval.size
        elements[node.dtype.itemsize] += max(flops, round(times * hint(largest) * element_cost(node) / FLOP_NS))


def _bytes(node: Node) -> float:
    return float(hint(node.aval.nbytes))
