"""Tells which loops and branches are over single elements: each launch of a step computes a few numbers, or is such a
loop itself. And where each number of a step is, in a register or in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....loops.ir import ANY_LENGTH, Kernel, Scan, Store, statements
from .....schedule import cost
from .....schedule.control import Choice, Control, Loop
from .....schedule.launch import BufferRef, Copy, Plan
from .....sizes.dims import hint, is_dim, is_symbolic, same
from .....sizes.steps import most_of

Home = np.dtype | None  # of a place: the type of a number in a register, None of memory


def is_of_elements(control: Control) -> bool:
    """Whether its steps are code without calls, over numbers in registers and elements of arrays."""
    operands = control.given + len(control.wanted) + 1
    return _control_fits(control, [None] * operands)


def home(aval: Any) -> Home:
    """A number's type; None of a larger array, which is in memory."""
    return aval.dtype if all(same(n, 1) for n in aval.shape) else None


def home_at(plan: Plan, place: BufferRef, launch: int, inputs: Sequence[Home], outputs: Sequence[Home]) -> Home:
    """The home of an operand of launch number `launch`."""
    if place.base == "input":
        return inputs[place.number]
    if place.base == "output":
        return outputs[place.number]
    for buffer in plan.buffers if place.base == "arena" else ():
        if buffer.first <= launch <= buffer.last and _starts(buffer.offset, place.offset):
            return None if buffer.node is None else home(buffer.node)
    return None


def _starts(offset: Any, place: Any) -> bool:
    return same(offset, place) if is_symbolic((offset, place)) else bool(offset == place)


def body_homes(loop: Loop) -> tuple[list[Home], list[Home]]:
    """The homes of what a step is given, and of what it gives."""
    body, n = loop.body, len(loop.carries)
    inputs = [home(aval) for aval in body.inputs]
    own = [home(body.inputs[loop.consts + k]) for k in range(n) if loop.kept[k] is None and not loop.in_place[k]]
    return inputs, [*own, *(home(aval) for aval in body.outputs[len(own) :])]


def _plan_fits(plan: Plan, inputs: Sequence[Home], outputs: Sequence[Home]) -> bool:
    if plan.constants or plan.slots > 1:
        return False
    for number, launch in enumerate(plan.launches):
        homes = [home_at(plan, place, number, inputs, outputs) for place in launch.operands]
        match launch.spec:
            case Kernel():
                fits = _kernel_fits(launch.spec, homes)
            case Copy():
                fits = homes[0] is homes[1]
            case Control():  # the steps of a loop in it are its thread's
                fits = getattr(launch.spec, "ranges", 1) == 1 and _control_fits(launch.spec, homes)
            case _:
                fits = False
        if not fits:
            return False
    return True


def may_fit(kernel: Kernel) -> bool:
    """Whether it may be code in place: a few numbers, or loops of one thread that need no memory of their own."""
    if kernel.single:
        return True
    if kernel.scratch or kernel.loops or any(not is_dim(b.size) and b.size >= ANY_LENGTH for b in kernel.buffers):
        return False
    return kernel.range is None or _longest(kernel) <= cost.PARALLEL_THRESHOLD_NS


def _longest(kernel: Kernel) -> float:
    """Nanoseconds that it takes at most."""
    most = most_of(kernel.total)
    return math.inf if is_dim(most) else kernel.cost * most / max(hint(kernel.total), 1)


def _kernel_fits(kernel: Kernel, homes: Sequence[Home]) -> bool:
    if not may_fit(kernel):
        return False
    pairs = [(b, own) for b, own in zip(kernel.operands, homes, strict=False) if own is not None]
    if not all(buffer.dtype is own and same(buffer.size, 1) for buffer, own in pairs):
        return False
    numbers = {buffer.name for buffer, _ in pairs}
    own = {id(stmt) for stmt in kernel.body if isinstance(stmt, Store)}
    inner = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Store | Scan) and id(stmt) not in own]
    return all(stmt.buffer.name not in numbers for stmt in inner)


def _control_fits(control: Control, homes: Sequence[Home]) -> bool:
    results = homes[control.given : control.given + len(control.wanted)]
    if isinstance(control, Choice):
        return _results_fit([home(aval) for aval in control.true.outputs], results) and all(
            _plan_fits(plan, [*map(home, plan.inputs)], [*map(home, plan.outputs)]) for plan in control.plans
        )
    assert isinstance(control, Loop)
    inputs, outputs = body_homes(control)
    n = len(control.carries)
    carries = inputs[control.consts : control.consts + n]
    if control.slots > 1 or (control.ranges > 1 and any(own is not None for own in carries)):
        return False
    own_memory = [control.once and y is None for y in control.kept]  # that of the result, which no step reads
    if not all(map(any, zip([own is not None for own in carries], control.in_place, own_memory, strict=True))):
        return False
    wanted = [carries[k] if k < n else None for k in control.wanted]
    check = control.condition
    return (
        _results_fit(wanted, results)
        and _plan_fits(control.body, inputs, outputs)
        and (check is None or _plan_fits(check, inputs[: control.consts + n], [home(check.outputs[0])]))
    )


def _results_fit(numbers: Sequence[Home], places: Sequence[Home]) -> bool:
    """Whether what a loop gives fits its places: an array is in memory, a number in a register or in memory."""
    return all(place is None or place is own for own, place in zip(numbers, places, strict=True))
