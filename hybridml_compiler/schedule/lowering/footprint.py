"""Footprints: the elements of its buffers that a part of a kernel's range touches; chains and updates in place ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ... import dtypes
from ...loops.builder import LoopBuilder
from ...loops.index import coefficient
from ...loops.ir import Buffer, Expr, For, Kernel, Scan, Stmt, Store, expressions, extent, statements


def splits_evenly(kernel: Kernel, buffer: Buffer, parts: int) -> bool:
    """Whether part i of the range touches part i of the buffer only, for each of so many equal parts."""
    if kernel.range is None or kernel.total % parts:
        return False
    s = LoopBuilder()
    part, rest = s.var("part", parts), s.var("rest", kernel.total // parts)
    positions = [*_stored(kernel.body, buffer), *_loaded(kernel.expressions, buffer)]
    whole = s.add(s.mul(part, kernel.total // parts), rest)
    return _in_steps(s, [s.substitute(p, {kernel.range: whole}) for p in positions], (part,), buffer.size)


def _in_steps(s: LoopBuilder, positions: Sequence[Expr], vars_: Sequence[Expr], size: int) -> bool:
    """Whether each iteration of the loops over `vars_`, outer to inner, stays in an equal part of `size` elements of
    its own, in their order: every position is var * (elements of a part) + something within a part."""
    zeros = {}
    for var in vars_:
        if size % extent(var):
            return False
        size //= extent(var)
        zeros[var] = s.const(0, dtypes.int64)
        if extent(var) > 1 and any(coefficient(p, var) != size for p in positions):
            return False
    within = [s.substitute(p, zeros) for p in positions]
    return all(p.low is not None and p.high is not None and 0 <= p.low and p.high < size for p in within)


def may_overwrite(kernel: Kernel, old: Buffer, new: Buffer) -> bool:
    """Whether the buffer that it writes (and reads only after writing) may share memory with the one that it reads.

    Each iteration of the outer loops must stay within elements of its own in both, and store an element after its last
    load: in a later statement, or in the same one and at the same position.
    """
    if (old.size, old.dtype.itemsize) != (new.size, new.dtype.itemsize) or new.role == "in":
        return False
    outer, body = [], kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind != "vector":
        outer.append(body[0].var)
        body = body[0].body
    positions = [
        p for buffer in (old, new) for p in (*_stored(kernel.body, buffer), *_loaded(kernel.expressions, buffer))
    ]
    if not _in_steps(LoopBuilder(), positions, outer, new.size):
        return False
    first = next(k for k, stmt in enumerate(body) if _stored([stmt], new))
    places = {*_stored(body[first:], new), *_loaded(expressions([body[first]]), old)}
    return len(places) == 1 and not _loaded(expressions(body[first + 1 :]), old)


def _stored(body: Iterable[Stmt], buffer: Buffer) -> list[Expr]:
    return [s.index for s in statements(tuple(body)) if isinstance(s, Store | Scan) and s.buffer.name == buffer.name]


def _loaded(parts: Iterable[Expr], buffer: Buffer) -> list[Expr]:
    return [e.args[0] for e in parts if e.op == "load" and e.attr.name == buffer.name]
