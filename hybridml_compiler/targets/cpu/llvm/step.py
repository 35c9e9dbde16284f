"""The one native entry of a compiled graph: `i64 step(ptr table)` launches every kernel in order.

`table` holds data pointers: inputs, outputs, arena, and the table of sizes where sizes come with the call. Constants
are external symbols. The result is 0; or 1 + the number of the launch whose index check failed, and nothing after that
launch has run, so no state has been overwritten; or `NO_MEMORY`, and nothing has run; or `STOPPED`, where a poll said
so, and no state has been overwritten: there are no polls after the first launch that overwrites an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from ....loops.ir import Kernel
from ....schedule.cost import memory_cost
from ....schedule.host_call import HostCall
from ....schedule.launch import SIZES, STATUS_BYTES, Buffer, BufferRef, Copy, Launch, Plan
from ....sizes.dims import Size, is_dim, is_symbolic, same
from ..program import STEP, constant_symbol
from ..runtime.status import NO_MEMORY, OUT_OF_BOUNDS, STOPPED
from ..runtime.thread_block import BEGIN, POLL_NS, READY
from . import ir
from .callee import Callee
from .ir import i64
from .kernel import KERNEL_TYPE
from .operand_tables import MANY, TOGETHER, OperandTables, in_parallel
from .sizes import Sizes
from .spans import Spans
from .types import I8, I64, PTR, VOID


def takes_scratch(launch: Launch) -> bool:
    """Whether it may want scratch memory of its threads; launches of a small call never do."""
    if isinstance(launch.spec, Kernel):
        return bool(launch.spec.scratch)
    return not isinstance(launch.spec, Copy | HostCall)


class Stop(NamedTuple):
    """Whether a launch may end early, and whether the step polls after it, as it does where the launch may."""

    inside: bool
    after: bool


def stops_of(plan: Plan, callees: Sequence[Callee | None]) -> list[Stop]:
    """The stops of each launch: none from the first one on that overwrites an input."""
    found: list[Stop] = []
    since = 0.0  # estimated nanoseconds since the last poll
    for launch, callee in zip(plan.launches, callees, strict=True):
        if launch.overwrites:
            break
        inside = callee is not None and callee.is_long
        since += memory_cost(launch.nbytes) if callee is None else callee.nanoseconds
        found.append(Stop(inside, after := inside or since >= POLL_NS))
        since *= not after
    assert not any(callee is not None and callee.polls for callee in callees[len(found) :]), "state is written before"
    return found + [Stop(False, False)] * (len(callees) - len(found))


def launch_sources(plan: Plan, callees: Sequence[Callee | None]) -> list[str]:
    """The text of each launch, which determines its code; `callees[k]` is called by launch k."""
    stops = stops_of(plan, callees)
    return [
        _launch_source(launch, callee) + " inside" * stop.inside + " polls" * stop.after
        for launch, callee, stop in zip(plan.launches, callees, stops, strict=True)
    ]


def _launch_source(launch: Launch, callee: Callee | None) -> str:
    if callee is None:
        assert isinstance(launch.spec, Copy)
        return f"copy {launch.spec.nbytes} {launch.operands}"
    dynamic = is_dim(callee.total)
    parallel = callee.parallel and (callee.ranges_a_thread, callee.parallel_from if dynamic else 0)
    return f"{callee.symbol} {(callee.total, callee.granule)} {parallel} {launch.checked} {launch.operands}"


def emit_step(
    module: ir.Module,
    plan: Plan,
    callees: Sequence[Callee | None],
    name: str = STEP,
    *,
    hold: bool = True,
    timed: bool = False,
    parts: int = 1,
) -> None:
    """Adds `step` to the module.

    `callees[k]` is called by launch k, None for a copy. `hold`: BLAS is held at one thread here, and scratch memory
    asked for here, rather than by the caller. `timed`: the clock is read before and after each launch. With several
    `parts` it is `i64 step(ptr table, i64 part)`, and runs one part of each.
    """
    step = ir.Function(module, ir.FunctionType(I64, [PTR] if parts == 1 else [PTR, I64]), name)
    part = None if parts == 1 else step.args[1]
    step.attributes.add("nounwind")
    b = step.build()
    stops = stops_of(plan, callees)
    polls = hold and any(stop.after for stop in stops)
    if polls or (hold and (b.checks or any(map(takes_scratch, plan.launches)))):
        ready = b.call(module.function(READY, ir.FunctionType(I64, [])), [])
        with b.if_then(b.icmp_signed("==", ready, i64(0)), likely=False):
            b.ret(i64(NO_MEMORY))
    spans = Spans(module) if timed else None
    slots = StepMemory(b, step.args[0], plan)
    sizes = slots.sizes
    blas = hold and any(callee is not None and callee.calls_blas for callee in callees)
    widest = max((len(launch.operands) for launch in plan.launches), default=0)
    operands = b.memory(PTR, max(-(-widest // TOGETHER) * TOGETHER, 1))
    as_data = len(plan.launches) >= MANY and not b.checks and not plan.symbols
    tables = OperandTables(b, step.args[0], operands, slots.first) if as_data else None
    status = slots.pointer(BufferRef("arena")) if plan.checked else None
    if status is not None:
        b.store(i64(0), status)
    if polls:
        b.call(module.function(BEGIN, ir.FunctionType(VOID, [])), [])
    if blas:
        _blas(b, module, "hold")

    def leave(status: int) -> None:
        if blas:
            _blas(b, module, "release")
        b.ret(i64(status))

    def poll(stop: Stop) -> None:
        if stop.after:
            with b.if_then(b.polled(), likely=False):
                leave(STOPPED)

    for number, (launch, callee, stop) in enumerate(zip(plan.launches, callees, stops, strict=True)):
        as_row = callee is not None and spans is None and part is None and not launch.checked and not stop.inside
        if tables is not None and callee is not None and as_row:
            if tables.launch(module.function(callee.symbol, KERNEL_TYPE), callee, launch.operands):
                if stop.after:
                    tables.run()
                poll(stop)
                continue
        if tables is not None:
            tables.run()
        filled = tables is not None and not isinstance(launch.spec, Copy) and tables.fill(launch.operands)
        pointers = [] if filled else slots.pointers(number)
        if isinstance(launch.spec, Copy):
            with spans.span(b, number) if spans else nullcontext():
                nbytes = sizes.value(launch.spec.nbytes)
                if part is not None:
                    nbytes = i64(launch.spec.nbytes // parts)
                    pointers = [b.gep(pointer, [b.mul(part, nbytes)], source_etype=I8) for pointer in pointers]
                _memcpy(b, module, pointers, nbytes)
            poll(stop)
            continue
        assert callee is not None
        function = module.function(callee.symbol, KERNEL_TYPE)
        for k, pointer in enumerate(pointers):
            b.set_operand(operands, k, pointer)
        count, total = callee.total, sizes.value(callee.total)
        shared = spans.of_parts(function, number) if spans and callee.parallel else function
        job = [operands, total, i64(callee.granule), i64(callee.ranges_a_thread)]
        with spans.span(b, number) if spans else nullcontext():
            if part is not None:
                first = b.mul(part, i64(count // parts))
                b.call(function, [operands, first, b.add(first, i64(count // parts))])
            elif not callee.parallel:
                b.call(function, [operands, i64(0), total])
            elif not is_dim(count):
                in_parallel(b, shared, job, stops=stop.inside)
            else:
                with b.if_else(b.icmp_signed("<", total, i64(callee.parallel_from))) as (few, many):
                    with few:
                        b.call(function, [operands, i64(0), total])
                    with many:
                        in_parallel(b, shared, job, stops=stop.inside)
        violated = b.violated() if hold else None
        if violated is not None:
            with b.if_then(violated, likely=False):
                b.ret(i64(OUT_OF_BOUNDS))
        poll(stop)
        if launch.checked:
            assert status is not None, "a plan with a checked launch has a status word"
            failed = b.icmp_unsigned("!=", b.load(status, typ=I64), i64(0))
            with b.if_then(failed, likely=False):
                leave(number + 1)
    if tables is not None:
        tables.run()
        tables.end()
    leave(0)


def extent_of(plan: Plan, number: int, place: BufferRef) -> tuple[Size | None, str]:
    """(bytes from a place to the end of the array that launch `number` has there, that array's name); None for those
    that the plan does not tell."""
    if place.base == "arena":
        for buffer in plan.buffers:
            if buffer.first <= number <= buffer.last and _is_within(place.offset, buffer):
                return buffer.offset + buffer.nbytes - place.offset, f"the result of {buffer.what} in the arena"
        return (STATUS_BYTES, "the status word") if plan.checked and same(place.offset, 0) else (None, "")
    if place.base == "sizes":
        return None, ""
    groups: dict[str, Sequence[Any]] = {"input": plan.inputs, "output": plan.outputs, "constant": plan.constants}
    array = groups[place.base][place.number]
    return array.nbytes - place.offset, f"{place.base} {place.number} ({array.dtype}{[*array.shape]})"


def _is_within(offset: Size, buffer: Buffer) -> bool:
    if is_symbolic((offset, buffer.offset, buffer.nbytes)):
        return same(offset, buffer.offset)
    return bool(buffer.offset <= offset < buffer.offset + buffer.nbytes)


class StepMemory:
    """Pointers of places; each base is loaded once, in the entry's straight line."""

    def __init__(self, b: ir.IRBuilder, table: Any, plan: Plan) -> None:
        self.b, self.table, self.plan = b, table, plan
        arena = len(plan.inputs) + len(plan.outputs)
        first = {"input": 0, "output": len(plan.inputs), "arena": arena, "sizes": arena + 1}
        self.first: dict[str, int] = first
        self._bases: dict[tuple[str, int], Any] = {}
        self.sizes = Sizes(b, self.pointer(SIZES) if plan.symbols else None, plan.symbols)

    def pointers(self, number: int) -> list[Any]:
        """The pointers of the operands of launch `number`."""
        launch = self.plan.launches[number]
        found = [self.pointer(place) for place in launch.operands]
        for k, place in enumerate(launch.operands if self.b.checks else ()):
            nbytes, what = extent_of(self.plan, number, place)
            if nbytes is not None:
                found[k] = self.b.bounded(found[k], self.sizes.value(nbytes), what)
        return found

    def pointer(self, place: BufferRef) -> Any:
        key = (place.base, place.number)
        if key not in self._bases:
            if place.base == "constant":
                self._bases[key] = self.b.module.variable(constant_symbol(place.number), I8)
            else:
                self._bases[key] = self.b.given(self.table, self.first[place.base] + place.number)
        base = self._bases[key]
        return base if same(place.offset, 0) else self.b.gep(base, [self.sizes.value(place.offset)], source_etype=I8)


def _memcpy(b: ir.IRBuilder, module: ir.Module, pointers: Sequence[Any], nbytes: Any) -> None:
    if ir.known(nbytes) != 0:
        copy = module.function("memcpy", ir.FunctionType(PTR, [PTR, PTR, I64]))
        b.call(copy, [pointers[1], pointers[0], nbytes])


def _blas(b: ir.IRBuilder, module: ir.Module, what: str) -> None:
    """BLAS works on one thread while the pool splits its products; its own threads would fight ours for the cores."""
    b.call(module.function(f"hml_blas_{what}", ir.FunctionType(VOID, [])), [])
