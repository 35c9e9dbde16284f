"""Groups of a plan: which of the values in memory one kernel computes.

Values are looked at in order, operands first, and each joins the latest group that may take it in. Layers and the
updates of parameters repeat each other, so a graph has thousands of groups, and a value has something in common with a
few: those are found by what they read, not by a look at each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...graph.body import family, steps_in
from ...graph.facts import may_fail, reduced_axes
from ...graph.ir import Node
from ...record import replace
from ...sizes.dims import hint, is_dim
from .. import cost
from ..kernels.gemm import Product
from ..kernels.library import LIBRARY, Capabilities, Library
from .epilogue import splits
from .group import TAKE_MEMORY, Expression, Expressions, Group, form_of, row_aligned
from .in_place import STORE, may_store, store_of

if TYPE_CHECKING:
    from ..kernels.library import Call, Matched

_NEAR = 64  # groups before the last one that a value may join
_ALONE = ("contraction", "convolution", "scan", "scatter", "random")  # kinds that begin a group
_NONE: Mapping[Node, str] = {}


class Grouping:
    """Groups for a choice of values in memory, and for the next one, which differs in few."""

    def __init__(self, order: Sequence[Node], target: Capabilities) -> None:
        self.order, self.target = order, target
        self.expressions = Expressions({})  # for the choice before
        self._calls: dict[Node, tuple[Expression, Matched | None]] = {}  # and what they were matched for

    def groups(
        self, materialised: Mapping[Node, str], computed: Mapping[Node, str] = _NONE
    ) -> tuple[list[Group], dict[Node, Group]]:
        """(groups in order, the group of each value). `computed`: operands that their products compute."""
        self.expressions = Expressions(materialised, self.expressions)
        round_ = _Round(self.expressions, self._calls, self.target, materialised, computed)
        for node in self.order:
            if node in materialised:
                round_.add(node)
        return round_.groups, round_.owner


class _Round:
    def __init__(
        self,
        expressions: Expressions,
        calls: dict[Node, tuple[Expression, Matched | None]],
        target: Capabilities,
        materialised: Mapping[Node, str],
        computed: Mapping[Node, str],
    ) -> None:
        self.expressions, self.calls, self.target = expressions, calls, target
        self.materialised, self.computed = materialised, computed
        self.groups: list[Group] = []
        self.owner: dict[Node, Group] = {}
        self.runs: dict[Any, Group] = {}  # of operations that are several nodes each
        self.number: dict[Group, int] = {}
        # The groups that each needs, directly or not, as bits: 10,000 groups are 12 MB.
        self.ancestors: list[int] = []
        self.needed = 0  # by any group
        # Groups by their shape, and by what they load or compute; in order, some more than once.
        self.having: dict[tuple[int, ...], dict[Node, list[int]]] = {}

    def add(self, node: Node) -> None:
        owner = self.owner
        if (store := store_of(node)) is not None and store in owner:
            owner[node] = owner[store]
            return
        expression = self.expressions.of(node)
        reads, inlined = expression.reads, expression.inlined
        needs = {owner[r] for r in reads if r in owner}
        several = node.kind in TAKE_MEMORY  # such an operation may be several nodes
        target = self.runs.get(family(node)) if several else self._find(node, expression, needs)
        name = node.op.name if node.op else ""
        if target is None:
            target = Group([node], set(reads), set(inlined), reasons=[f"{name}: {self.materialised[node]}"])
            target.call = self._library_call(node)
            if target.call is not None:  # it reads narrow operands below casts that are in memory as well
                operands = {x for x in target.call[1:] if x not in self.computed}
                target.reads |= operands
                needs |= {owner[x] for x in operands if x in owner}
            if target.call is not None and target.call[1] in self.computed:
                target.reasons.append(f"prologue: {self.computed[target.call[1]]}")
            self.number[target] = len(self.groups)
            self.groups.append(target)
            self.ancestors.append(0)
            self._enter(target, (*reads, *inlined))
            if several:
                self.runs[family(node)] = target
        else:
            shape = target.shape
            target.add(node, reads, inlined)
            where = "epilogue of" if target.call else "another result of the run" if several else "same index space"
            target.reasons.append(f"{name}: {where} {list(node.shape)}")
            same = target.shape == shape
            self._enter(target, (*reads, *inlined) if same else (*target.reads, *target.inlined))
        owner[node] = target
        self._order(target, needs)

    def _enter(self, group: Group, nodes: Iterable[Node]) -> None:
        number, shape = self.number[group], group.shape
        if group.call is None:  # else only those that need it may join
            of_shape = self.having.setdefault(shape, {})
            for node in nodes:
                of_shape.setdefault(node, []).append(number)

    def _order(self, target: Group, needs: set[Group]) -> None:
        ancestors, mine = self.ancestors, self.number[target]
        above = 0
        for group in needs:
            if group is not target:
                number = self.number[group]
                above |= (1 << number) | ancestors[number]
                target.after.add(group)
        if above & ~ancestors[mine]:
            ancestors[mine] |= above
            self.needed |= above
            bit = 1 << mine
            for number, its in enumerate(ancestors if self.needed & bit else ()):
                if its & bit:
                    ancestors[number] = its | above

    def _library_call(self, node: Node) -> Matched | None:
        """The call that computes the node, if the machine can; None where a loop nest must."""
        library = LIBRARY.get(node.kind)
        if library is None:
            return None
        expression, computed = self.expressions.of(node), self.computed
        before, found = self.calls.get(node, (None, None))
        if before is not expression:  # else it has the same operands in memory
            found = self._matched(library, node)
            self.calls[node] = expression, found
        if found is None:
            return None
        call, left, right = found
        return (replace(call, computed=True), left, right) if isinstance(call, Product) and left in computed else found

    def _matched(self, library: Library, node: Node) -> Matched | None:
        materialised, computed = self.materialised, self.computed
        found = library.match(
            node,
            lambda n: (n.op is None and (n.is_input or bool(n.shape))) or n in materialised or n in computed,
            self.target.reads_narrow(node),
        )
        return None if found is None or not self.target.has_library(found[0]) else found

    # ---- the group that a value joins

    def _find(self, node: Node, expression: Expression, needs: set[Group]) -> Group | None:
        """The latest group that may take the node in: same index space, something in common, no cycle. Where products
        are made tile by tile, one that the node follows comes before loop nests."""
        if node.kind in _ALONE or not self.target.fuses:
            return None
        reads, inlined = expression.reads, expression.inlined
        updated = {self.owner[r] for r in reads if store_of(r) is not None and r in self.owner}
        near = self._near(node, (*reads, *inlined), needs)
        if self.target.runs_tiles is not None:
            near.sort(key=lambda number: self.groups[number].call is None)
        for number in near:
            group = self.groups[number]
            if group in updated or not self._may_join(node, inlined, needs, group) or self._closes_circle(group, needs):
                continue
            fits = group.call is not None or _same_space(node, group)
            joins = fits and (group not in needs or all(self.owner.get(r) is not group for r in expression.displaced))
            if not joins and group.call is None:
                joins = _same_rows(node, group, self.owner, self.target.worth_rows, depends=group in needs)
            if joins and _may_store(node, group):  # last, as it takes the longest
                return group
        return None

    def _near(self, node: Node, nodes: Iterable[Node], needs: set[Group]) -> list[int]:
        """Groups that the node needs, or that are over its shape and have data in common with it, the latest first."""
        first, having = len(self.groups) - _NEAR, self.having.get(node.shape, {})
        found = {number for group in needs if (number := self.number[group]) >= first}
        for n in nodes:
            numbers = having.get(n)
            if numbers is not None and numbers[-1] >= first and _is_worth_sharing(n, node):
                for number in reversed(numbers):
                    if number < first:
                        break
                    found.add(number)
        return sorted(found, reverse=True)

    def _may_join(self, node: Node, inlined: set[Node], needs: set[Group], group: Group) -> bool:
        if group.call is not None:
            call = group.call[0]
            fits = group in needs and self.target.takes_epilogue(call) and _is_epilogue(node, inlined, call)
        else:
            fits = group.kind in ("map", "reduction") or (group in needs and _follows_tiles(node, inlined, group))
        most = cost.MAX_KERNEL_NODES - len(group.roots)
        return fits and (len(group.inlined) + len(inlined) <= most or len(group.inlined | inlined) <= most)

    def _closes_circle(self, group: Group, needs: set[Group]) -> bool:
        number = self.number[group]
        return any(self.ancestors[self.number[other]] >> number & 1 for other in needs if other is not group)


def _may_store(node: Node, group: Group) -> bool:
    """Whether none of the values of one loop reads what another one overwrites."""
    mine = [(node, root) for root in group.roots] if node.op is STORE else []
    theirs = [(root, node) for root in group.roots if root.op is STORE]
    return all(may_store(store, value) for store, value in (*mine, *theirs))


def _is_epilogue(node: Node, inlined: set[Node], call: Call) -> bool:
    """Elementwise over the elements of the result, in a loop that cannot fail, and knows steps of loops if the call
    does."""
    fits = node.kind in ("elementwise", "movement") and splits(node.shape, *call.result) and not any_fails(inlined)
    return fits and (call.symbolic or not any(map(steps_in, (node, *inlined))))


def _follows_tiles(node: Node, inlined: set[Node], group: Group) -> bool:
    """Elementwise on random bits, in a loop that cannot fail."""
    return group.kind == "random" and node.kind == "elementwise" and not any_fails(inlined)


def any_fails(nodes: Iterable[Node]) -> bool:
    return any(may_fail(n) for n in nodes)


def _is_worth_sharing(common: Node, node: Node) -> bool:
    """Whether it is worth loading or computing once, which a number beside arrays is not."""
    return hint(common.aval.size) > 1 or node.aval.size == 1


def _same_space(node: Node, group: Group) -> bool:
    """Whether both have one output space; a reduction also needs the space it reduces, and registers, a map may follow
    a reduction as its epilogue."""
    if node.shape != group.shape or (not node.shape and group.kind == "map"):
        return node.shape == group.shape
    if node.kind != "reduction":
        return True
    if len(group.roots) >= cost.MAX_KERNEL_SUMS:
        return False
    if group.kind != "reduction" or group.space is None:
        return False
    return group.space == (node.inputs[0].shape, reduced_axes(node))


def _same_rows(
    node: Node, group: Group, owner: dict[Node, Group], worth: Callable[[int, int], bool], *, depends: bool
) -> bool:
    """Whether the node may join as part of a row group: rows in cache, its own row only."""
    axes = reduced_axes(node)
    space = group.space or ((node.inputs[0].shape, axes) if axes and group.shape == node.inputs[0].shape else None)
    if space is None or not depends or not _worth_rows(*space, worth):
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


def _worth_rows(shape: tuple[int, ...], axes: tuple[int, ...], worth: Callable[[int, int], bool]) -> bool:
    """Whether rows are contiguous, long enough for lanes, and of numbers and lengths that are worth it."""
    if len(shape) - 1 not in axes or shape[-1] == 1:
        return False
    row = math.prod(shape[k] for k in axes)
    if is_dim(row) or is_dim(math.prod(shape)):
        return True  # whatever the size at hand: one kernel adds up in another order than two
    rows = math.prod(shape) // max(row, 1)
    return row > 1 and worth(rows, row)
