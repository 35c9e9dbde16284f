"""Variables that go from one step of a loop to the next: their kinds, and their values as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from hybridml_compiler.dtypes import complex128, float32, float64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size, bounds, is_dim, same
from hybridml_compiler.sizes.steps import is_step

from ...core.proxies.complex import ComplexProxy
from ...core.proxies.flag import FlagProxy
from ...core.proxies.integer import LARGEST, IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor, aval_of
from ..capture.program_arrays import ProgramArray, ProgramScalar, is_program, value_of
from ..capture.tracer import Tracer
from .held import CONSTANTS

_GROWS = 1 << 20  # at most, of a count, in one step: the first 2**32 steps of any loop are exact
_ROUNDED = 1e-12


@record(frozen=False, eq=False)
class Carry:
    """A local variable that goes from step to step: a tensor, a Python float or complex number, a bool, an int that
    grows by `by`, a count: an int in a loop whose number of steps data decides, or an array or scalar of NumPy's."""

    kind: Literal["tensor", "float", "complex", "flag", "int", "count", "array"]
    start: Any
    by: int = 0
    given: Tensor | None = None  # its input of the region
    of_number: bool = False  # a tensor that is a number of Python's before the first step
    is_single: bool = False  # that is a float32, which does not compute as such a number does
    is_double: bool = False  # a float or complex number that is NumPy's
    shown: Any = None  # an array of NumPy's, as the step has it that runs


def carry_of(
    tracer: Tracer, start: Any, end: Any, in_steps: bool, may_not_begin: Callable[[], bool]
) -> Carry | None:  # fmt: skip
    """The way in which a variable goes on; None where it has another type after the step."""
    if all(type(x) is int or is_dim(x) for x in (start, end)) and in_steps:
        return Carry("int", start, end - start) if type(end - start) is int else Carry("count", start)
    ints = (type(start) in (int, IntProxy) or is_step(start)) and (type(end) in (int, IntProxy) or is_dim(end))
    if ints and not in_steps:
        return Carry("count", start) if type(start) is IntProxy or _is_small(start) else None
    kind = kind_of_number(start)
    if kind is not None and kind_of_number(end) == kind:
        return Carry(kind, start, is_double=is_double(end)) if is_double(start) is is_double(end) else None
    if type(start) in (int, float) and _is_double(end) and may_not_begin():
        return Carry("tensor", tracer.wrap(ir.constant(float(start), float64)), of_number=True)
    if issubclass(type(start), Tensor) and issubclass(type(end), Tensor):
        lifted = tracer.lift(start)
        return Carry("tensor", lifted) if aval_of(lifted) == aval_of(end) else None
    return Carry("array", start) if _are_arrays(start, end) else None


def _are_arrays(a: Any, b: Any) -> bool:
    """Whether two values are arrays of one type that lie in memory in the order of their axes, or scalars."""
    if type(a) is not type(b) or type(a) not in (ProgramArray, ProgramScalar):
        return False
    alike = a.shape == b.shape and a.dtype == b.dtype
    return alike and all(x._array.flags.c_contiguous for x in (a, b))


def is_new_array(value: Any) -> bool:
    """Whether an array is the whole of memory that the present step has made."""
    memory = value._memory
    return memory.depth == len(memory.tracer.frames) and value._array.shape == memory.base.shape == memory.owner.shape


def single_of(tracer: Tracer, start: Any, end: Any) -> Carry | None:
    """The same for a number that is exact in float32, which the variable is after the step."""
    is_single = issubclass(type(end), Tensor) and end.shape == () and end.dtype is float32
    if not is_single or type(start) not in (int, float) or float(np.float32(start)) != start:
        return None
    return Carry("tensor", tracer.wrap(ir.constant(np.asarray(start, float32))), of_number=True, is_single=True)


def kind_of_number(value: Any) -> Literal["float", "complex", "flag"] | None:
    """The kind of a float or complex number of Python's or NumPy's, or of a bool; None of anything else."""
    if type(value) in (float, ScalarProxy, np.float64):
        return "float"
    if type(value) in (bool, FlagProxy):
        return "flag"
    return "complex" if type(value) in (complex, ComplexProxy, np.complex128) else None


