"""Numbers of steps that data decides, for gradients, which keep something of each step: the program runs the loop, and
Python asks how many steps there have been, up to a power of two.

    while err > tol: step       steps = the loop, for its number of steps; most = 32, 64, 128 ... >= steps
    its gradient                the loop again, of at most so many steps, with what it saves; and back

So programs are few, one for each power, and at most half of the memory is for steps that are not taken.
"""

from __future__ import annotations

import numpy as np

from hybridml_compiler.dtypes import int64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS

from ....core.context import no_grad
from ....core.tensor import Tensor
from ..tracer import Tracer

_POWERS = [32 << k for k in range(32)]
WHAT = "the gradient of a loop that data ends"
_greater, _sum = OPS["greater"], OPS["sum"]


def can_ask(tracer: Tracer) -> bool:
    """Whether Python can ask for a value now: it is in no step of a loop, and in no branch."""
    stages = () if tracer.stages is None else tracer.stages.running
    return tracer.ask is not None and not tracer.loops and len(tracer.frames) == len(stages)


def most_steps(tracer: Tracer, steps: Tensor) -> int:
    """A power of two that is no less than this number of steps, of this call."""
    assert tracer.ask is not None
    with no_grad():
        powers = tracer.wrap(ir.constant(np.asarray(_POWERS), int64))
        exponent = _sum.fn(_greater.fn(steps, powers), dtype=int64)
    return _POWERS[int(tracer.ask(exponent._array, WHAT))]
