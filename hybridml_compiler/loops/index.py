"""Facts about index expressions: integer ranges, affine coefficients. All that vectorisation and loop merging ask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ..sizes.dims import Size, at_most, is_dim, same
from ..walk import postorder, reachable
from .ir import Expr

Range = tuple[Size | None, Size | None]
_UNKNOWN: Range = (None, None)


def value_range(op: str, args: tuple[Expr, ...], dtype: np.dtype) -> Range:
    """Inclusive range of an integer instruction from the ranges of its operands; unknown where it may wrap."""
    low, high = _exact_range(op, args)
    if low is None or high is None:
        return _UNKNOWN
    if is_dim(low) or is_dim(high):
        return low, high  # positions in an array: it would not fit otherwise
    least, most = _limits(dtype)
    return (low, high) if least <= low and high <= most else _UNKNOWN


@cache
def _limits(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _exact_range(op: str, args: tuple[Expr, ...]) -> Range:
    if op == "cast":
        return (args[0].low, args[0].high) if args[0].dtype.kind in "iub" else _UNKNOWN
    if len(args) != (3 if op == "select" else 2):
        return _UNKNOWN
    x, y = args[-2:]
    a, b, c, d = x.low, x.high, y.low, y.high
    if a is None or b is None or c is None or d is None:
        return _UNKNOWN
    if op == "add":
        return a + c, b + d
    if op == "sub":
        return a - d, b - c
    if op == "mul":
        return extremes((a * c, a * d, b * c, b * d)) or _UNKNOWN
    if op == "floordiv" and c == d and c > 0:
        return a // c, b // c
    if op == "mod" and c == d and c > 0:
        return 0, c - 1
    if op in ("minimum", "maximum", "select"):
        lows, highs = extremes((a, c)), extremes((b, d))
        if lows is None or highs is None:
            return _UNKNOWN
        if op == "minimum":
            return lows[0], highs[0]
        return (lows[1] if op == "maximum" else lows[0]), highs[1]
    return _UNKNOWN


def is_affine_step(expr: Expr) -> bool:
    """A variable, or an int64 sum or multiple: the parts of affine expressions."""
    if expr.op == "mul":
        return expr.args[1].op == "const" and expr.dtype.kind == "i"
    return expr.op == "var" or (expr.op in ("add", "sub") and expr.dtype.kind == "i")


def opaque_leaves(expr: Expr) -> list[Expr]:
    """Maximal parts of an affine expression that are neither variables nor constants: loads, divisions, selections."""
    parts = reachable([expr], lambda part: part.args if is_affine_step(part) else ())
    return [part for part in parts if part.op != "const" and not is_affine_step(part)]


def affine_coefficient(expr: Expr, var: Expr, memo: dict[Expr, Size] | None = None) -> Size:
    """Coefficient of `var` outside of the opaque leaves."""
    if var not in expr.depends or not is_affine_step(expr):
        return 0
    if expr.op == "var":
        return 1
    memo = {} if memo is None else memo
    if expr not in memo:
        parts = [affine_coefficient(a, var, memo) for a in expr.args]
        if expr.op == "bounded":
            memo[expr] = parts[0]
        elif expr.op == "mul":
            memo[expr] = parts[0] * expr.args[1].attr
        else:
            memo[expr] = parts[0] + parts[1] if expr.op == "add" else parts[0] - parts[1]
    return memo[expr]


def affine_terms(expr: Expr) -> tuple[dict[Expr, Size], Size]:
    """(coefficient of each variable and opaque leaf, constant part) of an integer expression."""

    def parts(part: Expr) -> tuple[Expr, ...]:
        if part.op == "index" and _is_inside(part):
            return part.args[:1]
        return part.args[: 1 if part.op == "mul" else 2] if part.op != "var" and is_affine_step(part) else ()

    found: dict[Expr, Size] = {expr: 1}
    constant: Size = 0
    for part in reversed(postorder([expr], parts)):  # a part after all that it is a part of
        inner = parts(part)
        if part.op == "const":
            constant += found.pop(part) * part.attr
        elif inner:
            factor = found.pop(part) * (part.args[1].attr if part.op == "mul" else 1)
            for k, operand in enumerate(inner):
                found[operand] = found.get(operand, 0) + (-factor if k and part.op == "sub" else factor)
    return {part: factor for part, factor in found.items() if not same(factor, 0)}, constant


def _is_inside(index: Expr) -> bool:
    """Whether a checked index is what it is an index of, by its range."""
    at, (size, _) = index.args[0], index.attr
    return at.low is not None and at.high is not None and at_most(0, at.low) and at_most(at.high + 1, size)


def coefficient(expr: Expr, var: Expr) -> Size | None:
    """k when expr = k*var + (something without var); None when it is not affine in var."""
    if any(var in leaf.depends for leaf in opaque_leaves(expr)):
        return None
    return affine_coefficient(expr, var)


def terms(expr: Expr, most: int = 64) -> list[Expr]:
    """Summands of a sum, left to right; the sum itself if there are more than `most`."""
    found: list[Expr] = []
    stack = [expr]
    while stack:
        part = stack.pop()
        if part.op == "add":
            stack.extend(reversed(part.args))
        else:
            found.append(part)
        if len(found) + len(stack) > most:
            return [expr]
    return found


def constant_factor(expr: Expr) -> Size:
    """Largest constant that is known to divide the expression (1 when nothing is known)."""
    if expr.op == "const":
        return _magnitude(expr.attr)
    if expr.op == "mul" and expr.args[1].op == "const":
        return _magnitude(expr.args[1].attr)
    return 1


def _magnitude(size: Size) -> Size:
    return size if is_dim(size) else abs(int(size))


def extremes(sizes: Sequence[Size]) -> tuple[Size, Size] | None:
    """The least and the greatest, if the form tells which they are."""
    low = next((a for a in sizes if all(at_most(a, b) for b in sizes)), None)
    high = next((a for a in sizes if all(at_most(b, a) for b in sizes)), None)
    return None if low is None or high is None else (low, high)
