"""The plan of a graph as text: launches, reasons, and memory. For people, golden tests and HYBRIDML_DEBUG=3.

launch 0: kernel, 96 bytes of traffic             a loop nest, a matrix product or a copy
  divide: an output                               why it exists, and why each further root joined it
  b0 = input 0, b1 = output 0                     its operands and where they live
  kernel(b0: f32[12], b1: f32[12] out) ...        the loop dialect (see loops/text.py)
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import aval as avals
from ..loops.ir import Kernel, KernelSpec
from ..loops.text import print_kernel
from .control import Control
from .fusion.batch_fusion import BatchFusion
from .fusion.epilogue import Fused
from .fusion.horizontal_fusion import HorizontalFusion
from .fusion.row_fusion import RowFusion
from .fusion.tile_fusion import TileFusion
from .host_call import HostCall
from .launch import BufferRef, Copy, Launch, Plan


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


def describe_place(place: BufferRef) -> str:
    """`input 0`, `arena`, `arena + 64`."""
    where = place.base if place.base == "arena" else f"{place.base} {place.number}"
    return f"{where} + {place.offset}" if place.offset else where


def describe_launch(number: int, launch: Launch) -> str:
    """`launch 3: matmul f32 32x16x20 B', 5888 bytes of traffic`."""
    spec = launch.spec
    if isinstance(spec, Copy):
        return f"launch {number}: copy {spec.nbytes} bytes, {' -> '.join(map(describe_place, launch.operands))}"
    return f"launch {number}: {'kernel' if isinstance(spec, Kernel) else spec}, {launch.nbytes} bytes of traffic"


def _launch_lines(number: int, launch: Launch) -> list[str]:
    spec = launch.spec
    lines = [describe_launch(number, launch), *(f"  {reason}" for reason in launch.reasons)]
    places = list(map(describe_place, launch.operands))
    if isinstance(spec, Copy):
        return lines
    if not isinstance(spec, BatchFusion | HorizontalFusion | TileFusion | RowFusion):
        return lines + _work_lines(spec, places)
    if isinstance(spec, BatchFusion):
        places[-1:] = [f"slot + {scratch.offset} of {scratch.nbytes}" for scratch in spec.scratch]
    if isinstance(spec, TileFusion):
        places += [f"tiles {k}" for k in range(len(spec.scratch))]
    for k, stage in enumerate(spec.stages):
        cuts = f", cut at {', '.join(map(str, spec.cuts[k]))}" if isinstance(spec, HorizontalFusion) else ""
        lines.append(f"  stage {k}: {'kernel' if isinstance(stage.spec, Kernel) else stage.spec}{cuts}")
        lines += _work_lines(stage.spec, [places[operand] for operand in stage.operands])
    return lines


def _work_lines(spec: KernelSpec, places: Sequence[str]) -> list[str]:
    """Its operands, and its loop nest."""
    if isinstance(spec, Control):
        lines = [f"  {', '.join(places)}"]
        for number, plan in enumerate(spec.plans):
            lines += [f"  body {number}", *(f"  {line}".rstrip() for line in describe_plan(plan).splitlines())]
        return lines
    if isinstance(spec, HostCall):
        return [f"  {', '.join(places)}", *(f"  {line}" for line in spec.text.splitlines())]
    kernel = spec.nest
    names = ["out"] if kernel is None else [*(b.name for b in kernel.operands), "status"]
    prologue = spec.prologue if isinstance(spec, Fused) else None
    if prologue is not None:
        before = [*(f"{b.name} of a" for b in prologue.operands[1:]), *(["status"] if prologue.checked else [])]
        names = [*before, "b", *names]
    elif kernel is not spec:
        names = ["a", "b", *names]
    lines = [f"  {', '.join(f'{name} = {place}' for name, place in zip(names, places, strict=False))}"]
    return lines + [f"  {line}" for nest in spec.nests for line in print_kernel(nest).splitlines()]
