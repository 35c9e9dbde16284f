"""A plan run without code generation: kernels by their interpreter, matrix products and copies by NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph.interpret import interpret
from ...graph.text import parse_graph
from ...loops.interpret import interpret_kernel
from ...loops.ir import KernelSpec
from ...schedule.control import Choice, Loop
from ...schedule.fusion.batch_fusion import BatchFusion
from ...schedule.fusion.epilogue import Fused
from ...schedule.fusion.horizontal_fusion import HorizontalFusion
from ...schedule.host_call import HostCall
from ...schedule.kernels.gemm import Matrix, Product
from ...schedule.launch import Copy, Plan


def run_plan(
    plan: Plan, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], part: int = 0, parts: int = 1
) -> bool:
    """Runs the launches on bytes of inputs and of fresh outputs; False if an index check failed.

    Donated inputs are overwritten. With several `parts` one part of each launch is run.
    """
    arena = np.full(plan.arena_bytes, 0x7F, np.uint8)  # not zeros: nothing may rely on what it holds
    constants = [data.reshape(-1).view(np.uint8) for data in plan.constants]
    memory = {"input": inputs, "output": results, "constant": constants, "arena": [arena]}
    if plan.checked:
        arena[:8] = 0

    for launch in plan.launches:
        spec = launch.spec
        memories = [memory[p.base][p.number][p.offset :] for p in launch.operands]
        if isinstance(spec, Copy):
            source, target = memories
            share = slice(spec.nbytes * part // parts, spec.nbytes * (part + 1) // parts)
            target[share] = source[share]
        elif isinstance(spec, BatchFusion):
            _run_chain(spec, memories)
        elif isinstance(spec, HorizontalFusion):
            _run_region(spec, memories)
        elif isinstance(spec, HostCall):
            _run_opaque(spec, memories)
        elif isinstance(spec, Loop):
            if not _run_loop(spec, memories):
                return False
        elif isinstance(spec, Choice):
            taken = spec.true if memories[0][0] else spec.false
            if not run_plan(taken, memories[1 : spec.given], memories[spec.given :]):
                return False
        elif _run(spec, memories, part, parts):
            return False
    return True


def _run_loop(loop: Loop, memories: Sequence[np.ndarray]) -> bool:
    """All steps of a loop, each with new memory for what it carries on; False if an index check failed."""
    count, rest = (memories[0], memories[1:]) if loop.counted else (None, memories)
    first, c = loop.consts + len(loop.carries), len(loop.carries)
    consts, xs = rest[: loop.consts], rest[first : first + len(loop.xs)]
    carries = [start[:size] for start, size in zip(rest[loop.consts : first], loop.carries, strict=True)]
    results = dict(zip(loop.wanted, rest[first + len(loop.xs) :], strict=False))
    last = math.inf if loop.length is None else int(loop.length)
    if count is not None:
        last = min(last, int(_array(count, np.dtype(np.int64), 1)[0]))
    if count is not None or loop.condition is not None:  # results of steps that are not run are zero
        for k, size in enumerate(loop.ys):
            if c + k in results:
                results[c + k][: size * (loop.length or 0)] = 0
    step = 0
    while step < last:
        if loop.condition is not None:
            holds = np.zeros(1, np.uint8)
            if not run_plan(loop.condition, [*consts, *carries], [holds]):
                return False
            if not holds[0]:
                break
        at = int(last) - 1 - step if loop.reverse else step
        given = [*consts, *carries, *(x[at * size : (at + 1) * size] for x, size in zip(xs, loop.xs, strict=True))]
        ys = [
            results[c + k][at * size : (at + 1) * size] if c + k in results else np.full(size, 0x7F, np.uint8)
            for k, size in enumerate(loop.ys)
        ]
        kept = zip(loop.kept, loop.carries, strict=True)
        carries = [np.full(size, 0x7F, np.uint8) if y is None else ys[y] for y, size in kept]
        made = [*(t for t, y in zip(carries, loop.kept, strict=True) if y is None), *ys]
        if not all(run_plan(loop.body, given, made, slot, loop.slots) for slot in range(loop.slots)):
            return False
        step += 1
    for k, size in enumerate(loop.carries):
        if k in results:
            results[k][:size] = carries[k]
    return True


def _run_chain(chain: BatchFusion, memories: Sequence[np.ndarray]) -> None:
    """Element by element, a slot after the other. A stage is given arrays of all elements, in which its own is what the
    slot holds and the others are damaged."""
    *given, slots = memories
    for element in range(chain.batch):
        slot = slots[(element * chain.slots // chain.batch) * chain.slot_bytes :][: chain.slot_bytes]
        for stage in chain.stages:
            arrays = list(given)
            for scratch in chain.scratch:
                array = np.full(scratch.nbytes * chain.batch, 0x7F, np.uint8)
                part = array[element * scratch.nbytes : (element + 1) * scratch.nbytes]
                part[:] = slot[scratch.offset : scratch.offset + scratch.nbytes]
                arrays.append(array)
            assert not _run(stage.spec, [arrays[k] for k in stage.operands], element, chain.batch)
            written = [k for k, w in zip(stage.operands, stage.spec.written(len(stage.operands)), strict=True) if w]
            for k in written:
                if k >= len(given):
                    scratch = chain.scratch[k - len(given)]
                    part = arrays[k][element * scratch.nbytes : (element + 1) * scratch.nbytes]
                    slot[scratch.offset : scratch.offset + scratch.nbytes] = part


def _run_region(region: HorizontalFusion, memories: Sequence[np.ndarray]) -> None:
    """Slot after slot, the last one first: their order does not matter."""
    for slot in reversed(range(region.slots)):
        for kernel, stage, cuts in zip(region.kernels, region.stages, region.cuts, strict=True):
            given = [memories[k] for k in stage.operands]
            buffers = [_array(m, b.dtype, b.size) for m, b in zip(given, kernel.operands, strict=True)]
            if cuts[slot] < cuts[slot + 1]:
                assert not interpret_kernel(kernel, buffers, cuts[slot], cuts[slot + 1])


def _run_opaque(spec: HostCall, memories: Sequence[np.ndarray]) -> None:
    graph = parse_graph(spec.text)
    avals = [node.aval for node in (*graph.inputs, *graph.outputs)]
    arrays = [
        m[: a.size * a.dtype.itemsize].view(a.dtype).reshape(a.shape) for m, a in zip(memories, avals, strict=False)
    ]
    for out, found in zip(arrays[spec.operands :], interpret(graph, arrays[: spec.operands]), strict=True):
        out[...] = found


def _run(spec: KernelSpec, memories: Sequence[np.ndarray], part: int = 0, parts: int = 1) -> int:
    """One of so many parts of the range, on memory that starts with its operands; the status of its index checks."""
    call = spec.call if isinstance(spec, Fused) else spec
    if isinstance(call, Product):
        if isinstance(spec, Fused) and spec.prologue is not None:
            nest, before = spec.prologue, spec.left + spec.prologue.checked
            whole = np.empty(nest.operands[0].nbytes, np.uint8)
            given = zip([whole, *memories[: spec.left]], nest.operands, strict=True)
            if interpret_kernel(nest, [_array(m, b.dtype, b.size) for m, b in given], 0, nest.total):
                return 1
            memories = [whole, *memories[before:]]
        left, right, out, *_ = memories
        stored = call.stored or (call.dtype, call.dtype)
        a = _matrices(left, call, stored[0], call.a, call.m, call.k)
        b = _matrices(right, call, stored[1], call.b, call.k, call.n)
        shape = (call.matrices, call.m, call.n)
        if call.passing:
            out = np.full(math.prod(shape) * call.dtype.itemsize, 0x7F, np.uint8)
            memories = [left, right, out, *memories[3:]]
        share = slice(call.matrices * part // parts, call.matrices * (part + 1) // parts)
        with np.errstate(all="ignore"):  # other elements of a chain hold anything
            _array(out, call.dtype, math.prod(shape)).reshape(shape)[share] = np.matmul(a, b).reshape(shape)[share]
        memories = memories[2:]
    kernel = spec.nest
    if kernel is None:
        assert isinstance(call, Product), f"there is no interpreter of {spec}"
        return 0
    buffers = [_array(m, b.dtype, b.size) for m, b in zip(memories, kernel.operands, strict=False)]
    return interpret_kernel(kernel, buffers, kernel.total * part // parts, kernel.total * (part + 1) // parts)


def _array(memory: np.ndarray, dtype: np.dtype, size: int) -> np.ndarray:
    whole = memory[: size * dtype.itemsize]
    return whole.view(dtype) if whole.size else np.zeros(size, dtype)  # a buffer has one element, if the array has none


def _matrices(
    memory: np.ndarray, product: Product, stored: np.dtype, matrix: Matrix, rows: int, columns: int
) -> np.ndarray:
    """The operand of a product as an array (*batch, rows, columns), read by its strides."""
    flat = memory[: memory.size // stored.itemsize * stored.itemsize].view(stored)
    shape, steps = (*product.batch, rows, columns), (*matrix.batch, matrix.row, matrix.column)
    at = np.full((1,) * len(shape), matrix.offset)
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        at = at + (np.arange(n) * step).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    found: np.ndarray = flat[at].astype(product.dtype, copy=False)
    return found
