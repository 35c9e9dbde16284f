"""The k extreme elements of a row, in order: no linear algebra, but rows that are shared as matrices are.

A list of the best so far is kept in order. A vector of elements is compared with the last of them at once, and only
those that are better are put into the list: of n in any order about k log(n / k).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...llvm.native import KINDS, Native, NativeBuilder, native
from ...llvm.values import IntType, Literal
from .kernels_ir import Real
from .matrices_ir import Needs, One, pointer


def _better(r: Real, c: NativeBuilder, x: Any, y: Any, largest: Any) -> Any:
    """Whether x comes before y, where it has come after it: nan is the greatest, and numbers are turned for the
    smallest to be greater."""
    x_is_nan, y_is_nan = (c.fcmp_unordered("!=", v, v) for v in (x, y))
    first, second = c.select(largest, x_is_nan, y_is_nan), c.select(largest, y_is_nan, x_is_nan)
    return c.or_(c.fcmp_ordered(">", x, y), c.and_(first, c.not_(second)))


def _inserted(r: Real) -> Native:
    @native("void", "ptr", "ptr", "i64", "ptr", "i64", "i64")
    def inserted(c: NativeBuilder, best: Any, places: Any, count: Any, row: Any, at: Any, largest: Any) -> None:
        """Puts element `at` of a row into a list of so many, before all that it is better than; the last one leaves."""
        largest = largest != 0
        x = _turned(r, c, r.get(c, r.at(row, at)), largest)
        k = c.variable(count)
        with c.loop():
            c.break_if(k.value == 0)
            before = r.get(c, r.at(best, k.value - 1))
            c.break_if(c.not_(_better(r, c, x, before, largest)))
            c.store(before, r.at(best, k.value))
            (places + k.value * 8).store(places.item(k.value - 1))
            k.value -= 1
        c.store(x, r.at(best, k.value))
        (places + k.value * 8).store(at)

    return inserted


def _turned(r: Real, c: NativeBuilder, x: Any, largest: Any) -> Any:
    return c.select(largest, x, c.fneg(x))


def _extremes(r: Real) -> One:
    inserted = _inserted(r)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, best: Any, work: Any) -> Any:
        n, k, which = (dims.item(field) for field in (1, 2, 3))
        row, places = r.at(pointer(operands, 0), index * n), pointer(operands, 1) + index * k * 8
        largest, last = which != 0, r.at(best, k - 1)
        with c.each(k) as i:
            inserted(c, best, places, i, row, i, which)
        bits, word = IntType(r.lanes), KINDS["i64"]
        j = c.variable(k)
        with c.loop():
            c.break_if(j.value >= n)
            part = _turned(r, c, r.load_some(c, r.at(row, j.value), r.below(c, n - j.value)), largest)
            found = c.compare("fcmp ugt", part, r.splat(c, r.get(c, last)))
            mask = c.binary("and", found, r.below(c, n - j.value))
            left = c.variable(c.zext(c.bitcast(mask, bits), word))
            with c.loop():
                c.break_if(left.value == 0)
                lane = c.intrinsic("cttz", word, [left.value, Literal(KINDS["i1"], "true")], [word])
                at = j.value + lane
                left.value = left.value & (left.value - 1)
                x = _turned(r, c, r.get(c, r.at(row, at)), largest)
                with c.if_then(_better(r, c, x, r.get(c, last), largest)):
                    inserted(c, best, places, k - 1, row, at, which)
            j.value += r.lanes
        return 0

    return one


def _list(r: Real) -> Needs:
    return lambda c, dims: (dims.item(2) * r.size,)


ROWS: dict[str, Callable[[Real], tuple[One, Needs]]] = {"argtopk": lambda r: (_extremes(r), _list(r))}
