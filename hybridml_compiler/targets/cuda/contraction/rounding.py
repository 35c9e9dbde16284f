"""Loop nests after a library call that look at its result only after they have rounded it: the library does that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....loops.builder import LoopBuilder
from ....loops.ir import Expr, For, Kernel, Stmt, Store, perfect_nest
from ....loops.transforms import renamed
from ....ops.conversion import convert
from ....record import replace


def unscheduled(s: LoopBuilder, nest: Kernel) -> Kernel:
    """The loop nest before it was scheduled, built anew."""
    return replace(nest, body=renamed(s, _serial(nest.body), {}, fresh=True))


def rounded(s: LoopBuilder, nest: Kernel, dtype: np.dtype) -> Kernel | None:
    """The loop nest that reads its first operand in a narrow type, where that is all that it looks at; else None."""
    first = nest.operands[0]
    if first.role != "in":
        return None
    narrow = replace(first, name="rounded", dtype=dtype)
    found = [(convert(s, load, first.dtype, dtype), s.load_of(narrow, load.args)) for load in _loads(nest)]
    mapping = {loop.var: loop.var for loop in perfect_nest(nest.body)[0]}
    mapping |= {e: load for e in nest.expressions if e.dtype is dtype for r, load in found if _same(e, r)}
    made = replace(nest, buffers=(narrow, *nest.buffers[1:]), body=renamed(s, nest.body, mapping))
    return None if any(e.op == "load" and e.attr == first for e in made.expressions) else made


def copied(nest: Kernel) -> int | None:
    """The number of the operand that gets the first as it is, where nothing else is done."""
    match perfect_nest(nest.body)[1]:
        case [Store(buffer, index, value)] if value.op == "load" and value in _loads(nest) and value.args == (index,):
            return nest.operands.index(buffer)
    return None


def _loads(nest: Kernel) -> list[Expr]:
    """Loads of the first operand."""
    return [e for e in nest.expressions if e.op == "load" and e.attr.name == nest.operands[0].name]


def _same(x: Expr, y: Expr) -> bool:
    """Whether two expressions are built alike from the same parts."""
    if x is y:
        return True
    if (x.op, x.attr, x.dtype, len(x.args)) != (y.op, y.attr, y.dtype, len(y.args)):
        return False
    return all(map(_same, x.args, y.args)) if x.args else x.op == "const"


def _serial(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    return tuple(For(x.var, _serial(x.body)) if isinstance(x, For) else x for x in body)
