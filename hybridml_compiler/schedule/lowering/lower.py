"""A fusion group as a loop-dialect kernel: inlined nodes are composed through the `lower` column of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

from ...graph import facts
from ...graph.facts import reduced_axes
from ...graph.ir import Node
from ...loops.builder import LoopBuilder
from ...loops.ir import Buffer, Expr, For, Kernel, Reduce, Scan, Stmt, Store, serial, statements
from ...loops.scalar import COMBINE
from ...record import replace
from ...sizes.dims import is_dim, same
from ...walk import postorder, reachable
from .. import cost
from ..fusion.group import Group, form_of
from ..fusion.in_place import STORE, window_of
from ..kernel_cost import kernel_cost
from ..kernels.library import Schedule
from .expressions import Expressions, Index, Load, unravel
from .iteration_shape import in_shape_of_source

TURN = 256  # elements of some tiles before their readers run (see _tiles_in_turns); 128 to 1024: within 8 %


class GroupLowering(Expressions):
    """Builds the kernel of one group. Buffers are named by position, so that equal kernels have equal text."""

    def __init__(
        self,
        group: Group,
        in_memory: Callable[[Node], bool],
        overwrites: Mapping[Node, Node],
        builder: LoopBuilder | None = None,
    ) -> None:
        super().__init__(in_memory, overwrites, group.roots, builder)
        self.group = group
        self._rows: dict[Node, Buffer] = {}  # values of the current row that later stages read again
        self._written: set[Node] = set()  # results whose current row is written already, and read again where it is

    def kept(self, node: Node, index: Index) -> Expr | None:
        if node in self._rows:
            return self.s.load(self._rows[node], self._in_row(index))
        return self.s.load(self.buffer(node), self.flat(index, node.shape)) if node in self._written else None

    # ---- kernels

    def kernels(self, schedule: Schedule) -> list[Kernel]:
        kind = self.group.kind
        if kind == "scan":
            return [self._scan(schedule)]
        if kind == "scatter":
            return self._scatter(schedule)
        if kind == "random":
            return self._tiles(schedule)
        return [self._map(schedule)]

    def _map(self, schedule: Schedule) -> Kernel:
        """One loop over the results; for a row group, stages over each row inside of it."""
        shape, axes = self.group.space or (self.group.shape, ())
        nodes = self.group.roots
        if len(nodes) == 1 and not axes and nodes[0].kind != "reduction" and nodes[0].op is not STORE:
            given = partial(_is_given, nodes[0], self.in_memory)
            source = in_shape_of_source(nodes[0], given)
            if source is not nodes[0]:
                # A node that is made here may be one of the graph, which is in memory by now or only later.
                own = set(postorder(nodes, lambda n: () if given(n) else n.inputs))
                in_memory = self.in_memory
                self.in_memory = lambda n: n in own and in_memory(n)
                return self._reshaped(nodes[0], source, schedule)
        index, vars_ = self.row_index()
        full = [n for n in nodes if axes and not reduced_axes(n) and n.shape == shape]
        stages: list[Stmt] = []
        stores: list[Store] = []
        for node in nodes:
            if node in full:
                if self._kept_in_scratch(node, nodes):
                    stages += self._scratch_row(node, shape, axes, index)
                continue
            self.root(node, self.index_of(node, index), stores)
            stages += self.s.pending
            self.s.pending.clear()
        results = [n for n in full if n not in self.group.local and n not in self._written]
        if results:
            inner, inner_vars = self._inner(shape, axes, index)
            fills = [Store(*self.place(n, inner), self._full_value(n, inner)) for n in results]
            stages += [*self.s.pending, *serial(inner_vars, fills)]
        return self.finish(serial(vars_, [*stages, *stores]), schedule)

    def _reshaped(self, node: Node, source: Node, schedule: Schedule) -> Kernel:
        """The kernel of a reshaped node, over the shape of `source`, whose elements are those of the result in the same
        order."""
        index, vars_ = self.loop_vars(source.shape)
        store = Store(self.buffer(node, "out"), self.flat(index, source.shape), self.compute(source, index))
        body = serial(vars_, [*self.s.pending, store])
        self.s.pending.clear()
        return self.finish(body, schedule)

    def row_index(self) -> tuple[Index, tuple[Expr, ...]]:
        """Index of a result, or of a row in the space of a row group, and its variables."""
        shape, axes = self.group.space or (self.group.shape, ())
        return self.loop_vars(tuple(1 if k in axes else n for k, n in enumerate(shape)))

    def root(self, node: Node, at: Index, stores: list[Store]) -> None:
        """Compute a root once at this index, and store it if anything outside reads it."""
        self._memo[(node, at, None)] = value = self.compute(node, at)
        if node not in self.group.local:
            stores.append(Store(*self.place(node, at), value))

    def place(self, node: Node, at: Index) -> tuple[Buffer, Expr]:
        """The buffer and the position of an element of a root: in memory of its own, or in a slice of an array."""
        if node.op is not STORE:
            return self.buffer(node, "out"), self.flat(at, node.shape)
        memory = self.overwrites[node]
        return self.buffer(memory, "out"), self.flat(window_of(node, at, self.s), memory.shape)

    def index_of(self, node: Node, index: Index) -> Index:
        """The index of a row or column form for the current row."""
        shape, axes = self.group.space or (self.group.shape, ())
        if form_of(node.shape, shape, axes) == "column":
            return tuple(i for k, i in enumerate(index) if k not in axes)
        return index

    def _inner(self, shape: tuple[int, ...], axes: tuple[int, ...], index: Index) -> tuple[Index, tuple[Expr, ...]]:
        """Index into the space with fresh variables along the row, and those variables."""
        along, inner_vars = self.loop_vars(tuple(n if k in axes else 1 for k, n in enumerate(shape)))
        return tuple(a if k in axes else i for k, (a, i) in enumerate(zip(along, index, strict=True))), inner_vars

    def _full_value(self, node: Node, inner: Index) -> Expr:
        row = self._rows.get(node)
        return self.compute(node, inner) if row is None else self.s.load(row, self._in_row(inner))

    def _kept_in_scratch(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Values of a row that a reduction reads and that are wanted again: kept, if that is cheaper than computing."""
        shape, axes = self.group.space or ((), ())
        nbytes = node.dtype.itemsize * math.prod(shape[k] for k in axes)
        read = any(reduced_axes(n) and reads_through(n, node, self.group.roots) for n in nodes)
        return (
            read
            and not is_dim(nbytes)
            and nbytes <= cost.SCRATCH_BYTES
            and inline_cost(node, self.in_memory) >= facts.EXPENSIVE
        )

    def _scratch_row(self, node: Node, shape: tuple[int, ...], axes: tuple[int, ...], index: Index) -> tuple[Stmt, ...]:
        inner, inner_vars = self._inner(shape, axes, index)
        value = self.compute(node, inner)
        if node not in self.group.local and node not in self.overwrites:
            self._written.add(node)
            return serial(inner_vars, [Store(self.buffer(node, "out"), self.flat(inner, shape), value)])
        row = Buffer(f"row{len(self._rows)}", node.dtype, math.prod(shape[k] for k in axes), "scratch")
        self._rows[node] = row
        return serial(inner_vars, [Store(row, self._in_row(inner), value)])

    def _in_row(self, index: Index) -> Expr:
        """Position in a scratch row: the reduced axes alone."""
        shape, axes = self.group.space or ((), ())
        return self.flat(tuple(index[k] for k in axes), tuple(shape[k] for k in axes))

    def _scan(self, schedule: Schedule) -> Kernel:
        (node,) = self.group.roots
        assert node.op is not None
        index, vars_ = self.loop_vars(node.shape)
        axis = node.params["axis"]
        value = self.compute(node, index)
        out = self.buffer(node, "out")
        flat = self.flat(index, node.shape)
        if node.shape[axis] == 1:
            return self.finish(serial(vars_, [Store(out, flat, value)]), schedule)
        reverse = bool(node.params.get("reverse", False))
        scan = Scan(out, flat, node.op.combine, index[axis], value, reverse)
        return self.finish(serial([v for v in vars_ if v is not scan.var], [scan]), schedule)

    def _scatter(self, schedule: Schedule) -> list[Kernel]:
        """The kernels of a scatter: one copies the base, unless it is in the same memory, one applies the updates in
        index order, so it is deterministic."""
        (node,) = self.group.roots
        assert node.op is not None
        base, _, updates = node.inputs
        index, vars_ = self.loop_vars(node.shape)
        out = self.buffer(node, "out")
        in_place = self.overwrites.get(node) is self.overwrites.get(base, base)
        copy = serial(vars_, [] if in_place else [Store(out, self.flat(index, node.shape), self.at(base, index))])
        if updates.aval.size == 0:
            return [self.finish(copy, schedule)]
        at, update_vars = self.loop_vars(updates.shape)
        loads = [Load(self, operand) for operand in node.inputs]
        target, value = node.op.lower(self.s, at, *loads, **node.params)
        position = self.flat(tuple(target), node.shape)
        if node.op.combine != "set":
            value = getattr(self.s, COMBINE[node.op.combine])(self.s.load(out, position), value)
        before = [] if in_place else [self.finish(copy, schedule)]
        self.operands = {n: replace(b, role="inout") if b.name == out.name else b for n, b in self.operands.items()}
        return [*before, self.finish(serial(update_vars, [Store(out, position, value)]), schedule)]

    def _tiles(self, schedule: Schedule) -> list[Kernel]:
        """Random bits in blocks: a loop over whole tiles, then the rest element by element."""
        node, *readers = self.group.roots
        if readers:
            return self._tiles_in_turns(node, readers, schedule)
        op = node.op
        assert op is not None and op.lower_tile is not None
        loads = [Load(self, operand) for operand in node.inputs]
        out = self.buffer(node, "out")
        whole, rest = divmod(node.aval.size, op.tile)
        kernels = []
        if not same(whole, 0):
            t = self.s.var("t", whole)
            first = self.s.mul(t, op.tile)
            values = op.lower_tile(self.s, t, *loads, **node.params)
            stores = [Store(out, self.s.add(first, k), value) for k, value in enumerate(values)]
            kernels.append(self.finish(serial([t], stores), schedule))
        if not same(rest, 0):
            k = self.s.var("k", rest)
            position = self.s.add(k, whole * op.tile)
            flat = {**node.params, "shape": (node.aval.size,)}
            value = op.lower(self.s, (position,), *loads, **flat)
            kernels.append(self.finish(serial([k], [Store(out, position, value)]), schedule))
        return kernels

    def _tiles_in_turns(self, node: Node, readers: Sequence[Node], schedule: Schedule) -> list[Kernel]:
        """Some tiles, then the readers of their elements, alternately: bits that nothing else reads never leave L1.

        Memory works on the operands of the readers while the bits are computed ([Note: Lowering]).
        """
        op = node.op
        assert op is not None and op.lower_tile is not None
        loads = [Load(self, operand) for operand in node.inputs]
        turns, rest = divmod(node.aval.size, TURN)
        kernels = []
        for start, count, size in ((0, turns, TURN), (turns * TURN, 1, rest)):
            if same(count * size, 0):
                continue
            turn, i = self.s.var("turn", count), self.s.var("i", size)
            position = self.s.add(self.s.add(self.s.mul(turn, size), start), i)
            index = unravel(self.s, position, node.shape)
            body: list[Stmt] = []
            stores: list[Store] = []
            if same(size, TURN):
                bits = Buffer("bits", node.dtype, TURN, "scratch")
                t = self.s.var("t", TURN // op.tile)
                tile = self.s.add(self.s.mul(turn, TURN // op.tile), t)
                first = self.s.mul(t, op.tile)
                words = op.lower_tile(self.s, tile, *loads, **node.params)
                body += serial([t], [Store(bits, self.s.add(first, k), word) for k, word in enumerate(words)])
                self._memo[(node, index, None)] = value = self.s.load(bits, i)
                if node not in self.group.local:
                    stores.append(Store(self.buffer(node, "out"), position, value))
            else:
                self.root(node, index, stores)
            for reader in readers:
                self.root(reader, index, stores)
            kernels.append(self.finish(serial([turn], [*body, *serial([i], stores)]), schedule))
        return kernels

    def finish(self, body: Sequence[Stmt], schedule: Schedule) -> Kernel:
        """The kernel of these statements, whose loops are serial, as the target schedules it."""
        homes = {buffer.name: buffer for buffer in self.operands.values()}
        scratch = [t.buffer for t in statements(body) if isinstance(t, Store) and t.buffer.role == "scratch"]
        homes |= {buffer.name: buffer for buffer in scratch}
        kernel = schedule(self.s, Kernel(tuple(homes.values()), self._plain(body, homes, {})))
        return kernel.rescheduled(cost=kernel_cost(kernel.body, kernel.lanes))

    def _plain(self, body: Sequence[Stmt], homes: Mapping[str, Buffer], memo: dict[Expr, Expr]) -> tuple[Stmt, ...]:
        """The statements without the promised bounds, which are used up by now, and with the final roles of buffers."""
        made: list[Stmt] = []
        for stmt in body:
            match stmt:
                case For(var, inner, kind):
                    made.append(For(var, self._plain(inner, homes, memo), kind))
                case Reduce(result, op, variables, value, kind):
                    made.append(Reduce(result, op, variables, self.s.without_bounds(value, memo), kind))
                case Store(buffer, index, value):
                    index, value = self.s.without_bounds(index, memo), self.s.without_bounds(value, memo)
                    made.append(Store(homes[buffer.name], index, value))
                case Scan(buffer, index, op, var, value, reverse):
                    index, value = self.s.without_bounds(index, memo), self.s.without_bounds(value, memo)
                    made.append(Scan(homes[buffer.name], index, op, var, value, reverse))
        return tuple(made)


def reads_through(node: Node, wanted: Node, roots: Container[Node]) -> bool:
    """Whether the expression of `node` reaches `wanted` without passing another root."""
    return any(n is wanted for n in reachable(node.inputs, lambda n: () if n in roots else n.inputs))


def _is_given(root: Node, in_memory: Callable[[Node], bool], node: Node) -> bool:
    return node.op is None or (node is not root and in_memory(node))


def inline_cost(node: Node, in_memory: Callable[[Node], bool]) -> float:
    """Nanoseconds to compute one element of a node from memory."""

    def computed(n: Node) -> list[Node]:
        return [operand for operand in n.inputs if operand.op is not None and not in_memory(operand)]

    return sum(map(facts.element_cost, reachable([node], computed)), 0.0)
