"""Rewriting: rules `before -> after`, tried by the name of the operation, bottom up, until none fits.

A rule looks at one node, whose operands are already in final form, and returns its replacement, or None. The
replacement may be any expression over the node's operands; new nodes in it are rewritten in their turn. A rule
must not change the type of the value (checked), and says by its samples where it applies: a test rewrites each sample
and compares the value before and after, bit by bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import CompileError
from ..ops.table import OPS
from ..record import record
from ..weak import WeakMembers
from .ir import Graph, Node, apply, with_inputs

Match = Callable[[Node], Node | None]
_LONGEST = 100  # replacements of one node in a row: far more than any chain of real rules needs


@record
class Rule:
    """`name` draws the rule: `x * 1 -> x`. `ops` are the operations of the root node that it is tried on."""

    name: str
    ops: tuple[str, ...]
    match: Match
    samples: Callable[[], Iterable[Node]]  # values that the rule changes


class Rules:
    """The rules of each operation, in the order given."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_op: dict[str, tuple[Rule, ...]] = {}
        for rule in rules:
            for name in rule.ops:
                self.by_op[name] = (*self.by_op.get(name, ()), rule)
        # Nodes that no rule fits, nor any under them. A node never changes, so it is looked at once; these are most of
        # the nodes in a second round over a graph.
        self.final: WeakMembers[Node] = WeakMembers()


def make(op: str, *inputs: Node, **params: Any) -> Node:
    """A node by the name of its row."""
    return apply(OPS[op], inputs, params)


def rewrite(graph: Graph, rules: Rules, stats: Counter[str] | None = None) -> Graph:
    """`graph` with `rules` applied until none fits; the same object when none did.

    `stats` counts the rules applied, by name. New nodes carry the user's line of the node they replace.
    """
    counts: Counter[str] = Counter() if stats is None else stats
    final: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op is None or node in rules.final:
            final[node] = node
        elif node.op.name in rules.by_op or any([final[n] is not n for n in node.inputs]):
            _settle(node, rules, final, counts)
        else:
            final[node] = node
            rules.final.add(node)
    return graph.with_roots([final[node] for node in graph.roots])


def _settle(root: Node, rules: Rules, final: dict[Node, Node], counts: Counter[str]) -> None:
    """Put `root` and everything under it into `final`. A stack and no recursion: graphs are thousands of nodes deep."""
    becomes: dict[Node, Node] = {}  # nodes on the stack that wait for their replacement
    length: dict[Node, int] = {}  # of the chain of replacements that made a node; 0 for nodes of the graph as given
    stack = [root]
    while stack:
        node = stack[-1]
        if node in final:
            stack.pop()
            continue
        target = becomes.get(node)
        if target is None:
            waiting = [n for n in node.inputs if n not in final]
            if waiting:
                if node in length:
                    for operand in waiting:
                        _inherit(operand, node, length, 0)
                stack += reversed(waiting)
                continue
            target, rule = _step(node, rules.by_op, final)
            if target is node:
                final[node] = node
                rules.final.add(node)
                stack.pop()
                continue
            if rule is not None:
                counts[rule.name] += 1
            if (target in becomes and target not in final) or length.get(node, 0) > _LONGEST:
                raise CompileError(f"rewrite: the rules do not end at {node!r}; applied so far: {dict(counts)}")
            _inherit(target, node, length, rule is not None)
            becomes[node] = target
        if target in final:
            final[node] = final[target]
            stack.pop()
        else:
            stack.append(target)


def _inherit(new: Node, old: Node, length: dict[Node, int], step: int) -> None:
    length[new] = max(length.get(new, 0), length.get(old, 0) + step)
    if new.op is not None:
        new.where = new.where or old.where


def _step(node: Node, rules: Mapping[str, tuple[Rule, ...]], final: Mapping[Node, Node]) -> tuple[Node, Rule | None]:
    """One step towards the final form: final operands first, then the first rule that fits."""
    if node.op is None:
        return node, None
    operands = tuple([final[n] for n in node.inputs])
    if operands != node.inputs:
        return with_inputs(node, operands), None
    for rule in rules.get(node.op.name, ()):
        found = rule.match(node)
        if found is None or found is node:
            continue
        if found.shape != node.shape or found.dtype is not node.dtype:
            raise CompileError(f"rewrite: rule {rule.name!r} turned {node!r} into {found!r}: another type")
        if found.aval.weak == node.aval.weak:  # else keep it: dtypes of later operations would change
            return found, rule
    return node, None
