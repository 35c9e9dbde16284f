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

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from ... import dtypes
from ...graph import checks
from ...graph.facts import element_cost, is_cast, is_expensive, may_fail, may_stop, moved, widens
from ...graph.ir import Graph, Node, users
from ...ops.elementwise import after
from ...record import record
from ...sizes.dims import hint
from ...walk import postorder, reachable
from .. import cost
from ..kernels.library import LIBRARY, Capabilities, Library
from ..lowering.pretranspose import worth_turning
from .execution_order import execution_order
from .group import OWN_LOOP, TAKE_MEMORY, Expressions, Group
from .grouping import Grouping
from .in_place import STORE, InPlace, may_store, store_of
from .prologue import choose_prologues, explain_kept
from .recompute import choose, explain

_WANT_MEMORY = frozenset((*TAKE_MEMORY, *LIBRARY))  # kinds of readers
NONE: Mapping[Node, str] = {}
_IN_NO_ORDER = frozenset(("scan", "scatter", "gather"))


@record(frozen=False)
class Fusion:
    groups: list[Group]  # in execution order
    materialised: dict[Node, str]  # node -> reason


def fuse(
    graph: Graph, donated: dict[Node, Node], target: Capabilities, in_place: InPlace, *, is_body: bool = False
) -> Fusion:
    """Groups in execution order. `donated`: output node -> input node whose memory it overwrites; those that cannot are
    taken out, and so are updates that cannot be in place. The inputs of a body are no state that may be lost."""
    order = graph.nodes()
    materialised, weighed = materialise(graph, order, target, in_place.forced)
    grouping = Grouping(order, target)
    groups, owner = grouping.groups(materialised)
    choice = choose(graph, order, weighed, materialised, groups, owner, grouping.expressions)
    if choice.again or choice.kept:
        kept = {node: reason for node, reason in materialised.items() if node not in choice.again} | choice.kept
        materialised = {node: kept[node] for node in order if node in kept}
        groups, owner = grouping.groups(materialised)
    packing = choose_prologues(order, set(graph.roots), materialised, groups, owner, donated.values(), target)
    if packing.computed:
        materialised = {node: reason for node, reason in materialised.items() if node not in packing.computed}
        groups, owner = grouping.groups(materialised, packing.computed)
    explain(choice, groups)
    explain_kept(packing, owner)
    ending = [] if is_body else _may_end(groups)
    _order_updates(groups, owner, in_place, ending)
    _order_overwrites(groups, owner, donated, grouping.expressions, ending, in_place)
    _keep_local(graph, groups, owner, materialised)
    return Fusion(execution_order(groups, donated, ending, in_place), materialised)


# ---- 1. materialise


