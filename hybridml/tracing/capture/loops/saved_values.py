"""Values of the steps of a loop that its gradient reads: which are saved, and how.

    dear to compute again                   saved, stacked; in rows of its largest size where that depends on the step
    a slice of an array that steps update   saved as well: the array is another one later
    or the slice that an update overwrites  the gradient has the array after the last step, and puts back what was there

Of the two last ones each array is given the one that takes less memory. Cheap values are computed again from dear ones,
unless those would take more memory than they do.

Source: Griewank and Walther, "Evaluating Derivatives" (2008), chapters 4 (overwriting) and 12 (what to store).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import steps_in
from hybridml_compiler.graph.facts import dependent
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.updates import is_update, versions
from hybridml_compiler.hoist import is_dear
from hybridml_compiler.ops.control import LOOP
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size, same, steps_of
from hybridml_compiler.sizes.steps import most_in, most_of
from hybridml_compiler.walk import reachable


@record(eq=False)
class Restored:
    """An array that the steps of a loop update, carry `carry` of it, which the gradient carries backwards.

    `versions`: the array before a step and after each update in it; `again`: what each but the last one is, made of the
    one after it: that with the slice put back that was overwritten, or what the gradient of a loop in the step leaves.
    """

    carry: int
    versions: Sequence[ir.Node]
    again: Sequence[ir.Node]

    @property
    def overwritten(self) -> list[ir.Node]:
        """The slices to be saved."""
        return [node.inputs[1] for node in self.again if is_update(node)]


@record(eq=False)
class Saved:
    nodes: list[ir.Node]
    restored: list[Restored]
    nbytes: int = 0  # of a step


@record(eq=False)
class Step:
    """The step of a loop: `carries` before it and `after` it, what else is `given` to it, and the symbol of its number.

    `restored` are arrays that it restores, being a gradient itself. `undone`: arrays after loops in it, each with what
    it was before, made of it by a gradient of that loop.
    """

    carries: Sequence[ir.Node]
    after: Sequence[ir.Node]
    given: Collection[ir.Node]
    symbol: str | None
    restored: Sequence[Restored]
    undone: Sequence[tuple[ir.Node, ir.Node]]


def worth_saving(step: Step, outputs: Sequence[ir.Node], cotangents: Collection[ir.Node]) -> Saved:
    """The values that the gradient with these outputs reads from memory instead of computing them again."""
    choice = _Choice(step, outputs, cotangents)
    best = choice.of([])
    for restored in choice.updated:
        found = choice.of([*best.restored, restored])
        if found.nbytes < best.nbytes and not choice.closes_circle(found):
            best = found
    return best


class _Choice:
    def __init__(self, step: Step, outputs: Sequence[ir.Node], cotangents: Collection[ir.Node]) -> None:
        self.inputs = {*step.carries, *step.given}
        order = ir.topological(outputs)
        late = dependent(outputs, cotangents)
        stepping = [] if step.symbol is None else [n for n in order if n.op is not None and step.symbol in steps_in(n)]
        self.early = dependent(outputs, [*self.inputs, *stepping]) - late
        read = {n for node in order if node in late for n in node.inputs if n in self.early}
        read |= {n for n in outputs if n in self.early}
        self.read = [node for node in order if node in read]
        chains = [versions(*ends) for ends in zip(step.carries, step.after, strict=False)]
        self.states = {node for chain in chains if len(chain) > 1 for node in chain}
        self.states.update(*(r.versions for r in step.restored))
        bodies = {node.params["body"] for node in order if node.op is LOOP}
        undone = {n: made for n, made in step.undone if made.params["body"] in bodies}
        found = [_restored(k, chain, undone) for k, chain in enumerate(chains) if len(chain) > 1]
        self.updated = [r for r in found if r is not None]

    def of(self, restored: list[Restored]) -> Saved:
        """The values that are saved where these arrays are carried backwards."""
        back = {node for r in restored for node in r.versions}
        states, given = self.states - back, (self.inputs - self.states) | back
        sources = {node: self._sources(node, given, states) for node in self.read if node not in given}
        uses = Counter(source for found in sources.values() for source in found)
        saved = dict.fromkeys(slot for r in restored for slot in r.overwritten)
        for node, found in sources.items():
            alone = sum(_nbytes(source) for source in found if uses[source] == 1)
            saved.update(dict.fromkeys([node] if alone > _nbytes(node) else found))
        return Saved([n for n in saved if n not in self.inputs], restored, sum(map(_nbytes, saved)))

    def closes_circle(self, saved: Saved) -> bool:
        """Whether an array is to be made of something that is computed from it."""
        made = {node: again for r in saved.restored for node, again in zip(r.versions, r.again, strict=False)}
        ends = ({*saved.nodes, *self.inputs} - made.keys()) | {r.versions[-1] for r in saved.restored}

        def operands(node: ir.Node) -> Sequence[ir.Node]:
            return () if node in ends else (made[node],) if node in made else node.inputs

        return any(version in reachable([again], operands) for version, again in made.items())

    def _sources(self, root: ir.Node, given: set[ir.Node], states: set[ir.Node]) -> set[ir.Node]:
        """The values, dear or of arrays that are updated, that a value is computed from by cheap operations."""

        def ends(node: ir.Node) -> bool:
            part = any(x in states and _nbytes(node) < _nbytes(x) for x in node.inputs)
            return part or node in states or is_dear(node)

        def operands(node: ir.Node) -> list[ir.Node]:
            return [] if ends(node) else [n for n in node.inputs if n in self.early and n not in given]

        return {node for node in reachable([root], operands) if ends(node)}


def _restored(k: int, chain: Sequence[ir.Node], undone: Mapping[ir.Node, ir.Node]) -> Restored | None:
    again = []
    for old, new in pairwise(chain):
        if is_update(new):
            slot = make("slice", old, **new.params)
            again.append(make("slice_update", new, slot, **new.params))
        elif new in undone:
            again.append(undone[new])
        else:
            return None
    return Restored(k, chain, again)


def _nbytes(node: ir.Node) -> int:
    return int(most_in(node.shape) * node.dtype.itemsize)


# -- sizes that depend on the step


def filled_up(node: ir.Node, step: str | None) -> ir.Node:
    """A value whose size depends on the step, in the corner of one that is as large as it becomes."""
    shape = tuple([most_of(n) if step in {s.name for s in steps_of(n)} else n for n in node.shape])
    if all(map(same, shape, node.shape)):
        return node
    zeros = make("full", shape=shape, value=0, dtype=node.dtype)
    return make("slice_update", zeros, node, **_corner(node.shape))


def cut_back(row: ir.Node, node: ir.Node) -> ir.Node:
    """The value that `row` is, filled up."""
    return row if all(map(same, row.shape, node.shape)) else make("slice", row, **_corner(node.shape))


def _corner(shape: Sequence[Size]) -> dict[str, tuple[Size, ...]]:
    return {"starts": (0,) * len(shape), "stops": tuple(shape), "steps": (1,) * len(shape)}
