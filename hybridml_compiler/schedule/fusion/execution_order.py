"""The order in which groups run: dependencies first, state whole where the program may end, memory short in use."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from ...graph.ir import Node
from ...walk import postorder, reachable
from .group import Group
from .in_place import InPlace, store_of

_LITTLE = 1 << 10  # a part of all that a program keeps which is no reason to wait
_PAGE = 1 << 12  # bytes that are none in any program
_FEW = 4  # groups that are looked at for what they would end


def execution_order(
    groups: Sequence[Group], donated: dict[Node, Node], may_end: Sequence[Group], in_place: InPlace
) -> list[Group]:
    """Groups in order, dependencies first. Kernels that overwrite state wait for all that may end early, so that
    this leaves it whole. What another process waits for is sent early; what goes on beside the program is begun early
    and awaited late. Of the others, those that end the use of more memory than they take come first: the gradient of a
    weight as soon as it can be, rather than when all others are known ([Note: Fusion])."""
    inputs = {store_of(update) or update for update in in_place.memory if in_place.home(update).is_input}
    commits = {g for g in groups if any(r in donated or r in inputs for r in g.roots)}
    ending = set(may_end)
    waiting = {g: len(g.after) for g in groups}
    followers: dict[Group, list[Group]] = {g: [] for g in groups}
    for g in groups:
        for before in g.after:
            followers[before].append(g)
    memory = _Memory(groups, donated)
    position = {g: k for k, g in enumerate(groups)}
    exchanging, stage = _exchanging(groups), _stages(groups)
    queue: list[tuple[bool, tuple[int, ...], int, bool, int]] = []
    result: list[Group] = []

    def put(g: Group) -> None:
        if not waiting[g]:
            soon = [f for f in followers[g][:_FEW] if waiting[f] == 1]
            late = g in commits and bool(ending)
            when = late, exchanging.get(g, ()), stage.get(g, 0), not memory.shrinks(g, soon), position[g]
            heapq.heappush(queue, when)

    for g in groups:
        put(g)
    while queue:
        g = groups[heapq.heappop(queue)[-1]]
        if waiting[g] < 0:
            continue  # it has run: there was an entry from before it was worth more
        waiting[g] = -1
        result.append(g)
        again = memory.run(g)
        if g in ending:
            ending.remove(g)
            again |= commits if not ending else set()
        for f in followers[g]:
            waiting[f] -= 1
        near = {*followers[g], *again}
        near.update(x for f in again if waiting[f] == 1 for x in f.after if not waiting[x])
        for f in sorted(near, key=position.__getitem__):
            put(f)
    return result


def _exchanging(groups: Sequence[Group]) -> Mapping[Group, tuple[int, int, int]]:
    """When each group runs, where some send to other processes and receive from them: what leads to a send comes before
    what leads to the next one; what leads to none, as the gradients of weights do, behind the sends that others would
    wait for meanwhile, and before the next receipt, during which its operands would be kept. A program that ranks
    compute together by a plan has no order of its own: all that needs no receipt comes before it."""
    order = postorder(groups, lambda g: g.after)
    found: dict[Group, tuple[int, int, int]] = {}
    planned = any(_is(root, "plan") for g in groups for root in g.roots)
    needed = _receipts(order) if planned else {}
    receipts = number = 0
    for exchange in order:
        if any(_is(root, "plan") for root in exchange.roots):  # also where the program fails: it counts its calls
            found[exchange] = (-1, 0, 0)
        if any(_is(root, "send") or _is(root, "receive") for root in exchange.roots):
            receipts, number = receipts + any(_is(root, "receive") for root in exchange.roots), number + 1
            for g in reachable([exchange], lambda g: [x for x in g.after if x not in found]):
                least = needed.get(g, receipts)
                found.setdefault(g, (least, int(least < receipts), number))
    for g in order if found else ():
        if g not in found:
            found[g] = max(((found[x][0], 1, 0) for x in g.after), default=(0, 1, 0))
    return found


def _receipts(order: Sequence[Group]) -> Mapping[Group, int]:
    """The most receipts on a way to each group, itself included."""
    found: dict[Group, int] = {}
    for g in order:
        found[g] = max((found[x] for x in g.after), default=0) + any(_is(root, "receive") for root in g.roots)
    return found


def _stages(groups: Sequence[Group]) -> Mapping[Group, int]:
    """The stage in which each group runs, where some begin what goes on beside the program (`Op.asynchronous`): one for
    each of those, with all that leads to it; one for what leads to none; and one for each wait with what needs it, in
    the order of the beginnings. No stages where nothing is begun."""
    starts = [g for g in groups if any(_is(root, "start") for root in g.roots)]
    found: dict[Group, int] = {}
    if not starts:
        return found
    for stage, start in enumerate(starts):
        for g in reachable([start], lambda g: [x for x in g.after if x not in found]):
            found.setdefault(g, stage)
    begun = {root: stage for stage, start in enumerate(starts) for root in start.roots}
    for g in postorder(groups, lambda g: g.after):
        if g not in found:
            waits = [begun[n] for root in g.roots if _is(root, "wait") for n in root.inputs if n in begun]
            found[g] = max((len(starts), *(len(starts) + 1 + k for k in waits), *(found[x] for x in g.after)))
    return found


def _is(node: Node, what: str) -> bool:
    return node.op is not None and node.op.asynchronous == what


class _Memory:
    """Results that are still to be read, and their readers."""

    def __init__(self, groups: Sequence[Group], donated: Mapping[Node, Node]) -> None:
        self.readers: dict[Node, set[Group]] = {r: set() for g in groups for r in g.roots if r not in donated}
        for g in groups:
            for node in (g.reads & self.readers.keys()).difference(g.roots):
                self.readers[node].add(g)
        self.little = max(sum(n.aval.hinted.nbytes for n, reading in self.readers.items() if reading) // _LITTLE, _PAGE)

    def shrinks(self, group: Group, soon: Sequence[Group]) -> bool:
        """Whether the group ends the use of more memory than it takes, alone or with one of those that run once it has,
        as the gradient of a weight does with what it reads that is computed again. Or it takes next to none: others may
        wait for it, as all updates of Adam do for its count of steps."""
        takes = self._takes(group)
        ends = self._ends(group.reads, {group}) - takes
        return ends > 0 or takes < self.little or any(ends + self._with(f, group) > 0 for f in soon)

    def _with(self, group: Group, before: Group) -> int:
        """Memory whose use the group ends, less what it takes, once the one before it has run."""
        shared = self._ends(group.reads & before.reads, {group, before}) + self._ends(before.roots, {group})
        return shared + self._ends(group.reads - before.reads, {group}) - self._takes(group)

    def _ends(self, nodes: Iterable[Node], last: set[Group]) -> int:
        return sum(n.aval.hinted.nbytes for n in nodes if self.readers.get(n) == last)

    def _takes(self, group: Group) -> int:
        return sum(n.aval.hinted.nbytes for n in group.roots if self.readers.get(n))

    def run(self, group: Group) -> set[Group]:
        """The groups that are now the last to read something."""
        last: set[Group] = set()
        for node in group.reads & self.readers.keys():
            self.readers[node].discard(group)
            if len(self.readers[node]) == 1:
                last |= self.readers[node]
        return last
