"""Control flow as LLVM functions: the step of each body (step.py), and a loop or branch around it.

Nothing but pointers changes from step to step: a body is called with a table of data pointers, as the step of a
whole program is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .....loops.ir import KernelSpec
from .....schedule import cost
from .....schedule.control import Choice, Control, Loop
from .....schedule.launch import Copy, Plan
from .....sizes.dims import Size, hint, is_dim
from .....sizes.values import number_of
from ...spec import CpuSpec
from .. import ir
from ..callee import Callee
from ..contraction.loops import i64, repeat
from ..kernel import KERNEL_TYPE
from ..kind import Kind
from ..operand_tables import in_parallel
from ..registry import callee_of, kind_of
from ..sizes import Sizes
from ..step import emit_step, launch_sources, stops_of
from ..types import I8, I64, PTR, VOID, Literal
from .elements import elements_source, emit_elements
from .fits import is_of_elements
from .parts import (
    any_steps,
    at_byte,
    border,
    clear,
    copy,
    fields_of,
    from_zero,
    poll,
    step_nanoseconds,
    steps_a_poll,
    stop_at,
)  # fmt: skip

Callees = Mapping[int, Callee]  # by the identity of the spec
_PASSES_NS = 5_000.0  # of a loop over elements that LLVM's passes are for: they take a few milliseconds
_SLOT_TYPE = ir.FunctionType(VOID, [PTR, I64])


def distinct_specs(control: Control) -> list[KernelSpec]:
    """Specs that its bodies call, each once."""
    if is_of_elements(control):
        return []
    specs = [launch.spec for plan in control.plans for launch in plan.launches]
    return list({id(spec): spec for spec in specs if not isinstance(spec, Copy)}.values())


def control_source(control: Control, callees: Callees) -> str:
    if is_of_elements(control):
        return f"passes {_takes_passes(control)}\n{elements_source(control)}"
    lines = [
        line
        for plan in control.plans
        for line in (f"body of {_sizes(plan)}", *launch_sources(plan, _callees(plan, callees)))
    ]
    if isinstance(control, Loop) and control.ranges > 1:
        lines.append(f"shared {_sharing(control)}")
    return "\n".join([fields_of(control), *lines])


def _sizes(plan: Plan) -> str:
    return f"{len(plan.inputs)} inputs {len(plan.outputs)} outputs {plan.arena_bytes}"


def _callees(plan: Plan, callees: Callees) -> list[Callee | None]:
    """The callee of each launch of a body."""
    return [callees.get(id(launch.spec)) for launch in plan.launches]


class _Step:
    """A body as a function in this module, and the table of pointers that it is called with."""

    def __init__(
        self,
        b: ir.IRBuilder,
        module: ir.Module,
        plan: Plan,
        callees: Callees,
        name: str,
        arena: Any,
        steps: Any,
        slot: Any = None,
    ) -> None:
        assert not plan.constants, "a body is given its constants"
        emit_step(module, plan, _callees(plan, callees), name, hold=False, parts=plan.slots)
        self.b, self.plan, self.slot = b, plan, slot
        self.polls = any(stop.after for stop in stops_of(plan, _callees(plan, callees)))
        self.function = module.globals[name]
        self.function.linkage = "internal"  # a module exports its own name and nothing else
        self.inputs = len(plan.inputs)
        last = self.inputs + len(plan.outputs)
        self.table = b.memory(PTR, last + 2)
        self.put(last, arena)
        if plan.symbols:
            self.put(last + 1, steps)

    def put(self, entry: int, pointer: Any) -> None:
        self.b.give(self.table, entry, pointer)

    def call(self, failed: ir.Block) -> None:
        """Run it; a failed index check, or a stop, goes on at `failed`."""
        arguments = [self.table] if self.slot is None else [self.table, self.slot]
        b, result = self.b, self.b.call(self.function, arguments)
        if self.plan.checked or self.polls:
            fine = b.append_basic_block("fine")
            b.cbranch(b.icmp_unsigned("!=", result, i64(0)), failed, fine)
            b.position_at_end(fine)


def emit_control(module: ir.Module, name: str, control: Control, callees: Callees) -> ir.Function:
    """`void control(ptr buffers, i64 lo, i64 hi)`; its range is the slots of a loop, and one iteration otherwise.

    A loop whose steps threads share is a function of ranges of them, and one that begins it and has them run it.
    """
    if isinstance(control, Loop) and control.ranges > 1:
        each = ir.Function(module, KERNEL_TYPE, f"{name}_ranges")
        each.linkage = "internal"
        _emit_one(each, module, name, control, callees, None, each.args[1:])
    elif isinstance(control, Loop) and control.slots > 1:
        each = ir.Function(module, _SLOT_TYPE, f"{name}_slot")
        each.linkage = "internal"
        _emit_one(each, module, name, control, callees, each.args[1])
        function = ir.Function(module, KERNEL_TYPE, name)
        b = function.build()
        buffers, lo, hi = function.args

        def run(slot: Any) -> None:
            b.call(each, [buffers, slot])

        repeat(b, lo, hi, 1, run)
        b.ret_void()
        return function
    function = ir.Function(module, KERNEL_TYPE, name)
    _emit_one(function, module, name, control, callees, None)
    return function


def _emit_one(
    function: ir.Function,
    module: ir.Module,
    name: str,
    control: Control,
    callees: Callees,
    slot: Any,
    ranges: Sequence[Any] | None = None,
) -> None:
    b = function.build()
    failed, done = b.append_basic_block("failed"), b.append_basic_block("done")
    operands = control.given + len(control.wanted) + 1
    given = [b.operand(function.args[0], k) for k in range(operands)]
    checked = any(plan.checked for plan in control.plans)
    table = b.operand(function.args[0], operands + checked) if control.symbols else None
    sizes = Sizes(b, table, control.symbols)
    if isinstance(control, Loop) and control.ranges > 1 and ranges is None:
        status = b.operand(function.args[0], operands) if checked else None
        _emit_shared(b, module, name, control, callees, given, failed, sizes, status)
    elif is_of_elements(control):
        if _takes_passes(control):
            module.passes = True
            function.attributes.add('"no-builtins"')  # a loop that copies stays one
        emit_elements(b, control, given, failed, sizes, ranges)
    elif isinstance(control, Loop):
        _emit_loop(b, module, name, control, callees, given, failed, sizes, slot, ranges)
    else:
        assert isinstance(control, Choice)
        _emit_choice(b, module, name, control, callees, given, failed, table)
    b.branch(done)
    b.position_at_end(failed)
    if checked:  # after a stop as well: nobody reads it then
        b.store(i64(1), b.operand(function.args[0], operands))
    b.branch(done)
    b.position_at_end(done)
    b.ret_void()


def _true(b: ir.IRBuilder, pointer: Any) -> Any:
    return b.icmp_unsigned("!=", b.load(pointer, typ=I8), Literal(I8, "0"))


def _emit_choice(
    b: ir.IRBuilder,
    module: ir.Module,
    name: str,
    choice: Choice,
    callees: Callees,
    given: list[Any],
    failed: ir.Block,
    steps: Any,
) -> None:
    after = b.append_basic_block("chosen")
    blocks = [b.append_basic_block("true"), b.append_basic_block("false")]
    steps = [
        _Step(b, module, plan, callees, f"{name}_{which}", given[-1], steps)
        for which, plan in (("true", choice.true), ("false", choice.false))
    ]
    for step in steps:
        for k, pointer in enumerate(given[1:-1]):
            step.put(k, pointer)
    b.cbranch(_true(b, given[0]), *blocks)
    for block, step in zip(blocks, steps, strict=True):
        b.position_at_end(block)
        step.call(failed)
        b.branch(after)
    b.position_at_end(after)


def _emit_shared(
    b: ir.IRBuilder,
    module: ir.Module,
    name: str,
    loop: Loop,
    callees: Callees,
    given: list[Any],
    failed: ir.Block,
    sizes: Sizes,
    status: Any,
) -> None:
    """Begins a loop whose steps do not need each other, and has threads run them."""
    function = b.function
    last = sizes.value(loop.length)
    memory, n, m = given[-1], loop.consts, loop.consts + len(loop.carries)
    results = dict(zip(loop.wanted, given[m + len(loop.xs) : -1], strict=True))
    for k, start in enumerate(given[n:m]):
        own = results.get(k, at_byte(b, memory, sizes.value(loop.places[0][2 * k])))
        _start(b, module, loop, k, own, start, sizes, None)
    least, polls = _sharing(loop)
    run = module.globals[f"{name}_ranges"]
    job = [function.args[0], i64(loop.ranges), i64(1), i64(max(loop.ranges // module.cpu.cores, 1))]
    with b.if_else(b.icmp_signed("<", last, i64(least))) as (few, many):
        with few:
            b.call(run, [function.args[0], i64(0), i64(loop.ranges)])
        with many:
            in_parallel(b, run, job, stops=polls)
    fine = b.append_basic_block("fine")
    if status is not None:
        b.cbranch(b.icmp_unsigned("!=", b.load(status, typ=I64), i64(0)), failed, fine)
        b.position_at_end(fine)
        fine = b.append_basic_block("through")
    if polls:
        b.cbranch(b.polled(), failed, fine)
    else:
        b.branch(fine)
    b.position_at_end(fine)


def _emit_loop(
    b: ir.IRBuilder,
    module: ir.Module,
    name: str,
    loop: Loop,
    callees: Callees,
    given: list[Any],
    failed: ir.Block,
    sizes: Sizes,
    slot: Any,
    ranges: Sequence[Any] | None,
) -> None:
    counts, rest = given[: loop.counted], given[loop.counted :]
    for size in (loop.first, *loop.carries, *loop.xs, *loop.ys):
        sizes.value(size)  # here, and not first in a branch
    n, m = loop.consts, loop.consts + len(loop.carries)
    consts, starts, xs = rest[:n], rest[n:m], rest[m : m + len(loop.xs)]
    results = dict(zip(loop.wanted, rest[m + len(loop.xs) : -1], strict=True))
    offsets, memory = loop.places[0], rest[-1]
    own = [at_byte(b, memory, sizes.value(offset)) for offset in offsets]
    c = len(loop.carries)
    ys = [results.get(c + k, own[2 * c + k]) for k in range(len(loop.ys))]
    stride = [size if c + k in results else 0 for k, size in enumerate(loop.ys)]
    part = slot if ranges is None else ranges[0]
    arena = own[-2] if part is None else at_byte(b, own[-2], b.mul(part, sizes.value(loop.arena_bytes)))
    steps = _steps(b, loop, sizes)
    body = _Step(b, module, loop.body, callees, f"{name}_body", arena, steps, slot)
    check = _Step(b, module, loop.condition, callees, f"{name}_condition", own[-2], steps) if loop.condition else None
    for step in (body, *([check] if check else [])):
        for k, pointer in enumerate(consts):
            step.put(k, pointer)
    if check is not None:
        check.put(check.inputs, own[-1])
    length: Size = 0 if loop.length is None else loop.length
    last = sizes.value(length)
    numbers = [from_zero(b, b.load(count, typ=I64)) for count in counts]
    for asked in numbers[:1]:
        last = b.select(b.icmp_signed("<", asked, last), asked, last)
    known = not counts and check is None
    if not known:  # results of a branch that is not run are zero
        for k, size in enumerate(loop.ys):
            if c + k in results:
                clear(b, ys[k], sizes.value(size * length))
    # Places that a step writes a carry to by turns; the last step should write to the result.
    turned = known and not is_dim(length) and length % 2 == 0
    firsts = []
    for k in range(c):
        pair = (results.get(k, own[2 * k]), own[2 * k + 1])
        if loop.in_place[k]:
            if ranges is None:
                _start(b, module, loop, k, pair[0], starts[k], sizes, slot)
            firsts.append((pair[0],) * 3)
            continue
        firsts.append((starts[k], *(reversed(pair) if turned else pair)))

    begin, until = (i64(0), last) if ranges is None else [border(b, last, k, loop.ranges) for k in ranges]
    for left_out in numbers[1:]:
        begin, until = (begin, b.sub(until, left_out)) if loop.reverse else (left_out, until)
    entry, head = b.block, b.append_basic_block("head")
    run, end = b.append_basic_block("run"), b.append_basic_block("end")
    b.branch(head)
    b.position_at_end(head)
    number = b.phi(I64)
    number.add_incoming(begin, entry)
    carried = [[b.phi(PTR) for _ in range(3)] for _ in range(c)]  # read by this step, written by it, by the next one
    for phis, first in zip(carried, firsts, strict=True):
        for phi, pointer in zip(phis, first, strict=True):
            phi.add_incoming(pointer, entry)
    now = [phis[0] for phis in carried]
    if loop.length is not None:
        more = run if check is None else b.append_basic_block("more")
        b.cbranch(b.icmp_signed("<", number, until), more, end)
        b.position_at_end(more)
    if check is not None:
        for k, pointer in enumerate(now):
            check.put(n + k, pointer)
        check.call(failed)
        b.cbranch(_true(b, own[-1]), run, end)
    b.position_at_end(run)
    poll(b, loop, number, failed)

    def prepare(number: Any, carried: Sequence[Sequence[Any]]) -> list[Any]:
        """Sets the body's table for a step; the places that the step writes its carries to."""
        nth = b.sub(b.sub(last, i64(1)), number) if loop.reverse else number
        if loop.step is not None:
            _set(b, steps, loop.step, b.add(nth, sizes.value(loop.first)))
        for k, (pointer, *_) in enumerate(carried):
            body.put(n + k, pointer)
        for k, (pointer, size) in enumerate(zip(xs, loop.xs, strict=True)):
            body.put(m + k, at_byte(b, pointer, b.mul(nth, sizes.value(size))))
        slices = [at_byte(b, pointer, b.mul(nth, sizes.value(size))) for pointer, size in zip(ys, stride, strict=True)]
        written = [own[1] if y is None else slices[y] for own, y in zip(carried, loop.kept, strict=True)]
        targets = [p for p, y, stays in zip(written, loop.kept, loop.in_place, strict=True) if y is None and not stays]
        for k, pointer in enumerate([*targets, *slices]):
            body.put(body.inputs + k, pointer)
        return written

    if loop.tiles is not None and not b.checks:  # calls of kernels by address are not checked
        from .time_tiles import block_steps, emit_tile, run_block  # with the first tiles

        count = block_steps(b, loop.tiles, b.sub(until, number))
        if loop.tiles.alternates:  # its first step reads what is in neither of the places
            count = b.select(b.icmp_signed(">", number, i64(0)), count, i64(0))
        block, single = b.append_basic_block("block"), b.append_basic_block("single")
        b.cbranch(b.icmp_signed(">", count, i64(1)), block, single)
        b.position_at_end(block)
        tile = emit_tile(b.module, loop.body, _callees(loop.body, callees), loop.tiles, f"{name}_tile")

        def prepared(step: Any) -> None:
            odd = b.icmp_unsigned("!=", b.and_(step, i64(1)), i64(0))
            prepare(b.add(number, step), [(b.select(odd, y, x), b.select(odd, x, y)) for x, y, _ in carried])

        stop = (lambda: stop_at(b, failed)) if steps_a_poll(loop) else (lambda: None)
        run_block(b, loop.tiles, tile, body.table, count, prepared, stop, failed, loop.body.checked)
        number.add_incoming(b.add(number, count), b.block)
        for phis in carried:
            for phi in phis:
                phi.add_incoming(phi, b.block)
        b.branch(head)
        b.position_at_end(single)
    written = prepare(number, carried)
    body.call(failed)
    latch = b.block
    number.add_incoming(b.add(number, i64(1)), latch)
    for (reads, writes, spare), pointer in zip(carried, written, strict=True):
        for phi, after in ((reads, pointer), (writes, spare), (spare, writes)):
            phi.add_incoming(after, latch)
    b.branch(head)
    b.position_at_end(end)
    for k, size in enumerate(loop.carries):
        if k in results and ranges is None:
            with b.if_then(b.icmp_unsigned("!=", now[k], results[k])):
                _copy_share(b, module, loop, size, results[k], now[k], sizes, slot)


