"""The plan of a graph as text: launches, reasons, and memory. For people, golden tests and HYBRIDML_DEBUG=3.

launch 0: kernel, 96 bytes of traffic             a loop nest, a matrix product or a copy
  divide: an output                               why it exists, and why each further root joined it
  b0 = input 0, b1 = output 0                     its operands and where they live
  kernel(b0: f32[12], b1: f32[12] out) ...        the loop dialect (see loops/text.py)
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import aval as avals
from ..loops.ir import Kernel, Work
from ..loops.text import print_kernel
from .control import Control
from .fusion.batch_fusion import Chain
from .fusion.epilogue import Fused
from .fusion.horizontal_fusion import Region
from .host_call import Opaque
from .launch import Copy, Launch, Place, Plan


def describe_plan(plan: Plan) -> str:
    """The launches in order with reasons, operands and loop nests; inputs, outputs, constants and arena before them."""
    lines = [f"plan: {len(plan.launches)} launches, {plan.arena_bytes} bytes of arena"]
    constants = [avals.of(array) for array in plan.constants]
    for what, types in (("inputs", plan.inputs), ("outputs", plan.outputs), ("constants", constants)):
        if types:
            lines.append(f"{what} {', '.join(f'{k}: {aval}' for k, aval in enumerate(types))}")
    for number, launch in enumerate(plan.launches):
        lines.append("")
        lines.extend(_launch_lines(number, launch))
    return "\n".join(lines) + "\n"


def describe_place(place: Place) -> str:
    """`input 0`, `arena`, `arena + 64`."""
    where = place.base if place.base == "arena" else f"{place.base} {place.number}"
    return f"{where} + {place.offset}" if place.offset else where


def describe_launch(number: int, launch: Launch) -> str:
    """`launch 3: matmul f32 32x16x20 B', 5888 bytes of traffic`."""
    work = launch.work
    if isinstance(work, Copy):
        return f"launch {number}: copy {work.nbytes} bytes, {' -> '.join(map(describe_place, launch.operands))}"
    return f"launch {number}: {'kernel' if isinstance(work, Kernel) else work}, {launch.nbytes} bytes of traffic"


def _launch_lines(number: int, launch: Launch) -> list[str]:
    work = launch.work
    lines = [describe_launch(number, launch), *(f"  {reason}" for reason in launch.reasons)]
    places = list(map(describe_place, launch.operands))
    if isinstance(work, Copy):
        return lines
    if not isinstance(work, Chain | Region):
        return lines + _work_lines(work, places)
    if isinstance(work, Chain):
        places[-1:] = [f"slot + {scratch.offset} of {scratch.nbytes}" for scratch in work.scratch]
    for k, stage in enumerate(work.stages):
        cuts = "" if isinstance(work, Chain) else f", cut at {', '.join(map(str, work.cuts[k]))}"
        lines.append(f"  stage {k}: {'kernel' if isinstance(stage.work, Kernel) else stage.work}{cuts}")
        lines += _work_lines(stage.work, [places[operand] for operand in stage.operands])
    return lines


def _work_lines(work: Work, places: Sequence[str]) -> list[str]:
    """Its operands, and its loop nest."""
    if isinstance(work, Control):
        lines = [f"  {', '.join(places)}"]
        for number, plan in enumerate(work.plans):
            lines += [f"  body {number}", *(f"  {line}".rstrip() for line in describe_plan(plan).splitlines())]
        return lines
    if isinstance(work, Opaque):
        return [f"  {', '.join(places)}", *(f"  {line}" for line in work.text.splitlines())]
    kernel = work.nest
    names = ["out"] if kernel is None else [*(b.name for b in kernel.operands), "status"]
    prologue = work.prologue if isinstance(work, Fused) else None
    if prologue is not None:
        before = [*(f"{b.name} of a" for b in prologue.operands[1:]), *(["status"] if prologue.checked else [])]
        names = [*before, "b", *names]
    elif kernel is not work:
        names = ["a", "b", *names]
    lines = [f"  {', '.join(f'{name} = {place}' for name, place in zip(names, places, strict=False))}"]
    return lines + [f"  {line}" for nest in work.nests for line in print_kernel(nest).splitlines()]
