"""Variables that go from one step of a loop to the next: their kinds, and their values as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from hybridml_compiler.dtypes import complex128, float32, float64, int64
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
from ..capture.loops.step_tensors import is_part, part
from ..capture.memory import element
from ..capture.numbers.perhaps import may_be_number
from ..capture.program_arrays import ProgramArray, ProgramScalar, has_memory, is_program, value_of
from ..capture.traced_tensor import Traced
from ..capture.tracer import Tracer, top_tracer
from .held import CONSTANTS

_GROWS = 1 << 20  # at most, of a count, in one step: the first 2**32 steps of any loop are exact
_ROUNDED = 1e-12


@record(frozen=False, eq=False)
class Carry:
    """A local variable that goes from step to step: a tensor, a Python float or complex number, a bool, an int that
    grows by `by`, a count: an int in a loop whose number of steps data decides, or an array or scalar of NumPy's. A
    type says what one is."""

    kind: Literal["tensor", "float", "complex", "flag", "int", "count", "array", "type"]
    start: Any
    by: int = 0
    given: Tensor | None = None  # its input of the region
    number: type | None = None  # of a tensor that is a number of Python's before the first step, or no NumPy scalar
    of_end: type | None = None  # the same after the step in some way
    is_single: bool = False  # that is a float32, which does not compute as such a number does
    is_double: bool = False  # a float or complex number that is NumPy's
    shown: Any = None  # an array of NumPy's, as the step has it that runs
    is_element: bool = False  # a tensor that stands for a scalar of NumPy's
    is_part: bool = False  # a tensor that stands for an array of NumPy's
    of: str = ""  # of a flag: the variable that it is about


def carry_of(
    tracer: Tracer, start: Any, end: Any, in_steps: bool, may_be_either: Callable[[Any], bool]
) -> Carry | None:  # fmt: skip
    """The way in which a variable goes on; None where it has another type after the step. `may_be_either`: whether a
    number may be one after it, too."""
    if is_program(start) and start.is_argument:
        start._settled()
    if all(type(x) is int or is_dim(x) for x in (start, end)) and in_steps:
        return Carry("int", start, end - start) if type(end - start) is int else Carry("count", start)
    ints = (type(start) in (int, IntProxy) or is_step(start)) and (type(end) in (int, IntProxy) or is_dim(end))
    if ints and not in_steps:
        return Carry("count", start) if type(start) is IntProxy or _is_small(start) else None
    kind = kind_of_number(start)
    if kind is not None and kind_of_number(end) == kind and is_double(start) is is_double(end):
        return Carry(kind, start, is_double=is_double(end))
    if has_memory(start) and _is_tensor_like(end, start) and may_be_either(end):
        return Carry("tensor", tracer.wrap(start._value()._array), number=np.ndarray)
    t, number = tensor_in(end), number_of(start)
    if (
        is_numpy_scalar(end)
        and issubclass(type(start), Tensor)
        and not is_numpy_scalar(start)
        and start.dtype is end.dtype
    ):
        number = Tensor if start.shape == () else None
    if t is not None and number is not None and _computes_alike(t, number) and may_be_either(end):
        return Carry("tensor", as_strong(tracer, start, t.dtype), number=number, is_element=is_numpy_scalar(end))
    if (
        issubclass(type(start), Tensor)
        and issubclass(type(end), Tensor)
        and is_numpy_scalar(start) is is_numpy_scalar(end)
        and is_part(start) is is_part(end)
    ):
        lifted = tracer.wrap(start._array) if is_numpy_scalar(start) else tracer.lift(start)
        is_same = aval_of(lifted) == aval_of(end)
        return Carry("tensor", lifted, is_element=is_numpy_scalar(end), is_part=is_part(end)) if is_same else None
    if t is not None and tensor_in(start) is not None and _may_be_numbers(tracer, start, end):
        return Carry("tensor", tensor_in(start), is_element=True) if _are_arrays(start, end) else None
    return Carry("array", start) if _are_arrays(start, end) else None


def _may_be_numbers(tracer: Tracer | None, *values: Any) -> bool:
    """Whether one of NumPy's scalars may be a number of Python's."""
    return any(may_be_number(tracer, t._array) for value in values if (t := tensor_in(value)) is not None)


def _are_arrays(a: Any, b: Any) -> bool:
    """Whether two values are arrays of one type that lie in memory in the order of their axes, or scalars."""
    if type(a) is not type(b) or not (has_memory(a) or type(a) is ProgramScalar):
        return False
    alike = a.shape == b.shape and a.dtype == b.dtype
    return alike and a._is_ordered and b._is_ordered


def _is_tensor_like(value: Any, array: ProgramArray) -> bool:
    """Whether a value is a tensor, and no scalar of NumPy's, of the type of an array that computes as such do."""
    if not issubclass(type(value), Tensor) or is_numpy_scalar(value) or array.dtype != float64:
        return False
    return value.dtype is float64 and value.shape == array.shape