def _sharing(loop: Loop) -> tuple[int, bool]:
    """The least number of steps that threads share, and whether these end early where their call is to stop."""
    return int(cost.PARALLEL_THRESHOLD_NS / step_nanoseconds(loop)), bool(steps_a_poll(loop))


def _steps(b: ir.IRBuilder, loop: Loop, sizes: Sizes) -> Any:
    """The table of sizes for bodies: the steps of the loops around this one, and its own."""
    names = [*loop.around, *([] if loop.step is None else [loop.step])]
    if not names:
        return None
    table = b.memory(I64, 1 + max(map(number_of, names)))
    for name in loop.around:
        _set(b, table, name, sizes.symbols[name])
    return table


def _set(b: ir.IRBuilder, table: Any, name: str, value: Any) -> None:
    b.store(value, b.gep(table, [i64(number_of(name))], source_etype=I64))


def _start(
    b: ir.IRBuilder, module: ir.Module, loop: Loop, k: int, memory: Any, start: Any, sizes: Sizes, slot: Any
) -> None:
    """Gives carry `k` its first value, where that is not in its memory."""
    with b.if_then(b.icmp_unsigned("!=", memory, start)):
        _copy_share(b, module, loop, loop.carries[k], memory, start, sizes, slot)


def _copy_share(
    b: ir.IRBuilder, module: ir.Module, loop: Loop, size: Size, target: Any, source: Any, sizes: Sizes, slot: Any
) -> None:
    if slot is None:
        copy(b, target, source, sizes.value(size))
        return
    share = size // loop.slots
    first = b.mul(slot, i64(share))
    copy(b, at_byte(b, target, first), at_byte(b, source, first), i64(share))


