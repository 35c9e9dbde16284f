"""Sizes in the steps of a loop: symbols with a greatest value (see ops/control.py), and what is undecided by them.

A question whose answer is another one in some steps has none: it raises `Undecided`, and whoever captures the loop
takes its steps one by one. Bounds are those of all steps: a size is least where each step is at one of its ends.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from ..errors import TraceError, is_internal
from ..hooks import hooks
from .atoms import Atom, Monomial, Quotient, Symbol
from .dims import (
    LEAST,
    Dim,
    Size,
    _divided,
    _least,
    _make,
    _make_terms,
    _without,
    bounds,
    is_dim,
    provable,
    same,
    steps_of,
    symbol,
    symbols_of,
)


class Undecided(TraceError):
    """A decision that is another one in other steps of a loop. `steps`: the names of their symbols; `asked`: relation
    and sizes, where that is what was asked; `inside`: whether the framework itself asks."""

    def __init__(
        self, what: str, *sizes: Size, asked: tuple[str, Size, Size] | None = None, inside: bool = False
    ) -> None:
        super().__init__(f"{what} is not the same in all steps of a loop")
        self.steps, self.asked, self.inside = {s.name for s in steps_of(*sizes)}, asked, inside


def odd_step(error: Undecided, name: str, most: Size) -> Literal["first", "last"] | None:
    """The end of the steps where the answer is another one than in the rest, as far as the ends tell."""
    if error.asked is None:
        return None
    relation, a, b = error.asked
    if any(isinstance(atom, Quotient) and atom.kind == "%" for m, _ in _make_terms(a - b) for atom in m):
        return None  # the answer comes again

    def answer(at: Size) -> bool | None:
        return provable("==" if relation == "==" else "<", replaced(a, name, at), replaced(b, name, at))

    first, second, before, last = map(answer, (LEAST, LEAST + 1, most - 1, most))
    if first is not None and second is not None and first is not second and last in (second, None):
        return "first"
    if last is not None and before is not None and last is not before and first is before:
        return "last"
    return None


def turns(error: Undecided, name: str, length: int) -> Sequence[int]:
    """Numbers of steps, of so many, with which the answer becomes another one; none where their form does not tell."""
    if error.asked is None:
        return ()
    relation, a, b = error.asked
    difference: Dim = a - b
    if any(len(m) > 1 or not isinstance(m[0], Symbol) or m[0].name != name for m, _ in difference.terms if m):
        return ()
    first = replaced(difference, name, LEAST)
    rise = replaced(difference, name, LEAST + 1) - first
    if relation == "==":
        found = set() if first % rise else {-first // rise, -first // rise + 1}
    else:  # below 0 until then, or from then on
        found = {-(first // rise)} if rise > 0 else {first // -rise + 1}
    return sorted(k for k in found if 0 < k < length)


def assumed(error: Undecided, name: str) -> tuple[Literal["least", "most"], Size] | None:
    """A bound of the number of a step under which an index of it is one, or an end of a slice: it is as large as its
    array allows, and not below 0. None where the answer does not tell."""
    if error.asked is None or not error.inside or error.asked[0] != "<":
        return None
    _, a, b = error.asked
    difference: Dim = a - b
    atom = next((s for s in steps_of(difference) if s.name == name), None)
    factor, rest = (None, 0) if atom is None else linear(difference, atom)
    if type(factor) is not int or (abs(factor) != 1 and is_dim(rest)):
        return None
    wanted = not same(b, 0)  # n < 0 is to be False, and n < size
    turn = -(rest // factor) if factor > 0 else rest // -factor + 1  # the answer is another one from there on
    starts = factor > 0  # the answer before
    if not wanted:
        return ("least", turn) if starts else ("most", turn - 1)
    return ("most", turn - 1)


def without_steps(size: Size) -> Size | None:
    """The size with steps of loops, and remainders, at the end where it is least; None where its form does not tell
    which that is."""
    while type(size) is Dim:
        if (whole := _without_quotient(size)) is not None:
            size = whole
            continue
        found = [atom for m, _ in size.terms for atom in m if _most(atom) is not None]
        if not found:
            break
        atom = max(found, key=_depth)  # inner ones first: ends of others do not depend on them
        factor, rest = linear(size, atom)
        if factor is None:
            return None
        low, high = bounds(factor), bounds(-factor)
        if low is not None and low >= 0:
            size = rest + factor * (_least(atom) or 0)
        elif high is not None and high >= 0:
            size = rest + factor * _most(atom)
        else:
            return None
    return size


def _without_quotient(size: Dim) -> Size | None:
    """The size with `x - x % m` in the place of `x // m * m`; None where there is none in it."""
    for atom in (a for m, _ in size.terms for a in m if isinstance(a, Quotient)):
        if atom.kind == "//" and type(atom.by) is int:
            factor, rest = linear(size, atom)
            if type(factor) is int and factor % atom.by == 0:
                whole: Size = rest + factor // atom.by * (atom.over - atom.over % atom.by)
                return whole
    return None


def _most(atom: Atom) -> Size | None:
    """The greatest value of a step of a loop, of a remainder, or of a quotient; None where that is not known."""
    if isinstance(atom, Symbol):
        return atom.most
    if type(atom.by) is not int:
        return None
    if atom.kind == "%":
        return atom.by - 1
    negated = bounds(-atom.over)
    return None if negated is None else -negated // atom.by


def _depth(atom: Atom) -> float:
    return number_in(atom.name) if isinstance(atom, Symbol) else math.inf


def linear(size: Dim, atom: Atom) -> tuple[Size | None, Size]:
    """The pair (a, b) of the size as `a * atom + b`; a is None where it is no such form."""
    factor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in size.terms:
        others = _without(monomial, (atom,))
        if others is None:
            rest[monomial] = c
        elif atom in others:
            return None, size
        else:
            factor[others] = c
    return _make(factor), _make(rest)


def replaced(size: Size, name: str, by: Size) -> Size:
    """The size with a number in the place of a symbol."""
    if type(size) is not Dim:
        return size
    total: Size = 0
    for monomial, c in size.terms:
        product: Size = c
        for atom in monomial:
            if isinstance(atom, Symbol):
                product *= by if atom.name == name else _make({(atom,): 1})
            else:
                quotient, rest = _divided(replaced(atom.over, name, by), replaced(atom.by, name, by))
                product *= quotient if atom.kind == "//" else rest
        total += product
    return total


def number_in(name: str) -> int:
    """The number that a name ends in."""
    return int(name[1:])


def is_one(size: Size) -> bool:
    """Whether a size is 1, where that makes another result; Undecided where it is so in some steps only."""
    answer = provable("==", size, 1)
    if answer is None and steps_of(size):
        raise Undecided(f"whether {size} == 1", size, asked=("==", size, 1))
    return bool(size == 1)


def is_step(size: Any) -> bool:
    """Whether a size depends on steps of loops, and on nothing else that comes with the call."""
    return type(size) is Dim and all(s.most is not None for s in symbols_of(size))


def is_of_steps(size: Dim) -> bool:
    """Whether nothing in a size comes with the call, the numbers of steps included."""
    ends = [s.most for s in symbols_of(size)]
    return all(most is not None and (type(most) is not Dim or is_of_steps(most)) for most in ends)


def most_of(size: Size) -> Size:
    """A number that a size of steps of loops is never above; itself, if it has none."""
    if not steps_of(size):
        return size
    low = bounds(-size)
    if low is not None:
        return -low
    for s in steps_of(size):  # the square of a size, say, which is largest at one end of the steps
        assert s.most is not None
        before = symbol(s.name, LEAST, s.most - 1)
        rise = replaced(size, s.name, before + 1) - replaced(size, s.name, before)
        for end, least in ((s.most, bounds(rise)), (LEAST, bounds(-rise))):
            if least is not None and least >= 0:
                return most_of(replaced(size, s.name, end))
    raise Undecided(f"how large {size} can become", size)


def most_in(shape: Iterable[Size]) -> Size:
    """A number of elements that a shape of sizes of steps of loops is never above."""
    return math.prod(map(most_of, shape))


def undecided(relation: str, a: Size, b: Size) -> bool:
    """Raises Undecided. Where the framework itself compares two sizes that are equal in some steps only, they are not:
    where it raises an error for that, or does what is right for any sizes, so much is right. That a size is 0 it must
    know."""
    if relation == "number":
        raise Undecided(f"the number {a}", a)
    if relation == "==" and (told := provable("==", _of_remainder(a - b), 0)) is not None:
        return told
    inside = _asked_inside()
    if relation == "divisor":
        if inside:
            return False  # nothing is to be done in steps where it is 0
        raise Undecided(f"the sign of the divisor {a}", a, asked=("==", a, 0))
    if relation == "==" and not (same(a, 0) or same(b, 0)) and inside:
        return False
    error = Undecided(f"whether {a} {relation} {b}", a, b, asked=(relation, a, b), inside=inside)
    answer = None if inside else hooks.question_of_steps(error)
    if answer is None:
        raise error
    return answer


def _of_remainder(d: Size) -> Size:
    """For `x % m - c` the remainder of `x - c`, which is 0 in the same cases; any other size as it is."""
    terms = dict(_make_terms(d)) if is_dim(d) else {}
    c = -terms.pop((), 0)
    for (found, *more), factor in terms.items() if len(terms) == 1 else ():
        is_remainder = isinstance(found, Quotient) and found.kind == "%" and not more and factor == 1
        if is_remainder and type(found.by) is int and 0 < c < found.by:  # type: ignore[union-attr]
            return (found.over - c) % found.by  # type: ignore[union-attr]
    return d


def _asked_inside() -> bool:
    frame = sys._getframe(1)
    while "/sizes/" in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    return is_internal(frame.f_code.co_filename)