def is_new_array(value: Any) -> bool:
    """Whether an array is the whole of memory that the present step has made."""
    memory = value._memory
    return bool(value._is_whole and memory.depth == len(memory.tracer.frames))


def single_of(tracer: Tracer, start: Any, end: Any) -> Carry | None:
    """The same for a number that is exact in float32, which the variable is after the step."""
    is_single = issubclass(type(end), Tensor) and end.shape == () and end.dtype is float32
    if not is_single or type(start) not in (int, float) or float(np.float32(start)) != start:
        return None
    one = tracer.wrap(ir.constant(np.asarray(start, float32)))
    return Carry("tensor", one, number=type(start), is_single=True)


def number_of(value: Any) -> type | None:
    """The type of a number of Python's, or of NumPy's that is no tensor of a step, which a float64 can have the value
    of."""
    if issubclass(type(value), Tensor):
        return None
    if type(value) is int or is_dim(value):
        return int if _is_small(value) else None
    if type(value) is IntProxy:
        return int if value._value is None and value._bound <= LARGEST and value._kind is int else None
    return (np.float64 if is_double(value) else float) if kind_of_number(value) == "float" else None


def tensor_in(value: Any) -> Tensor | None:
    """The tensor that a value is, or that is behind a scalar of NumPy's."""
    if issubclass(type(value), Tensor):
        return value
    return value._value() if type(value) is ProgramScalar and is_numpy_scalar(value) else None


def as_strong(tracer: Tracer, value: Any, dtype: np.dtype) -> Tensor:
    """The float64 or int64 of a number, which gives others its dtype."""
    if issubclass(type(value), Tensor):
        return tracer.lift(value)
    if dtype is int64:
        if type(value) is IntProxy:
            return value.as_index()
        return tracer.wrap(ir.apply(OPS["full"], [], {"shape": (), "value": value, "dtype": int64}))
    if type(value) in (int, float, np.float64):
        return tracer.wrap(ir.constant(np.asarray(value, float64)))
    return tracer.wrap(OPS["astype"].fn(as_tensor(tracer, value), float64)._array)


def kind_of_number(value: Any) -> Literal["float", "complex", "flag"] | None:
    """The kind of a float or complex number of Python's or NumPy's, or of a bool; None of anything else."""
    if type(value) in (float, ScalarProxy, np.float64):
        return "float"
    if type(value) in (bool, FlagProxy):
        return "flag"
    if is_numpy_scalar(value) and value.dtype is float64:
        t = tensor_in(value)
        return None if t is None or may_be_number(top_tracer(), t._array) else "float"
    return "complex" if type(value) in (complex, ComplexProxy, np.complex128) else None


def is_double(value: Any) -> bool:
    """Whether a number is NumPy's."""
    if type(value) in (ScalarProxy, ComplexProxy):
        return bool(value._tensor.is_double)
    return type(value) in (np.float64, np.complex128) or is_numpy_scalar(value)


