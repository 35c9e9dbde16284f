"""A plan run without code generation: kernels by their interpreter, matrix products and copies by NumPy.

Results that agree with the graph's interpreter say that fusion, lowering and the memory plan are right; a backend that
disagrees after that is itself at fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.graph.text import parse_graph
from hybridml_compiler.loops.interpret import interpret_kernel
from hybridml_compiler.loops.ir import KernelSpec
from hybridml_compiler.schedule.fusion.batch_fusion import BatchFusion
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.fusion.horizontal_fusion import HorizontalFusion
from hybridml_compiler.schedule.host_call import HostCall
from hybridml_compiler.schedule.kernels.gemm import Matrix, Product
from hybridml_compiler.schedule.kernels.library import Call
from hybridml_compiler.schedule.launch import Copy, Plan
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.targets.cpu.capabilities import capabilities
from hybridml_compiler.targets.cpu.spec import host_spec


def plan_of(graph: Graph, donate: Mapping[int, int] | None = None, *, blas: bool = True) -> Plan:
    def has_library(call: Call) -> bool:
        return blas and isinstance(call, Product)

    target = replace(capabilities(host_spec()), has_library=has_library, takes_epilogue=lambda _: True, cores=2)
    return make_plan(graph, donate or {}, target)


def run_plan(
    plan: Plan, arrays: Sequence[np.ndarray], count: int, donate: Mapping[int, int]
) -> list[np.ndarray] | None:
    """The graph's `count` outputs, or None if an index check failed. Donated inputs are overwritten."""
    arena = np.full(plan.arena_bytes, 0x7F, np.uint8)  # not zeros: nothing may rely on what it holds
    results = [np.empty(aval.shape, aval.dtype) for aval in plan.outputs]
    memory = {"input": arrays, "output": results, "constant": plan.constants, "arena": [arena]}
    if plan.checked:
        arena[:8] = 0

    for launch in plan.launches:
        spec = launch.spec
        memories = [memory[p.base][p.number].reshape(-1).view(np.uint8)[p.offset :] for p in launch.operands]
        if isinstance(spec, Copy):
            source, target = memories
            target[: spec.nbytes] = source[: spec.nbytes]
        elif isinstance(spec, BatchFusion):
            _run_chain(spec, memories)
        elif isinstance(spec, HorizontalFusion):
            _run_region(spec, memories)
        elif isinstance(spec, HostCall):
            _run_opaque(spec, memories)
        elif _run(spec, memories):
            return None
    fresh = dict(zip(plan.fresh, results, strict=True))
    return [fresh[k] if k in fresh else arrays[donate[k]] for k in range(count)]


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
    return flat[at].astype(product.dtype, copy=False)
