"""Stand-ins, in a trace that captures loops, for `range`, `enumerate`, `zip`, `reversed` and the iterator of an array,
and its answers to questions about data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import numpy as np

from hybridml_compiler.errors import describe_line
from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import bounds, is_dim
from hybridml_compiler.sizes.steps import is_step

from ...core.proxies.integer import IntProxy
from ..capture.numbers.lengths import elements_of_data
from ..capture.tracer import Tracer
from ..specialize.errors import StepByStep
from ..staging.transforms import Stages
from . import while_loops
from .blocks import in_blocks
from .code_loops import CodeLoop, for_loop_over, makes_iterator
from .data_ranges import steps_of_data
from .elements import Elements, Enumerate, Zip, elements_of, enumerated, numbers, turned, zipped
from .number_steps import NumberLoops
from .steps import FEWEST, FEWEST_IN_NEST, FEWEST_IN_PART, Steps, fewest_steps, look_at_nest, loop_to_capture, parts


class Rolling:
    """The loops of one trace. `frame`: where a loop may be. `staged`: functions of transforms are captured first."""

    def __init__(self, tracer: Tracer, staged: bool = False) -> None:
        tracer.stages = Stages(tracer) if staged else None
        self.tracer, self.numbers = tracer, NumberLoops(tracer)

    def watched(self) -> AbstractContextManager[None]:
        """A context in which the function runs."""
        return self.numbers.watched()

    def range(self, frame: FrameType, args: tuple[Any, ...], parallel: bool = False) -> Any:
        if 1 <= len(args) <= 3 and (steps := steps_of_data(self.tracer, frame, args, parallel)) is not None:
            return steps
        return range_of(self.tracer, frame, tuple([int(a) if type(a) is IntProxy else a for a in args]), parallel)

    def iterator(self, frame: FrameType, value: Any) -> Any:
        """The iterator for a loop over an array; None where Python goes on alone."""
        if not makes_iterator(frame.f_code, frame.f_lasti):
            return None
        if (found := elements_of_data(value)) is not None:
            steps = steps_of_data(self.tracer, frame, (found[0],), at=found[1].__getitem__)
            if steps is not None:
                return steps
        of = elements_of(value)
        return None if of is None else steps_over(self.tracer, frame, of)

    def enumerate(self, frame: FrameType, of: Any, start: Any = 0) -> Any:
        found = elements_of(of)
        if found is None or not (type(start) is int or is_dim(start)):
            return enumerate(of, start)
        found = enumerated(found, start)
        return steps_over(self.tracer, frame, found) or _knowing(found, Enumerate(of, start))

    def zip(self, frame: FrameType, *of: Any, strict: bool = False) -> Any:
        known = [found for one in of if (found := elements_of(one)) is not None]
        if not known or len(known) < len(of) or strict:
            return zip(*of, strict=strict)
        found = zipped(*known)
        return steps_over(self.tracer, frame, found) or _knowing(found, Zip(*of))

    def reversed(self, frame: FrameType, of: Any) -> Any:
        found = elements_of(of)
        return (None if found is None else steps_over(self.tracer, frame, turned(found))) or reversed(of)

    def answer(self, node: ir.Node, what: str) -> np.ndarray | None:
        return while_loops.answer(self.tracer, node, what)


def _knowing(elements: Elements, made: Enumerate | Zip) -> Enumerate | Zip:
    made.elements = elements
    return made


def range_of(tracer: Tracer, frame: FrameType, args: tuple[Any, ...], parallel: bool = False) -> Any:
    """The result of `range` for traced code that runs in this frame, or of `prange`."""
    given = numbers(args)
    if given is None:
        return range(*args)
    steps = steps_over(tracer, frame, given, parallel)
    if steps is not None:
        return steps
    if parallel and (is_dim(given.length) or given.length >= FEWEST):
        _note_order(tracer, frame)
    if not any(map(is_step, args)):
        return range(*args)
    return given if is_dim(given.length) else [given.at(k) for k in range(given.length)]


def steps_over(tracer: Tracer, frame: FrameType, over: Elements, parallel: bool = False) -> Iterator[Any] | None:
    """An iterator for a loop of this frame over such elements that can be captured, which has many steps, or a number
    of them that another loop's number decides; None for any other use of them."""
    loop, length = loop_to_capture(tracer, frame, over.length), over.length
    if loop is None:
        return None
    if is_dim(length):
        if (bounds(length) or 0) < sum(k in ("first", "last") for k in tracer.alone.get(loop.place, ())):
            raise StepByStep(loop.place, "it may have no steps that could be by themselves")
        return Steps(tracer, loop, frame, over, (0, length), True, parallel)
    if length >= fewest_steps(tracer, loop):
        return _parts(tracer, loop, frame, over, parallel)
    if tracer.loops and length >= FEWEST_IN_NEST:
        look_at_nest(tracer, loop)
    return None


def _note_order(tracer: Tracer, frame: FrameType) -> None:
    """Notes why a loop over `prange` is no loop of the graph."""
    loop = for_loop_over(frame.f_code, frame.f_lasti)
    place = (frame.f_code, frame.f_lasti) if loop is None else loop.place
    why = None if loop is None else (tracer.step_by_step or {}).get(place)
    here = describe_line(frame.f_code.co_filename, frame.f_lineno)
    tracer.in_order[place] = why or f"the loop at {here} (no step of it can stand for all)"


def _parts(tracer: Tracer, loop: CodeLoop, frame: FrameType, over: Elements, parallel: bool) -> Iterator[Any]:
    """The elements, by blocks or parts of the loop."""
    if not is_dim(over.length) and (blocks := in_blocks(tracer, loop, frame, over, over.length)) is not None:
        yield from blocks
        return
    for first, end in parts(tracer, loop, over.length):
        if end - first < min(FEWEST_IN_PART, over.length):
            yield from map(over.at, range(first, end))
        else:
            yield from Steps(tracer, loop, frame, over, (first, end), end == over.length, parallel)
