"""The walk over a plan: its launches one after the other, on a machine that has the memory.

All of schedule/ is known here: fusions, loops and choices are taken apart into loop nests, products and copies, which a
`Machine` runs. host_machine.py is that of targets whose code runs on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..graph.ir import Graph
from ..loops.ir import Kernel, KernelSpec
from ..schedule.control import Choice, Loop
from ..schedule.fusion.batch_fusion import BatchFusion
from ..schedule.fusion.epilogue import Fused
from ..schedule.fusion.horizontal_fusion import HorizontalFusion
from ..schedule.fusion.row_fusion import RowFusion
from ..schedule.fusion.tile_fusion import TileFusion
from ..schedule.host_call import HostCall
from ..schedule.kernels.gemm import Product
from ..schedule.kernels.transform import Transform
from ..schedule.launch import Copy, Launch, Plan
from .numpy_call import graph_of, run_call
from .numpy_transform import run_transform

Memory = Any  # of a machine: some bytes, of which `memory[first:last]` are a part


class Machine(Protocol):
    """Memory that launches run on."""

    def memory(self, array: np.ndarray) -> Memory:
        """The memory of a constant."""

    def new(self, nbytes: int) -> Memory:
        """New memory, which holds anything."""

    def copy(self, target: Memory, source: Memory, nbytes: int) -> None:
        """Copies the first bytes."""

    def zero(self, target: Memory, nbytes: int) -> None:
        """Sets the first bytes to zero."""

    def nest(self, kernel: Kernel, memories: Sequence[Memory], lo: int, hi: int) -> bool:
        """Runs iterations lo to hi of a loop nest on its operands and, where it is checked, the status word; False
        where an index is known to be out of range."""

    def read(self, memory: Memory, nbytes: int) -> np.ndarray:
        """The first bytes, for the host to look at."""

    def call(self, spec: KernelSpec, memories: Sequence[Memory], part: int, parts: int) -> bool:
        """Runs a part of a library call with the loop nests round it, or a fusion, where there is code for all of it;
        whether there is."""

    def product(self, call: Product, memories: Sequence[Memory], part: int, parts: int) -> None:
        """Computes a part of the matrices of a product: left and right operand, result."""

    def operation(self, graph: Graph, memories: Sequence[Memory]) -> bool:
        """Computes a graph of one operation by a library that has its operands' memory; False where there is none, or
        it refuses what it is given: NumPy is asked by `on_host`, then, whose errors are the row's."""

    def on_host(
        self,
        compute: Callable[[Sequence[np.ndarray]], bool],
        memories: Sequence[Memory],
        sizes: Sequence[int],
        written: Sequence[bool],
    ) -> bool:
        """Calls a function of the host with so many bytes of each memory, some of which it writes to."""


def run_plan(
    plan: Plan, inputs: Sequence[Memory], results: Sequence[Memory], machine: Machine, part: int = 0, parts: int = 1
) -> bool:
    """Runs the launches on the memory of inputs and of fresh outputs; False where an index check or a call of NumPy
    failed.

    Donated inputs are overwritten. With several `parts` one part of each launch is run.
    """
    return Walk(memory_of(plan, inputs, results, machine), machine).run(plan.launches, part, parts)


def memory_of(
    plan: Plan, inputs: Sequence[Memory], results: Sequence[Memory], machine: Machine
) -> dict[str, Sequence[Memory]]:
    """The memory of a call's operands, by their bases."""
    constants = [machine.memory(data) for data in plan.constants]
    in_arena = any(p.base == "arena" for launch in plan.launches for p in launch.operands)  # maybe of no bytes
    arena = [machine.new(plan.arena_bytes)] if in_arena or plan.checked else []
    return {"input": inputs, "output": results, "constant": constants, "arena": arena}


