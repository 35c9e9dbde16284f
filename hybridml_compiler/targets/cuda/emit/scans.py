"""Scans that the threads of a block share: each thread has a run of neighbours, and what is before them.

    for (chunk of runs) {
      before = the running combination of the thread's run, of which every step is kept
      before = the combination of the chunks before, and of the runs of the threads below
      each step is stored after that
    }

A sum is added up in another order than one element after the other; the order depends on the shape alone.
"""

from __future__ import annotations

from .... import dtypes
from ....loops.builder import LoopBuilder, scan_start
from ....loops.ir import Expr, Scan, extent
from .scalars import C
from .types import c_type, literal
from .values import ValueWriter


def scan_of_block(w: ValueWriter, stmt: Scan) -> None:
    """Writes the scan, whose runs are as long as the kernel has lanes."""
    w.barrier((stmt,))
    dtype, size, lanes = stmt.value.dtype, int(extent(stmt.var)), w.kernel.lanes
    kind, start = c_type(dtype), literal(scan_start(stmt.op, dtype), dtype)
    total, chunk, run, inside, part = (w.number(name) for name in ("total", "chunk", "run", "inside", "part"))
    before, k = w.new("before", dtype), w.new("k", dtypes.int64)
    first, outer = LoopBuilder().var("run", size), w.blocks[-1]
    block = w.open((first,))
    w.names[first] = C(run, dtypes.int64)
    place = f"{chunk} + threadIdx.x{f' * {lanes}' * (lanes > 1)}"
    block.add(f"const long long {run} = {f'{size - lanes} - ({place})' if stmt.reverse else place};")
    block.add(f"const bool {inside} = {f'{run} >= 0' if stmt.reverse else f'{run} < {size}'};")
    block.add(f"{kind} {part}[{lanes}], {before} = {start};")
    block.add(f"if ({inside}) {{")
    _steps(w, stmt, first, before, f"{part}[{k}]", k)
    block.add(f"{before} = {w.functions.block_scan(stmt.op, dtype)}({before}, {total});")
    block.add(f"if ({inside}) {{")
    _stores(w, stmt, first, w.combined(stmt.op, before, C(f"{part}[{k}]", dtype)), k)
    w.close(block)
    outer.add(f"{kind} {total} = {start};")
    outer.add(f"for (long long {chunk} = 0; {chunk} < {size}; {chunk} += {lanes}LL * blockDim.x) {{")
    outer.nest(block)
    w.barrier((stmt,))


def _steps(w: ValueWriter, stmt: Scan, first: Expr, before: C, part: str, k: C) -> None:
    """The running combination of the run that begins at `first`, whose elements are loaded before."""
    lanes, outer = w.kernel.lanes, w.blocks[-1]
    block = w.open(())
    if lanes > 1 and w.wide:
        w.neighbours((stmt,), stmt.var, first, lanes, k)
    inner = w.open((stmt.var,))
    w.names[stmt.var] = w.new("r", dtypes.int64)
    inner.add(f"const long long {w.names[stmt.var]} = {w.names[first]} + {k};")
    inner.add(f"{before} = {w.combined(stmt.op, before, w.expression(stmt.value))};")
    inner.add(f"{part} = {before};")
    w.close(inner)
    block.add("#pragma unroll")
    block.add(f"for (int {k} = {f'{lanes - 1}; {k} >= 0; --{k}' if stmt.reverse else f'0; {k} < {lanes}; ++{k}'}) {{")
    block.nest(inner)
    w.close(block)
    outer.nest(block)


def _stores(w: ValueWriter, stmt: Scan, first: Expr, value: C, k: C) -> None:
    """The stores of the run that begins at `first`, of a value for each k."""
    lanes, outer = w.kernel.lanes, w.blocks[-1]
    block = w.open(())
    at = w.index(LoopBuilder().substitute(stmt.index, {stmt.var: first}))
    to, after = f"{stmt.buffer.name}[{at} + {k}]", ""
    if lanes > 1 and w.wide:
        vector, kept = w.functions.vector(stmt.buffer.dtype, lanes), w.number("y")
        block.add(f"{vector} {kept};")
        to, after = f"{kept}.lane[{k}]", f"*({vector}*)&{stmt.buffer.name}[{at}] = {kept};"
    block.add("#pragma unroll")
    block.add(f"for (int {k} = 0; {k} < {lanes}; ++{k}) {to} = {value};")
    if after:
        block.add(after)
    w.close(block)
    outer.nest(block)
