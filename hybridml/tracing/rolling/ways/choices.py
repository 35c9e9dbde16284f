"""Values of variables of which data chooses one: of two numbers, bools or tensors it is one of the program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.sizes.steps import is_step

from ....core.proxies.complex import ComplexProxy
from ....core.proxies.flag import FlagProxy
from ....core.proxies.integer import EXACT, LARGEST, IntProxy, bound_of_step
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor, aval_of
from ...capture.loops.step_tensors import is_part, part
from ...capture.memory import element, is_element
from ...capture.numbers.perhaps import may_be_number
from ...capture.tracer import Tracer
from ..carries import as_tensor, is_double, kind_of_number

Made = Callable[[ir.Node], Any]


def choice_of(tracer: Tracer, a: Any, b: Any) -> tuple[ir.Node, ir.Node, Made] | None:
    """The nodes of two values, and what makes a value of the node that is chosen; None where there is no such value."""
    made = _tensor_of(tracer, a, b) or _number_of(tracer, a, b)
    return None if made is None else (as_tensor(tracer, a)._array, as_tensor(tracer, b)._array, made)


def _number_of(tracer: Tracer, a: Any, b: Any) -> Made | None:
    kind = kind_of_number(a)
    if kind is not None:
        if kind_of_number(b) != kind or (kind != "flag" and is_double(a) is not is_double(b)):
            return None
        if kind == "flag":
            return lambda node: FlagProxy(tracer.wrap(node, True))
        cls, double = (ScalarProxy if kind == "float" else ComplexProxy), is_double(a)
        return lambda node: cls(tracer.wrap(node, True, double))
    sizes = [_size_of(x) for x in (a, b)]
    if None in sizes:
        return None
    (gain, rest, shares), (gain_of_b, rest_of_b, shares_of_b) = sizes  # type: ignore[misc]
    gain, rest = max(gain, gain_of_b), max(rest, rest_of_b)
    shares = shares if shares == shares_of_b else {object(): gain}
    bound = math.ceil(gain * LARGEST) + rest
    if bound > EXACT:
        return None
    return lambda node: IntProxy(tracer, ScalarProxy(tracer.wrap(node, True)), None, bound, asks=True, shares=shares)


def _size_of(x: Any) -> tuple[float, int, Any] | None:
    """The bound of an int in its parts (see IntProxy); None of anything else, and of ints that come with the call."""
    if type(x) is int:
        return (0.0, abs(x), {}) if abs(x) <= LARGEST else None
    if is_dim(x):
        bound = bound_of_step(x) if is_step(x) else None
        return None if bound is None else (0.0, bound, {})
    if type(x) is not IntProxy or x._value is not None or x._kind is not int:
        return None
    return x._gain, x._rest, x._shares


def _tensor_of(tracer: Tracer, a: Any, b: Any) -> Made | None:
    if not all(issubclass(type(x), Tensor) for x in (a, b)):
        return None
    a, b = tracer.lift(a), tracer.lift(b)
    if aval_of(a) != aval_of(b) or any(may_be_number(tracer, t._array) for t in (a, b)):
        return None
    if all(map(is_element, (a, b))):
        return lambda node: element(tracer, tracer.wrap(node))
    if all(map(is_part, (a, b))):
        return lambda node: part(tracer, tracer.wrap(node))
    return tracer.wrap if type(a) is type(b) is tracer.cls else None
