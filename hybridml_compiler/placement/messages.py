"""Messages: the part of a graph that one rank computes, which sends what others need of it, and receives what it needs.

All ranks have the same graph and plan, so that each finds the same order of messages for itself. A message has a level,
the messages and collectives on the longest way to its value:

    rank 0    %1 = exp(x)    send_to(%1, peer=1)                                      %4 = receive_from(peer=1)
    rank 1                   %2 = receive_from(peer=0)    %3 = tanh(%2)    send_to(%3, peer=0)
    level                    0                                             1

A rank sends what has a level, comes to the collectives of this level, and receives what has it. What it sends needs
received values of lower levels alone, so that no rank waits for one that waits for it; and a value is sent before its
rank waits for others of its level. Between two ranks all is sent and received in one order, under one tag.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..graph.body import family
from ..graph.ir import Graph, Node, apply, with_inputs
from ..once import lazy
from ..ops.collectives import is_collective, is_token
from ..ops.table import OPS
from ..record import record
from ..walk import postorder
from .ranks import Where, computing, needs_of

_full, _placed, _receive, _send = OPS["full"], OPS["placed"], OPS["receive_from"], OPS["send_to"]
_SENDS, _MEETS, _RECEIVES = range(3)  # what comes first at a level


@record(eq=False)
class Message:
    """A value that one rank sends to another."""

    node: Node
    source: int
    target: int
    level: int


@record(eq=False)
class Plan:
    """A graph over the ranks of a group: the rank of each node, the ranks that want each output, and the value that an
    output has in the others, None for zeros. `tag`: of all messages."""

    graph: Graph
    where: Where
    wanted: Sequence[Collection[int]]
    instead: Sequence[Node | None]
    group: str
    size: int
    tag: int

    @lazy
    def messages(self) -> list[Message]:
        """The values that ranks send to each other, once to each rank that needs them, in the order of the graph."""
        return [
            Message(node, source, target, self.levels[node])
            for node, ranks in self.needs.items()
            if (source := self.where[node]) is not None
            for target in sorted(ranks - {source})
        ]

    @lazy
    def needs(self) -> dict[Node, set[int]]:
        """The ranks that need each value."""
        return needs_of(self.graph, self.where, zip(self.graph.outputs, self.wanted, strict=True), self.size)

    @lazy
    def levels(self) -> dict[Node, int]:
        """The messages and collectives on the longest way to each value."""
        levels: dict[Node, int] = {}
        for node in self.graph.nodes():
            levels[node] = max((levels[x] + self._is_behind(x, node) for x in node.inputs), default=0)
        return levels

    def _is_behind(self, operand: Node, node: Node) -> bool:
        """Whether a message or a collective is between an operand and a node."""
        source = self.where[operand]
        return _meets(operand) or (source is not None and source != self.where[node])

    def __str__(self) -> str:
        """The nodes that each rank computes and each message: equal where plans for one graph are."""
        number = {node: k for k, node in enumerate(self.graph.nodes())}
        places = [f"%{k} {node.op.name} {node.aval}: {self.where[node]}" for node, k in number.items() if node.op]
        sent = [f"%{number[m.node]}: {m.source} -> {m.target}, level {m.level}" for m in self.messages]
        wanted = [f"return %{number[n]}: {sorted(r)}" for n, r in zip(self.graph.outputs, self.wanted, strict=True)]
        return "\n".join([*places, *sent, *wanted])


def part_of(plan: Plan, rank: int, digest: str) -> Graph:
    """The graph that a rank computes: inputs and outputs are those of the whole graph. `digest`: of the plan, which all
    ranks compare."""
    return _Part(plan, rank).graph(digest)


class _Part:
    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.made: dict[Node, Node] = {node: node for node in plan.graph.inputs if plan.where[node] in (None, rank)}
        marker = next(node for node in plan.graph.nodes() if is_plan(node))
        self.token = _first(marker)

    def graph(self, digest: str) -> Graph:
        plan, graph = self.plan, self.plan.graph
        self.token = apply(_placed, [self.token], {"group": plan.group, "plan": digest})
        for _, _, action in sorted(self._actions(), key=lambda found: found[:2]):
            if isinstance(action, Message):
                self._move(action)
            else:
                self._meet(action)
        outputs = []
        for node, ranks, instead in zip(graph.outputs, plan.wanted, plan.instead, strict=True):
            if is_token(node):
                outputs.append(self.token)
            elif self.rank in ranks:
                outputs.append(self._build(node))
            else:
                outputs.append(_zeros(node) if instead is None else instead)
        everyone = set(range(plan.size))
        checks = [n for n in graph.checks if not _meets(n) and self.rank in computing(n, plan.where, everyone)]
        return Graph(graph.inputs, tuple(outputs), graph.name, tuple(map(self._build, checks)))

    def _actions(self) -> Iterator[tuple[int, tuple[int, int], Message | Sequence[Node]]]:
        """Messages of this rank and collectives, each with its level and its place there."""
        for k, message in enumerate(self.plan.messages):
            if message.source == self.rank:
                yield message.level, (_SENDS, k), message
            elif message.target == self.rank:
                yield message.level, (_RECEIVES, k), message
        collectives: dict[object, list[Node]] = {}
        for node in filter(_meets, self.plan.graph.nodes()):
            collectives.setdefault(family(node), []).append(node)
        for k, nodes in enumerate(collectives.values()):
            yield self.plan.levels[nodes[0]], (_MEETS, k), nodes

    def _move(self, message: Message) -> None:
        node, params = message.node, {"group": self.plan.group, "tag": self.plan.tag}
        if message.source == self.rank:
            self.token = apply(_send, [self._build(node), self.token], {**params, "peer": message.target}, node.where)
            return
        params |= {"shape": node.shape, "dtype": node.dtype, "peer": message.source}
        self.made[node], self.token = (
            apply(_receive, [self.token], {**params, "result": k}, node.where) for k in range(2)
        )

    def _meet(self, nodes: Sequence[Node]) -> None:
        """Puts a collective, a node for each of its results, behind what came before."""
        if is_plan(nodes[0]):
            self.made[nodes[0]] = self.token
            return
        operands = (*map(self._build, nodes[0].inputs[:-1]), self.token)
        for node in nodes:
            self.made[node] = with_inputs(node, operands)
        op = nodes[0].op
        assert op is not None
        last = {**nodes[0].params, "result": len(op.results) - 1} if op.results else nodes[0].params
        self.token = apply(op, operands, last, nodes[0].where)

    def _build(self, root: Node) -> Node:
        """The node that stands for a value in this part; what it needs of others has come."""
        made = self.made
        for node in postorder([root], lambda node: () if node in made else node.inputs):
            if node not in made:
                made[node] = with_inputs(node, tuple([made[x] for x in node.inputs])) if node.inputs else node
        return made[root]


def _meets(node: Node) -> bool:
    """Whether all ranks come to a node; what only waits for one of them is behind it."""
    return node.op is not None and is_collective(node) and node.op.asynchronous != "wait"


def is_plan(node: Node) -> bool:
    """Whether a node says that ranks compute the program together."""
    return node.op is not None and node.op.asynchronous == "plan"


def _first(token: Node) -> Node:
    """The input that the first collective takes its token from."""
    while not token.is_input:
        token = token.inputs[-1]
    return token


def _zeros(node: Node) -> Node:
    return apply(_full, [], {"shape": node.shape, "value": 0, "dtype": node.dtype}, node.where)
