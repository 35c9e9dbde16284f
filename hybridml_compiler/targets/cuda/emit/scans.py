"""Scans that the threads of a block share: each thread has a run of neighbours, and what is before them.

    for (chunk of runs) {
      sum = the running combination of the thread's run, of which every step is kept
      before = the combination of the chunks before and of the runs of the threads below
      each step is stored after `before`
    }

A sum is added up in another order than one element after the other; the order depends on the shape alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import dtypes
from ....loops.builder import LoopBuilder, scan_start
from ....loops.ir import Scan, Store, extent, loads
from .scalars import C
from .types import c_type, literal

if TYPE_CHECKING:
    from .kernel import KernelWriter


def scan_of_block(w: KernelWriter, stmt: Scan) -> None:
    """Writes the scan, whose runs are as long as the kernel has lanes."""
    dtype, size, lanes = stmt.value.dtype, int(extent(stmt.var)), w.kernel.lanes
    kind, start, s = c_type(dtype), literal(scan_start(stmt.op, dtype), dtype), LoopBuilder()
    vectors = lanes > 1 and w.wide
    name, total, chunk, run, k, inside = (
        w.new(name, dtypes.int64) for name in ("r", "total", "chunk", "run", "k", "inside")
    )
    part, before = w.new("part", dtype), w.new("before", dtype)
    first = s.var("run", size)
    turn = f"for (int {k} = 0; {k} < {lanes}; ++{k}) {{"
    if stmt.reverse:
        turn = f"for (int {k} = {lanes - 1}; {k} >= 0; --{k}) {{"

    w.barrier((stmt,))
    outer = w.blocks[-1]
    outer.add(f"{kind} {total} = {start};")
    block = w.open((first,))
    w.names[first] = run
    place = f"{chunk} + threadIdx.x" + f" * {lanes}" * (lanes > 1)
    block.add(f"const long long {run} = {f'{size - lanes} - ({place})' if stmt.reverse else place};")
    block.add(f"const bool {inside} = {f'{run} >= 0' if stmt.reverse else f'{run} < {size}'};")
    block.add(f"{kind} {part}[{lanes}], {before} = {start};")

    # the steps of a run
    guarded = w.open((stmt.var,))
    moving = [load for load in loads(stmt.value) if stmt.var in load.depends and vectors]
    found = {}
    for load in moving:
        vector, value = w.functions.vector(load.dtype, lanes), w.new("x", load.dtype)
        at = w.index(s.substitute(load.args[0], {stmt.var: first}))
        guarded.add(f"const {vector} {value} = *(const {vector}*)&{load.attr.name}[{at}];")
        found[load] = C(f"{value}.lane[{k}]", load.dtype)
    steps = w.open((stmt.var,))
    w.names |= {stmt.var: name, **found}
    steps.add(f"const long long {name} = {run} + {k};")
    steps.add(f"{before} = {w.combined(stmt.op, before, w.expression(stmt.value))};")
    steps.add(f"{part}[{k}] = {before};")
    w.close(steps)
    guarded.add("#pragma unroll")
    guarded.add(turn)
    guarded.nest(steps)
    for load in moving:
        w.names.pop(load, None)
    w.close(guarded)
    block.add(f"if ({inside}) {{")
    block.nest(guarded)

    # their places
    block.add(f"{before} = {w.functions.block_scan(stmt.op, dtype)}({before}, {total});")
    guarded = w.open((stmt.var,))
    at = w.index(s.substitute(stmt.index, {stmt.var: first}))
    result = w.combined(stmt.op, before, C(f"{part}[{k}]", dtype))
    guarded.add("#pragma unroll")
    if vectors:
        w.alignment = 16
        vector, value = w.functions.vector(dtype, lanes), w.new("y", dtype)
        guarded.lines.insert(len(guarded.lines) - 1, f"{guarded.indent}{vector} {value};")
        guarded.add(f"for (int {k} = 0; {k} < {lanes}; ++{k}) {value}.lane[{k}] = {result};")
        guarded.add(f"*({vector}*)&{stmt.buffer.name}[{at}] = {value};")
    else:
        guarded.add(f"for (int {k} = 0; {k} < {lanes}; ++{k}) {stmt.buffer.name}[{at} + {k}] = {result};")
    w.close(guarded)
    block.add(f"if ({inside}) {{")
    block.nest(guarded)

    w.close(block)
    outer.add(f"for (long long {chunk} = 0; {chunk} < {size}; {chunk} += blockDim.x * {lanes}LL) {{")
    outer.nest(block)
    w.barrier((stmt,))
