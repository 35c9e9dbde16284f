"""Long reductions in blocks: every block of rows makes partial results, a last kernel combines them.

    y[j] = sum over r < 4096 of x[r, j]             one loop down 4096 rows, shared by columns alone
 -> p[b, j] = sum over r < 64 of x[64 b + r, j]     blocks: shared by threads, and each stays in cache
    y[j] = sum over b < 64 of p[b, j]               with whatever else the group computes from y

A reduction that needs the result of another one (the squares of a variance need the mean) makes its partial results in
a kernel after that one's. Blocks depend on the shape alone, so a sum has the same bits on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...aval import Aval
from ...graph.facts import reduced_axes
from ...graph.ir import Node, input_node
from ...loops.builder import LoopBuilder, identity
from ...loops.ir import Expr, Kernel, Reduce, Store, expressions, extent, serial
from ...record import record
from ...sizes.dims import is_symbolic
from .. import cost
from ..fusion.group import Group
from ..kernels.library import Capabilities, Schedule
from .concat import in_pieces, lower_pieces
from .expressions import Index, ravel, unravel
from .lower import GroupLowering


@record
class Split:
    """The reduced axes are cut at `axis` (counted among them): those before it, and blocks of `rows` of its elements,
    are the index space of the partial results.

    Where the rows are too short for lanes, `phases` of them side by side along the axis `last` are taken for one: each
    phase has a partial result of its own.
    """

    axis: int
    rows: int
    blocks: tuple[int, ...]  # blocks of every axis up to `axis`, then phases
    last: int
    phases: int


def lower_group(
    group: Group, in_memory: Callable[[Node], bool], overwrites: Mapping[Node, Node], target: Capabilities
) -> list[tuple[Kernel, tuple[Node, ...]]]:
    """The kernels of a group in order, each with the nodes whose memory it is given."""
    schedule = target.schedule
    if in_pieces(group, overwrites):
        return list(lower_pieces(group, in_memory, schedule))
    split = split_of(group, target)
    if split is None:
        lowering = GroupLowering(group, in_memory, overwrites)
        return [(kernel, tuple(lowering.operands)) for kernel in lowering.kernels(schedule)]
    found: list[tuple[Kernel, tuple[Node, ...]]] = []
    partials: list[Node | None] = []
    while not partials or None in partials:
        found.append(_partial_kernel(group, in_memory, split, partials, schedule))
    found.append(_last_kernel(group, in_memory, overwrites, split, partials, schedule))
    return found


# ---- whether, and where


def split_of(group: Group, target: Capabilities) -> Split | None:
    """The blocks into which the reductions of a group are cut, as the target has it; None where one loop is as good."""
    space = group.space
    if group.kind != "reduction" or space is None or not all(_may_wait(root, space) for root in group.roots):
        return None
    shape, axes = space
    if is_symbolic(shape):
        return None
    extents = tuple(shape[k] for k in axes)
    last = max(k for k in axes if shape[k] > 1)
    beside = math.prod(shape[last + 1 :])  # elements of a row that is reduced with others of its kind
    length, kept = math.prod(extents), math.prod(shape) // math.prod(extents)
    positions = any(map(_is_position, group.roots))
    if positions and not target.splits_positions:
        return None
    # The first of equal elements is in the first block that has one, unless blocks have phases.
    phases = _phases(shape[last], beside) if beside > 1 and not positions else 1
    part = target.part_of(length // phases, kept * phases, beside * phases)
    return _cut(extents, part, axes.index(last), phases) if part else None


def _may_wait(root: Node, space: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether the root can be computed from partial results: a reduction that combines them, or one that only reads
    results."""
    return bool(reduced_axes(root)) or (root.shape != space[0] and root.kind != "reduction")


def _is_position(root: Node) -> bool:
    return root.op is not None and bool(reduced_axes(root)) and root.op.combine.startswith("arg")