def _takes_passes(control: Control) -> bool:
    """Whether a loop over elements goes through LLVM's passes: values that a step stores and the next one loads are in
    registers then, and so are sums in elements, and what inner steps have in common is before them."""
    return any_steps(control) or _nanoseconds(control) >= _PASSES_NS


def _callees_by_id(control: Control, cpu: CpuSpec, symbols: Sequence[str]) -> dict[int, Callee]:
    specs = distinct_specs(control)
    return {id(spec): callee_of(spec, cpu, symbol) for spec, symbol in zip(specs, symbols, strict=True)}


def _polls(control: Control, cpu: CpuSpec) -> bool:
    """Whether it ends early where its call is to stop."""
    if isinstance(control, Loop) and steps_a_poll(control):
        return True
    if is_of_elements(control):
        specs = [launch.spec for plan in control.plans for launch in plan.launches]
        return any(_polls(spec, cpu) for spec in specs if isinstance(spec, Control))
    callees = _callees_by_id(control, cpu, [""] * len(distinct_specs(control)))
    return any(stop.after for plan in control.plans for stop in stops_of(plan, _callees(plan, callees)))


def _nanoseconds(control: Control) -> float:
    if not isinstance(control, Loop):
        return 0.0
    specs = [launch.spec for launch in control.body.launches if not isinstance(launch.spec, Copy)]
    return (1 if control.length is None or control.once else hint(control.length)) * sum(
        kind_of(spec).nanoseconds(spec) for spec in specs
    )


CONTROL = Kind(
    emit=lambda module, name, control, parts=(): emit_control(
        module, name, control, _callees_by_id(control, module.cpu, parts)
    ),
    source=lambda control, cpu, parts=(): control_source(control, _callees_by_id(control, cpu, parts)),
    range=lambda control, _: (control.slots if isinstance(control, Loop) else 1, 1),
    nanoseconds=_nanoseconds,
    calls_blas=lambda control, cpu: any(kind_of(spec).calls_blas(spec, cpu) for spec in distinct_specs(control)),
    polls=_polls,
    parts=lambda control, _: distinct_specs(control),
)
