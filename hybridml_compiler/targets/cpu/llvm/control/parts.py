"""Pieces of loops: copies of their carries, numbers of steps, and after how many of them a loop polls."""

from __future__ import annotations

from typing import Any

from .....schedule.control import Control, Loop
from .....schedule.launch import Copy, Plan
from .....sizes.dims import is_dim
from ...runtime.thread_block import POLL_NS
from .. import ir
from ..contraction.loops import i64
from ..registry import kind_of
from ..types import I8, I32, I64, PTR, Literal

_LEAST_NS = 10.0  # of a step


def fields_of(control: Control) -> str:
    """Text of all that a loop or branch is, but for its bodies."""
    fields = {name: value for name, value in vars(control).items() if not isinstance(value, Plan)}
    return f"{type(control).__name__} {sorted(fields.items())}"


def at_byte(b: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """The pointer, so many bytes on."""
    return b.gep(pointer, [offset], source_etype=I8)


def copy(b: ir.IRBuilder, target: Any, source: Any, nbytes: Any) -> None:
    if ir.known(nbytes) != 0:
        b.call(b.module.function("memcpy", ir.FunctionType(PTR, [PTR, PTR, I64])), [target, source, nbytes])


def clear(b: ir.IRBuilder, target: Any, nbytes: Any) -> None:
    b.call(b.module.function("memset", ir.FunctionType(PTR, [PTR, I32, I64])), [target, Literal(I32, "0"), nbytes])


def from_zero(b: ir.IRBuilder, number: Any) -> Any:
    return b.select(b.icmp_signed("<", number, i64(0)), i64(0), number)


def border(b: ir.IRBuilder, steps: Any, part: Any, parts: int) -> Any:
    """The step with which a range of them begins."""
    return b.udiv(b.mul(steps, part), i64(parts))


def step_nanoseconds(loop: Loop) -> float:
    """Estimated time of a step."""
    specs = [launch.spec for plan in loop.plans for launch in plan.launches if not isinstance(launch.spec, Copy)]
    return max(sum(kind_of(spec).nanoseconds(spec) for spec in specs), _LEAST_NS)


def any_steps(control: Control) -> bool:
    """Whether it has a loop that data ends: nobody knows how long it takes."""
    if isinstance(control, Loop) and control.length is None:
        return True
    return any(
        isinstance(launch.spec, Control) and any_steps(launch.spec)
        for plan in control.plans
        for launch in plan.launches
    )


def steps_a_poll(loop: Loop) -> int:
    """A power of two; 0 where all steps together are too short for a poll."""
    step = step_nanoseconds(loop)
    if loop.length is not None and not is_dim(loop.length) and loop.length * step < POLL_NS:
        return 0
    return 1 << max(int(POLL_NS / step).bit_length() - 1, 0)


def poll(b: ir.IRBuilder, loop: Loop, number: Any, failed: ir.Block) -> None:
    """Every so many steps, a poll that goes on at `failed` where the call is to stop."""
    every = steps_a_poll(loop)
    if every:
        asks, on = b.append_basic_block("poll"), b.append_basic_block("go")
        b.cbranch(b.icmp_unsigned("==", b.and_(number, i64(every - 1)), i64(every - 1)), asks, on)
        b.position_at_end(asks)
        stop_at(b, failed, on)


def stop_at(b: ir.IRBuilder, failed: ir.Block, on: ir.Block | None = None) -> None:
    """A poll that goes on at `failed` where the call is to stop, and at `on` otherwise."""
    on = on or b.append_basic_block("go")
    b.cbranch(b.polled(), failed, on)
    b.position_at_end(on)