def materialise(
    graph: Graph, order: Sequence[Node], target: Capabilities, forced: Mapping[Node, str] = NONE
) -> tuple[dict[Node, str], set[Node]]:
    """(nodes that are written to memory, each with the reason; those of them where cost alone is the reason).
    `forced`: nodes that are, whatever it costs."""
    readers = users(order)
    chosen: dict[Node, str] = dict(forced)
    if not target.fuses:
        chosen |= {node: "a launch of its own" for node in order if node not in forced and _is_computed(node, readers)}
    weighed: set[Node] = set()
    for node in graph.outputs:
        if node.op is not None:
            chosen[node] = "an output"
    for node in graph.checks:
        if node.op is not None:
            chosen.setdefault(node, "a check")
    homes: dict[Node, set[Node]] = {}  # inlined node -> the materialised nodes that would compute it
    weight: dict[Node, float] = {}  # cost of one element, operands included
    leaves: dict[Node, float] = {}  # bytes loaded for one element
    size: dict[Node, int] = {}
    for node in order:
        if node.op is None:
            continue
        below, loaded, nodes = 0.0, 0.0, 1
        for operand in node.inputs:
            if operand.op is not None and operand.kind not in OWN_LOOP and operand not in chosen:
                served = _elements_a_row(operand, node)
                below += weight[operand] / served
                loaded += leaves[operand] / served
                nodes += size[operand]
            else:
                loaded += _bytes_an_element(operand, node)
        if nodes > cost.MAX_INLINE_NODES:  # with those that are read more than once as many times
            nodes = _distinct(node, chosen)
        if nodes > cost.MAX_INLINE_NODES:
            kept = _narrowest(node, target)
            chosen.setdefault(kept, "the expression is long enough")
            if kept is not node:
                below, loaded, nodes = 0.0, _bytes_an_element(kept, node), 1
        weight[node], leaves[node], size[node] = element_cost(node) + below, loaded, nodes
    for node in reversed(order):
        if node.op is None:
            continue
        reading = readers[node]
        kinds = [reader.kind for reader in reading]
        if not _WANT_MEMORY.isdisjoint(kinds):
            for kind in kinds:
                if kind in TAKE_MEMORY:
                    chosen.setdefault(node, TAKE_MEMORY[kind])
            for reader in reading:
                if reader.kind in LIBRARY:
                    library = LIBRARY[reader.kind]
                    base = _memory_for(library, node, target, casts=target.reads_narrow(reader))
                    if base.op is not None:
                        chosen.setdefault(base, library.reason)
        if node.kind == "movement" and "contraction" in kinds and worth_turning(node, reading):
            chosen.setdefault(node, "transposed operand of many products")
        of_readers = [{r} if r in chosen else homes[r] for r in reading]  # of most nodes, one
        homes[node] = of_readers[0] if len(of_readers) == 1 else set().union(*of_readers)
        reason = chosen.get(node) or _reason(node, reading, kinds, weight[node])
        if reason is None and _is_rounded_result(node, readers):
            reason = "the rounded result of a library call"
        if reason is None and len(homes[node]) > 1 and _movements(node, True, target.halves)[-1] not in chosen:
            # else it reads the kept node, and widens it
            reason = _kept(node, len(homes[node]), weight[node], leaves[node], target)
            if reason and target.recomputes:
                weighed.add(_narrowest(node, target))
        if reason and node not in chosen:
            chosen.setdefault(_narrowest(node, target), reason)
    return {node: chosen[node] for node in order if node in chosen}, weighed


def _is_computed(node: Node, readers: Mapping[Node, Sequence[Node]]) -> bool:
    """Whether eager code would compute an operation: a view is read where it is, and so is a narrow operand, which a
    product widens."""
    if node.op is None or node.op.is_view or node.op is after:
        return False
    return not widens(node) or any(reader.kind not in LIBRARY for reader in readers[node])


def _distinct(node: Node, chosen: Container[Node]) -> int:
    """The number of nodes that are computed with a node, each counted once for every place at which it is: `x[1:]` and
    `x[:-1]` are two of all that x is made of. Of many more than fit one kernel, some."""
    seen: set[tuple[Node, int]] = {(node, 0)}
    places, stack = dict[tuple[int, Node], int](), [(node, 0)]
    while stack and len(seen) <= cost.MAX_INLINE_NODES:
        reader, place = stack.pop()
        if reader.kind == "movement":
            place = places.setdefault((place, reader), len(places) + 1)
        for x in reader.inputs:
            if (x, place) not in seen and x.op is not None and x not in chosen and x.kind not in OWN_LOOP:
                seen.add((x, place))
                stack.append((x, place))
    return len(seen)


def _narrowest(node: Node, target: Capabilities) -> Node:
    """The node to keep for a node: the narrower one that it only widens, as products read that ([Note: Fusion])."""
    return node.inputs[0] if widens(node, halves=target.halves) and node.inputs[0].op is not None else node


def _elements_a_row(operand: Node, node: Node) -> int:
    """Number of consecutive elements that one element of the operand serves, as it lacks the last axes."""
    if operand.op is None or operand.shape == node.shape or len(operand.shape) != len(node.shape):
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