def is_double(value: Any) -> bool:
    """Whether a number is NumPy's."""
    proxies = ScalarProxy, ComplexProxy
    return type(value) in (np.float64, np.complex128) or (type(value) in proxies and value._tensor.is_double)


def is_like(end: Any, carry: Carry) -> bool:
    """Whether a value is of the kind of a carry that has a value of the graph."""
    if carry.kind in ("float", "complex", "flag"):
        return kind_of_number(end) == carry.kind and is_double(end) is carry.is_double
    if carry.kind == "count" and type(end) is IntProxy:
        return end._bound <= LARGEST + _GROWS and end._gain <= 1 + _ROUNDED and end._kind is int
    if carry.kind == "count":
        return type(end) is int or is_dim(end)
    if carry.kind == "array":
        return _are_arrays(carry.start, end)
    return issubclass(type(end), Tensor) and carry.given is not None and aval_of(end) == aval_of(carry.given)


def begins_to_record(given: Tensor, end: Any) -> bool:
    """Whether an input that has no history may have one after a step, which leaves this value."""
    t = end._tensor if type(end) is ScalarProxy else end
    return given._node is None and given.dtype.kind in "fV" and issubclass(type(t), Tensor) and t._node is not None


def as_variable(tracer: Tracer, carry: Carry, t: Tensor) -> Any:
    """The variable whose value a tensor of the graph is."""
    if carry.kind == "tensor":
        return t
    if carry.kind == "array":
        carry.shown = value_of(tracer, t, scalar=type(carry.start) is ProgramScalar)
        return carry.shown
    if carry.kind == "complex":
        return ComplexProxy(tracer.wrap(t._array, True, carry.is_double))
    if carry.kind == "flag":
        return FlagProxy(tracer.wrap(t._array, True))
    number = ScalarProxy(tracer.wrap(t._array, True, carry.is_double))
    return number if carry.kind == "float" else computed_int(tracer, number, {t._array: 1.0})


def computed_int(tracer: Tracer, number: ScalarProxy, shares: Mapping[Any, float] | None = None) -> IntProxy:
    """An int of Python's that data decides."""
    return IntProxy(tracer, number, None, asks=True, shares=shares)


def as_tensor(tracer: Tracer, value: Any) -> Tensor:
    """The tensor of a variable that is no int of a range."""
    if type(value) is IntProxy:
        value = value._number
    if type(value) in (ScalarProxy, ComplexProxy, FlagProxy):
        return value._tensor
    if type(value) is bool:
        return tracer.wrap(ir.constant(value), True)
    if type(value) in (complex, np.complex128):
        return tracer.wrap(ir.constant(np.asarray(value, complex128)), True, type(value) is np.complex128)
    if is_dim(value):
        return tracer.wrap(tracer.size(value)._array, True)
    if is_program(value):
        return tracer.wrap(value._value()._array)
    if type(value) in (int, float, np.float64):
        return tracer.wrap(ir.constant(float(value), weak=True), True, type(value) is np.float64)
    return tracer.lift(value)


def as_count(tracer: Tracer, steps: Tensor, start: int, by: int) -> IntProxy:
    """`start + steps * by` for an int64 of the graph."""
    number: Any = ScalarProxy(tracer.wrap(OPS["astype"].fn(steps, float64)._array, True))
    return computed_int(tracer, number * float(by) + float(start))


def are_one(a: Any, b: Any) -> bool:
    """Whether two values are one, or were made twice."""
    if a is b or type(a) is not type(b):
        return a is b
    if issubclass(type(a), Tensor):
        return a._array is b._array
    if type(a) in (ScalarProxy, ComplexProxy, FlagProxy):
        return a._tensor._array is b._tensor._array
    return same(a, b) if is_dim(a) else type(a) in CONSTANTS and repr(a) == repr(b)


def is_number(size: Size, number: int) -> bool:
    return type(size) is int and size == number


def _is_small(size: Size) -> bool:
    low, high = bounds(size), bounds(-size)
    return low is not None and high is not None and max(-low, -high) < LARGEST


def _is_double(value: Any) -> bool:
    """Whether a value is a tensor of one float64, which computes as Python's floats do."""
    return issubclass(type(value), Tensor) and value.shape == () and value.dtype is float64
