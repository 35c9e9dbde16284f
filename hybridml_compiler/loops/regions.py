"""Regions, the bodies of `while`: built from a function of scalars, and evaluated as one by any other builder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .ir import Expr, Region


def everywhere(exprs: Iterable[Expr]) -> Iterator[Expr]:
    """The expressions, and those of the regions that they have, at any depth."""
    for expr in exprs:
        yield expr
        if expr.op == "while":
            yield from everywhere(expr.attr.expressions)


def evaluated(region: Region, values: Sequence[Any], compute: Callable[[Expr, list[Any]], Any]) -> list[Any]:
    """The results of a region for these parameters; `compute` evaluates an expression on its operands."""
    memo = dict(zip(region.params, values, strict=True))
    for part in region.expressions:
        if part not in memo:
            memo[part] = compute(part, [memo[a] for a in part.args])
    return [memo[result] for result in region.results]


def instruction(s: Any, expr: Expr, args: Sequence[Any]) -> Any:
    """An expression that reads no memory, on these operands, by the builder `s`."""
    match expr.op:
        case "const":
            return s.const(expr.attr, expr.dtype)
        case "cast" | "bitcast":
            return getattr(s, expr.op)(args[0], expr.dtype)
        case "table":
            return s.table(expr.attr, args[0], expr.dtype)
        case "carry":
            return args[0][expr.attr]
        case "while":
            return loop(s, expr, args, lambda part, operands: instruction(s, part, operands))
    return getattr(s, expr.op)(*args)


def loop(s: Any, expr: Expr, args: Sequence[Any], compute: Callable[[Expr, list[Any]], Any]) -> list[Any]:
    """The carries of a `while` after all steps, by the builder `s`."""
    region: Region = expr.attr
    carries = args[1 : 1 + region.carries]
    given = args[1 + len(carries) :]
    found: list[Any] = s.while_(args[0], carries, given, lambda *values: evaluated(region, values, compute))
    return found
