"""A fusion group as a loop-dialect kernel: inlined nodes are composed through the `lower` column of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence

from ...graph import facts
from ...graph.facts import reduced_axes
from ...graph.ir import Node
from ...loops.builder import LoopBuilder
from ...loops.ir import Buffer, Expr, For, Kernel, Reduce, Scan, Stmt, Store, args_of, expressions, statements
from ...loops.nest import Body, Fill, build_kernel, build_scan, build_scatter, plain_store
from ...record import replace
from ...sizes.dims import is_dim, same
from ...walk import reachable
from .. import cost
from ..fusion.group import Group, form_of
from ..kernel_cost import kernel_cost
from .expressions import Expressions, Index, Load, unravel
from .iteration_shape import in_shape_of_source

TURN = 256  # elements of some tiles before their readers run (see _tiles_in_turns); 128 to 1024: within 8 %
TILE_LANES = 8  # tiles in lanes: one vector of their 64-bit products


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

    def kernels(self, lanes: Callable[[list[Expr]], int]) -> list[Kernel]:
        kind = self.group.kind
        if kind == "scan":
            return [self._scan(lanes)]
        if kind == "scatter":
            return self._scatter(lanes)
        if kind == "random":
            return self._tiles()
        return [self._map(lanes)]

    def _map(self, lanes: Callable[[list[Expr]], int]) -> Kernel:
        """One loop over the results; for a row group, stages over each row inside of it."""
        shape, axes = self.group.space or (self.group.shape, ())
        nodes = self.group.roots
        if len(nodes) == 1 and not axes and nodes[0].kind != "reduction":
            source = in_shape_of_source(nodes[0], lambda n: n.op is None or (n is not nodes[0] and self.in_memory(n)))
            if source is not nodes[0]:
                return self._reshaped(nodes[0], source, lanes)
        index, vars_ = self.row_index()
        full = [n for n in nodes if axes and not reduced_axes(n) and n.shape == shape]
        stages: list[Reduce | Fill] = []
        stores: list[Store] = []
        for node in nodes:
            if node in full:
                if self._kept_in_scratch(node, nodes):
                    stages.append(self._scratch_row(node, shape, axes, index))
                continue
            self.root(node, self.index_of(node, index), stores)
            stages += self.s.pending
            self.s.pending.clear()
        results = [n for n in full if n not in self.group.local and n not in self._written]
        if results:
            inner, inner_vars = self._inner(shape, axes, index)
            fills = [Store(self.buffer(n, "out"), self.flat(inner, shape), self._full_value(n, inner)) for n in results]
            stages += [*self.s.pending, Fill(inner_vars, tuple(fills))]
        body = Body(vars_, tuple(stages), tuple(stores))
        every: tuple[Stmt, ...] = (*stores, *body.reduces)
        every += tuple(store for stage in stages if isinstance(stage, Fill) for store in stage.stores)
        return self.finish(build_kernel(self.s, (), body, lanes=lanes(expressions(every))))

    def _reshaped(self, node: Node, source: Node, lanes: Callable[[list[Expr]], int]) -> Kernel:
        """The kernel of a reshaped node, over the shape of `source`, whose elements are those of the result in the same
        order."""
        index, vars_ = self.loop_vars(source.shape)
        store = Store(self.buffer(node, "out"), self.flat(index, source.shape), self.compute(source, index))
        body = Body(vars_, tuple(self.s.pending), (store,))
        self.s.pending.clear()
        return self.finish(build_kernel(self.s, (), body, lanes=lanes(expressions((store, *body.reduces)))))

    def row_index(self) -> tuple[Index, tuple[Expr, ...]]:
        """Index of a result, or of a row in the space of a row group, and its variables."""
        shape, axes = self.group.space or (self.group.shape, ())
        return self.loop_vars(tuple(1 if k in axes else n for k, n in enumerate(shape)))

    def root(self, node: Node, at: Index, stores: list[Store]) -> None:
        """Compute a root once at this index, and store it if anything outside reads it."""
        self._memo[(node, at, None)] = value = self.compute(node, at)
        if node not in self.group.local:
            stores.append(Store(self.buffer(node, "out"), self.flat(at, node.shape), value))

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

    def _scratch_row(self, node: Node, shape: tuple[int, ...], axes: tuple[int, ...], index: Index) -> Fill:
        inner, inner_vars = self._inner(shape, axes, index)
        value = self.compute(node, inner)
        if node not in self.group.local and node not in self.overwrites:
            self._written.add(node)
            return Fill(inner_vars, (Store(self.buffer(node, "out"), self.flat(inner, shape), value),))
        row = Buffer(f"row{len(self._rows)}", node.dtype, math.prod(shape[k] for k in axes), "scratch")
        self._rows[node] = row
        return Fill(inner_vars, (Store(row, self._in_row(inner), value),))

    def _in_row(self, index: Index) -> Expr:
        """Position in a scratch row: the reduced axes alone."""
        shape, axes = self.group.space or ((), ())
        return self.flat(tuple(index[k] for k in axes), tuple(shape[k] for k in axes))

    def _scan(self, lanes: Callable[[list[Expr]], int]) -> Kernel:
        (node,) = self.group.roots
        assert node.op is not None
        index, vars_ = self.loop_vars(node.shape)
        axis = node.params["axis"]
        value = self.s.without_bounds(self.compute(node, index), {})
        out = self.buffer(node, "out")
        flat = self.flat(index, node.shape)
        if node.shape[axis] == 1:
            return self.finish(_serial(Store(out, flat, value), vars_))
        reverse = bool(node.params.get("reverse", False))
        scan = Scan(out, flat, node.op.combine, index[axis], value, reverse)
        return self.finish(build_scan(scan, vars_, lanes=lanes(expressions([scan]))))

    def _scatter(self, lanes: Callable[[list[Expr]], int]) -> list[Kernel]:
        """The kernel of a scatter: copies the base, then applies the updates in index order, so it is deterministic."""
        (node,) = self.group.roots
        assert node.op is not None
        base, _, updates = node.inputs
        index, vars_ = self.loop_vars(node.shape)
        out = self.buffer(node, "out")
        old = Store(out, self.flat(index, node.shape), self.at(base, index))
        copy = build_kernel(self.s, (), Body(vars_, (), (old,)), lanes=lanes(expressions([old])))
        if updates.aval.size == 0:
            return [self.finish(copy)]
        at, update_vars = self.loop_vars(updates.shape)
        loads = [Load(self, operand) for operand in node.inputs]
        target, value = node.op.lower(self.s, at, *loads, **node.params)
        position = self.flat(tuple(target), node.shape)
        if node.op.combine != "set":
            combine = getattr(self.s, {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}[node.op.combine])
            value = combine(self.s.load(out, position), value)
        update = plain_store(self.s, Store(out, position, value), {})
        free = [v for v in update_vars if not _moves_data(position, v)]
        bound = [v for v in update_vars if v not in free]
        apply = build_scatter(self.s, update, free, bound, lanes=lanes(expressions([update])))
        first = self.finish(copy)
        self.operands = {n: replace(b, role="inout") if b.name == out.name else b for n, b in self.operands.items()}
        return [first, self.finish(apply)]

    def _tiles(self) -> list[Kernel]:
        """Random bits in blocks: a loop over whole tiles, then the rest element by element."""
        node, *readers = self.group.roots
        if readers:
            return self._tiles_in_turns(node, readers)
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
            lanes = TILE_LANES if is_dim(whole) or whole >= TILE_LANES else 1
            loop = For(t, tuple(stores), vector=lanes > 1)
            kernels.append(self.finish(Kernel((), (loop,), t, lanes, lanes)))
        if not same(rest, 0):
            k = self.s.var("k", rest)
            position = self.s.add(k, whole * op.tile)
            flat = {**node.params, "shape": (node.aval.size,)}
            kernels.append(
                self.finish(_serial(Store(out, position, op.lower(self.s, (position,), *loads, **flat)), (k,)))
            )
        return kernels

    def _tiles_in_turns(self, node: Node, readers: Sequence[Node]) -> list[Kernel]:
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
                tiles = tuple(Store(bits, self.s.add(first, k), word) for k, word in enumerate(words))
                body.append(For(t, tiles, vector=True))
                self._memo[(node, index, None)] = value = self.s.load(bits, i)
                if node not in self.group.local:
                    stores.append(Store(self.buffer(node, "out"), position, value))
            else:
                self.root(node, index, stores)
            for reader in readers:
                self.root(reader, index, stores)
            memo: dict[Expr, Expr] = {}
            body.append(For(i, tuple(plain_store(self.s, store, memo) for store in stores), vector=True))
            kernels.append(self.finish(Kernel((), (For(turn, tuple(body)),), turn, TILE_LANES)))
        return kernels

    def finish(self, kernel: Kernel) -> Kernel:
        tiles = {
            t.buffer.name: t.buffer
            for t in statements(kernel.body)
            if isinstance(t, Store) and t.buffer.role == "scratch"
        }
        rows = {b.name: b for b in self._rows.values()}
        buffers = (*self.operands.values(), *(rows | tiles).values())
        return replace(kernel, buffers=buffers, cost=kernel_cost(kernel.body, kernel.lanes))


def reads_through(node: Node, wanted: Node, roots: Container[Node]) -> bool:
    """Whether the expression of `node` reaches `wanted` without passing another root."""
    return any(n is wanted for n in reachable(node.inputs, lambda n: () if n in roots else n.inputs))


def inline_cost(node: Node, in_memory: Callable[[Node], bool]) -> float:
    """Nanoseconds to compute one element of a node from memory."""

    def computed(n: Node) -> list[Node]:
        return [operand for operand in n.inputs if operand.op is not None and not in_memory(operand)]

    return sum(map(facts.element_cost, reachable([node], computed)), 0.0)


def _serial(inner: Stmt, vars_: tuple[Expr, ...]) -> Kernel:
    """A plain loop nest, no lanes."""
    body: tuple[Stmt, ...] = (inner,)
    for var in reversed(vars_):
        body = (For(var, body),)
    return Kernel((), body, vars_[0] if vars_ else None)


def _moves_data(position: Expr, var: Expr) -> bool:
    """Whether a loaded index uses the variable (so that two iterations may hit one element)."""
    if var not in position.depends:
        return True
    return any(expr.op == "load" and var in expr.depends for expr in reachable([position], args_of))
