"""Loops around micro-kernels and in them, the parts that threads and tiles take of an extent, and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ir
from ..ir import i64 as i64
from ..types import I64


def loop(
    b: ir.IRBuilder, low: Any, high: Any, step: int, carried: list[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """for (i = low; i < high; i += step) carried = body(i, carried), at least once; no loop for a single iteration."""
    first, end = ir.known(low), ir.known(high)
    if first is not None and end is not None and first + step >= end:
        return body(low, carried)
    before, head = b.block, b.append_basic_block("loop")
    b.branch(head)
    b.position_at_end(head)
    index, phis = b.phi(I64, name="i"), [b.phi(x.type) for x in carried]
    updated = body(index, list(phis))
    following = b.add(index, i64(step), flags=["nsw"])
    for phi, start, new in zip([index, *phis], [low, *carried], [following, *updated], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(new, b.block)
    after = b.append_basic_block("done")
    b.cbranch(b.icmp_signed("<", following, high), head, after)
    b.position_at_end(after)
    return updated


def repeat(b: ir.IRBuilder, low: Any, high: Any, step: int, body: Callable[[Any], None]) -> None:
    """for (i = low; i < high; i += step) body(i), perhaps never."""

    def once(index: Any, _: list[Any]) -> list[Any]:
        body(index)
        return []

    first, end = ir.known(low), ir.known(high)
    if first is not None and end is not None and first >= end:
        return
    with b.if_then(b.icmp_signed("<", low, high)):
        loop(b, low, high, step, [], once)


def share(b: ir.IRBuilder, part: Any, parts: Any, extent: Any) -> tuple[Any, Any]:
    """Begin and end of part number `part` of an extent: none is larger than another by more than one. Threads take
    equal numbers of parts, or the last one is waited for ([Note: Runtime])."""
    return b.udiv(b.mul(part, extent), parts), b.udiv(b.mul(b.add(part, i64(1)), extent), parts)


def least(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed("<", x, y), x, y)


def greatest(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed(">", x, y), x, y)


def offset(b: ir.IRBuilder, *terms: tuple[Any, int]) -> Any:
    """The sum of indices, values or numbers, each times its step."""
    found: Any = i64(0)
    for index, step in terms:
        found = b.add(found, b.mul(i64(index) if isinstance(index, int) else index, i64(step)))
    return found


def divide(b: ir.IRBuilder, x: Any, by: Any) -> tuple[Any, Any]:
    """Quotient and remainder by a number or a value."""
    divisor = i64(by) if isinstance(by, int) else by
    return b.udiv(x, divisor), b.urem(x, divisor)


def ceiling(b: ir.IRBuilder, x: Any, by: int) -> Any:
    """Quotient, rounded up."""
    return b.udiv(b.add(x, i64(by - 1)), i64(by))
