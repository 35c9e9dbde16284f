"""Fusion: which nodes become arrays in memory, and which of those one kernel computes. Every choice has a reason.

Two decisions, in this order:
  1. materialise: a node is written to memory if it is an output, if its kind needs a loop of its own (reduction,
     contraction, scan, scatter), if a matrix product reads it, or if computing it again for every reader costs more
     than writing it once. All other nodes are inlined into the expressions of their readers.
  2. group: materialised nodes over the same index space share a kernel where no dependency forbids it. A call of
     library code takes in elementwise readers of its result: they are done while a strip of it is in cache.
The decisions look at the kind of an operation and its cost, never at its name.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...graph.body import family
from ...graph.facts import element_cost, is_expensive, may_fail, moved, reduced_axes, widens
from ...graph.ir import Graph, Node, users
from ...record import record, replace
from ...sizes.dims import hint, is_dim
from ...walk import postorder, reachable
from .. import cost
from ..kernels.gemm import Product
from ..kernels.library import LIBRARY, Call, Capabilities, Library, Matched
from ..lowering.pretranspose import worth_turning
from .epilogue import splits
from .group import OWN_LOOP, Group, expression_of, form_of, reads_in_place, row_aligned
from .prologue import choose_prologues, explain_kept
from .recompute import choose, explain

# Kinds that are given arrays in memory and compute by themselves, one or more results in a run.
_TAKE_MEMORY = {"control": "given to a loop or a branch", "opaque": "given to NumPy"}


@record(frozen=False)
class Fusion:
    groups: list[Group]  # in execution order
    materialised: dict[Node, str]  # node -> reason


def fuse(graph: Graph, donated: dict[Node, Node], target: Capabilities) -> Fusion:
    """Groups in execution order. `donated`: output node -> input node whose memory it overwrites."""
    order = graph.nodes()
    materialised, weighed = materialise(graph, order, target)
    groups, owner = _group(order, materialised, target)
    choice = choose(graph, order, weighed, materialised, groups, owner)
    if choice.again or choice.kept:
        kept = {node: reason for node, reason in materialised.items() if node not in choice.again} | choice.kept
        materialised = {node: kept[node] for node in order if node in kept}
        groups, owner = _group(order, materialised, target)
    packing = choose_prologues(order, set(graph.roots), materialised, groups, owner, donated.values(), target)
    if packing.computed:
        materialised = {node: reason for node, reason in materialised.items() if node not in packing.computed}
        groups, owner = _group(order, materialised, target, packing.computed)
    explain(choice, groups)
    explain_kept(packing, owner)
    _order_overwrites(groups, owner, donated)
    _keep_local(graph, groups, owner, materialised)
    return Fusion(_execution_order(groups, donated), materialised)


# ---- 1. materialise


def materialise(graph: Graph, order: Sequence[Node], target: Capabilities) -> tuple[dict[Node, str], set[Node]]:
    """(nodes that are written to memory, each with the reason; those of them where cost alone is the reason)."""
    chosen: dict[Node, str] = {}
    weighed: set[Node] = set()
    for node in graph.outputs:
        if node.op is not None:
            chosen[node] = "an output"
    for node in graph.checks:
        if node.op is not None:
            chosen.setdefault(node, "a check")
    readers = users(order)
    homes: dict[Node, set[Node]] = {}  # inlined node -> the materialised nodes that would compute it
    weight: dict[Node, float] = {}  # cost of one element, operands included
    leaves: dict[Node, float] = {}  # bytes loaded for one element
    size: dict[Node, int] = {}
    for node in order:
        inline_inputs = [i for i in node.inputs if i.op is not None and i.kind not in OWN_LOOP and i not in chosen]
        weight[node] = element_cost(node) + sum(weight[i] / _elements_a_row(i, node) for i in inline_inputs)
        leaves[node] = sum(
            leaves[i] / _elements_a_row(i, node) if i in inline_inputs else _bytes_an_element(i, node)
            for i in node.inputs
        )
        size[node] = 1 + sum(size[i] for i in inline_inputs)
        if size[node] > cost.MAX_INLINE_NODES and node.op is not None:
            kept = _narrowest(node)
            chosen.setdefault(kept, "the expression is long enough")
            if kept is not node:
                weight[node], leaves[node], size[node] = element_cost(node), _bytes_an_element(kept, node), 1
    for node in reversed(order):
        if node.op is None:
            continue
        kinds = {r.kind for r in readers[node]}
        for kind in kinds & _TAKE_MEMORY.keys():
            chosen.setdefault(node, _TAKE_MEMORY[kind])
        for reader in () if kinds.isdisjoint(LIBRARY) else (r for r in readers[node] if r.kind in LIBRARY):
            library = LIBRARY[reader.kind]
            base = _memory_for(library, node, casts=target.reads_narrow(reader))
            if base.op is not None:
                chosen.setdefault(base, library.reason)
        if worth_turning(node, readers[node]):
            chosen.setdefault(node, "transposed operand of many products")
        homes[node] = set().union(*({r} if r in chosen else homes.get(r, set()) for r in readers[node]))
        reason = chosen.get(node) or _reason(node, readers[node], weight[node])
        if reason is None and _moved_from(node, casts=True) not in chosen:  # else it reads the kept node, and widens it
            reason = _kept(node, len(homes[node]), weight[node], leaves[node])
            if reason:
                weighed.add(_narrowest(node))
        if reason and node not in chosen:
            chosen.setdefault(_narrowest(node), reason)
    return {node: chosen[node] for node in order if node in chosen}, weighed


def _narrowest(node: Node) -> Node:
    """The node to keep for a node: the narrower one that it only widens, as products read that ([Note: Fusion])."""
    return node.inputs[0] if widens(node) and node.inputs[0].op is not None else node


def _elements_a_row(operand: Node, node: Node) -> int:
    """Number of consecutive elements that one element of the operand serves, as it lacks the last axes."""
    if operand.op is None or len(operand.shape) != len(node.shape):
        return 1
    served = 1
    for of_operand, of_node in zip(reversed(operand.shape), reversed(node.shape), strict=True):
        if of_operand != 1:
            break
        served *= max(hint(of_node), 1)
    return served


def _bytes_an_element(operand: Node, node: Node) -> float:
    """Bytes of an operand loaded per element: few where a row or a column of it serves many elements."""
    return (
        operand.dtype.itemsize * min(1.0, operand.aval.hinted.size / max(node.aval.hinted.size, 1))
        if operand.shape
        else 0.0
    )


def _reason(node: Node, readers: Sequence[Node], weight: float) -> str | None:
    assert node.op is not None
    if node.kind in OWN_LOOP:
        return f"{node.kind}: {'NumPy computes it' if node.kind == 'opaque' else 'a loop of its own'}"
    if _is_view_of_memory(node):
        return None
    if any(r.kind in ("scan", "scatter", "gather") for r in readers) and weight >= 0.1:
        return "read in no fixed order by a reader, and not cheap"
    if is_expensive(node):
        grows = max((r.aval.hinted.size / max(node.aval.hinted.size, 1) for r in readers), default=1.0)
        return f"read {grows:.0f} times an element, and not cheap" if grows >= 2 else None
    return None


def _kept(node: Node, homes: int, weight: float, leaves: float) -> str | None:
    """Reason to keep a value, if writing it once is cheaper than computing it for every materialised node that needs
    it."""
    if homes < 2 or _is_view_of_memory(node):
        return None
    again = homes * (weight + cost.memory_cost(leaves))
    once = weight + cost.memory_cost(leaves + node.dtype.itemsize * (1.5 + homes))
    return f"{homes} kernels need it: {again:.2f} ns to recompute, {once:.2f} ns to keep" if again > once else None


def _memory_for(library: Library, node: Node, *, casts: bool) -> Node:
    """The node that must be in memory for a library to read an operand: itself, or the one that it is a view of."""
    base = _moved_from(node, casts=casts)
    if base is not node and library.readable(node, lambda n: n is base):
        return base
    return _narrowest(_memory_for(library, node, casts=False)) if casts else node


def _moved_from(node: Node, *, casts: bool = False) -> Node:
    """The node before a chain of movements, and of casts that a library sees through."""
    while (below := moved(node, casts=casts)) is not None:
        node = below
    return node


def _is_view_of_memory(node: Node) -> bool:
    """A chain of movements over something in memory: reading it costs nothing more than reading its base."""
    base = _moved_from(node)
    return base is not node and _has_own_memory(base)


def _has_own_memory(node: Node) -> bool:
    return node.is_input or bool(node.is_constant and node.shape) or node.kind in OWN_LOOP


# ---- 2. group

_NONE: Mapping[Node, str] = {}


def _group(
    order: Sequence[Node], materialised: dict[Node, str], machine: Capabilities, computed: Mapping[Node, str] = _NONE
) -> tuple[list[Group], dict[Node, Group]]:
    groups: list[Group] = []
    runs: dict[Any, Group] = {}  # of operations that are several nodes each
    owner: dict[Node, Group] = {}
    bit: dict[Group, int] = {}
    ancestors: dict[Group, int] = {}  # the groups that one needs, directly or not, as bits: 10,000 groups are 12 MB
    for node in order:
        if node not in materialised:
            continue
        reads, inlined = expression_of(node, materialised)
        needs = {owner[r] for r in reads if r in owner}
        several = node.kind in _TAKE_MEMORY  # such an operation may be several nodes
        target = (
            runs.get(family(node))
            if several
            else _find_group(
                node, reads, inlined, needs, groups, owner, lambda g, on: bool(ancestors[g] & bit[on]), machine
            )
        )
        if target is None:
            target = Group([node], reads, inlined, reasons=[f"{node.op.name if node.op else ''}: {materialised[node]}"])
            target.call = _library_call(node, materialised, machine, computed)
            if target.call is not None and target.call[1] in computed:
                target.reasons.append(f"prologue: {computed[target.call[1]]}")
            bit[target], ancestors[target] = 1 << len(groups), 0
            groups.append(target)
            if several:
                runs[family(node)] = target
        else:
            target.roots.append(node)
            target.reads |= reads - set(target.roots)
            target.inlined |= inlined
            where = "epilogue of" if target.call else "another result of the run" if several else "same index space"
            target.reasons.append(f"{node.op.name if node.op else ''}: {where} {list(node.shape)}")
        owner[node] = target
        above = 0
        for group in needs - {target}:
            above |= bit[group] | ancestors[group]
        if above & ~ancestors[target]:
            followers = [] if target is groups[-1] else [g for g in groups if ancestors[g] & bit[target]]
            for group in (target, *followers):
                ancestors[group] |= above
        target.after |= needs - {target}
    return groups, owner


def _library_call(
    node: Node, materialised: dict[Node, str], machine: Capabilities, computed: Collection[Node]
) -> Matched | None:
    """The call that computes the node, if the machine can; None where a loop nest must."""
    assert node.op is not None
    library = LIBRARY.get(node.kind)
    if library is None:
        return None
    found = library.match(
        node,
        lambda n: (n.op is None and (n.is_input or bool(n.shape))) or n in materialised or n in computed,
        machine.reads_narrow(node),
    )
    if found is None or not machine.has_library(found[0]):
        return None
    call, left, right = found
    return (replace(call, computed=True), left, right) if isinstance(call, Product) and left in computed else found


def _find_group(
    node: Node,
    reads: set[Node],
    inlined: set[Node],
    needs: set[Group],
    groups: Sequence[Group],
    owner: dict[Node, Group],
    depends: Callable[[Group, Group], bool],
    machine: Capabilities,
) -> Group | None:
    """The latest group that may take the node in: same index space, something in common, no cycle."""
    if node.kind in ("contraction", "convolution", "scan", "scatter", "random"):
        return None
    for group in reversed(groups[-64:]):
        if group not in needs and reads.isdisjoint(group.reads) and inlined.isdisjoint(group.inlined):
            continue
        if group.call is not None:
            call = group.call[0]
            fits = group in needs and machine.takes_epilogue(call) and _is_epilogue(node, inlined, call)
        else:
            fits = group.kind in ("map", "reduction") or (group in needs and _follows_tiles(node, inlined, group))
        if not fits:
            continue
        if not (group in needs or _share_data(node, group.reads & reads) or _share_data(node, group.inlined & inlined)):
            continue
        if len(group.roots) + len(group.inlined | inlined) > cost.MAX_KERNEL_NODES:
            continue
        if any(depends(other, group) for other in needs if other is not group):
            continue
        if group.call is not None or _same_space(node, group):
            if all(reads_in_place(node, r, owner) for r in reads if owner.get(r) is group):
                return group
        if group.call is None and _same_rows(node, group, owner, depends=group in needs):
            return group
    return None


def _is_epilogue(node: Node, inlined: set[Node], call: Call) -> bool:
    """Elementwise over the elements of the result, in a loop that cannot fail."""
    return node.kind in ("elementwise", "movement") and splits(node.shape, *call.result) and not _any_fails(inlined)


def _follows_tiles(node: Node, inlined: set[Node], group: Group) -> bool:
    """Elementwise on random bits, in a loop that cannot fail."""
    return group.kind == "random" and node.kind == "elementwise" and not _any_fails(inlined)


def _share_data(node: Node, common: set[Node]) -> bool:
    """Whether there is something worth loading or computing once, which a number beside arrays is not."""
    return any(hint(c.aval.size) > 1 or node.aval.size == 1 for c in common)


def _same_space(node: Node, group: Group) -> bool:
    """Whether both have one output space; a reduction also needs the space it reduces, a map may follow a reduction as
    its epilogue."""
    if node.shape != group.shape or (not node.shape and group.kind == "map"):
        return node.shape == group.shape
    if node.kind != "reduction":
        return True
    if group.kind != "reduction" or group.space is None:
        return False
    return group.space == (node.inputs[0].shape, reduced_axes(node))


def _same_rows(node: Node, group: Group, owner: dict[Node, Group], *, depends: bool) -> bool:
    """Whether the node may join as part of a row group: rows in cache, its own row only."""
    axes = reduced_axes(node)
    space = group.space or ((node.inputs[0].shape, axes) if axes and group.shape == node.inputs[0].shape else None)
    if space is None or not depends or not _worth_rows(*space):
        return False
    form = form_of(node.shape, *space)
    if axes:
        form = "full" if space == (node.inputs[0].shape, axes) else None
    if form is None or any(form_of(root.shape, *space) is None or _slides(root) for root in (node, *group.roots)):
        return False
    return row_aligned(node, set(group.roots), owner, *space)


def _slides(node: Node) -> bool:
    """Whether each element combines elements of its own (fold_windows), a loop that a loop over rows cannot hold."""
    return node.kind == "reduction" and not reduced_axes(node)


def _worth_rows(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether rows are contiguous, long enough for lanes, and either enough of them for threads or few in all."""
    if len(shape) - 1 not in axes or shape[-1] == 1:
        return False
    row = math.prod(shape[k] for k in axes)
    rows = math.prod(shape) // max(row, 1)
    if is_dim(rows) or is_dim(row):
        return True  # whatever the size at hand: one kernel adds up in another order than two
    return row > 1 and (rows >= cost.MIN_ROWS or rows * row <= cost.SMALL_SPACE)


