"""Loops over ranges whose ends data decides, `range(start[i], start[i + 1])`: their steps are those of a longer loop.

The number of a step is a symbol, as in other loops, so that elements and slices at that place are views of memory. How
large it becomes, the body tells: an index below 0 or beyond its array is none, so that a range is taken to lie within
the arrays that its numbers are indices of. A call in which one does not is Python's, with the errors that there are.

    for k in range(lo, hi):     least <= lo, hi <= most     checked before the loop, where there is a step
        y[i] += x[k]            most = len(x)               learnt from the question whether k < len(x)
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from hybridml_compiler.dtypes import float64, int64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import LEAST, Size, at_most, is_dim, same, steps_of
from hybridml_compiler.sizes.steps import Undecided, assumed, is_step, linear

from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..capture.loops.taken import fails_where, or_other
from ..capture.selection import COUNTED
from ..capture.tracer import Frame, Tracer
from ..specialize.errors import StepByStep
from .capture import MOST_PARTS
from .carries import computed_int
from .code_loops import CodeLoop
from .elements import Elements
from .lists.of_data import refuse_lists
from .steps import FEWEST, Steps, loop_to_capture

_MOST = 1 << 31  # of a number that is no index
_ASKS = "asks"  # of a loop: whether it has a step is a question, before it


def steps_of_data(
    tracer: Tracer, frame: types.FrameType, args: Sequence[Any], parallel: bool = False,
    at: Callable[[Any], Any] | None = None,
) -> Iterator[Any] | None:  # fmt: skip
    """An iterator for a loop over `range(*args)`, or what is `at` these numbers, where data decides an end of it; None
    for any other use of it."""
    start, stop, by = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if type(by) is not int or not by or not (_is_data(start) or _is_data(stop)):
        return None
    if abs(by) != 1 and _is_data(start):
        return None
    if not all(_is_data(end) or type(end) is int or is_step(end) for end in (start, stop)):
        return None
    loop = loop_to_capture(tracer, frame, FEWEST)
    if loop is None:
        return None
    ends = [_number(tracer, end) for end in (start, stop)]
    first, step = 0, 1
    if abs(by) == 1:
        low, high = ends if by > 0 else [end + 1 for end in reversed(ends)]
    else:  # numbers count from the start, which is known
        first, step, low, high = start, by, 0, (ends[1] - start + by - by // abs(by)) // by
    learnt = tracer.alone.get(loop.place, ())
    if _ASKS in learnt and not tracer.loops:
        more = _tensor(tracer, low) < _tensor(tracer, high)
        if not tracer._value(more._array, "range()"):
            return iter(())
    least, most = _within(tracer, loop, low, high, learnt)
    inside = _checked(tracer, (low, high), (least, most))
    if at_most(most, least):
        return iter(())
    over = Elements(most - least, lambda k: first + k * step if at is None else at(first + k * step))
    return _DataSteps(tracer, loop, frame, over, (low, high), (least, most), inside, by == -1, parallel)


def _is_data(end: Any) -> bool:
    """Whether an end of a range is an int of the program."""
    if type(end) is IntProxy:
        return end._value is None
    return issubclass(type(end), Tensor) and end.dtype.kind in "iu" and end.shape == ()


def _number(tracer: Tracer, end: Any) -> Any:
    if type(end) is IntProxy:
        return end.as_index()
    return OPS["astype"].fn(tracer.lift(end), int64) if _is_tensor(end) else end


def _is_tensor(end: Any) -> bool:
    return issubclass(type(end), Tensor)


def _tensor(tracer: Tracer, end: Any) -> Any:
    """An end of a range as an int64 of the graph."""
    if _is_tensor(end):
        return end
    return tracer.wrap(ir.apply(OPS["full"], [], {"shape": (), "value": end, "dtype": int64}))


def _within(tracer: Tracer, loop: CodeLoop, low: Any, high: Any, learnt: Sequence[Any]) -> tuple[Size, Size]:
    """The bounds of the numbers: the least, and the one after the greatest."""
    known = [bound for bound in learnt if type(bound) is tuple]
    present = {s for of in tracer.loops for s in steps_of(getattr(of, "number", 0))}
    if not steps_of(*(bound for _, bound in known)) <= present:
        raise StepByStep(loop.place, "how far it goes depends on another loop")
    least = _extreme([0, *(bound for what, bound in known if what == "least")], True) if _is_tensor(low) else low
    most = _extreme([_MOST, *(bound for what, bound in known if what == "most")], False) if _is_tensor(high) else high
    if least is None or most is None:
        raise StepByStep(loop.place, "how far it goes is not known")
    if not at_most(least, most) and not at_most(most, least):
        raise Undecided(f"whether {most} < {least}", least, most, asked=("<", most, least), inside=True)
    return least, most


def _checked(tracer: Tracer, ends: tuple[Any, Any], bounds: tuple[Size, Size]) -> Tensor:
    """A 0 of the program, which raises where there is a step with a number that is not within the bounds."""
    low, high, least, most = (_tensor(tracer, end) for end in (*ends, *bounds))
    return fails_where(tracer, (low < high) & ((low < least) | (high > most)))


class _DataSteps(Steps):
    """The iterator of such a loop. `ends`: the least number, and the one after the greatest; `within`: their bounds."""

    in_steps = False  # how many there have been is data
    varies = True

    def __init__(
        self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType, over: Elements, ends: tuple[Any, Any],
        within: tuple[Size, Size], inside: Tensor, reverse: bool, parallel: bool,
    ) -> None:  # fmt: skip
        self.ends, self.inside, self.is_nested = ends, inside, bool(tracer.loops)
        self.is_asked = _ASKS in tracer.alone.get(loop.place, ())
        super().__init__(tracer, loop, frame, over, within, True, parallel)
        self.reverse = reverse

    @property
    def counts(self) -> tuple[Tensor | None, Tensor | None]:
        low, high = self.ends
        count = OPS["minimum"].fn(_tensor(self.tracer, high - self.done), _tensor(self.tracer, self.length))
        begin = _tensor(self.tracer, low - self.done) if _is_tensor(low) else None
        return or_other(self.tracer, count + self.inside, 0), begin

    @property
    def has_gradient(self) -> bool:
        return not self.is_left and not self.is_nested

    def apart(self, error: Undecided) -> Sequence[Any]:
        found = assumed(error, self.name)
        known = self.tracer.alone.get(self.place, ())
        if found is None or len(known) >= MOST_PARTS:
            return ()
        what, bound = found[0], found[1] - LEAST + self.done
        learnt = what, bound if what == "least" else bound + 1
        return (learnt,) if _is_tensor(self.ends[what == "most"]) and learnt not in known else ()

    def refuse(self, why: str) -> NoReturn:
        try:
            super().refuse(why)
        except StepByStep as error:
            if error.says or not self.tracer.counted:
                raise
        raise StepByStep(None, why, (COUNTED,))  # loops of known lengths may be more

    def has_steps(self) -> bool:
        return self.is_asked and not self.is_nested

    def is_sure_to_begin(self) -> bool:
        if not self.is_asked and not self.is_nested:
            raise StepByStep(self.place, "whether it has a step is not known", (_ASKS,))
        return self.has_steps()

    def may_not_begin(self) -> bool:
        self.is_sure_to_begin()
        return True

    def begin_later(self, name: str) -> None:
        if self.reverse or _is_tensor(self.ends[0]) or not self.is_sure_to_begin():
            self.refuse(self.changes(name))
        super().begin_later(name)

    def _items(self, region: Frame) -> list[Tensor]:
        found = super()._items(region)
        if any(grown.items for grown in self.grown):
            refuse_lists(self, "a list grows, and data decides with which number it begins", self.grown)
        return found

    def ints_after(self, steps: Tensor | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self._others():
            end, before = self.after.get(name), self.before.get(name)
            if not (type(end) is int or is_dim(end)) or (type(before) is type(end) and same(before, end)):
                continue
            if not self.is_sure_to_begin() or self.is_left:
                self.refuse(f"{name} is read after it")
            found[name] = self._of_last(name, end)
        return found

    def _of_last(self, name: str, end: Size) -> Any:
        """A number of the last step."""
        atom = next((s for s in steps_of(end) if s.name == self.name), None)
        if atom is None:
            return end
        factor, rest = linear(end, atom)
        if type(factor) is not int or type(rest) is not int or type(self.done) is not int:
            self.refuse(f"{name} is read after it")
        low, high = self.ends
        last = _tensor(self.tracer, low if self.reverse else high - 1)
        number: Any = ScalarProxy(self.tracer.wrap(OPS["astype"].fn(last, float64)._array, True))
        value: Any = computed_int(self.tracer, number)
        return value * factor + (rest + factor * (LEAST - self.done))


def _extreme(sizes: Sequence[Size], is_greatest: bool) -> Size | None:
    """The greatest or the least of sizes; None where their form does not tell."""
    found = sizes[0]
    for size in sizes[1:]:
        a, b = (found, size) if is_greatest else (size, found)
        if at_most(a, b):
            found = size
        elif not at_most(b, a):
            return None
    return found
