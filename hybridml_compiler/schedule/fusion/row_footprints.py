"""Launches in rows: which bytes of memory each row of a launch touches, and how far apart rows are that meet.

    for i0 < 1998 { for i1 < 1998 { b1[i0 * 2000 + i1] = b0[i0 * 2000 + i1 + 1] + b0[i0 * 2000 + i1 + 4000] } }
    row r touches  b1: [16000 r, 16000 r + 15984)   b0: [16000 r + 8, 16000 r + 47984)

A footprint is the hull of all that a row touches, so rows that do not meet by it do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...loops.index import affine_terms
from ...loops.ir import Expr, Kernel, Scan, Store, statements
from ...record import record, replace
from ...sizes.dims import is_dim, is_symbolic
from ..launch import BufferRef, Copy, Launch

Memory = tuple[str, int]  # what is never the same memory as another one
_LEAST_ROW = 1 << 12  # bytes: rows of fewer are taken together


@record
class Footprint:
    """Row r touches bytes [low + r * pitch, high + r * pitch) of a memory."""

    memory: Memory
    pitch: int
    low: int
    high: int
    written: bool


@record
class Rows:
    """A launch of `count` rows, of so many iterations of its range each but for the last."""

    launch: Launch
    unit: int
    count: int
    footprints: tuple[Footprint, ...]


@record
class _Reach:
    """Bytes [low + step * i, high + step * i) that iterations i to i + `Form.together` of a kernel touch."""

    step: int
    low: int
    high: int


Form = tuple[int, list[_Reach]]  # iterations that belong together, and the reach of each operand in them


def rows_of(launches: Sequence[Launch], memory_of: Callable[[BufferRef], Memory]) -> list[Rows] | None:
    """The launches in rows of about one size in bytes; None where one of them has no such form."""
    forms: list[Form] = []
    row = 0
    for launch in launches:
        form = _form_of(launch)
        if form is None:
            return None
        forms.append(form)
        if not isinstance(launch.spec, Copy):
            written = launch.spec.written(len(form[1]))
            row = max([row, *(reach.step for reach, is_written in zip(form[1], written, strict=True) if is_written)])
    if not row:
        return None
    while row < _LEAST_ROW:
        row *= 2
    return [_rows(launch, form, row, memory_of) for launch, form in zip(launches, forms, strict=True)]


def _rows(launch: Launch, form: Form, row: int, memory_of: Callable[[BufferRef], Memory]) -> Rows:
    together, reaches = form
    spec = launch.spec
    total = spec.nbytes if isinstance(spec, Copy) else spec.total  # type: ignore[attr-defined]
    written = [False, True] if isinstance(spec, Copy) else spec.written(len(reaches))
    pitch = max((reach.step for reach in reaches), default=0)
    units = max(round(row / pitch), 1) if pitch else 0
    unit = min(units * together, total) if units else total
    units = max(unit // together, 1)
    found = []
    for place, reach, is_written in zip(launch.operands, reaches, written, strict=False):
        low, high = (place.offset + end for end in (reach.low, reach.high + reach.step * (units - 1)))
        found.append(Footprint(memory_of(place), reach.step * units, low, high, is_written))
    if isinstance(spec, Kernel) and unit < total and unit % spec.granule:
        launch = replace(launch, spec=spec.rescheduled(granule=1))
    return Rows(launch, unit, -(-total // unit), tuple(found))


def _form_of(launch: Launch) -> Form | None:
    spec = launch.spec
    if any(is_dim(place.offset) for place in launch.operands):
        return None
    if isinstance(spec, Copy):
        return None if is_dim(spec.nbytes) else (1, [_Reach(1, 0, 1), _Reach(1, 0, 1)])
    if not isinstance(spec, Kernel) or is_dim(spec.total) or any(is_dim(b.size) for b in spec.operands):
        return None
    indices: dict[str, list[Expr]] = {}
    for expr in spec.expressions:
        if expr.op == "load":
            indices.setdefault(expr.attr.name, []).append(expr.args[0])
    for stmt in statements(spec.body):
        if isinstance(stmt, Store | Scan):
            indices.setdefault(stmt.buffer.name, []).append(stmt.index)
    terms = {name: [affine_terms(index) for index in dict.fromkeys(found)] for name, found in indices.items()}
    var = spec.range
    parts = {part for forms in terms.values() for form, _ in forms for part in form}
    counted = [part.args[1].attr for part in parts if _counts_rows(part, var)]
    together = 1 if is_symbolic(counted) else max(counted, default=1)
    if spec.total % together:
        return None
    reaches = []
    for buffer in spec.operands:
        found = [_reach(form, constant, var, together) for form, constant in terms.get(buffer.name, [])]
        whole = _Reach(0, 0, int(buffer.size))
        plain = [reach or whole for reach in found]
        if len({reach.step for reach in plain}) > 1 or None in found:
            plain = [whole]
        size = buffer.dtype.itemsize
        reaches.append(
            _Reach(
                plain[0].step * size if plain else 0,
                min((reach.low for reach in plain), default=0) * size,
                max((reach.high for reach in plain), default=0) * size,
            )
        )
    return together, reaches


def _counts_rows(part: Expr, var: Expr | None) -> bool:
    """Whether it is the row of an iteration, where a loop over rows and columns is one."""
    return part.op == "floordiv" and part.args[0] is var and part.args[1].op == "const"


def _reach(terms: dict[Expr, int], constant: int, var: Expr | None, together: int) -> _Reach | None:
    """Elements of an index; None where it does not tell, or where they go down."""
    if is_symbolic((constant, *terms.values())):
        return None
    step, low, high = 0, constant, constant
    for part, factor in terms.items():
        if _counts_rows(part, var) and part.args[1].attr == together:
            step += factor
            continue
        if part is var:
            step += factor * together
            first, last = 0, together - 1
        elif part.low is None or part.high is None or is_symbolic((part.low, part.high)):
            return None
        else:
            first, last = int(part.low), int(part.high)
        low += min(factor * first, factor * last)
        high += max(factor * first, factor * last)
    return None if step < 0 else _Reach(step, low, high + 1)


def farthest(one: Rows, other: Rows, same: Callable[[Memory, Memory], bool]) -> int | None:
    """The most rows by which a row of `one` is after a row of `other` that it meets, where one of them writes; None
    where they never meet."""
    found = [
        distance
        for a in one.footprints
        for b in other.footprints
        if (a.written or b.written) and same(a.memory, b.memory)
        if (distance := _distance(a, one.count, b, other.count)) is not None
    ]
    return max(found, default=None)


def _distance(a: Footprint, rows: int, b: Footprint, others: int) -> int | None:
    """The largest i - j of rows i of `a` and j of `b` that share a byte."""
    p, q = a.pitch, b.pitch
    if a.low >= b.high + q * (others - 1) or b.low >= a.high + p * (rows - 1):
        return None
    p, q = (q if rows == 1 else p), (p if others == 1 else q)
    if rows == 1 == others:
        return 0 if a.low < b.high and b.low < a.high else None
    if p == q > 0:  # low_a + p i < high_b + p j  and  low_b + p j < high_a + p i
        most = min((b.high - a.low - 1) // p, rows - 1)
        return most if most >= max((b.low - a.high) // p + 1, 1 - others) else None
    if p <= 0:
        return rows - 1
    j = np.arange(others)
    last = np.minimum((q * j + b.high - a.low - 1) // p, rows - 1)
    first = np.maximum((q * j + b.low - a.high) // p + 1, 0)
    meet = last >= first
    return int((last - j)[meet].max()) if meet.any() else None
