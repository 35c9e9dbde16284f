"""Kernels that differ only in where in an array they read or write become one kernel, launched with other addresses.

    b7[5] * x          operand b7 at its beginning              b7[0] * x      operand b7, 20 bytes from its beginning

The constant that all indices of an operand have in common moves from the indices into the address that the launch
gives. The update of a transformer's parameters reads the factors of its step from element 0, 1, 2, ... of one array:
most of its kernels are one then ([Note: Lowering]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...loops.builder import LoopBuilder
from ...loops.ir import Buffer, Expr, For, Kernel, Reduce, Scan, Stmt, Store, statements
from ...record import replace


def rebase(kernel: Kernel) -> tuple[Kernel, dict[str, int]]:
    """The kernel using each operand from its first element on, and how many elements each begins later."""
    if kernel.symbolic:
        return kernel, {}
    indices: dict[str, list[Expr]] = {buffer.name: [] for buffer in kernel.buffers if buffer.role != "scratch"}
    for part in kernel.expressions:
        if part.op == "load" and part.attr.name in indices:
            indices[part.attr.name].append(part.args[0])
    for stmt in statements(kernel.body):
        if isinstance(stmt, Store | Scan) and stmt.buffer.name in indices:
            indices[stmt.buffer.name].append(stmt.index)
    last = {buffer.name: buffer.size - 1 for buffer in kernel.buffers}  # a mask may leave nothing to read: stay inside
    shifts = {name: max(min(last[name], *map(_constant, found)), 0) for name, found in indices.items() if found}
    buffers = {b.name: _part(b, shifts[b.name], indices[b.name]) for b in kernel.buffers if b.name in shifts}
    if all(buffers.get(b.name, b) == b for b in kernel.buffers):
        return kernel, {}
    return _shifted(kernel, buffers, shifts), {name: shift for name, shift in shifts.items() if shift}


def moved(kernel: Kernel, by: Mapping[str, int]) -> Kernel:
    """The kernel using operands, by name, so many elements further on, of buffers as large as before."""
    return _shifted(kernel, {b.name: b for b in kernel.buffers if b.name in by}, {name: -n for name, n in by.items()})


def _shifted(kernel: Kernel, buffers: Mapping[str, Buffer], shifts: Mapping[str, int]) -> Kernel:
    """The kernel with these buffers in place of those of their names, each used so many elements before."""
    s, new = LoopBuilder(), dict[Expr, Expr]()
    for part in kernel.expressions:
        args = tuple([new.get(a, a) for a in part.args])
        if part.op == "load" and part.attr.name in shifts:
            name = part.attr.name
            new[part] = s.load_of(buffers[name], (_less(s, args[0], shifts[name]), *args[1:]))
        elif part.op == "const":
            new[part] = s.const(part.attr, part.dtype) if part.dtype.kind == "i" else part
        elif part.op not in ("var", "result"):  # all made again, so that equal parts are one expression
            new[part] = s.with_args(part, args)
    changed = tuple(buffers.get(b.name, b) for b in kernel.buffers)
    return replace(kernel, buffers=changed, body=_statements(s, kernel.body, new, buffers, shifts))


def _constant(index: Expr) -> int:
    """The constant summand of an index, as far as nothing is read before it."""
    return 0 if index.low is None else min(_summand(index), index.low)


def _summand(index: Expr) -> int:
    """The constant part of a sum of multiples."""
    match index.op:
        case "const":
            return int(index.attr)
        case "add":
            return _summand(index.args[0]) + _summand(index.args[1])
        case "mul" if index.args[1].op == "const":
            return _summand(index.args[0]) * int(index.args[1].attr)
    return 0


def _less(s: LoopBuilder, index: Expr, shift: int) -> Expr:
    return s.add(_linear(s, index), _summand(index) - shift) if shift else index


def _linear(s: LoopBuilder, index: Expr) -> Expr:
    """An index without its constant part."""
    match index.op:
        case "const":
            return s.const(0, index.dtype)
        case "add":
            return s.add(_linear(s, index.args[0]), _linear(s, index.args[1]))
        case "mul" if index.args[1].op == "const":
            return s.mul(_linear(s, index.args[0]), index.args[1])
    return index


def _part(buffer: Buffer, shift: int, indices: Sequence[Expr]) -> Buffer:
    """The buffer as large as the part of it that is read, where that is known."""
    ends = [index.high + 1 if index.high is not None else buffer.size for index in indices]
    return replace(buffer, size=min(max(ends), buffer.size) - shift)


def _statements(
    s: LoopBuilder,
    body: Sequence[Stmt],
    new: Mapping[Expr, Expr],
    buffers: Mapping[str, Buffer],
    shifts: Mapping[str, int],
) -> tuple[Stmt, ...]:
    changed: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                changed.append(replace(stmt, body=_statements(s, stmt.body, new, buffers, shifts)))
            case Reduce():
                changed.append(replace(stmt, value=new.get(stmt.value, stmt.value)))
            case Store() | Scan():
                index, value = new.get(stmt.index, stmt.index), new.get(stmt.value, stmt.value)
                index = _less(s, index, shifts.get(stmt.buffer.name, 0))
                buffer = buffers.get(stmt.buffer.name, stmt.buffer)
                changed.append(replace(stmt, buffer=buffer, index=index, value=value))
    return tuple(changed)
