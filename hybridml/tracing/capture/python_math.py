"""Functions of Python's `math` of numbers that come with the call: `0.5 * (1 + math.cos(math.pi * self.step / 100))`.

They take Python's floats alone, and would ask a stand-in for its value. So a trace has functions in their places that
make the number a part of the graph, computed by `math` itself: with its last bit, and its errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import repeat
from typing import Any

from hybridml_compiler.dtypes import float64
from hybridml_compiler.hooks import hooks
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import bounds, is_dim, number, steps_of

from ...core.proxies.integer import EXACT, IntProxy
from ...core.proxies.scalar import CHECKS, ScalarProxy
from .loops.taken import fails_where
from .number_bounds import bounds_of
from .program_arrays import ProgramScalar
from .traced_tensor import Traced
from .tracer import current_tracer

_NAMES = (
    "acos acosh asin asinh atan atanh cbrt cos cosh degrees erf erfc exp exp2 expm1 fabs gamma lgamma log log10 log1p "
    "log2 radians sin sinh sqrt tan tanh"
)
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(math, name) for name in (*_NAMES.split(), "pow", *CHECKS)}


def _number(x: Any, in_step: bool) -> Any:
    """The number of the graph behind a proxy, or that a tensor is in the step of a loop; anything else as it is."""
    if in_step and issubclass(type(x), Traced) and not x.ndim and x.dtype.kind in "fiu":
        return (x if x.dtype.kind == "f" else x.astype(float64)).item()
    if type(x) is ProgramScalar and x.dtype.kind == "f":
        return x.item()
    if is_dim(x) and steps_of(x):
        return hooks.size_as_float(x)
    return x._number if type(x) is IntProxy else x


def _patch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the thread that traces finds it, and everybody else as it is."""

    def compute(*args: Any) -> Any:
        tracer = current_tracer()
        numbers = list(map(_number, args, repeat(tracer is not None and bool(tracer.loops))))
        if tracer is None or (tracer.frames and not tracer.loops) or not any(type(x) is ScalarProxy for x in numbers):
            return function(*args)
        if name == "pow" and len(args) == 2 and all(type(x) in (ScalarProxy, float, int) for x in numbers):
            return numbers[0] ** numbers[1]
        if name == "log" and len(args) == 2:
            return compute(args[0]) / compute(args[1])
        if len(args) != 1:
            return function(*args)
        if name in CHECKS:
            return numbers[0].check(name)
        if name == "sqrt" and tracer.loops:  # the row has its bits
            t = OPS["astype"].fn(tracer.lift(numbers[0]._tensor), float64)
            if (within := bounds_of(t._array)) is None or within[0] < 0:
                fails_where(tracer, OPS["less"].fn(t, 0))
            return ScalarProxy(tracer.wrap(OPS["sqrt"].fn(t)._array, True))
        tracer.may_be_slower |= bool(tracer.loops)
        (found,) = tracer.apply(OPS["python_math"], [tracer.lift(numbers[0]._tensor)], {"name": name})
        return ScalarProxy(tracer.wrap(found._array, True))

    return compute


def _power(base: float, size: Any) -> Any:
    """A power with a size as its exponent: in a trace a float, or an int that is exact as one."""
    tracer, least, negated = current_tracer(), bounds(size), bounds(-size)
    if tracer is None or not steps_of(size):
        return base ** number(size)
    power = float(base) ** hooks.size_as_float(size)
    if type(base) is float:
        return power
    if least is None or negated is None or least < 0 or (abs(base) > 1 and -negated > 53):
        return base ** number(size)
    bound = int(abs(base) ** -negated)
    return IntProxy(tracer, power, None, bound) if bound <= EXACT else base ** number(size)


hooks.power = _power

PATCHES = {name: _patch(name, function) for name, function in FUNCTIONS.items()}
