"""Loops in tiles of rows and steps (schedule/fusion/time_tiling.py): what a step does of a tile, and the loops around.

for tiles { for steps t of the block { tile(table of step t, first place of the tile - skew * t) } }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....loops.ir import KernelSpec
from .....schedule import cost
from .....schedule.fusion.time_tiling import TimeTiles
from .....schedule.launch import BufferRef, Copy, Plan
from .. import ir
from ..callee import Callee
from ..contraction.loops import greatest, i64, least, repeat
from ..kernel import KERNEL_TYPE
from ..operand_tables import KernelAt, in_parallel
from ..step import StepMemory
from ..types import I64, PTR
from .parts import at_byte, copy

_TILE_TYPE = ir.FunctionType(I64, [PTR, I64])


def emit_tile(
    module: ir.Module, plan: Plan, callees: Sequence[Callee | None], tiles: TimeTiles, name: str
) -> ir.Function:
    """`i64 tile(ptr table, i64 place)`: what a step does of the rows at places from this one on. `table` is that of the
    step's whole body; the result is 0, or 1 where an index check failed."""
    function = ir.Function(module, _TILE_TYPE, name)
    function.linkage = "internal"
    b = function.build()
    table, place = function.args
    memory = StepMemory(b, table, plan)
    widest = max(len(launch.operands) for launch in plan.launches)
    operands, job, first = b.memory(PTR, widest), b.memory(PTR, 3), b.memory(I64)
    status = memory.pointer(BufferRef("arena")) if plan.checked else None
    if status is not None:
        b.store(i64(0), status)
    for place_of in dict.fromkeys((x.base, x.number) for launch in plan.launches for x in launch.operands):
        memory.pointer(BufferRef(*place_of))  # here, and not first in a branch
    b.give(job, 1, operands)
    b.give(job, 2, first)
    shares = _shares(module, f"{name}_rows")
    for number, (launch, callee) in enumerate(zip(plan.launches, callees, strict=True)):
        unit, total = tiles.units[number], _total(launch.spec, callee)
        low = b.sub(place, i64(tiles.shifts[number]))
        count = -(-total // unit)
        begin, end = (greatest(b, least(b, x, i64(count)), i64(0)) for x in (low, b.add(low, i64(tiles.rows))))
        begin, end = (least(b, b.mul(x, i64(unit)), i64(total)) for x in (begin, end))
        with b.if_then(b.icmp_signed("<", begin, end)):
            for k, pointer in enumerate(memory.pointers(number)):
                b.set_operand(operands, k, pointer)
            kernel = _copies(module) if callee is None else module.function(callee.symbol, KERNEL_TYPE)
            granule = 1 if callee is None else callee.granule
            nanoseconds = cost.memory_cost(launch.nbytes) if callee is None else callee.nanoseconds
            if nanoseconds * min(tiles.rows * unit / total, 1) <= cost.PARALLEL_THRESHOLD_NS:
                b.call(kernel, [operands, begin, end])
            else:
                b.give(job, 0, kernel)
                b.store(begin, first)
                in_parallel(b, shares, [job, b.sub(end, begin), i64(granule), i64(1)])
            if launch.checked and status is not None:
                with b.if_then(b.icmp_unsigned("!=", b.load(status, typ=I64), i64(0)), likely=False):
                    b.ret(i64(1))
    b.ret(i64(0))
    return function


def _total(spec: KernelSpec, callee: Callee | None) -> int:
    return int(spec.nbytes) if isinstance(spec, Copy) else int(callee.total)  # type: ignore[union-attr]


def _shares(module: ir.Module, name: str) -> ir.Function:
    """`void shares(ptr job, i64 lo, i64 hi)`: this part of a kernel's iterations after the first ones of a job."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.linkage = "internal"
    b = function.build()
    job, lo, hi = function.args
    kernel: Any = KernelAt(b.given(job, 0))
    first = b.load(b.given(job, 2), typ=I64)
    b.call(kernel, [b.given(job, 1), b.add(first, lo), b.add(first, hi)])
    b.ret_void()
    return function


def _copies(module: ir.Module) -> Any:
    """`void copies(ptr operands, i64 lo, i64 hi)`: these bytes of the first operand to the second."""
    found: Any = module.globals.get("copy_bytes")
    if found is not None:
        return found
    function = ir.Function(module, KERNEL_TYPE, "copy_bytes")
    function.linkage = "internal"
    b = function.build()
    operands, lo, hi = function.args
    copy(b, at_byte(b, b.operand(operands, 1), lo), at_byte(b, b.operand(operands, 0), lo), b.sub(hi, lo))
    b.ret_void()
    return function


def block_steps(b: ir.IRBuilder, tiles: TimeTiles, left: Any) -> Any:
    """The number of steps of the next block, of those that are left: blocks are as equal as they can be."""
    blocks = b.udiv(b.add(left, i64(tiles.steps - 1)), i64(tiles.steps))
    each = b.udiv(b.add(left, b.sub(blocks, i64(1))), greatest(b, blocks, i64(1)))
    if not tiles.alternates:
        return each
    return b.and_(least(b, b.add(each, i64(1)), left), i64(-2))


def run_block(
    b: ir.IRBuilder,
    tiles: TimeTiles,
    tile: ir.Function,
    table: Any,
    steps: Any,
    prepare: Callable[[Any], None],
    stop: Callable[[], None],
    failed: ir.Block,
    checked: bool,
) -> None:
    """The tiles of a block of so many steps. `prepare` sets the table for a step of the block."""
    skewed = b.mul(b.sub(steps, i64(1)), i64(tiles.skew))
    last = b.add(i64(tiles.places), skewed)

    def one(place: Any) -> None:
        stop()

        def step(number: Any) -> None:
            prepare(number)
            result = b.call(tile, [table, b.sub(place, b.mul(number, i64(tiles.skew)))])
            if checked:
                fine = b.append_basic_block("fine")
                b.cbranch(b.icmp_unsigned("!=", result, i64(0)), failed, fine)
                b.position_at_end(fine)

        repeat(b, i64(0), steps, 1, step)

    repeat(b, i64(0), last, tiles.rows, one)