def _keep_local(graph: Graph, groups: Sequence[Group], owner: dict[Node, Group], materialised: dict[Node, str]) -> None:
    """Frees values that only their own kernel reads of their memory: those readers joined after the choice was made."""
    outside = set(graph.roots)
    for group in groups:
        outside |= {r for r in group.reads if owner.get(r) is not group}
    for group in groups:
        if group.kind in ("map", "reduction") or len(group.roots) > 1:
            group.local = {r for r in group.roots if r not in outside}
            for node in group.local:
                del materialised[node]


# ---- 3. order


def _order_overwrites(groups: Sequence[Group], owner: dict[Node, Group], donated: dict[Node, Node]) -> None:
    """A kernel that overwrites an input runs after every other kernel that reads it, and after every check of an index;
    where it cannot, the output gets memory of its own and is copied at the end."""
    checked = [g for g in groups if _may_fail(g)]
    readers: dict[Node, list[Group]] = {target: [] for target in donated.values()}
    for g in groups:
        for node in g.reads & readers.keys():
            readers[node].append(g)
    paths = _Paths(groups, {owner[output] for output in donated if output in owner})
    for output, target in list(donated.items()):
        writer = owner.get(output)
        others = [g for g in readers[target] if g is not writer]
        if (
            writer is None
            or paths.lead((*others, *checked), writer)
            or not all(reads_in_place(r, target, owner) for r in writer.roots)
        ):
            del donated[output]
            continue
        paths.put_after(writer, others)


