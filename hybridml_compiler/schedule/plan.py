"""Planning of a graph (see launch.py): fusion, the loop nests, which launches are one, and the memory of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..aval import Aval
from ..errors import CompileError
from ..graph.checks import fails
from ..graph.ir import Graph, Node, apply, input_node
from ..loops.ir import Kernel, KernelSpec
from ..ops.table import OPS
from ..record import replace
from ..sizes.dims import hint
from ..sizes.steps import most_in, most_of
from .control import Loop, control_of, why_in_order
from .fusion.batch_fusion import chain_of, form_chains
from .fusion.batch_split import in_parts
from .fusion.epilogue import Fused, is_idle, lower_epilogue
from .fusion.fuse import Fusion, fuse
from .fusion.group import Group
from .fusion.horizontal_fusion import form_regions, region_of
from .fusion.in_place import InPlace, store_of, with_stores
from .fusion.prologue import lower_prologue
from .fusion.row_fusion import form_rows, may_share_rows, rows_of
from .fusion.steps import Step, Task, fills_cache
from .fusion.tile_fusion import form_tiles, operands_of, tiles_of
from .host_call import fixed_from, fixed_params, opaque_of
from .kept import Kept, Reuse
from .kernels.gemm import Product
from .kernels.library import Capabilities
from .launch import SIZES, STATUS_BYTES, Buffer, BufferRef, Copy, Launch, Plan
from .lowering.memo import LoweringMemo
from .lowering.split import lower_group
from .memory import Interval, plan_arena

if TYPE_CHECKING:
    from .kernels.library import Call

Begin = Callable[..., object]  # of a spec, and whether it is a body's
NO_DONATIONS: Mapping[int, int] = {}


def make_plan(
    graph: Graph,
    donate: Mapping[int, int],
    target: Capabilities,
    begin: Begin = lambda spec, is_body=False: None,
    carried: Sequence[Node] | None = None,
    reuse: Reuse | None = None,
    is_body: bool = False,
) -> Plan:
    """`donate`: output position -> input position whose memory it is written to.

    `begin` is called with the spec of every launch, once or more, as soon as it is known: most of them long before the
    plan is complete.

    `carried`: inputs of the body of a loop that come from the step before; its launches may be cut into slots.
    `reuse` counts what was known from the plans before.
    """
    _check_donations(graph, donate)
    in_place, donated = InPlace({}, {}), dict[Node, Node]()
    if target.in_place or is_body:
        graph, in_place = with_stores(graph, donate)
        donated = _first_claims(graph, donate)
    fusion = fuse(graph, donated, target, in_place, is_body=is_body)
    reuse = reuse or Reuse()
    return _Planner(graph, donate, donated, fusion, in_place, target, begin, carried, reuse, is_body).plan()


def _check_donations(graph: Graph, donate: Mapping[int, int]) -> None:
    if len(set(donate.values())) < len(donate):
        raise CompileError(f"{graph.name}: one input is donated to two outputs: {dict(donate)}; give each its own")
    for out, source in donate.items():
        made, target = graph.outputs[out].aval, graph.inputs[source].aval
        if (made.shape, made.dtype) != (target.shape, target.dtype):
            raise CompileError(
                f"{graph.name}: output {out} is {made} and cannot overwrite input {source}, which is {target}"
            )


def _first_claims(graph: Graph, donate: Mapping[int, int]) -> dict[Node, Node]:
    """Output node -> input node, for outputs that a kernel can write in place: computed ones, each once."""
    claims: dict[Node, Node] = {}
    for out, source in donate.items():
        node = graph.outputs[out]
        if node.op is not None:
            claims.setdefault(node, graph.inputs[source])
    return claims


class _Planner:
    def __init__(
        self,
        graph: Graph,
        donate: Mapping[int, int],
        donated: dict[Node, Node],
        fusion: Fusion,
        in_place: InPlace,
        target: Capabilities,
        begin: Begin,
        carried: Sequence[Node] | None,
        reuse: Reuse,
        is_body: bool,
    ) -> None:
        self.is_body = is_body
        self.graph, self.donate, self.donated, self.fusion = graph, donate, donated, fusion
        self.in_place = in_place
        self.target, self.carried, self.reuse = target, carried, reuse
        self.begin = partial(begin, is_body=True) if is_body else begin
        self.materialised = fusion.materialised
        self.updates = {s: n for n in self.materialised if (s := store_of(n)) is not None}  # by their stores
        self.kept = (
            Kept() if any(aval.symbolic for aval in {node.aval for node in graph.nodes()}) else target.kept.trimmed()
        )
        self.memory = self._memory()
        self.alike = LoweringMemo(self.in_memory, self.memory, self.kept, reuse)
        self._known_alone: dict[int, tuple[KernelSpec, KernelSpec, Mapping[int, tuple[int, int]]]] = {}  # by identity
        self.position = {n: k for k, n in enumerate(graph.nodes())}
        given = {n for node in self.position if node.kind == "control" for n in node.inputs}
        self.constants = [n for n in self.position if n.is_constant and (n.shape or n in graph.outputs or n in given)]

    def _memory(self) -> dict[Node, Node]:
        """The array in whose memory a node is, for those that have none of their own."""
        found = dict(self.donated)
        found |= {node: self.in_place.home(node) for node in self.in_place.memory}
        return found | {store: found.get(update, update) for store, update in self.updates.items()}

    def in_memory(self, node: Node) -> bool:
        return (node.op is None and (node.is_input or bool(node.shape))) or node in self.materialised

    def plan(self) -> Plan:
        home: dict[Node, BufferRef] = {n: BufferRef("input", k) for k, n in enumerate(self.graph.inputs)}
        home |= {n: BufferRef("constant", k) for k, n in enumerate(self.constants)}
        home |= {node: home[target] for node, target in self.donated.items()}
        overwritten = {self.graph.inputs[k] for k in self.donate.values()}
        fresh: list[int] = []
        early: list[tuple[Node, BufferRef]] = []  # inputs that are outputs: copied before a kernel overwrites them
        late: list[tuple[Node, BufferRef]] = []
        for position, node in enumerate(self.graph.outputs):
            source = self.donate.get(position)
            node = node if node in home else self.memory.get(node, node)
            if source is None:
                place = BufferRef("output", len(fresh))
                fresh.append(position)
            else:
                place = home[self.graph.inputs[source]]
            if node not in home and source is None:
                home[node] = place
            elif home.get(node) != place and node.aval.size:
                (early if node.is_input and source is None else late).append((node, place))
        snapshots = list(dict.fromkeys(n for n, _ in late if n in overwritten and n.is_input))
        kept = {*home, *(n for n, _ in late)}
        tasks: list[Task] = []
        for group in self.fusion.groups:
            for task in self._tasks(group):
                tasks.append(task)
                alone = all([n in kept or not fills_cache(n, self.target) for n in task.operands])  # in no chain
                alone = alone and not may_share_rows(task.spec, self.target)
                if alone and self.carried is None and self.target.merges is None and not isinstance(task.spec, Copy):
                    self.begin(self._alone(task.spec)[0])
        checked = any(task.spec.checked for task in tasks)
        start = STATUS_BYTES if checked else 0
        parts = None if self.carried is None else in_parts(tasks, self.carried, self.graph.outputs, self.target)
        if parts is None:
            steps = self._steps(tasks, {*kept, *self.memory.values()})
        else:
            tasks, steps = parts, [Step([number]) for number in range(len(parts))]
        buffers, size = self._arena(tasks, steps, [n for n, _ in late], snapshots, home)
        arena = {what: BufferRef("arena", 0, start + buffer.offset) for what, buffer in buffers.items()}
        early += [(node, arena.pop(node)) for node in snapshots]
        saved = {node: place for node, place in early if node in snapshots}
        places: dict[Node | Step, BufferRef] = {what: place for what, place in home.items()}
        places |= arena
        launches = [_copy(home[node], place, node, self._overwrites([place])) for node, place in early]
        before = len(launches)
        launches += [self._launch(tasks, step, places) for step in steps]
        for node, place in late:
            launches.append(_copy(saved.get(node) or places[node], place, node, self._overwrites([place])))
        return Plan(
            launches,
            [n.value for n in self.constants if n.value is not None],
            [n.aval for n in self.graph.inputs],
            [self.graph.outputs[k].aval for k in fresh],
            fresh,
            start + size,
            [
                replace(b, offset=start + b.offset, first=max(before + b.first, 0), last=before + b.last)
                for b in buffers.values()
            ],
            1 if parts is None else self.target.cores,
        )

    def _steps(self, tasks: Sequence[Task], fixed: set[Node]) -> list[Step]:
        """The launches, each of one task or several. `fixed` have memory whatever happens."""
        if not self.target.fuses:
            return [Step([number]) for number in range(len(tasks))]
        form = form_chains if self.target.runs_tiles is None else form_tiles
        steps = form_regions(tasks, form(tasks, fixed, self.target), fixed, self.target)
        return form_rows(tasks, steps, self.target)

    def _tasks(self, group: Group) -> list[Task]:
        """Works of a group, each with the nodes whose memory it is given."""
        copies = [  # of arrays that updates need copies of: also of those that no element is updated of
            self._task(Copy(update.aval.nbytes), (update.inputs[0], update), group)
            for update in (self.updates.get(root) for root in group.roots)
            if update is not None and update not in self.memory
        ]
        runs = group.kind in ("control", "opaque") and any(map(fails, group.roots))  # for its errors
        if not runs and all(node.aval.size == 0 for node in group.roots):
            return copies
        if group.kind == "control" and self.target.runs_control:
            return [self._control(group)]
        if group.kind == "opaque" and (passes := self._transforms(group)) is not None:
            return passes
        if group.kind in ("control", "opaque"):
            return [self._task(*opaque_of(_by_number(group)), group)]
        if group.call is not None:
            call, left, right = group.call
            call = self.kept.calls.setdefault(call, call)
            group.call = call, left, right
            before, operands = [], [left, right]
            for k, prepared in enumerate(self.target.prepared(call)):
                if prepared is not None:
                    memory = input_node(Aval((prepared.nbytes,), dtypes.uint8))  # of no graph: it is in the arena
                    before.append(self._task(prepared, (operands[k], memory), group))
                    operands[k] = memory
            left, right = operands
            return [*before, *self._call(group, call, left, right)]
        kernels = self.alike.lowered(
            group,
            lambda: lower_group(group, self.in_memory, self.memory, self.target),
        )
        return [*copies, *(self._task(kernel, operands, group) for kernel, operands in kernels)]

    def _transforms(self, group: Group) -> list[Task] | None:
        """The passes of an operation that is Fourier transforms; None where the target has no kernels for them."""
        root = group.roots[0]
        if root.op is None or root.op.transforms is None:
            return None
        (source,) = root.inputs
        first = min(t.axis for t in root.op.transforms(source.aval, **root.params))
        aval, params = fixed_from(first, source.aval), fixed_params(root.params)
        steps = self.target.transforms(aval, root.op.transforms(aval, **params))
        if steps is None:
            return None
        nodes = [source, root, *map(input_node, steps.memory)]  # memory is of no graph: it is in the arena
        return [self._task(spec, (nodes[a], nodes[b]), group) for spec, (a, b) in steps.passes]

    def _control(self, group: Group) -> Task:
        results = _by_number(group)
        begun: list[KernelSpec] = []  # when it is known whether steps run in tiles

        def begins(spec: KernelSpec, is_body: bool = False) -> None:
            begun.append(spec)

        def planned(
            body: Graph, donate: Mapping[int, int] = NO_DONATIONS, carried: Sequence[Node] | None = None
        ) -> Plan:
            return make_plan(body, donate, self.target, begins, carried, self.reuse, is_body=True)

        spec = control_of(results, planned, self.target.cores, self.target.tiles_time)
        is_tiled = isinstance(spec, Loop) and spec.tiles is not None
        if isinstance(spec, Loop) and spec.tiles is not None:
            group.reasons.append(f"its steps run {spec.tiles}, which stay in a cache")
            begun = [launch.spec for launch in spec.body.launches if not isinstance(launch.spec, Copy)]
        for own in begun:
            self.begin(own, is_body=not is_tiled)
        if isinstance(spec, Loop) and spec.ranges == 1 and results[0].params["parallel"]:
            why = why_in_order(results) or "a step calls Python, or writes an array as a whole"
            group.reasons.append(f"its steps run in order, on one thread: {why}")
        memory = input_node(Aval((most_of(spec.memory),), dtypes.uint8))  # of no graph: it is in the arena
        return self._task(spec, (*results[0].inputs, *results, memory), group)

    def _call(self, group: Group, call: Call, left: Node, right: Node) -> list[Task]:
        """A call, with the loop nests round it or, of sums in blocks, after it."""
        steps: list[Callable[..., tuple[Kernel, tuple[Node, ...]]]] = []
        if isinstance(call, Product) and call.computed:
            steps.append(lower_prologue)
        if len(group.roots) > 1:
            steps.append(lower_epilogue)
        found: dict[Any, tuple[Kernel, tuple[Node, ...]]] = {}
        if steps:
            schedule = self.target.schedule_matrix
            made = self.alike.lowered(
                group, lambda: [lower(group, self.in_memory, self.memory, schedule) for lower in steps]
            )
            found = dict(zip(steps, made, strict=True))
        prologue, (_, *before) = found.get(lower_prologue, (None, (left, left)))
        epilogue, after = found.get(lower_epilogue, (None, (group.roots[0],)))
        if epilogue is not None and is_idle(epilogue):
            epilogue, after = None, after[:1]
        if isinstance(call, Product) and (blocks := self.target.sum_blocks(call)) > 1:
            return self._in_blocks(group, replace(call, blocks=blocks), (left, right), epilogue, after)
        if epilogue is None and prologue is None:
            return [self._task(call, (left, right, *after), group)]
        if after[0] in group.local and (passing := self.target.passing(call)) is not None:
            call, after = passing, (input_node(Aval((1,), call.dtype)), *after[1:])
        return [self._task(Fused(call, epilogue, prologue), (*before, right, *after), group)]

    def _in_blocks(
        self, group: Group, call: Product, given: tuple[Node, Node], epilogue: Kernel | None, after: tuple[Node, ...]
    ) -> list[Task]:
        """A product whose sums are in blocks, the kernel that adds these, and its epilogue as a kernel of its own."""
        sums = input_node(Aval((call.blocks, call.n), call.dtype))  # of no graph: it is in the arena
        total = apply(OPS["sum"], [sums], {"axis": (0,), "dtype": call.dtype, "keepdims": False})
        adding = lower_group(Group([total], {sums}, set()), lambda node: node is sums, {}, self.target)
        found = [self._task(call, (*given, sums), group)]
        for kernel, operands in adding:
            found.append(self._task(kernel, tuple(after[0] if n is total else n for n in operands), group))
        return found if epilogue is None else [*found, self._task(epilogue, after, group)]

    def _task(self, spec: KernelSpec, operands: tuple[Node, ...], group: Group) -> Task:
        return Task(spec, tuple(self.memory.get(node, node) for node in operands), group)

    def _arena(
        self,
        tasks: Sequence[Task],
        steps: Sequence[Step],
        copied_late: Sequence[Node],
        snapshots: Sequence[Node],
        home: Mapping[Node, BufferRef],
    ) -> tuple[dict[Node | Step, Buffer], int]:
        """(memory of each node, and of the slots of each chain, in steps; bytes in all)."""
        life: dict[Node | Step, list[int]] = {node: [-1, len(steps)] for node in snapshots}
        for number, step in enumerate(steps):
            if step.scratch and not step.tiled:
                life[step] = [number]
            for task in step.tasks:
                for node in tasks[task].operands:
                    if node not in home and node not in step.scratch:
                        life.setdefault(node, []).append(number)
        for node in copied_late:
            if node in life:
                life[node].append(len(steps))
        sizes = [
            self.target.cores * x.slot_bytes if isinstance(x, Step) else most_in(x.aval.shape) * x.aval.dtype.itemsize
            for x in life
        ]
        intervals = [Interval(n, min(x), max(x)) for n, x in zip(sizes, life.values(), strict=True)]
        shared = self.target.shares_memory
        offsets, total = plan_arena(intervals if shared else [replace(x, start=0, end=len(steps)) for x in intervals])
        buffers = {}
        for x, interval, offset in zip(life, intervals, offsets, strict=True):
            if isinstance(x, Node) and x in self.position:
                node, what = x, x.op.name if x.op else "copy of an input"
            else:  # slots of a chain, or memory that a launch works in
                makers = x.tasks if isinstance(x, Step) else steps[interval.start].tasks
                node, what = tasks[makers[0]].group.roots[0], "slots" if isinstance(x, Step) else "memory"
            held = node if node is x else None
            buffers[x] = Buffer(interval.nbytes, offset, interval.start, interval.end, what, node.where, held)
        return buffers, total

    def _launch(self, all_tasks: Sequence[Task], step: Step, home: Mapping[Node | Step, BufferRef]) -> Launch:
        tasks = [all_tasks[t] for t in step.tasks]
        reasons = [reason for task in tasks for reason in task.group.reasons]
        spec: KernelSpec
        if step.by_rows:
            spec, operands = rows_of(step, all_tasks), operands_of(step, all_tasks)
            places, sizes = [home[n] for n in operands], [n.aval.nbytes for n in operands]
            reasons.append("row by row: both read the matrix while its rows are in a cache")
        elif step.scratch:
            operands = operands_of(step, all_tasks)
            places, sizes = [home[n] for n in operands], [n.aval.nbytes for n in operands]
            own = sum(n.aval.nbytes for n in step.scratch)
            if step.tiled:
                spec = tiles_of(step, all_tasks)
                reasons.append(f"tile by tile: {own} bytes are never in memory")
            else:
                spec = chain_of(step, tasks, operands, self.target.cores)
                places.append(home[step])
                reasons.append(f"one after the other: {own} bytes stay in cache")
        else:
            placed = [self._placed(task, home) for task in tasks]
            places, sizes = [x for _, these, _ in placed for x in these], [n for *_, these in placed for n in these]
            kernels = [kernel for kernel, _, _ in placed if isinstance(kernel, Kernel)]
            spec = placed[0][0] if len(tasks) == 1 else self._region(kernels)
            if len(tasks) > 1:
                reasons.append("side by side: none of them needs another")
        if not isinstance(spec, Copy):
            self.begin(spec)
        made = {n for task in tasks for n in (*task.group.inlined, *task.group.roots) if n.op is not None}
        nodes = tuple(sorted(made, key=self.position.__getitem__))
        where = tuple(dict.fromkeys(n.where for n in nodes if n.where))
        written = [home[n] for task in tasks for n, is_written in task.roles() if is_written and n in home]
        overwrites = self._overwrites(written)
        return Launch(spec, tuple(places), tuple(reasons), where, hint(sum(sizes)), nodes, overwrites)

    def _overwrites(self, written: Iterable[BufferRef]) -> bool:
        """Whether state is written."""
        return not self.is_body and any(place.base == "input" for place in written)

    def _region(self, kernels: Sequence[Kernel]) -> KernelSpec:
        key = "region", self.target.cores, *map(id, kernels)
        return self.kept.specs.get(key) or self.kept.specs.setdefault(key, region_of(kernels, self.target.cores))

    def _placed(
        self, task: Task, home: Mapping[Node | Step, BufferRef]
    ) -> tuple[KernelSpec, list[BufferRef], list[int]]:
        """A spec that is no part of a chain, with its operands and the bytes that it uses of them."""
        places, sizes = [home[n] for n in task.operands], [n.aval.nbytes for n in task.operands]
        spec, parts = self._alone(task.spec)
        for k, (start, size) in parts.items():
            sizes[k] = size
            if start:
                places[k] = replace(places[k], offset=places[k].offset + start)
        if spec.checked:
            places.insert(spec.status_at(len(places)), BufferRef("arena"))
        if spec.symbolic:
            places.append(SIZES)
        return spec, places, sizes

    def _alone(self, spec: KernelSpec) -> tuple[KernelSpec, Mapping[int, tuple[int, int]]]:
        """A spec that is no part of a chain, its loop nests by `rebase`; and for each operand number the first byte
        that they use, and how many."""
        nests = spec.nests
        if not nests:
            return spec, {}
        known = self._known_alone.get(id(spec))
        if known is None:
            known = self._known_alone[id(spec)] = spec, *self._rebased(spec, nests)
        return known[1:]

    def _rebased(self, spec: KernelSpec, nests: Sequence[Kernel]) -> tuple[KernelSpec, Mapping[int, tuple[int, int]]]:
        made = [self.alike.rebased(kernel) for kernel in nests]
        key = *(id(kernel) for kernel, _ in made), spec.call if isinstance(spec, Fused) else None
        new = self.kept.specs.get(key) or self.kept.specs.setdefault(key, spec.with_nests([x for x, _ in made]))
        parts = {
            first + k: (shifts.get(buffer.name, 0) * buffer.dtype.itemsize, buffer.nbytes)
            for first, (kernel, shifts) in zip(spec.firsts, made, strict=True)
            for k, buffer in enumerate(kernel.operands)
            if first + k >= 0
        }
        return new, parts


def _by_number(group: Group) -> list[Node]:
    """The results of an operation, in order."""
    return sorted(group.roots, key=lambda node: int(node.params.get("result") or 0))


def _copy(source: BufferRef, target: BufferRef, node: Node, overwrites: bool) -> Launch:
    nbytes = 2 * node.aval.hinted.nbytes
    return Launch(Copy(node.aval.nbytes), (source, target), nbytes=nbytes, overwrites=overwrites)
