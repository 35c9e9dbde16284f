"""Stand-ins, in a trace that captures loops, for `range`, `enumerate`, `zip`, `reversed` and the iterator of an array,
and its answers to questions about data."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import numpy as np

from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import is_dim

from ..capture.tracer import Tracer
from ..staging.transforms import Stages
from . import while_loops
from .carries import int_of_data
from .code_loops import makes_iterator
from .data_ranges import steps_of_data
from .elements import Elements, Enumerate, Zip, elements_of, enumerated, turned, zipped
from .number_steps import NumberLoops
from .steps import range_of, steps_over


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
        return range_of(self.tracer, frame, args, parallel)

    def iterator(self, frame: FrameType, value: Any) -> Any:
        """The iterator for a loop over an array; None where Python goes on alone."""
        of = elements_of(value) if makes_iterator(frame.f_code, frame.f_lasti) else None
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

    def int(self, of: Any) -> Any:
        """`int(of)` in the step of a loop; None where Python has to know it."""
        return int_of_data(self.tracer, of) if self.tracer.loops and self.tracer.stages is None else None

    def answer(self, node: ir.Node, what: str) -> np.ndarray | None:
        return while_loops.answer(self.tracer, node, what)


def _knowing(elements: Elements, made: Enumerate | Zip) -> Enumerate | Zip:
    made.elements = elements
    return made
