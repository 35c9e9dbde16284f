"""Rematerialization: values that are computed again late rather than kept, for a program whose memory has a limit.

The memory of a training step is most where the forward pass ends: what the gradients read of it waits until then. A
value that does not wait is computed again just before the first kernel that reads it from then on:

    a = f(x); b = g(a) ... h(b, a)                               x, a, b in memory at `...`
    a = f(x); b = g(a) ... c = f(after(x, token)); h(b, c)       x, b; c is a again, and is computed after `token`

Values are not kept if computing them takes little for each byte, up to a limit. Those that follow each other would be
there all at once again, so they are cut into segments, and the few values between two segments are kept. Some limits
and numbers of segments are tried, in the order of the time that they are estimated to cost, until the plan of one fits.

The same operations compute the same values. A sum that a plan adds up in another order would have other bits, so such a
plan is not taken. Loops, branches and what NumPy computes do not run twice.

Sources: Chen et al., "Training deep nets with sublinear memory cost" (2016), for the segments; Jain et al.,
"Checkmate: breaking the memory wall with optimal tensor rematerialization" (2020), for costs that are those of kernels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from ..errors import OutOfMemoryError
from ..graph.checks import INDEXED, operand
from ..graph.facts import element_cost, may_fail, may_stop
from ..graph.flops import node_flops
from ..graph.ir import Graph, Node, with_inputs
from ..graph.rewrite import make
from ..once import lazy
from ..record import record
from ..walk import postorder, reachable
from .cost import FLOP_NS, memory_cost
from .launch import Plan
from .order_of_sums import add_up_alike

_ROUNDS = 3  # a graph that does not fit yet has its most memory elsewhere by then, and is cut there
_LIMITS = 6
_SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_LINES = 8  # that an error names
_CLOSE = 1.1  # an estimate beyond the budget by more is not planned
_TRIES = 8  # plans of a round: one takes 40 ms for GPT of 6 layers


def fitted(graph: Graph, plan_of: Callable[[Graph], Plan], memory: int) -> Graph:
    """The graph, with values computed again as its calls need to take at most so many bytes. OutOfMemoryError where
    that is not enough."""
    best, plan = graph, plan_of(graph)
    for _ in range(_ROUNDS):
        if plan.nbytes <= memory:
            break
        start, launches = best, Launches(best, plan)
        for again in launches.choices(memory - (plan.nbytes - plan.arena_bytes)):
            made, copies = launches.rewritten(again)
            found = plan_of(made)
            if found.nbytes < plan.nbytes and add_up_alike(plan, found, copies):
                best, plan = made, found
            if plan.nbytes <= memory:
                break
        if best is start:
            break
    if plan.nbytes > memory:
        raise OutOfMemoryError(_refusal(graph.name, plan, memory))
    return best


def _refusal(name: str, plan: Plan, memory: int) -> str:
    given, made = (sum(aval.nbytes for aval in avals) for avals in (plan.inputs, plan.outputs))
    lines = "".join([f"\n  {_size(n)}  {line or '(no line)'}" for line, n in [*plan.held.items()][:_LINES]])
    return (
        f"{name}: a call needs {plan.nbytes:,} bytes with as little kept as was found possible, and may have "
        f"{memory:,}: arguments and captured tensors are {_size(given)}, results {_size(made)}, and values in between "
        f"{_size(plan.arena_bytes)}; allow more, or make the batch smaller"
        + (f". Most at a time is held by{lines}" if lines else "")
    )


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB"


@record(eq=False)
class Again:
    """Values of the first part of a program that its second part computes again. `first`: the number of the launch for
    which each is computed, the first that reads it or something computed from it. The rest are estimates."""

    first: Mapping[Node, int]
    ns: float  # that it takes
    alive: int  # bytes in use where they are most


class Launches:
    """The launches of a plan by their numbers, and the values that lie in memory between them. The first part of the
    program ends with the launch `peak`, at which most bytes are in use."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph, self.count = graph, len(plan.launches)
        homes = {buffer.node for buffer in plan.buffers if buffer.node is not None} | set(graph.roots)
        launch_of = {node: k for k, launch in enumerate(plan.launches) for node in launch.nodes}
        made = [node for node in graph.nodes() if node in launch_of and node in homes]
        self.made = {node: launch_of[node] for node in sorted(made, key=launch_of.__getitem__)}  # operands first
        self.reads: dict[Node, list[int]] = {node: [] for node in self.made}
        for k, launch in enumerate(plan.launches):
            for node in {o for n in reachable(launch.nodes, self._below) for o in n.inputs}:
                if self.made.get(node, k) != k:
                    self.reads[node].append(k)
        self.fixed = [0] * self.count  # bytes of memory that launches work in
        for buffer in plan.buffers:
            for k in range(buffer.first, buffer.last + 1) if buffer.node is None else ():
                self.fixed[k] += buffer.nbytes
        self.outputs = set(graph.roots)
        lives = [(n, k, max(self.reads[n], default=k)) for n, k in self.made.items()]
        alive = self._alive(lives, self.fixed)
        self.peak = alive.index(max(alive)) if alive else 0

    def _alive(self, lives: Iterable[tuple[Node, int, int]], fixed: Sequence[int]) -> list[int]:
        """The bytes in use at each step; results of the program have memory of their own."""
        change = [0] * (len(fixed) + 1)
        for node, first, last in lives:
            if node not in self.outputs:
                change[first] += node.aval.nbytes
                change[last + 1] -= node.aval.nbytes
        return [a + b for a, b in zip(accumulate(change[:-1]), fixed, strict=True)]

    @lazy
    def early(self) -> list[Node]:
        """Values of the first part that may be computed again, in order. Loops, branches and what NumPy computes are
        not. Nor are lookups, and what their indices are computed from: where two look up the same ones, updates of
        state wait for the first alone (see `fusion.fuse`)."""
        lookups = [node for node in self.graph.nodes() if node.op is not None and node.kind in INDEXED]
        indices = {o for n in reachable(map(operand, lookups), self._below) for o in (n, *n.inputs)}
        before = [n for n, k in self.made.items() if k <= self.peak and n.inputs and n not in self.outputs | indices]
        return [n for n in before if not any(map(_once, reachable([n], self._below)))]

    @lazy
    def waiting(self) -> set[Node]:
        """Early values that the second part reads."""
        return {n for n in self.early if max(self.reads[n], default=-1) > self.peak}

    @lazy
    def late(self) -> list[Node]:
        """Values of the second part, in order."""
        return [n for n, k in self.made.items() if k > self.peak]

    # ---- costs

    def _below(self, node: Node) -> list[Node]:
        """Operands that are no values in memory: the kernel of the node computes them as well."""
        return [n for n in node.inputs if n.op is not None and n not in self.made]

    @lazy
    def kernel_ns(self) -> dict[Node, float]:
        """Estimated time of computing each early value from values in memory."""
        return {n: sum(map(_node_ns, reachable([n], self._below))) + memory_cost(n.aval.nbytes) for n in self.early}

    @lazy
    def rates(self) -> dict[Node, float]:
        """Estimated time of computing each waiting value from others that wait, for each byte of it."""
        whole: dict[Node, float] = {}
        early = set(self.early)
        for n in self.early:
            read = {o for x in reachable([n], self._below) for o in x.inputs if o in early and o not in self.waiting}
            whole[n] = self.kernel_ns[n] + sum(whole[o] for o in read)
        return {n: whole[n] / max(n.aval.nbytes, 1) for n in self.waiting}

    # ---- choices

    def choices(self, budget: int) -> list[Again]:
        """Choices that may fit, those of least time first, and the one of least memory."""
        rates = sorted(self.rates.values())
        limits = dict.fromkeys(rates[max(len(rates) * k // _LIMITS - 1, 0)] for k in range(1, _LIMITS + 1) if rates)
        found: dict[frozenset[Node], Again] = {}
        for limit in limits:
            for segments in _SEGMENTS:
                again = self._again(self._kept(limit, segments))
                found.setdefault(frozenset(again.first), again)
        choices = sorted((again for again in found.values() if again.first), key=lambda again: (again.ns, again.alive))
        near = [again for again in choices if again.alive <= budget * _CLOSE]
        least = sorted(choices, key=lambda again: again.alive)[:1]
        return list(dict.fromkeys([*near[:_TRIES], *least]))

    def _kept(self, limit: float, segments: int) -> set[Node]:
        """Early values that are kept: those of which a byte costs more than the limit, those between segments, and all
        of the last segment, which would be computed again at once."""
        kept = {n for n in self.waiting if self.rates[n] > limit}
        if segments == 1:
            return kept
        left = [n for n in self.early if n not in kept]
        nbytes = sum(n.aval.nbytes for n in left if n in self.waiting)
        lives = [(n, self.made[n], max(k for k in self.reads[n] if k <= self.peak) - 1) for n in left if self._early(n)]
        between = self._alive([(n, first, max(first, last)) for n, first, last in lives], self.fixed)
        start, filled = 0, 0
        for n in left:
            filled += n.aval.nbytes if n in self.waiting else 0
            if filled > nbytes / segments and self.made[n] > start:
                cut = min(range(start, self.made[n]), key=lambda k: (between[k], -k))
                kept |= {x for x, first, last in lives if first <= cut <= last}
                start = cut + 1
                filled = sum(x.aval.nbytes for x in left if start <= self.made[x] <= self.made[n] and x in self.waiting)
        return kept | {n for n in left if self.made[n] >= start}

    def _early(self, node: Node) -> bool:
        """Whether another kernel of the first part reads the value."""
        return any(k <= self.peak for k in self.reads[node])

    def _again(self, kept: Collection[Node]) -> Again:
        """The values that are computed again where these are kept, with all that those are computed from."""
        gone = {n for n in self.early if n not in kept}
        first: dict[Node, int] = {}
        seen: set[Node] = set()
        for root in self.late:
            for n in postorder([root], lambda n: self._inside(n, gone), seen):
                if n in gone:
                    first[n] = self.made[root]
        read = {n: [o for x in reachable([n], self._below) for o in x.inputs if o in self.made] for n in first}
        for n in reversed(first):
            for o in read[n]:
                if o in first:
                    first[o] = min(first[o], first[n])
        return Again(first, sum(self.kernel_ns[n] for n in first), self._most(gone, first, read))

    def _most(self, gone: Collection[Node], first: Mapping[Node, int], read: Mapping[Node, Sequence[Node]]) -> int:
        """Bytes in use where they are most, if each value that is computed again is so in a step of its own."""
        order = sorted(first, key=lambda n: (first[n], self.made[n]))
        starts = [first[n] for n in order]
        own = {n: k + number for number, (n, k) in enumerate(zip(order, starts, strict=True))}
        at = [k + bisect_right(starts, k) for k in range(self.count)]  # the step of each launch
        kept = {
            n: at[max([k, *(r for r in self.reads[n] if r <= self.peak or n not in gone)])]
            for n, k in self.made.items()
        }
        again = {n: max([k, *(at[r] for r in self.reads[n] if r > self.peak)]) for n, k in own.items()}
        for n, k in own.items():
            for o in read[n]:
                last = again if o in again else kept
                last[o] = max(last[o], k)
        fixed = dict(zip(at, self.fixed, strict=True))
        lives = [(n, at[k], kept[n]) for n, k in self.made.items()] + [(n, k, again[n]) for n, k in own.items()]
        return max(self._alive(lives, [fixed.get(k, 0) for k in range(self.count + len(order))]))

    def _inside(self, node: Node, gone: Collection[Node]) -> list[Node]:
        """Operands that are computed together with the node where these values are gone."""
        return [n for n in node.inputs if n.op is not None and (n not in self.made or n in gone)]

    # ---- the graph made anew

    def rewritten(self, again: Again) -> tuple[Graph, dict[Node, Node]]:
        """The graph in which the second part reads values that are computed again; and what its new nodes copy."""
        new: dict[tuple[Node, int], Node] = {}  # by the number of `again.first`; 0: computed where it is read
        tokens: dict[int, Node] = {}

        def operands(x: tuple[Node, int]) -> list[tuple[Node, int]]:
            return [(n, again.first.get(n, x[1])) for n in self._inside(x[0], again.first)]

        for root in self.late:
            for x in postorder([(root, 0)], operands, set(new)):
                node, k = x
                keys = [(n, again.first.get(n, k)) for n in node.inputs]
                inputs = tuple([new.get(key, key[0]) for key in keys])
                if k and not any(key in new and key[1] == k for key in keys) and not all(n.is_constant for n in inputs):
                    if k not in tokens:
                        tokens[k] = _element(self._before(k, new))
                    inputs = _tied(inputs, tokens[k])
                new[x] = node if inputs == node.inputs else with_inputs(node, inputs)
        roots = [new.get((root, 0), root) for root in self.graph.roots]
        return self.graph.with_roots(roots), {copy: node for (node, _), copy in new.items()}

    @lazy
    def depth(self) -> dict[Node, int]:
        """The longest chain of values of the second part that ends in each of them."""
        found: dict[Node, int] = {}
        for n in self.late:
            read = [o for x in reachable([n], self._below) for o in x.inputs]
            found[n] = 1 + max((found.get(o, 0) for o in read), default=0)
        return found

    def _before(self, number: int, new: Mapping[tuple[Node, int], Node]) -> Node:
        """A value that is there just before a launch: the one at the end of the longest chain, as others may be ready
        long before. Not a result, as that is written when nothing reads what it overwrites."""
        ready = [n for n, k in self.made.items() if k < number and n.aval.size and n not in self.outputs]
        late = max(ready, key=lambda n: (self.depth.get(n, 0), self.made[n]))
        return new.get((late, 0), late)


def _once(node: Node) -> bool:
    """Whether a node is not computed again: what NumPy computes, loops and branches, lookups."""
    return may_fail(node) or may_stop(node)


def _node_ns(node: Node) -> float:
    """Estimated time of a node on one core."""
    if node.kind in ("contraction", "convolution"):
        return node_flops(node) / 2 * FLOP_NS
    return element_cost(node) * max(n.aval.hinted.size for n in (node, *node.inputs))


def _element(node: Node) -> Node:
    """One element of a node, which is there once the node is."""
    corner = {"starts": (0,) * node.aval.ndim, "stops": (1,) * node.aval.ndim, "steps": (1,) * node.aval.ndim}
    return make("slice", node, **corner) if node.shape else node


def _tied(inputs: Sequence[Node], token: Node) -> tuple[Node, ...]:
    """The operands, one of which is there once the token is."""
    k = next(k for k, n in enumerate(inputs) if not n.is_constant)
    return (*inputs[:k], make("after", inputs[k], token), *inputs[k + 1 :])