class Walk:
    """A call of a plan, on the memory of its operands."""

    def __init__(self, memory: Mapping[str, Sequence[Memory]], machine: Machine) -> None:
        self.memory, self.steps = memory, _Run(machine)

    def run(self, launches: Sequence[Launch], part: int = 0, parts: int = 1) -> bool:
        """Runs some launches of the plan."""
        return all(
            self.steps.launch(
                launch.spec, [self.memory[p.base][p.number][p.offset :] for p in launch.operands], part, parts
            )
            for launch in launches
        )


class _Run:
    """Runs launches on memory that starts with their operands, one of so many parts; False where one failed."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def launch(self, spec: KernelSpec, memories: Sequence[Memory], part: int, parts: int) -> bool:
        match spec:
            case Copy():
                source, target = memories
                first, last = spec.nbytes * part // parts, spec.nbytes * (part + 1) // parts
                self.machine.copy(target[first:last], source[first:last], last - first)
                return True
            case BatchFusion():
                return self.chain(spec, memories)
            case RowFusion():
                return all(self.call(x.spec, [memories[k] for k in x.operands], part, parts) for x in spec.stages)
            case TileFusion():
                return self.machine.call(spec, memories, 0, 1) or self.tiles(spec, memories)
            case HorizontalFusion():
                return self.machine.call(spec, memories, 0, 1) or self.region(spec, memories)
            case HostCall():
                return self.host_call(spec, memories)
            case Transform():
                sizes = [memory.nbytes for memory in memories]
                return self.machine.on_host(lambda data: _transform(spec, data), memories, sizes, [False, True])
            case Loop():
                return self.loop(spec, memories)
            case Choice():
                taken = spec.true if self.machine.read(memories[0], 1)[0] else spec.false
                return run_plan(taken, memories[1 : spec.given], memories[spec.given :], self.machine)
        return self.call(spec, memories, part, parts)

    def host_call(self, spec: HostCall, memories: Sequence[Memory]) -> bool:
        """An operation by a library of the machine's, or by NumPy."""
        graph = graph_of(spec.text)
        avals = [node.aval for node in (*graph.inputs, *graph.outputs)]
        given, sizes = memories[: len(avals)], [int(a.nbytes) for a in avals]
        if self.machine.operation(graph, given):
            return True
        return self.machine.on_host(lambda data: run_call(graph, data), given, sizes, spec.written(len(avals)))

    def call(self, spec: KernelSpec, memories: Sequence[Memory], part: int, parts: int) -> bool:
        """A loop nest, or a library call with loop nests round it."""
        if not isinstance(spec, Kernel) and self.machine.call(spec, memories, part, parts):
            return True
        call = spec.call if isinstance(spec, Fused) else spec
        if isinstance(call, Product):
            if isinstance(spec, Fused) and spec.prologue is not None:
                before = spec.prologue
                left = self.machine.new(before.operands[0].nbytes)
                if not self.machine.nest(before, [left, *memories[: spec.left + before.checked]], 0, before.total):
                    return False
                memories = [left, *memories[spec.left + before.checked :]]
            if call.passing:
                rows, columns = call.result
                memories = [*memories[:2], self.machine.new(rows * columns * call.dtype.itemsize), *memories[3:]]
            self.machine.product(call, memories[:3], part, parts)
            memories = memories[2:]
        kernel = spec.nest
        if kernel is None:
            assert isinstance(call, Product), f"there is no interpreter of {spec}"
            return True
        return self.machine.nest(kernel, memories, kernel.total * part // parts, kernel.total * (part + 1) // parts)

    def loop(self, loop: Loop, memories: Sequence[Memory]) -> bool:
        """All steps of a loop, each with new memory for what it carries on."""
        machine = self.machine
        counts, rest = memories[: loop.counted], memories[loop.counted :]
        first, c = loop.consts + len(loop.carries), len(loop.carries)
        consts, xs = rest[: loop.consts], rest[first : first + len(loop.xs)]
        carries = [start[:size] for start, size in zip(rest[loop.consts : first], loop.carries, strict=True)]
        results = dict(zip(loop.wanted, rest[first + len(loop.xs) :], strict=False))
        last = math.inf if loop.length is None else int(loop.length)
        numbers = [max(0, int(machine.read(count, 8).view(np.int64)[0])) for count in counts]
        last, begin = min([last, *numbers[:1]]), sum(numbers[1:])
        if counts or loop.condition is not None:  # results of steps that are not run are zero
            for k, size in enumerate(loop.ys):
                if c + k in results:
                    machine.zero(results[c + k], size * (loop.length or 0))
        step = 0
        while begin + step < last:
            if loop.condition is not None:
                holds = machine.new(1)
                if not run_plan(loop.condition, [*consts, *carries], [holds], machine):
                    return False
                if not machine.read(holds, 1)[0]:
                    break
            at = int(last) - 1 - step if loop.reverse else begin + step
            given = [*consts, *carries, *(x[at * size : (at + 1) * size] for x, size in zip(xs, loop.xs, strict=True))]
            ys = [
                results[c + k][at * size : (at + 1) * size] if c + k in results else machine.new(size)
                for k, size in enumerate(loop.ys)
            ]
            carries = [machine.new(n) if y is None else ys[y] for y, n in zip(loop.kept, loop.carries, strict=True)]
            made = [*(t for t, y in zip(carries, loop.kept, strict=True) if y is None), *ys]
            slots = range(loop.slots)
            if not all(run_plan(loop.body, given, made, machine, slot, loop.slots) for slot in slots):
                return False
            step += 1
        for k, size in enumerate(loop.carries):
            if k in results:
                machine.copy(results[k], carries[k], size)
        return True

    def chain(self, chain: BatchFusion, memories: Sequence[Memory]) -> bool:
        """Element by element, a slot after the other. A stage is given arrays of all elements, in which its own is what
        the slot holds and the others are damaged."""
        machine, (*given, slots) = self.machine, memories
        for element in range(chain.batch):
            slot = slots[(element * chain.slots // chain.batch) * chain.slot_bytes :][: chain.slot_bytes]
            parts = [
                (slot[scratch.offset : scratch.offset + n], n) for scratch in chain.scratch for n in [scratch.nbytes]
            ]
            for stage in chain.stages:
                arrays = [machine.new(n * chain.batch) for _, n in parts]
                own = [array[element * n : (element + 1) * n] for array, (_, n) in zip(arrays, parts, strict=True)]
                for place, (part, n) in zip(own, parts, strict=True):
                    machine.copy(place, part, n)
                everything = [*given, *arrays]
                if not self.call(stage.spec, [everything[k] for k in stage.operands], element, chain.batch):
                    return False
                for k, written in zip(stage.operands, stage.spec.written(len(stage.operands)), strict=True):
                    if written and k >= len(given):
                        part, n = parts[k - len(given)]
                        machine.copy(part, own[k - len(given)], n)
        return True

    def tiles(self, fusion: TileFusion, memories: Sequence[Memory]) -> bool:
        """Launch by launch, with memory for all of their matrices."""
        everything = [*memories, *(self.machine.new(nbytes) for nbytes in fusion.scratch)]
        return all(self.call(stage.spec, [everything[k] for k in stage.operands], 0, 1) for stage in fusion.stages)

    def region(self, region: HorizontalFusion, memories: Sequence[Memory]) -> bool:
        """Slot after slot, the last one first: their order does not matter."""
        return all(
            self.machine.nest(kernel, [memories[k] for k in stage.operands], cuts[slot], cuts[slot + 1])
            for slot in reversed(range(region.slots))
            for kernel, stage, cuts in zip(region.kernels, region.stages, region.cuts, strict=True)
            if cuts[slot] < cuts[slot + 1]
        )


def _transform(spec: Transform, memories: Sequence[np.ndarray]) -> bool:
    run_transform(spec, *memories)
    return True
