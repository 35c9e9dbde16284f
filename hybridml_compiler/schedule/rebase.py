"""Kernels that differ only in where in an array they read become one kernel, launched with other addresses.

    b7[5] * x          operand b7 at its beginning              b7[0] * x      operand b7, 20 bytes from its beginning

The constant that all indices of an operand have in common moves from the indices into the address that the launch
gives. The update of the 55 parameters of a small transformer reads the factors of its step from element 0, 1, 2, ... of
one array: 26 kernels of 20 ms each to compile became 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..loops.builder import LoopBuilder
from ..loops.ir import Buffer, Expr, For, Kernel, Reduce, Scan, Stmt, Store, expressions


def rebase(kernel: Kernel) -> tuple[Kernel, dict[str, int]]:
    """The kernel reading each operand from its first element on, and how many elements each begins later."""
    indices: dict[str, list[Expr]] = {buffer.name: [] for buffer in kernel.buffers if buffer.role == "in"}
    parts = expressions(kernel.body)
    for part in parts:
        if part.op == "load" and part.attr.name in indices:
            indices[part.attr.name].append(part.args[0])
    shifts = {name: min(map(_constant, found)) for name, found in indices.items() if found}
    shifts = {name: shift for name, shift in shifts.items() if shift > 0}
    if not shifts:
        return kernel, {}
    buffers = {b.name: _shifted(b, shifts[b.name], indices[b.name]) for b in kernel.buffers if b.name in shifts}
    s, new = LoopBuilder(), dict[Expr, Expr]()
    for part in parts:
        args = tuple([new.get(a, a) for a in part.args])
        if part.op == "load" and part.attr.name in shifts:
            name = part.attr.name
            new[part] = s.load_of(buffers[name], (s.add(args[0], -shifts[name]), *args[1:]))
        elif args != part.args:
            new[part] = _rebuilt(s, part, args)
    changed = tuple(buffers.get(b.name, b) for b in kernel.buffers)
    return replace(kernel, buffers=changed, body=_statements(kernel.body, new)), shifts


def _constant(index: Expr) -> int:
    """The constant summand of an index (the builder puts it last), as far as nothing is read before it."""
    last = index.args[1] if index.op == "add" else index
    return min(int(last.attr), index.low) if last.op == "const" and index.low is not None else 0


def _shifted(buffer: Buffer, shift: int, indices: Sequence[Expr]) -> Buffer:
    """As large as what is read of it, where that is known."""
    ends = [index.high + 1 if index.high is not None else buffer.size for index in indices]
    return replace(buffer, size=min(max(ends), buffer.size) - shift)


def _rebuilt(s: LoopBuilder, part: Expr, args: tuple[Expr, ...]) -> Expr:
    if part.op == "load":
        return s.load_of(part.attr, args)
    if part.op == "index":
        return s.index_of(args, *part.attr)
    return s.emit(part.op, *args, dtype=part.dtype, attr=part.attr)


def _statements(body: Sequence[Stmt], new: Mapping[Expr, Expr]) -> tuple[Stmt, ...]:
    changed: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                changed.append(replace(stmt, body=_statements(stmt.body, new)))
            case Reduce():
                changed.append(replace(stmt, value=new.get(stmt.value, stmt.value)))
            case Store() | Scan():
                index, value = new.get(stmt.index, stmt.index), new.get(stmt.value, stmt.value)
                changed.append(replace(stmt, index=index, value=value))
    return tuple(changed)
