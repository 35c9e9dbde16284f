"""The choice between two branches of a traced program: nodes of the graph, recorded as one step of the history.

The gradient of a choice is a choice: the branch that ran is walked back, and what it reads of its own values is
computed again there. It is recorded in its turn, so derivatives of any order are made the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from hybridml_compiler.errors import GradientError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import body_of
from hybridml_compiler.ops.control import COND
from hybridml_compiler.record import record

from ...core.autodiff.tape import Node, boundary, is_node, kept_by, make_node, part, run
from ...core.context import enable_grad, grad_is_off
from ...core.tensor import Tensor, aval_of
from .loops.loop import zeros
from .subgraphs import close, enter, fresh, leaf_of, leave, snapshot
from .tracer import Tracer


@record(frozen=False, eq=False)
class Branch:
    """The graph that one branch computes from `Choice.inputs` and from captured values."""

    since: int
    made: set[ir.Node]  # what it computes; all else is from around it
    inputs: list[Tensor]
    outputs: list[Tensor]
    checks: Sequence[ir.Node] = ()


@record(frozen=False, eq=False)
class Choice:
    """A recorded choice: `operands` are the arguments of the branch that runs."""

    tracer: Tracer
    predicate: Tensor
    true: Branch
    false: Branch
    operands: list[Tensor]
    gradients: dict[tuple[int, ...], Gradient] = field(default_factory=dict)  # by the results that have a cotangent

    def run(self) -> list[Tensor]:
        """The results of the branch that the predicate takes."""
        closed = []
        for branch in (self.true, self.false):
            given = {t._array: t._array for t in branch.inputs}
            roots = [*(t._array for t in branch.outputs), *branch.checks]
            closed.append((close(roots, branch.made.__contains__, given), list(given)))
        taken = list(dict.fromkeys(node for part_, _ in closed for node in part_.taken))
        bodies = []
        for part_, own in closed:
            stand = dict(zip(part_.taken, part_.given, strict=True))
            inputs = [stand.get(node) or ir.input_node(node.aval) for node in taken]
            made, n = tuple(part_.outputs), len(self.true.outputs)
            bodies.append(body_of(ir.Graph((*inputs, *own), made[:n], checks=made[n:])))
        operands = [self.predicate, *map(self.tracer.wrap, taken), *self.operands]
        params = {"true": bodies[0], "false": bodies[1]}
        results: list[Tensor] = [
            self.tracer.emit(COND, operands, {**params, "result": k}) for k in range(len(self.true.outputs))
        ]
        if not grad_is_off():
            self._record(results)
        if self.tracer.stages is not None:
            self.tracer.stages.made(results)
        return results

    def _record(self, results: list[Tensor]) -> None:
        pairs = zip(self.true.outputs, self.false.outputs, strict=True)
        recorded = tuple(k for k, pair in enumerate(pairs) if any(is_node(t._node) for t in pair))
        if not recorded:
            return
        try:
            around = self.gradient(recorded).around
        except GradientError:  # of a loop in it: an error for those who ask for the gradient
            around = [
                source
                for branch in (self.true, self.false)
                for source in boundary(
                    [t._node for k, t in enumerate(branch.outputs) if k in recorded and t._node is not None],
                    branch.since, [leaf_of(t) for t in branch.inputs],
                )
            ]  # fmt: skip
        wanting = [t._node for t in self.operands if t._node is not None]
        if not wanting and not around:
            return
        joint = make_node(_pull_choice, None, [*wanting, *around], self)
        for k in recorded:
            results[k]._node = part(joint, k, results[k].shape)

    def gradient(self, mask: tuple[int, ...]) -> Gradient:
        """The choice that gives the gradients for the results in `mask`."""
        if mask not in self.gradients:
            with enable_grad():
                self.gradients[mask] = _derive(self, mask)
        return self.gradients[mask]


@record(frozen=False, eq=False)
class Gradient:
    """Branches that give the cotangents of the histories in `around`, and then of the operands in `given`."""

    true: Branch
    false: Branch
    around: list[Any]
    given: list[int]


def _pull_choice(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    choice: Choice
    (choice,) = kept_by(node)
    mask = tuple(sorted(bundle))
    gradient = choice.gradient(mask)
    operands = [*choice.operands, *(snapshot(choice.tracer, bundle[k]) for k in mask)]
    found = Choice(choice.tracer, choice.predicate, gradient.true, gradient.false, operands).run()
    sources = [*gradient.around, *(choice.operands[k]._node for k in gradient.given)]
    return [(source, g) for source, g in zip(sources, found, strict=True) if source is not None]


def _derive(choice: Choice, mask: Sequence[int]) -> Gradient:
    """Walks both histories back."""
    found, branches = [], []
    for branch in (choice.true, choice.false):
        frame = enter(choice.tracer)
        try:
            given = [fresh(choice.tracer, aval_of(branch.outputs[k])) for k in mask]
            histories = [branch.outputs[k]._node for k in mask]
            seeds = [(source, g) for source, g in zip(histories, given, strict=True) if source is not None]
            found.append(run(seeds, retain=True, create=True, since=branch.since))
            branches.append(Branch(branch.since, branch.made, [*branch.inputs, *given], []))
        finally:
            leave(choice.tracer)
        branch.made |= frame.made
    leaves = [[id(leaf_of(t)) for t in branch.inputs] for branch in (choice.true, choice.false)]
    mine = [
        k
        for k, pair in enumerate(zip(*leaves, strict=True))
        if any(key in f for key, f in zip(pair, found, strict=True))
    ]
    known = {key for keys in leaves for key in keys}
    around = {key: source for f in found for key, (source, _) in f.items() if key not in known}
    for branch, f, keys in zip(branches, found, leaves, strict=True):
        wanted = [*around, *(keys[k] for k in mine)]
        others = [next(g for o in found for key, (_, g) in o.items() if key == want) for want in around]
        templates = [*others, *(choice.operands[k] for k in mine)]
        frame = enter(choice.tracer)
        try:
            branch.outputs = [
                f[key][1] if key in f else zeros(like) for key, like in zip(wanted, templates, strict=True)
            ]
        finally:
            leave(choice.tracer)
        branch.made |= frame.made
    return Gradient(branches[0], branches[1], list(around.values()), mine)
