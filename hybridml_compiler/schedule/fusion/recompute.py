"""Save or recompute: which elementwise values are written to memory, and which each kernel that needs them computes.

Groups are formed as if every shared value were written. Then it is known which kernels read it and what they load
anyway, and the best set to write is a minimum cut between the values in memory and the kernels that read:

    memory --> x --[load x]--> e = exp(x) --[load e]--> s = 1 + e --> kernels that want s
       '------[compute e]------^                        |
       '------[compute s]-------------------------------^           each value: [write, load it in its own kernels]

A value on the side of the memory is kept: it is written, and loaded by the kernels that want it. A value on the side of
the kernels is computed again in each of them, from operands that they compute as well or load, if they do not load them
anyway. Reductions, products, random bits and values that a kernel reads out of order are not computed again.

Regions are small: they end where reading costs nothing, and at values that are kept whatever happens elsewhere. Layers
repeat, so equal regions are cut once.

The idea is that of Chen et al., "Training deep nets with sublinear memory cost" (2016), weighed in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from math import inf

from ...graph.facts import element_cost, reduced_axes
from ...graph.ir import Graph, Node
from ...record import record
from ...walk import reachable
from .. import cost
from .group import Expressions, Group
from .min_cut import minimum_cut


@record
class Value:
    """A node of a region, with its costs in nanoseconds."""

    wanted: float | None  # to keep it for the kernels that read it as it is, if there are any
    load: float  # to have it, if it is kept, as an operand
    again: float  # to compute it from its operands; infinite for a value in memory
    operands: tuple[int, ...]  # numbers of values before it


@record(frozen=False)
class Choice:
    again: dict[Node, str] = field(default_factory=dict)  # values that every kernel that needs them computes, and why
    kept: dict[Node, str] = field(default_factory=dict)  # values that are written, and why


def choose(
    graph: Graph,
    order: Sequence[Node],
    candidates: Collection[Node],
    materialised: Mapping[Node, str],
    groups: Sequence[Group],
    owner: Mapping[Node, Group],
    expressions: Expressions,
) -> Choice:
    """The candidates that are better computed again, and the values that are kept (some of them, or some below)."""
    regions = _Regions(graph, order, candidates, materialised, groups, owner, expressions)
    choice, known = Choice(), dict[tuple[Value, ...], set[int]]()
    for region, values in regions.values():
        if values not in known:
            known[values] = kept(values)
        regions.decide(region, values, known[values], choice)
    return choice


def explain(choice: Choice, groups: Sequence[Group]) -> None:
    """Adds to the reasons of each kernel the values that it computes again."""
    for group in groups:
        again = [node for node in choice.again if node in group.inlined]
        group.reasons += [f"{node.op.name if node.op else ''}, again: {choice.again[node]}" for node in again]


class _Regions:
    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        candidates: Collection[Node],
        materialised: Mapping[Node, str],
        groups: Sequence[Group],
        owner: Mapping[Node, Group],
        expressions: Expressions,
    ) -> None:
        self.materialised, self.owner = materialised, owner
        self.position = {node: k for k, node in enumerate(order)}
        self.far = sum(node.aval.hinted.nbytes for node in materialised) > cost.CACHE_BYTES
        self.readers: dict[Node, list[Group]] = {node: [] for node in materialised}  # other kernels
        for group in groups:
            for node in group.reads:
                if node in self.readers and owner[node] is not group:
                    self.readers[node].append(group)
        read = {n for n in candidates if self.readers[n]}
        self.wanted = {n for n in read if all(_in_place(n, group, expressions) for group in self.readers[n])}
        self.inside = set(candidates) - read | self.wanted
        self.written = {n for n in materialised if self.readers[n] and n not in self.inside} | set(graph.roots)
        for node in sorted(self.wanted, key=self.position.__getitem__):
            if self._is_kept_anyway(node):
                self.wanted.remove(node)
                self.inside.remove(node)
                self.written.add(node)
        self.kernels: dict[Node, dict[Group, None]] = {}  # that would compute the node, or load it
        self.times: dict[Node, int] = {}  # elements that each would compute
        for node in sorted(self._cone(), key=self.position.__getitem__, reverse=True):
            kernels = self.kernels.setdefault(node, {})
            if node in self.wanted:
                kernels.update(dict.fromkeys(self.readers[node]))
            self.times[node] = max(self.times.get(node, 0), node.aval.hinted.size)
            for operand in node.inputs:
                self.kernels.setdefault(operand, {}).update(kernels)
                self.times[operand] = max(self.times.get(operand, 0), self.times[node])
        self.load = {node: self._load(node) for node in self.times}

    def _cone(self) -> set[Node]:
        """The wanted values, and everything that they are computed from."""
        return set(reachable(self.wanted, self._computed))

    def _computed(self, node: Node) -> list[Node]:
        return [operand for operand in node.inputs if not self._lies_in_memory(operand)]

    def _lies_in_memory(self, node: Node) -> bool:
        return node.op is None or (node in self.materialised and node not in self.inside)

    def _is_kept_anyway(self, node: Node) -> bool:
        """Whether its own kernels would spend as much on the one operand that costs them most. Then values computed
        from it further on end here."""
        kernels = self.readers[node]
        cone = reachable([node], lambda n: [operand for operand in self._computed(n) if operand not in self.wanted])
        least: dict[Node, float] = {n: 0.0 for n in self.wanted}  # of having it in these kernels
        for n in sorted(cone, key=self.position.__getitem__):
            have = [least[i] if i in least else self._have(i, kernels) for i in n.inputs]
            times = sum(n not in group.inlined for group in kernels) * node.aval.hinted.size
            again = element_cost(n) * times + max(have, default=0.0)
            if n is node:
                return again >= self._bytes(n, len(kernels))
            least[n] = min(again, self._have(n, kernels))
        raise AssertionError("the node is the last of its cone")

    # ---- costs

    def _loads(self, node: Node, kernels: Iterable[Group]) -> int:
        """Number of these kernels that would have to load the node, which they do not read yet."""
        home = self.owner.get(node)
        return sum(group is not home and node not in group.reads for group in kernels)

    def _have(self, node: Node, kernels: Iterable[Group]) -> float:
        """Keeping it for these kernels, as far as they do not read it anyway."""
        return 0.0 if node.is_constant else self._bytes(node, self._loads(node, kernels))

    def _bytes(self, node: Node, loads: int) -> float:
        """Cost of writing a value, unless it is written anyway, and of so many loads of it."""
        writes = 0.0 if node.op is None or node in self.written else 1.5
        return cost.memory_cost((writes + loads) * node.aval.hinted.nbytes, self.far)

    def _load(self, node: Node) -> float:
        new = self._loads(node, self.kernels[node])
        if node.is_input and new and node.aval.hinted.size * 16 > self.times[node]:
            return inf  # it might be overwritten before they run
        if node in self.wanted:
            return cost.memory_cost(new * node.aval.hinted.nbytes, self.far)
        return self._have(node, self.kernels[node])

    def _value(self, node: Node, number: Mapping[Node, int]) -> Value:
        if self._lies_in_memory(node):
            return Value(None, self.load[node], inf, ())
        wanted = self._bytes(node, len(self.readers[node])) if node in self.wanted else None
        kernels = sum(node not in group.inlined for group in self.kernels[node])
        again = element_cost(node) * self.times[node] * kernels
        operands = [number[i] for i in dict.fromkeys(node.inputs) if self._costs(i)]
        return Value(wanted, self.load[node], again, tuple(operands))

    def _costs(self, operand: Node) -> bool:
        """Whether it matters that the operand is kept."""
        return self.load[operand] > 0 or not (operand in self.wanted or self._lies_in_memory(operand))

    # ---- regions

    def values(self) -> Iterable[tuple[list[Node], tuple[Value, ...]]]:
        """The nodes of each region in order, and their costs. Nodes that two regions share cost nothing."""
        root: dict[Node, Node] = {}

        def find(node: Node) -> Node:
            while root.setdefault(node, node) is not node:
                root[node] = node = root[root[node]]
            return node

        for node in self.times:
            if not self._lies_in_memory(node):
                for operand in (node, *node.inputs):
                    if operand is node or self._costs(operand):
                        root[find(operand)] = find(node)
        regions: dict[Node, list[Node]] = {}
        for node in sorted(root, key=self.position.__getitem__):
            regions.setdefault(find(node), []).append(node)
        for region in regions.values():
            if any(node in self.wanted for node in region):
                number = {node: k for k, node in enumerate(region)}
                yield region, tuple([self._value(node, number) for node in region])

    def decide(self, region: Sequence[Node], values: Sequence[Value], cut: set[int], choice: Choice) -> None:
        for k, (node, value) in enumerate(zip(region, values, strict=True)):
            keep = value.load if value.wanted is None else value.wanted
            readers = len(self.readers.get(node) or self.kernels[node])
            if k in cut and value.again < inf:
                choice.kept[node] = f"kept for {readers} other kernels: {keep / 1e3:.2f} us, no more than to recompute"
            elif value.wanted is not None and k not in cut:
                again = _cost_of(values, k, cut)
                choice.again[node] = f"{again / 1e3:.2f} us in {readers} kernels, {keep / 1e3:.2f} us to keep"


def _cost_of(values: Sequence[Value], k: int, kept: set[int]) -> float:
    """Cost of computing a value, with all that has to be computed or loaded for it."""
    needed = reachable([k], lambda i: () if i in kept else values[i].operands)
    return sum((values[i].load if i in kept else values[i].again for i in needed), 0.0)


def kept(values: Sequence[Value]) -> set[int]:
    """The values to keep, or to load, so that all that are wanted can be had at the least cost; of equal sets the one
    that leaves least to compute.

    >>> x, e = Value(None, 5.0, inf, ()), Value(None, 10.0, 4.0, (0,))
    >>> kept([x, e, Value(12.0, 0.0, 1.0, (1,))])
    {0}
    >>> kept([x, Value(10.0, 0.0, 40.0, (0,)), Value(12.0, 0.0, 1.0, (1,))])
    {1}
    """
    memory, kernels, end = 2 * len(values), 2 * len(values) + 1, 2 * len(values) + 2
    edges: list[tuple[int, int, float]] = []  # value k is vertex 2k, and 2k + 1 where it is an operand
    for k, value in enumerate(values):
        edges += [(memory, 2 * k, value.again), (2 * k, 2 * k + 1, value.load)]
        edges += [(2 * i + 1, 2 * k, inf) for i in value.operands]
        if value.wanted is not None:
            edges.append((2 * k, kernels, value.wanted))
    widest = 1 + sum(_picoseconds(width) for *_, width in edges if width < inf)
    whole = [(a, b, _picoseconds(width) if width < inf else widest) for a, b, width in edges]
    side = minimum_cut(end, whole, memory, kernels)
    return {k for k, v in enumerate(values) if 2 * k in side and (v.wanted is not None or 2 * k + 1 not in side)}


def _picoseconds(width: float) -> int:
    """Whole numbers: sums of fractions would depend on the order of the paths."""
    return round(width * 1e3)


def _in_place(node: Node, group: Group, expressions: Expressions) -> bool:
    """Whether the group reads the node element for element, so that it can compute it as well."""
    return all(_by_element(root, node, expressions) for root in group.roots)


def _by_element(root: Node, node: Node, expressions: Expressions) -> bool:
    if not reduced_axes(root):
        return expressions.in_place(root, node)
    (operand, *_) = root.inputs
    return operand is node or operand in expressions.materialised or expressions.in_place(operand, node)
