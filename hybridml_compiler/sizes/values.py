"""Sizes with symbols, once the symbols have values: evaluating, checking guards, names, text."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from ..errors import ArgumentError
from .atoms import DIVIDE, Symbol
from .dims import Dim, Size, hint

# ---------------------------------------------------------------- symbols by number

_NAMES = "nmkpqruvw"
_STEPS = 256  # behind the sizes that come with a call: loops have both in one table


def name_of(number: int) -> str:
    """The name of the symbol whose value is at this place of the table that a call makes: n, m, k, ..., n9, n10, ..."""
    return _NAMES[number] if number < len(_NAMES) else f"n{number}"


def number_of(name: str) -> int:
    """The place of a symbol in a table: of a size that comes with a call, or of the number of a step, `i0`."""
    if name[0] == "i":
        return _STEPS + int(name[1:])
    return _NAMES.index(name) if name in _NAMES else int(name[1:])


# ---------------------------------------------------------------- values


def evaluate(size: Size, sizes: Mapping[str, Any]) -> Any:
    """The size for these values of the symbols, ints or arrays of them."""
    if type(size) is not Dim:
        return size
    total = 0
    for monomial, c in size.terms:
        for atom in monomial:
            if isinstance(atom, Symbol):
                c = c * sizes[atom.name]
            else:
                c = c * DIVIDE[atom.kind](evaluate(atom.over, sizes), evaluate(atom.by, sizes))
        total = total + c
    return total


def bindings(shapes: Iterable[Sequence[Size]], arrays: Iterable[Sequence[int]]) -> dict[str, int]:
    """The values that arrays of these shapes give the symbols that are the size of a dimension."""
    found: dict[str, int] = {}
    for shape, actual in zip(shapes, arrays, strict=False):
        for size, n in zip(shape, actual, strict=False):
            if type(size) is Dim and len(size.terms) == 1:
                ((monomial, c),) = size.terms
                if c == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
                    found.setdefault(monomial[0].name, n)
    return found


def substitute(value: Any, sizes: Mapping[str, int]) -> Any:
    """A parameter or shape with every Dim in it evaluated."""
    if type(value) is Dim:
        return evaluate(value, sizes)
    return tuple([substitute(v, sizes) for v in value]) if type(value) is tuple else value


def at_hand(value: Any) -> Any:
    """A parameter or shape with every Dim in it at the size at hand."""
    return hint(value) if type(value) is Dim else tuple(map(at_hand, value)) if type(value) is tuple else value


def has_dims(value: Any) -> bool:
    """Whether there is a Dim in a parameter."""
    return type(value) is Dim or (type(value) is tuple and any(map(has_dims, value)))


def function_of(names: Sequence[str], sizes: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """`f(*values of the symbols) -> the sizes (or tuples of sizes)`, as compiled Python."""
    items = "".join(f"{size}, " for size in sizes)
    made: Callable[..., tuple[Any, ...]] = eval(f"lambda {', '.join(names)}: ({items})", {})
    return made


def check_of(names: Sequence[str], guards: Sequence[object]) -> Callable[..., bool]:
    """`f(*values of the symbols)`: whether all guards hold."""
    text = " and ".join([f"({g})" for g in guards] or ["True"])
    made: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {text}", {})
    return made


def parse(text: str, known: Mapping[str, Size]) -> Size:
    """Inverse of `str(size)`; `known` gives the symbols. `ArgumentError` for anything else."""
    return _read(_expression(text), text, known)


@cache
def _expression(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ArgumentError(f"{text!r} is not a size; write one such as 64, n or 2*n+1") from None


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def _read(node: ast.expr, text: str, known: Mapping[str, Size]) -> Size:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, text, known)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            found: Size = _OPERATORS[type(op)](_read(left, text, known), _read(right, text, known))
            return found
    raise ArgumentError(f"{text!r} is not a size; its symbols are {', '.join(known) or 'none'}")
