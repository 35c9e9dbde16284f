"""Rewriting: rules `before -> after`, tried by the name of the operation, bottom up, until none fits.

A rule looks at one node, whose operands are already in final form, and returns its replacement, or None. The
replacement may be any expression over the node's operands; new nodes in it are rewritten in their turn. A rule
must not change the type of the value (checked), and says by its samples where it applies: a test rewrites each sample
and compares the value before and after, bit by bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import CompileError
from ..ops.table import OPS
from ..record import record
from .ir import Graph, Node, apply, new_bit, with_inputs

CONSTANT = "const"
Match = Callable[[Node], Node | None]
_LONGEST = 100  # replacements of one node in a row: far more than any chain of real rules needs


@record
class Rule:
    """`name` draws the rule: `x * 1 -> x`. `ops` are the operations of the root node that it is tried on."""

    name: str
    ops: tuple[str, ...]
    match: Match
    samples: Callable[[], Iterable[Node]]  # values that the rule changes
    # Operations, or `CONSTANT`, one of which an operand of the root is wherever the rule fits; none given: whatever.
    operands: tuple[str, ...] = ()


class Rules:
    """The rules of each operation, in the order given. `lasting`: of many graphs, rather than made for one."""

    def __init__(self, rules: Iterable[Rule], *, lasting: bool = False) -> None:
        self.by_op: dict[str, tuple[Rule, ...]] = {}
        for rule in rules:
            for name in rule.ops:
                self.by_op[name] = (*self.by_op.get(name, ()), rule)
        # By operation, what an operand is where any of its rules fits: a node beside others is passed by at a look.
        self.wanted: dict[str, frozenset[str]] = {
            name: frozenset(x for rule in found for x in rule.operands)
            for name, found in self.by_op.items()
            if all(rule.operands for rule in found)
        }
        # In `seen` of nodes that no rule fits, nor any under them: most of the nodes in a second round over a graph.
        self.bit = new_bit() if lasting else 0


def make(op: str, *inputs: Node, **params: Any) -> Node:
    """A node by the name of its row."""
    return apply(OPS[op], inputs, params)


def rewrite(graph: Graph, rules: Rules, stats: Counter[str] | None = None) -> Graph:
    """`graph` with `rules` applied until none fits; the same object when none did.

    `stats` counts the rules applied, by name. New nodes carry the user's line of the node they replace.
    """
    counts: Counter[str] = Counter() if stats is None else stats
    nodes, bit = graph.nodes(), rules.bit
    unchanged = _unchanged(nodes, rules)
    if unchanged == len(nodes):
        return graph
    final = {node: node for node in nodes[:unchanged]}
    for node in nodes[unchanged:]:
        if node.op is None or node.seen & bit:
            final[node] = node
            continue
        operands = tuple([final[n] for n in node.inputs])
        new = node
        if operands != node.inputs:
            new = with_inputs(node, operands)
            new.where = new.where or node.where
        if new not in final:
            found, rule = _replaced(new, rules)
            if rule is None:  # most nodes
                final[new] = new
                new.seen |= bit
            else:
                counts[rule.name] += 1
                length: dict[Node, int] = {}
                _inherit(found, new, length, 1)
                _settle(found, rules, final, counts, length)
                final[new] = final[found]
        final[node] = final[new]
    return graph.with_roots([final[node] for node in graph.roots])


def _unchanged(nodes: Sequence[Node], rules: Rules) -> int:
    """The number of nodes before the first that a rule fits."""
    by_op, bit = rules.by_op, rules.bit
    for number, node in enumerate(nodes):
        if node.op is not None and not node.seen & bit:
            if node.op.name in by_op and _replaced(node, rules)[1] is not None:
                return number
            node.seen |= bit
    return len(nodes)


def _settle(root: Node, rules: Rules, final: dict[Node, Node], counts: Counter[str], length: dict[Node, int]) -> None:
    """Put `root` and everything under it into `final`. A stack and no recursion: graphs are thousands of nodes deep.

    `length`: of the chain of replacements that made a node; 0 for nodes of the graph as given.
    """
    becomes: dict[Node, Node] = {}  # nodes on the stack that wait for their replacement
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
            target, rule = _step(node, rules, final)
            if target is node:
                final[node] = node
                node.seen |= rules.bit
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


def _step(node: Node, rules: Rules, final: Mapping[Node, Node]) -> tuple[Node, Rule | None]:
    """One step towards the final form: final operands first, then the first rule that fits."""
    if node.op is None:
        return node, None
    operands = tuple([final[n] for n in node.inputs])
    return (with_inputs(node, operands), None) if operands != node.inputs else _replaced(node, rules)


def _replaced(node: Node, rules: Rules) -> tuple[Node, Rule | None]:
    """The replacement by the first rule that fits a node with final operands, and the rule; itself if none does."""
    assert node.op is not None
    wanted = rules.wanted.get(node.op.name)
    if wanted is not None:
        for operand in node.inputs:
            name = operand.op.name if operand.op is not None else CONSTANT if operand.value is not None else ""
            if name in wanted:
                break
        else:
            return node, None
    for rule in rules.by_op.get(node.op.name, ()):
        found = rule.match(node)
        if found is None or found is node:
            continue
        if found.shape != node.shape or found.dtype is not node.dtype:
            raise CompileError(f"rewrite: rule {rule.name!r} turned {node!r} into {found!r}: another type")
        if found.aval.weak == node.aval.weak:  # else keep it: dtypes of later operations would change
            return found, rule
    return node, None
