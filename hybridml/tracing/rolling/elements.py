"""Elements by their numbers: of ranges and arrays, and of `enumerate`, `zip` and `reversed` of such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size, bounds, is_dim, same
from hybridml_compiler.sizes.steps import Undecided, is_step

from ...core.tensor import Tensor
from ..capture.program_arrays import is_program


@record
class Elements:
    """A sequence: `at(k)` is its element number k, from 0 on."""

    length: Size
    at: Callable[[Size], Any]

    def __iter__(self) -> Iterator[Any]:
        yield from map(self.at, range(int(self.length)))


class Enumerate(enumerate):
    """Python's object, which knows the elements."""

    elements: Elements


class Zip(zip):
    """Python's object, which knows the elements."""

    elements: Elements


def numbers(args: tuple[Any, ...]) -> Elements | None:
    """The elements of `range(*args)`, for ints and numbers of steps; None for any other."""
    if not 1 <= len(args) <= 3 or not all(type(a) is int or is_dim(a) for a in args):
        return None
    start, stop, by = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if type(by) is not int or not by:
        return None
    return Elements(_count(start, stop, by), lambda k: start + k * by)


def elements_of(value: Any) -> Elements | None:
    """The elements of something that code goes over; None of what changes, or has no elements by number."""
    if type(value) is Elements:
        return value
    if type(value) in (Enumerate, Zip):
        return value.elements
    if type(value) is range:
        return Elements(len(value), lambda k: value.start + k * value.step)
    if (issubclass(type(value), Tensor) or is_program(value)) and value.ndim:
        return Elements(value.shape[0], lambda k: value[k])
    return None


def enumerated(of: Elements, start: int = 0) -> Elements:
    return Elements(of.length, lambda k: (k + start, of.at(k)))


def zipped(*of: Elements) -> Elements:
    length = of[0].length
    for other in of[1:]:
        if not is_dim(length) and not is_dim(other.length):
            length = min(length, other.length)
        elif not same(length, other.length):
            raise Undecided(f"whether {length} or {other.length} is less", length, other.length)
    return Elements(length, lambda k: tuple(one.at(k) for one in of))


def turned(of: Elements) -> Elements:
    """The elements from the last to the first."""
    return Elements(of.length, lambda k: of.at(of.length - 1 - k))


def _count(start: Size, stop: Size, by: int) -> Size:
    if not is_dim(start) and not is_dim(stop):
        return len(range(start, stop, by))
    between = stop - start if by > 0 else start - stop
    low, most = bounds(between), bounds(-between)
    if low is not None and low >= 0:
        return (between + abs(by) - 1) // abs(by)
    if most is not None and most >= 0:
        return 0
    if is_step(between):
        raise Undecided(f"whether there are numbers from {start} to {stop}", between)
    return (between + abs(by) - 1) // abs(by) if between > 0 else 0
