"""Places of values in sorted rows: halves of the row without a branch, for some values side by side, so that the loads
of one do not wait for those of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...llvm.native import KINDS, NativeBuilder, native
from .elements import Elements
from .matrices_ir import Needs, One, pointer

TOGETHER = 8  # values
_I64 = KINDS["i64"]


def _places(c: NativeBuilder, n: Any, count: int, is_before: Callable[[Any, int], Any]) -> list[Any]:
    """For so many searches the number of elements that are before what is sought, of a row where these come first."""
    places, left = [c.variable(0) for _ in range(count)], c.variable(n)
    with c.loop():
        c.break_if(left.value <= 1)
        half = left.value >> 1
        for k, place in enumerate(places):
            place.value += half & c.sext(is_before(place.value + (half - 1), k), _I64)
        left.value -= half
    return [place.value + c.zext(is_before(place.value, k), _I64) for k, place in enumerate(places)]


def _search(e: Elements) -> One:
    @native("void", "ptr", "i64", "ptr", "i64", "i64", "ptr", name="search_of_nan")
    def of_nan(c: NativeBuilder, row: Any, n: Any, values: Any, first: Any, right: Any, out: Any) -> None:
        """The place of a nan, which is before those of the row, or behind them."""
        (found,) = _places(c, n, 1, lambda i, _: e.is_number(c, e.value(c, row, i)))
        (out + first * 8).store(c.select(right != 0, n, found))

    def values_from(
        c: NativeBuilder, row: Any, n: Any, values: Any, first: Any, right: Any, out: Any, count: int
    ) -> None:
        sought = [e.value(c, values, first + k) for k in range(count)]

        def store(found: Sequence[Any]) -> None:
            for k, place in enumerate(found):
                (out + (first + k) * 8).store(place)

        with c.if_then(right == 0):
            store(_places(c, n, count, lambda i, k: e.less(c, e.value(c, row, i), sought[k])))
        with c.if_then(right != 0):
            store(_places(c, n, count, lambda i, k: e.less(c, e.value(c, row, i), sought[k], or_equal=True)))
        if e.kind == "f":
            for k, value in enumerate(sought):
                with c.if_then(c.not_(e.is_number(c, value)), likely=False):
                    of_nan(c, row, n, values, first + k, right, out)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n, size, groups, of_group, step, right = (dims.item(k) for k in range(1, 7))
        line, group = index // groups, index % groups
        row = pointer(operands, 0) + line * step * e.size
        values, out = pointer(operands, 1) + line * size * e.size, pointer(operands, 2) + line * size * 8
        end, at = c.least((group + 1) * of_group, size), c.variable(group * of_group)
        for count in (TOGETHER, 1):
            with c.loop():
                c.break_if(at.value + count > end)
                values_from(c, row, n, values, at.value, right, out, count)
                at.value += count
        return 0

    return one


def granule(c: NativeBuilder, dims: Any) -> Any:
    """Groups that a thread takes at once."""
    return c.number(4, _I64)


def _none(c: NativeBuilder, dims: Any) -> Any:
    return (c.number(0, _I64),)


ROWS: dict[str, Callable[[Elements], tuple[One, Needs]]] = {"searchsorted": lambda e: (_search(e), _none)}
