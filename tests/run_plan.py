"""A plan run without code generation: kernels by their interpreter, matrix products and copies by NumPy.

Results that agree with the graph's interpreter say that fusion, lowering and the memory plan are right; a backend that
disagrees after that is itself at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.interpret import interpret_kernel
from hybridml_compiler.pipeline import host
from hybridml_compiler.schedule.contract import Matrix, Product
from hybridml_compiler.schedule.epilogue import Fused
from hybridml_compiler.schedule.plan import Copy, Place, Plan, make_plan


def plan_of(graph: Graph, donate: Mapping[int, int] | None = None, *, blas: bool = True) -> Plan:
    target = replace(host(), has_library=lambda call: blas and isinstance(call, Product), takes_epilogue=lambda _: True)
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

    def data(place: Place, dtype: np.dtype, size: int) -> np.ndarray:
        array = memory[place.base][place.number]
        whole = array.reshape(-1).view(np.uint8)[place.offset : place.offset + size * dtype.itemsize]
        if not whole.size:  # a buffer has one element at least, also where the array has none
            return np.zeros(size, dtype)
        return whole.view(dtype)

    for launch in plan.launches:
        work, places = launch.work, launch.operands
        if isinstance(work, Copy):
            source, target = (data(place, np.dtype(np.uint8), work.nbytes) for place in places)
            target[...] = source
            continue
        call = work.call if isinstance(work, Fused) else work
        if isinstance(call, Product):
            left, right, out, *_ = places
            a = _matrices(memory[left.base][left.number], left.offset, call, call.a, call.m, call.k)
            b = _matrices(memory[right.base][right.number], right.offset, call, call.b, call.k, call.n)
            size = call.matrices * call.m * call.n
            data(out, call.dtype, size)[...] = np.matmul(a, b).reshape(-1)
            places = places[2:]
        if launch.kernel is not None:
            buffers = [data(p, b.dtype, b.size) for p, b in zip(places, launch.kernel.operands, strict=False)]
            if interpret_kernel(launch.kernel, buffers):
                return None
    fresh = dict(zip(plan.fresh, results, strict=True))
    return [fresh[k] if k in fresh else arrays[donate[k]] for k in range(count)]


def _matrices(base: np.ndarray, offset: int, work: Product, spec: Matrix, rows: int, columns: int) -> np.ndarray:
    """The operand of a product as an array (*batch, rows, columns), read by its strides."""
    flat = base.reshape(-1).view(np.uint8)[offset:]
    flat = flat[: flat.size // work.dtype.itemsize * work.dtype.itemsize].view(work.dtype)
    shape, steps = (*work.batch, rows, columns), (*spec.batch, spec.row, spec.column)
    at = np.full((1,) * len(shape), spec.offset)
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        at = at + (np.arange(n) * step).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    return flat[at]