class _Paths:
    """A record of which group needs which, while more are added. Groups have numbers, each a higher one than those it
    needs, so that a search stops at the number of what it looks for; `late` are numbered after the others, as far as
    they can."""

    def __init__(self, groups: Sequence[Group], late: Collection[Group]) -> None:
        self.groups = [*(g for g in groups if g not in late), *(g for g in groups if g in late)]
        self._count()

    def _count(self) -> None:
        self.number = {g: k for k, g in enumerate(postorder(self.groups, lambda g: g.after))}

    def lead(self, groups: Iterable[Group], to: Group) -> bool:
        """Whether one of the groups needs this one, directly or not."""
        number, least = self.number, self.number[to]
        above = [g for g in groups if number[g] >= least]
        return bool(above) and to in reachable(above, lambda g: [x for x in g.after if number[x] >= least])

    def put_after(self, group: Group, others: Collection[Group]) -> None:
        """Adds that a group needs others, which do not need it."""
        group.after.update(others)
        if any(self.number[other] > self.number[group] for other in others):
            self._count()


def _may_fail(group: Group) -> bool:
    """Whether the kernel checks indices: state that it had overwritten before it failed would be lost."""
    return _any_fails((*group.roots, *group.inlined))


def _any_fails(nodes: Iterable[Node]) -> bool:
    return any(may_fail(n) for n in nodes)


