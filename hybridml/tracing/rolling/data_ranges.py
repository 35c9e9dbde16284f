"""Loops over ranges whose ends data decides, `range(start[i], start[i + 1])`: their steps are those of a longer loop.

The number of a step is a symbol, as in other loops, so that elements and slices at that place are views of memory. How
large it becomes, the body tells: an index below 0 or beyond its array is none, so that a range is taken to lie within
the arrays that its numbers are indices of. A call in which one does not is Python's, with the errors that there are.

    for k in range(lo, hi):     least <= lo, hi <= most     checked before the loop, where there is a step
        y[i] += x[k]            most = len(x)               learnt from the question whether k < len(x)
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import float64, int64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import LEAST, Size, at_most, is_dim, same, steps_of
from hybridml_compiler.sizes.steps import Undecided, assumed, is_step, linear

from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..capture.tracer import Tracer
from ..specialize.errors import StepByStep
from .capture import MOST_PARTS
from .carries import computed_int
from .code_loops import CodeLoop
from .elements import Elements
from .steps import Steps, loop_to_capture

_MOST = 1 << 31  # of a number that is no index
_ASKS = "asks"  # of a loop: whether it has a step is a question, before it


def steps_of_data(
    tracer: Tracer, frame: types.FrameType, args: Sequence[Any], parallel: bool = False
) -> Iterator[Any] | None:
    """An iterator for a loop over `range(*args)`, where data decides an end of it; None for any other use of it."""
    start, stop, by = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if type(by) is not int or abs(by) != 1 or not (_is_data(start) or _is_data(stop)):
        return None
    if not all(_is_data(end) or type(end) is int or is_step(end) for end in (start, stop)):
        return None
    loop = loop_to_capture(tracer, frame)
    if loop is None:
        return None
    ends = [_number(tracer, end) for end in (start, stop)]
    low, high = ends if by > 0 else [end + 1 for end in reversed(ends)]
    if _ASKS in tracer.alone.get(loop.place, ()) and not tracer.loops:
        more = _tensor(tracer, low) < _tensor(tracer, high)
        if not tracer._value(more._array, "range()"):
            return iter(())
    return _DataSteps(tracer, loop, frame, (low, high), by < 0, parallel)


def _is_data(end: Any) -> bool:
    """Whether an end of a range is an int of the program."""
    if type(end) is IntProxy:
        return end._value is None
    return issubclass(type(end), Tensor) and end.dtype.kind in "iu" and end.shape == ()


def _number(tracer: Tracer, end: Any) -> Any:
    if type(end) is IntProxy:
        end = end._number._tensor
    return OPS["astype"].fn(tracer.lift(end), int64) if issubclass(type(end), Tensor) else end


def _tensor(tracer: Tracer, end: Any) -> Any:
    """An end of a range as an int64 of the graph."""
    if issubclass(type(end), Tensor):
        return end
    return tracer.wrap(ir.apply(OPS["full"], [], {"shape": (), "value": end, "dtype": int64}))


class _DataSteps(Steps):
    """The iterator of such a loop. `ends`: the least number, and the one after the greatest."""

    in_steps = False  # how many there have been is data

    def __init__(
        self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType, ends: tuple[Any, Any], reverse: bool,
        parallel: bool,
    ) -> None:  # fmt: skip
        self.ends, self.is_nested = ends, bool(tracer.loops)
        known = tracer.alone.get(loop.place, [])
        self.is_asked = _ASKS in known
        learnt = [bound for bound in known if type(bound) is tuple]
        present = {s for of in tracer.loops for s in steps_of(getattr(of, "number", 0))}
        if not steps_of(*(bound for _, bound in learnt)) <= present:
            raise StepByStep(loop.place, "how far it goes depends on another loop")
        least, most = (None if issubclass(type(end), Tensor) else end for end in ends)
        least = _extreme([0, *(bound for what, bound in learnt if what == "least")], True) if least is None else least
        most = _extreme([*(bound for what, bound in learnt if what == "most")] or [_MOST], False) if most is None else most
        if least is None or most is None or not at_most(least + 1, most):
            raise StepByStep(loop.place, "its numbers are no indices of what it reads")
        over = Elements(most - least, lambda number: number)
        super().__init__(tracer, loop, frame, over, (least, most), True, parallel)
        self.reverse, self.inside = reverse, self._checked(least, most)

    def _checked(self, least: Size, most: Size) -> Tensor:
        """A 0 of the program, which raises where there is a step with a number that is not from `least` to `most`."""
        low, high = (_tensor(self.tracer, end) for end in self.ends)
        outside = (low < _tensor(self.tracer, least)) | (high > _tensor(self.tracer, most))
        return OPS["index"].fn(OPS["astype"].fn((low < high) & outside, int64), 1, 0)

    @property
    def counts(self) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        low, high = self.ends
        count = OPS["minimum"].fn(_tensor(self.tracer, high - self.done), _tensor(self.tracer, self.length))
        return count + self.inside, _tensor(self.tracer, low - self.done) if issubclass(type(low), Tensor) else None

    varies = True  # type: ignore[assignment]

    @property
    def has_gradient(self) -> bool:
        return not self.is_left and not self.is_nested

    def apart(self, error: Undecided) -> Sequence[Any]:
        found = assumed(error, self.name)
        known = self.tracer.alone.get(self.place, ())
        if found is None or len(known) >= MOST_PARTS:
            return ()
        what, bound = found[0], found[1] - LEAST + self.done
        bound = bound if what == "least" else bound + 1
        end = self.ends[what == "most"]
        return () if not issubclass(type(end), Tensor) or (what, bound) in known else ((what, bound),)

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
        if self.reverse or issubclass(type(self.ends[0]), Tensor) or not self.is_sure_to_begin():
            self.refuse(f"{name} changes its type")
        super().begin_later(name)

    def ints_after(self, steps: Tensor | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self._others():
            end, before = self.after.get(name), self.before.get(name)
            if not (type(end) is int or is_dim(end)) or (type(before) is type(end) and same(before, end)):
                continue
            if not self.is_sure_to_begin() or self.is_left:
                self.refuse(f"{name} is read after it")
            found[name] = self._after_last(name, end)
        return found

    def _after_last(self, name: str, end: Size) -> Any:
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
        return computed_int(self.tracer, number) * factor + (rest + factor * (LEAST - self.done))


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