def _reason(node: Node, readers: Sequence[Node], kinds: Sequence[str], weight: float) -> str | None:
    assert node.op is not None
    if node.kind in OWN_LOOP:
        if node.kind != "opaque":
            return f"{node.kind}: a loop of its own"
        by = (
            "a routine or NumPy"
            if node.op.routine is not None
            else "code of its own or NumPy"
            if node.op.native is not None or node.op.cuda is not None
            else "kernels or NumPy"
            if node.op.transforms
            else "NumPy"
        )
        return f"{node.kind}: {by} computes it"
    if node.kind == "movement" and _is_view_of_memory(node):
        return None
    if weight >= 0.1 and not _IN_NO_ORDER.isdisjoint(kinds):
        return "read in no fixed order by a reader, and not cheap"
    if is_expensive(node):
        grows = max((r.aval.hinted.size / max(node.aval.hinted.size, 1) for r in readers), default=1.0)
        return f"read {grows:.0f} times an element, and not cheap" if grows >= 2 else None
    return None


def _is_rounded_result(node: Node, readers: Mapping[Node, Sequence[Node]]) -> bool:
    """Whether a library call is rounded here, which it can do itself, and permuted then."""
    if not is_cast(node) or not dtypes.is_narrow(node.dtype) or node.inputs[0].kind not in LIBRARY:
        return False
    reading = readers[node]
    while len(reading) == 1 and reading[0].op is not None and reading[0].op.name == "reshape":
        reading = readers[reading[0]]
    return any([reader.op is not None and reader.op.name == "permute_dims" for reader in reading])


def _kept(node: Node, homes: int, weight: float, leaves: float, target: Capabilities) -> str | None:
    """Reason to keep a value, if writing it once is cheaper than computing it for every materialised node that needs
    it."""
    if _is_view_of_memory(node):
        return None
    if not target.recomputes:
        return None if node.kind == "creation" else f"{homes} kernels need it"
    again = homes * (weight + cost.memory_cost(leaves))
    once = weight + cost.memory_cost(leaves + node.dtype.itemsize * (1.5 + homes))
    return f"{homes} kernels need it: {again:.2f} ns to recompute, {once:.2f} ns to keep" if again > once else None


def _memory_for(library: Library, node: Node, target: Capabilities, *, casts: bool) -> Node:
    """The node that must be in memory for a library to read an operand: itself, or the one that it is a view of.

    With symbolic sizes an operand in memory may have strides that a library does not take, as one with its images last.
    Then it is the nearest one below whose strides it takes.
    """

    def reads(memory: Node) -> bool:
        return library.readable(node, lambda n: n is memory)

    *between, base = _movements(node, casts, target.halves)
    if between and reads(base):
        return base
    if casts:
        return _narrowest(_memory_for(library, node, target, casts=False), target)
    return next(filter(reads, between), node) if node.aval.symbolic else node


def _movements(node: Node, casts: bool = False, halves: bool = False) -> list[Node]:
    """The node and those before it in a chain of movements, and of casts that a library sees through."""
    found = [node]
    while (below := moved(found[-1], casts=casts, halves=halves)) is not None:
        found.append(below)
    return found


def _is_view_of_memory(node: Node) -> bool:
    """A chain of movements over something in memory: reading it costs nothing more than reading its base."""
    base = _movements(node)[-1]
    return base is not node and _has_own_memory(base)


def _has_own_memory(node: Node) -> bool:
    return node.is_input or bool(node.is_constant and node.shape) or node.kind in OWN_LOOP


# ---- 2. group (see grouping.py)


def _keep_local(graph: Graph, groups: Sequence[Group], owner: dict[Node, Group], materialised: dict[Node, str]) -> None:
    """Frees values that only their own kernel reads of their memory: those readers joined after the choice was made."""
    outside = {node for node in (*graph.roots, *owner) if node in graph.roots or node.op is STORE}
    for group in groups:
        outside |= {r for r in group.reads if owner.get(r) is not group}
    for group in groups:
        if group.kind in ("map", "reduction") or len(group.roots) > 1:
            group.local = {r for r in group.roots if r not in outside}
            for node in group.local:
                del materialised[node]


# ---- 3. order