def is_numpy_scalar(value: Any) -> bool:
    """Whether a value is a scalar of NumPy's of the program: a tensor in a step, or what stands for one."""
    if type(value) is ProgramScalar:
        return value._memory.is_traced
    return issubclass(type(value), Traced) and type(value).is_element


def is_like(end: Any, carry: Carry) -> bool:
    """Whether a value is of the kind of a carry that has a value of the graph."""
    if carry.kind in ("float", "complex", "flag"):
        return kind_of_number(end) == carry.kind and is_double(end) is carry.is_double
    if carry.kind == "count" and type(end) is IntProxy:
        return is_small_count(end)
    if carry.kind == "count":
        return type(end) is int or is_dim(end)
    if carry.kind == "array":
        return _are_arrays(carry.start, end) and not (type(end) is ProgramScalar and _may_be_numbers(top_tracer(), end))
    if number_of(end) is not None and number_of(end) in (carry.number, carry.of_end) and not carry.is_single:
        return True
    may_be = is_numpy_scalar(end) is carry.is_element or (carry.number is Tensor and not is_numpy_scalar(end))
    may_be = may_be and is_part(end) is carry.is_part
    t = tensor_in(end) if may_be else None
    return t is not None and carry.given is not None and aval_of(t) == aval_of(carry.given)


def is_small_count(value: IntProxy) -> bool:
    """Whether an int grows so slowly from step to step that it is exact in the steps of any loop."""
    return value._bound <= LARGEST + _GROWS and value._gain <= 1 + _ROUNDED and value._kind is int


def value_of_end(tracer: Tracer, carry: Carry, end: Any) -> Tensor:
    """The value that a carry goes on with."""
    if carry.kind != "tensor":
        return as_tensor(tracer, end)
    t = tensor_in(end)
    return as_strong(tracer, end, carry.start.dtype) if t is None else tracer.lift(t)


def begins_to_record(given: Tensor, end: Any) -> bool:
    """Whether an input that has no history may have one after a step, which leaves this value."""
    t = end._tensor if type(end) is ScalarProxy else end
    return given._node is None and given.dtype.kind in "fV" and issubclass(type(t), Tensor) and t._node is not None


def as_variable(tracer: Tracer, carry: Carry, t: Tensor) -> Any:
    """The variable whose value a tensor of the graph is."""
    if carry.kind == "tensor":
        return scalar_of(tracer, t) if carry.is_element else part_of(tracer, t) if carry.is_part else t
    if carry.kind == "array":
        carry.shown = value_of(tracer, t, scalar=type(carry.start) is ProgramScalar)
        return carry.shown
    if carry.kind == "complex":
        return ComplexProxy(tracer.wrap(t._array, True, carry.is_double))
    if carry.kind == "flag":
        return FlagProxy(tracer.wrap(t._array, True))
    number = ScalarProxy(tracer.wrap(t._array, True, carry.is_double))
    return number if carry.kind == "float" else computed_int(tracer, number, {t._array: 1.0})


def scalar_of(tracer: Tracer, t: Tensor) -> Any:
    """The scalar of NumPy's whose value a tensor of the graph is."""
    if t.dtype.kind == "f" and tracer.loops:
        return element(tracer, t)
    is_double = t.dtype is float64
    return ScalarProxy(tracer.wrap(t._array, True, True)) if is_double else value_of(tracer, t, scalar=True)


def part_of(tracer: Tracer, t: Tensor) -> Any:
    """The array of NumPy's whose values a tensor of the graph has, which nobody else has."""
    return part(tracer, tracer.wrap(t._array)) if tracer.loops else value_of(tracer, t)


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
    if is_numpy_scalar(value):
        t: Tensor = value._value() if type(value) is ProgramScalar else value
        return tracer.wrap(t._array, True, True)
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


def _computes_alike(t: Tensor, number: type) -> bool:
    """Whether a tensor is one float64, which computes as Python's floats do, or one int64, as its ints do."""
    return t.shape == () and (t.dtype is float64 or (t.dtype is int64 and number in (int, Tensor)))