def _cut(extents: Sequence[int], most: int, last: int, phases: int) -> Split | None:
    """Blocks of up to `most` rows of `phases`: whole axes from the last one on, and a part of the axis before them."""
    sizes = _with_phases(extents, last, phases)
    axis = next(k for k in range(len(sizes)) if math.prod(sizes[k + 1 :]) <= most)
    size, inner = sizes[axis], math.prod(sizes[axis + 1 :])
    rows = min(size, most // inner)
    whole = _divisor(size, rows)
    rows = whole if whole > rows // 4 else rows
    blocks = (*sizes[:axis], -(-size // rows), phases)
    worth = math.prod(blocks) > 1 and rows * inner > 1
    return Split(axis, rows, blocks, last, phases) if worth else None


def _phases(size: int, beside: int) -> int:
    """Rows that are taken for one: as many as fill whole vectors, if the axis is a multiple of those."""
    most = cost.SPLIT_PHASES if beside < cost.SPLIT_NARROW else 1
    fits = [n for n in range(most, 0, -1) if size % n == 0]
    return next((n for n in fits if n * beside % 16 == 0), fits[0])


def _divisor(size: int, most: int) -> int:
    return next(n for n in range(min(most, size), 0, -1) if size % n == 0)


def _with_phases(extents: Sequence[int], last: int, phases: int) -> tuple[int, ...]:
    return tuple(n // phases if k == last else n for k, n in enumerate(extents))


# ---- kernels


class _Blocks(LoopBuilder):
    """Builds reductions in parts: those with a partial result in memory combine it, those that depend on nothing
    without one make theirs, and the others wait."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.split = split
        self.block: Index | None = None  # of the block that makes partial results
        self.partials: list[Callable[[Index], Expr] | None] = []  # value of a partial result at a block, by reduction
        self.made: dict[int, Expr] = {}  # partial results that this kernel makes, by reduction
        self._count = 0
        self._waiting: set[Expr] = set()

    def reduce(self, op: str, extents: Sequence[int], body: Callable[[tuple[Expr, ...]], Expr]) -> Expr:
        number, self._count = self._count, self._count + 1
        partial = self.partials[number] if number < len(self.partials) else None
        if partial is not None:
            return (
                self._of_positions(op, extents, body, partial) if op.startswith("arg") else self._of_blocks(op, partial)
            )
        assert self.block is not None
        split, (*before, block, phase) = self.split, self.block
        sizes = _with_phases(extents, split.last, split.phases)
        size = sizes[split.axis]
        (first, *inner), variables = self.variables("r", (split.rows, *sizes[split.axis + 1 :]))
        row = self.add(self.mul(block, split.rows), first)

        def at(row: Expr) -> Expr:
            index = [*before, row, *inner]
            index[split.last] = self.add(self.mul(index[split.last], split.phases), phase)
            return body(tuple(index))

        if size % split.rows:
            inside = self.lt(row, size)
            value = self.under(inside, lambda: at(self.bounded(row, size)))
            value = self.select(inside, value, identity(op.removeprefix("arg"), value.dtype))
        else:
            value = at(row)
        result = self.reduction_result(op, value, variables)
        if not value.depends & self._waiting:
            self.pending.append(Reduce(result, op, variables, value))
            self.made[number] = result
            if op.startswith("arg"):
                first = ravel(self, (*before, self.mul(block, split.rows)), sizes[: split.axis + 1])
                self.made[number] = self.add(self.mul(first, math.prod(sizes[split.axis + 1 :])), result)
        self._waiting.add(result)
        return result

    def _of_blocks(self, op: str, partial: Callable[[Index], Expr]) -> Expr:
        return super().reduce(op, self.split.blocks, partial)

    def _of_positions(
        self,
        op: str,
        extents: Sequence[int],
        body: Callable[[tuple[Expr, ...]], Expr],
        partial: Callable[[Index], Expr],
    ) -> Expr:
        """The position of the extreme, from those of each block: their elements are computed once more."""
        size = math.prod(extents)

        def element(block: Index) -> Expr:
            return body(unravel(self, self.bounded(partial(block), size), tuple(extents)))

        return partial(unravel(self, self._of_blocks(op, element), self.split.blocks))


@record(frozen=False)
class _Stage:
    """A kernel being made: its lowering, and the index of the results."""

    lowering: GroupLowering
    builder: _Blocks
    index: Index
    vars: tuple[Expr, ...]


def _stage(
    group: Group,
    in_memory: Callable[[Node], bool],
    overwrites: Mapping[Node, Node],
    split: Split,
    partials: Sequence[Node | None],
) -> _Stage:
    builder = _Blocks(split)
    lowering = GroupLowering(group, in_memory, overwrites, builder)
    index, vars_ = lowering.row_index()

    def reader(node: Node) -> Callable[[Index], Expr]:
        return lambda block: builder.load(lowering.buffer(node), lowering.flat((*block, *index), node.shape))

    builder.partials = [None if node is None else reader(node) for node in partials]
    return _Stage(lowering, builder, index, vars_)


def _partial_kernel(
    group: Group,
    in_memory: Callable[[Node], bool],
    split: Split,
    partials: list[Node | None],
    schedule: Schedule,
) -> tuple[Kernel, tuple[Node, ...]]:
    """The kernel of the reductions of this pass; `partials` gets the nodes of its results."""
    inside = Group(group.roots, group.reads, group.inlined, local=set(group.roots))  # results are stored at the end
    stage = _stage(inside, in_memory, {}, split, partials)
    lowering, builder = stage.lowering, stage.builder
    builder.block, block_vars = lowering.loop_vars(split.blocks)
    for root in group.roots:
        lowering.root(root, lowering.index_of(root, stage.index), [])
    partials += [None] * (builder._count - len(partials))
    stores = []
    for number, made in builder.made.items():
        shape = (*split.blocks, *(extent(k) if k.op == "var" else 1 for k in stage.index))
        node = partials[number] = input_node(Aval(shape, made.dtype), "partial")
        at = lowering.flat((*builder.block, *stage.index), shape)
        stores.append(Store(lowering.buffer(node, "out"), at, made))
    return _kernel(stage, (*block_vars, *stage.vars), stores, schedule)


def _last_kernel(
    group: Group,
    in_memory: Callable[[Node], bool],
    overwrites: Mapping[Node, Node],
    split: Split,
    partials: Sequence[Node | None],
    schedule: Schedule,
) -> tuple[Kernel, tuple[Node, ...]]:
    stage = _stage(group, in_memory, overwrites, split, partials)
    stores: list[Store] = []
    for root in group.roots:
        stage.lowering.root(root, stage.lowering.index_of(root, stage.index), stores)
    return _kernel(stage, stage.vars, stores, schedule)


def _kernel(
    stage: _Stage, vars_: tuple[Expr, ...], stores: Sequence[Store], schedule: Schedule
) -> tuple[Kernel, tuple[Node, ...]]:
    """The kernel that makes the stores, with the reductions and operands that they need."""
    used = set(expressions(stores))
    needed: list[Reduce] = []
    for stmt in reversed(stage.builder.pending):
        if stmt.result in used:
            needed.insert(0, stmt)
            used |= set(expressions([stmt]))
    names = {store.buffer.name for store in stores} | {e.attr.name for e in used if e.op == "load"}
    stage.lowering.operands = {n: b for n, b in stage.lowering.operands.items() if b.name in names}
    return stage.lowering.finish(serial(vars_, [*needed, *stores]), schedule), tuple(stage.lowering.operands)