def _execution_order(groups: Sequence[Group], donated: dict[Node, Node]) -> list[Group]:
    """Groups in order, dependencies first. Kernels that overwrite state wait for every check of an index, so that a
    failed one leaves it whole. Of the others, those that end the use of more memory than they take come first: the
    gradient of a weight as soon as it can be, rather than when all others are known ([Note: Fusion])."""
    commits = {g for g in groups if any(r in donated for r in g.roots)}
    checks = {g for g in groups if _may_fail(g)}
    waiting = {g: len(g.after) for g in groups}
    followers: dict[Group, list[Group]] = {g: [] for g in groups}
    for g in groups:
        for before in g.after:
            followers[before].append(g)
    memory = _Memory(groups, donated)
    position = {g: k for k, g in enumerate(groups)}
    queue: list[tuple[bool, bool, int]] = []
    result: list[Group] = []

    def put(g: Group) -> None:
        if not waiting[g]:
            heapq.heappush(queue, (g in commits and bool(checks), not memory.shrinks(g), position[g]))

    for g in groups:
        put(g)
    while queue:
        g = groups[heapq.heappop(queue)[-1]]
        if waiting[g] < 0:
            continue  # it has run: there was an entry from before it was worth more
        waiting[g] = -1
        result.append(g)
        again = memory.run(g)
        if g in checks:
            checks.remove(g)
            again |= commits if not checks else set()
        for f in followers[g]:
            waiting[f] -= 1
        for f in sorted({*followers[g], *again}, key=position.__getitem__):
            put(f)
    return result


class _Memory:
    """Results that are still to be read, and their readers."""

    def __init__(self, groups: Sequence[Group], donated: Mapping[Node, Node]) -> None:
        self.readers: dict[Node, set[Group]] = {r: set() for g in groups for r in g.roots if r not in donated}
        for g in groups:
            for node in (g.reads & self.readers.keys()).difference(g.roots):
                self.readers[node].add(g)

    def shrinks(self, group: Group) -> bool:
        """Whether the group ends the use of more memory than it takes."""
        ends = sum(n.aval.hinted.nbytes for n in group.reads if self.readers.get(n) == {group})
        return ends > sum(n.aval.hinted.nbytes for n in group.roots if self.readers.get(n))

    def run(self, group: Group) -> set[Group]:
        """The groups that are now the last to read something."""
        last: set[Group] = set()
        for node in group.reads & self.readers.keys():
            self.readers[node].discard(group)
            if len(self.readers[node]) == 1:
                last |= self.readers[node]
        return last