def _order_overwrites(
    groups: Sequence[Group],
    owner: dict[Node, Group],
    donated: dict[Node, Node],
    expressions: Expressions,
    ending: Sequence[Group],
    in_place: InPlace,
) -> None:
    """A kernel that overwrites an input runs after every other kernel that reads it or updates of it in its memory, and
    after all that may end early; where it cannot, the output gets memory of its own and is copied at the end."""
    readers: dict[Node, list[Group]] = {target: [] for target in donated.values()}
    versions = {target: [target] for target in donated.values()}
    for update in in_place.memory:
        if (home := in_place.home(update)) in readers:
            readers[home].append(owner[update])
            versions[home].append(update)
    for g in groups:
        for node in g.reads:
            if (home := in_place.home(node)) in readers:
                readers[home].append(g)
    paths = _Paths(groups, {owner[output] for output in donated if output in owner})
    for output, target in list(donated.items()):
        if output in in_place.memory or store_of(output) is not None or output.kind == "control":
            if in_place.home(output) is not target:
                del donated[output]
            continue
        writer = owner.get(output)
        others = [g for g in readers[target] if g is not writer]
        if (
            writer is None
            or paths.lead((*others, *ending), writer)
            or not all(expressions.in_place(r, version) for r in writer.roots for version in versions[target])
        ):
            del donated[output]
            continue
        paths.put_after(writer, others)


def _order_updates(
    groups: Sequence[Group], owner: dict[Node, Group], in_place: InPlace, ending: Sequence[Group]
) -> None:
    """A kernel that stores into an array runs after every other kernel that reads it as it was, and after all that may
    end early where the array is an input; where it cannot, the update gets a copy of the array."""
    readers: dict[Node, list[Group]] = {base: [] for base in in_place.memory.values()}
    for g in groups:
        for node in g.reads & readers.keys():
            readers[node].append(g)
    if not readers:
        return
    paths = _Paths(groups, {owner[update] for update in in_place.memory})
    for update, base in list(in_place.memory.items()):
        writer = owner[update]
        others = [g for g in readers[base] if g is not writer]
        kept = in_place.home(base).is_input  # where the call ends early
        before = (*others, *ending) if kept else others
        if (kept and writer in ending) or paths.lead(before, writer) or _overlaps(writer, update):
            del in_place.memory[update]
        else:
            paths.put_after(writer, others)


def _overlaps(writer: Group, update: Node) -> bool:
    """Whether another result of the kernel reads elements that the update overwrites."""
    store = store_of(update)
    return store is not None and not all(may_store(store, root) for root in writer.roots if root is not store)


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


def _may_end(groups: Sequence[Group]) -> list[Group]:
    """The groups that may end a program: their kernels check indices, or are loops, which an interrupt ends. State that
    had been overwritten before would be lost.

    Of those that look up the same indices in as many elements the first that looks up all of them is enough, as they
    fail together. The gradient of an embedding is such a one: GPT's products of gradients need not wait for it, nor
    what they read (6 layers, 16 x 64 tokens: 68 MB of arena where they do, 54 where they do not).
    """
    known: set[object] = set()
    found = []
    for group in groups:
        nodes = {*group.roots, *group.inlined}
        failing = {node: _reason_to_end(node) for node in nodes if may_fail(node)}
        if not known.issuperset(failing.values()) or any(map(may_stop, nodes)):
            found.append(group)
        if failing:
            known |= {failing[node] for node in failing.keys() & _whole(group, nodes)}
    return found


def _whole(group: Group, nodes: Collection[Node]) -> set[Node]:
    """Nodes of a group of which it computes every element, one at least."""
    order = postorder(group.roots, lambda node: [n for n in node.inputs if n in nodes])
    return {n for n in checks.whole(order, group.roots, OWN_LOOP) if not checks.same_size(n, 0)}


def _reason_to_end(node: Node) -> object:
    """The key of a node's failure: nodes that have the same one fail together."""
    if node.kind not in checks.INDEXED:
        return node
    indices = checks.operand(node)
    while indices.op is not None and indices.op.is_view and indices.aval.size == indices.inputs[0].aval.size:
        indices = indices.inputs[0]  # the same ones in another order
    return indices, checks.limit(node)
