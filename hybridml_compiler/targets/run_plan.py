"""The walk over a plan on the host: its launches one after the other, each loop nest run by a target's own function.

Matrix products, copies and calls of NumPy are NumPy's. All of schedule/ is known here: fusions, loops and choices are
taken apart into runs of loop nests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import HybridmlError
from ..graph.interpret import interpret
from ..graph.text import parse_graph
from ..loops.ir import Kernel, KernelSpec
from ..schedule.control import Choice, Loop
from ..schedule.fusion.batch_fusion import BatchFusion
from ..schedule.fusion.epilogue import Fused
from ..schedule.fusion.horizontal_fusion import HorizontalFusion
from ..schedule.host_call import HostCall
from ..schedule.kernels.gemm import Matrix, Product
from ..schedule.kernels.transform import Transform
from ..schedule.launch import Copy, Plan
from .numpy_transform import run_transform

Bytes = np.ndarray  # uint8
# Runs iterations lo to hi of a loop nest on its operands, flat arrays; False where an index was out of range
RunKernel = Callable[[Kernel, Sequence[np.ndarray], int, int], bool]
# Runs one of so many parts of a library call, with the loop nests round it; False where the target has no code for it
RunCall = Callable[[KernelSpec, Sequence[Bytes], int, int], bool]


def run_plan(
    plan: Plan,
    inputs: Sequence[Bytes],
    results: Sequence[Bytes],
    run_kernel: RunKernel,
    part: int = 0,
    parts: int = 1,
    run_call: RunCall = lambda *_: False,
) -> bool:
    """Runs the launches on bytes of inputs and of fresh outputs; False where an index check or a call of NumPy failed.

    Donated inputs are overwritten. With several `parts` one part of each launch is run. Products that the target's
    `run_call` does not run are NumPy's.
    """
    arena = _new(plan.arena_bytes)
    constants = [data.reshape(-1).view(np.uint8) for data in plan.constants]
    memory = {"input": inputs, "output": results, "constant": constants, "arena": [arena]}
    if plan.checked:
        arena[:8] = 0
    run = _Run(run_kernel, run_call)
    return all(
        run.launch(launch.spec, [memory[p.base][p.number][p.offset :] for p in launch.operands], part, parts)
        for launch in plan.launches
    )


class _Run:
    """Runs launches on memory that starts with their operands, one of so many parts; False where one failed."""

    def __init__(self, run_kernel: RunKernel, run_call: RunCall) -> None:
        self.run_kernel, self.run_call = run_kernel, run_call

    def plan(
        self, plan: Plan, inputs: Sequence[Bytes], results: Sequence[Bytes], part: int = 0, parts: int = 1
    ) -> bool:
        """Runs the plan of a step of a loop, or of a side of a choice."""
        return run_plan(plan, inputs, results, self.run_kernel, part, parts, self.run_call)

    def launch(self, spec: KernelSpec, memories: Sequence[Bytes], part: int, parts: int) -> bool:
        match spec:
            case Copy():
                source, target = memories
                share = slice(spec.nbytes * part // parts, spec.nbytes * (part + 1) // parts)
                target[share] = source[share]
                return True
            case BatchFusion():
                return self.run_call(spec, memories, 0, 1) or self.chain(spec, memories)
            case HorizontalFusion():
                return self.region(spec, memories)
            case HostCall():
                return _host_call(spec, memories)
            case Transform():
                run_transform(spec, *memories)
                return True
            case Loop():
                return self.loop(spec, memories)
            case Choice():
                taken = spec.true if memories[0][0] else spec.false
                return self.plan(taken, memories[1 : spec.given], memories[spec.given :])
        return self.call(spec, memories, part, parts)

    def nest(self, kernel: Kernel, memories: Sequence[Bytes], lo: int, hi: int) -> bool:
        buffers = [as_array(m, b.dtype, b.size) for m, b in zip(memories, kernel.operands, strict=False)]
        return self.run_kernel(kernel, buffers, lo, hi)

    def call(self, spec: KernelSpec, memories: Sequence[Bytes], part: int, parts: int) -> bool:
        """A loop nest, or a library call with loop nests round it."""
        if not isinstance(spec, Kernel) and self.run_call(spec, memories, part, parts):
            return True
        call = spec.call if isinstance(spec, Fused) else spec
        if isinstance(call, Product):
            if isinstance(spec, Fused) and spec.prologue is not None:
                before = spec.prologue
                left = _new(before.operands[0].nbytes)
                if not self.nest(before, [left, *memories[: spec.left]], 0, before.total):
                    return False
                memories = [left, *memories[spec.left + before.checked :]]
            memories = _product(call, memories, part, parts)
        kernel = spec.nest
        if kernel is None:
            assert isinstance(call, Product), f"there is no interpreter of {spec}"
            return True
        return self.nest(kernel, memories, kernel.total * part // parts, kernel.total * (part + 1) // parts)

    def loop(self, loop: Loop, memories: Sequence[Bytes]) -> bool:
        """All steps of a loop, each with new memory for what it carries on."""
        count, rest = (memories[0], memories[1:]) if loop.counted else (None, memories)
        first, c = loop.consts + len(loop.carries), len(loop.carries)
        consts, xs = rest[: loop.consts], rest[first : first + len(loop.xs)]
        carries = [start[:size] for start, size in zip(rest[loop.consts : first], loop.carries, strict=True)]
        results = dict(zip(loop.wanted, rest[first + len(loop.xs) :], strict=False))
        last = math.inf if loop.length is None else int(loop.length)
        if count is not None:
            last = min(last, int(as_array(count, np.dtype(np.int64), 1)[0]))
        if count is not None or loop.condition is not None:  # results of steps that are not run are zero
            for k, size in enumerate(loop.ys):
                if c + k in results:
                    results[c + k][: size * (loop.length or 0)] = 0
        step = 0
        while step < last:
            if loop.condition is not None:
                holds = np.zeros(1, np.uint8)
                if not self.plan(loop.condition, [*consts, *carries], [holds]):
                    return False
                if not holds[0]:
                    break
            at = int(last) - 1 - step if loop.reverse else step
            given = [*consts, *carries, *(x[at * size : (at + 1) * size] for x, size in zip(xs, loop.xs, strict=True))]
            ys = [
                results[c + k][at * size : (at + 1) * size] if c + k in results else _new(size)
                for k, size in enumerate(loop.ys)
            ]
            carries = [_new(n) if y is None else ys[y] for y, n in zip(loop.kept, loop.carries, strict=True)]
            made = [*(t for t, y in zip(carries, loop.kept, strict=True) if y is None), *ys]
            slots = range(loop.slots)
            if not all(self.plan(loop.body, given, made, slot, loop.slots) for slot in slots):
                return False
            step += 1
        for k, size in enumerate(loop.carries):
            if k in results:
                results[k][:size] = carries[k]
        return True

    def chain(self, chain: BatchFusion, memories: Sequence[Bytes]) -> bool:
        """Element by element, a slot after the other. A stage is given arrays of all elements, in which its own is what
        the slot holds and the others are damaged."""
        *given, slots = memories
        for element in range(chain.batch):
            slot = slots[(element * chain.slots // chain.batch) * chain.slot_bytes :][: chain.slot_bytes]
            parts = [slot[scratch.offset : scratch.offset + scratch.nbytes] for scratch in chain.scratch]
            for stage in chain.stages:
                arrays = [_new(part.size * chain.batch).reshape(chain.batch, -1) for part in parts]
                for array, part in zip(arrays, parts, strict=True):
                    array[element] = part
                everything = [*given, *(array.reshape(-1) for array in arrays)]
                if not self.call(stage.spec, [everything[k] for k in stage.operands], element, chain.batch):
                    return False
                for k, written in zip(stage.operands, stage.spec.written(len(stage.operands)), strict=True):
                    if written and k >= len(given):
                        parts[k - len(given)][:] = arrays[k - len(given)][element]
        return True

    def region(self, region: HorizontalFusion, memories: Sequence[Bytes]) -> bool:
        """Slot after slot, the last one first: their order does not matter."""
        return all(
            self.nest(kernel, [memories[k] for k in stage.operands], cuts[slot], cuts[slot + 1])
            for slot in reversed(range(region.slots))
            for kernel, stage, cuts in zip(region.kernels, region.stages, region.cuts, strict=True)
            if cuts[slot] < cuts[slot + 1]
        )


def _host_call(spec: HostCall, memories: Sequence[Bytes]) -> bool:
    graph = parse_graph(spec.text)
    avals = [node.aval for node in (*graph.inputs, *graph.outputs)]
    arrays = [as_array(m, a.dtype, a.size).reshape(a.shape) for m, a in zip(memories, avals, strict=False)]
    try:
        results = interpret(graph, arrays[: spec.operands])
    except HybridmlError:  # whoever runs the program explains it, as a failed check
        return False
    for out, found in zip(arrays[spec.operands :], results, strict=True):
        out[...] = found
    return True


def _product(call: Product, memories: Sequence[Bytes], part: int, parts: int) -> Sequence[Bytes]:
    """Computes a matrix product; the memory of its result, and what follows it."""
    left, right, out, *others = memories
    stored = call.stored or (call.dtype, call.dtype)
    a = _matrices(left, call, stored[0], call.a, call.m, call.k)
    b = _matrices(right, call, stored[1], call.b, call.k, call.n)
    shape = (call.matrices, call.m, call.n)
    if call.passing:
        out = _new(math.prod(shape) * call.dtype.itemsize)
    share = slice(call.matrices * part // parts, call.matrices * (part + 1) // parts)
    with np.errstate(all="ignore"):  # other elements of a chain hold anything
        as_array(out, call.dtype, math.prod(shape)).reshape(shape)[share] = np.matmul(a, b).reshape(shape)[share]
    return [out, *others]


def _matrices(memory: Bytes, product: Product, stored: np.dtype, matrix: Matrix, rows: int, columns: int) -> np.ndarray:
    """The operand of a product as an array (*batch, rows, columns), read by its strides."""
    flat = memory[: memory.size // stored.itemsize * stored.itemsize].view(stored)
    shape, steps = (*product.batch, rows, columns), (*matrix.batch, matrix.row, matrix.column)
    at = np.full((1,) * len(shape), matrix.offset)
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        at = at + (np.arange(n) * step).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    found: np.ndarray = flat[at].astype(product.dtype, copy=False)
    return found


def as_array(memory: Bytes, dtype: np.dtype, size: int) -> np.ndarray:
    whole = memory[: size * dtype.itemsize]
    return whole.view(dtype) if whole.size else np.zeros(size, dtype)  # a buffer has one element, if the array has none


def _new(nbytes: int) -> Bytes:
    """New memory; not zeros, for nothing may rely on what it holds."""
    return np.full(nbytes, 0x7F, np.uint8)
