"""Whether the iterations of a loop depend on each other: what every transformation that changes their order asks."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

import numpy as np

from ..sizes.dims import Size, at_most, is_dim
from .index import affine_terms
from .ir import Buffer, Expr, For, Reduce, Scan, Stmt, Store, expressions, extent, loads, statements, variables

Affine = tuple[dict[Expr, Size], Size]


def independent(
    loop: For, around: Collection[Expr] = (), *, private: bool = False, among: Sequence[Expr] | None = None
) -> bool:
    """Whether no iteration touches an element that another one writes, for any values of the variables `around` in
    each of the two. False where that cannot be told.

    `private`: every iteration has scratch memory of its own, which it then has to fill before it reads it.
    `among`: the expressions of the loop, where they are known.
    """
    inside = [*statements(loop.body)]
    stores = [stmt for stmt in inside if isinstance(stmt, Store | Scan)]
    written: dict[str, list[Expr]] = {}
    own: dict[str, Buffer] = {}
    for store in stores:
        if private and store.buffer.role == "scratch":
            own[store.buffer.name] = store.buffer
        else:
            written.setdefault(store.buffer.name, []).append(store.index)
    if not all(_is_filled_first(loop.body, x, np.zeros(int(x.size), bool)) for x in own.values()):
        return False
    touched = {name: [*indices] for name, indices in written.items()}
    if any(stmt.buffer.role != "out" for stmt in stores):  # what is only written is not loaded
        for expr in expressions(loop.body) if among is None else among:
            if expr.op == "load" and expr.attr.name in touched:
                touched[expr.attr.name].append(expr.args[0])
    if any(load.attr.name in touched for indices in written.values() for index in indices for load in loads(index)):
        return False
    moving = {loop.var, *around}
    for stmt in inside:
        moving.update(variables(stmt))
        if isinstance(stmt, Reduce):
            moving.add(stmt.result)
    for name, indices in written.items():
        if all(index is indices[0] for index in touched[name]) and _advances(indices[0], loop.var, moving):
            continue
        forms = {index: affine_terms(index) for index in touched[name]}
        for k, one in enumerate(dict.fromkeys(indices)):
            if not all(_apart(forms[one], other, loop.var, moving) for other in [*forms.values()][k:]):
                return False
    return True


def _advances(index: Expr, var: Expr, moving: Set[Expr]) -> bool:
    """Whether the index is plainly the variable, after something that does not move: most indices are."""
    if index.op == "add" and index.args[1] is var:
        return index.args[0].depends.isdisjoint(moving)
    return index is var


def _apart(one: Affine, other: Affine, var: Expr, moving: Collection[Expr]) -> bool:
    """Whether two indices differ wherever their values of `var` do, all else that moves being anything."""
    step = one[0].get(var, 0)
    if any(var in part.depends and part is not var for part in (*one[0], *other[0])):
        return False
    if is_dim(step - other[0].get(var, 0)) or step != other[0].get(var, 0) or not at_most(1, step):
        return False
    low = high = one[1] - other[1]
    for part in {**one[0], **other[0]}:
        if part is var:
            continue
        factors = one[0].get(part, 0), other[0].get(part, 0)
        fixed = part.depends.isdisjoint(moving)
        for factor in (factors[0] - factors[1],) if fixed else (factors[0], -factors[1]):
            if not is_dim(factor) and factor == 0:
                continue
            if part.low is None or part.high is None or not (at_most(0, factor) or at_most(factor, 0)):
                return one is other and counts_up(one[0], moving)
            ends = (part.low * factor, part.high * factor)
            low, high = (low + ends[0], high + ends[1]) if at_most(0, factor) else (low + ends[1], high + ends[0])
    most = step * (extent(var) - 1)  # the distance of the first iteration and the last
    if at_most(1 - step, low) and at_most(high + 1, step):
        return True
    return at_most(most + 1, low) or at_most(high + 1, -most) or (one is other and counts_up(one[0], moving))


def counts_up(terms: dict[Expr, Size], moving: Collection[Expr]) -> bool:
    """Whether the moving parts are the digits of a number: other digits are another number."""
    moved = [(part, factor) for part, factor in terms.items() if not part.depends.isdisjoint(moving)]
    digits = [(part, factor) for part, factor in moved if part.low is None or part.low != part.high]
    if any(is_dim(factor) or factor < 0 for _, factor in digits):
        return False
    below: Size | None = 0  # the greatest number of the digits so far
    for part, factor in sorted(digits, key=lambda digit: digit[1]):
        if below is None or factor <= below:
            return False
        least, most = part.low, part.high
        below = None if least is None or most is None or is_dim(most) else below + factor * (most - least)
    return True


def _is_filled_first(body: Sequence[Stmt], buffer: Buffer, filled: np.ndarray) -> bool:
    """Whether all of the buffer is stored by statements before the first that reads it; `filled` is so already."""
    for stmt in body:
        if filled.all():
            return True
        if any(expr.op == "load" and expr.attr.name == buffer.name for expr in expressions((stmt,))):
            if not isinstance(stmt, For) or not _is_filled_first(stmt.body, buffer, filled.copy()):
                return False
        _fill(filled, (stmt,), buffer, ())
    return True


def _fill(filled: np.ndarray, body: Sequence[Stmt], buffer: Buffer, within: tuple[Expr, ...]) -> None:
    """Marks what is stored, wherever these loops tell the place; one of unknown length may not run at all."""
    for stmt in body:
        if isinstance(stmt, For):
            if not is_dim(extent(stmt.var)):
                _fill(filled, stmt.body, buffer, (*within, stmt.var))
        elif isinstance(stmt, Store) and stmt.buffer.name == buffer.name and stmt.index.depends <= {*within}:
            terms, constant = affine_terms(stmt.index)
            at = np.full((1,) * len(within), constant)
            for axis, var in enumerate(within):
                numbers = np.arange(extent(var)) * terms.pop(var, 0)
                at = at + numbers.reshape(-1, *(1,) * (len(within) - 1 - axis))
            if not terms:
                filled[at] = True
