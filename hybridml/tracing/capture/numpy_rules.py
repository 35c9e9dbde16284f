"""NumPy's functions of arrays that a traced function makes (see program_arrays.py), to NumPy's last bit and dtype.

While no operand comes from a tensor, NumPy computes. Otherwise a ufunc casts its operands as NumPy does, and is a row
of the table where that has NumPy's bits, and else one that calls NumPy. Views are NumPy's views of the memory.
Functions that move elements or add them up are those of tensors; what NumPy makes of the memory, whatever is there,
says the shape, the dtype and whether it is a scalar. All others ask for the values.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from hybridml_compiler.errors import HybridmlError
from hybridml_compiler.ops.exact import SCALAR_POWER
from hybridml_compiler.ops.numpy_functions import ARRAY, CONSTANT, LIST, NAMES, NUMBER
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import Dim, is_dim, steps_of
from hybridml_compiler.sizes.steps import Undecided

from ...core.proxies.base import NumberProxy, concrete_value, is_array
from ...core.proxies.complex import ComplexProxy
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from .loops.data_sizes import of_step
from .memory import base_of, cast, check_written, is_element, is_part, literal, with_indices
from .numbers.stored_ints import of_size
from .program_arrays import (
    ProgramArray,
    ProgramScalar,
    ProgramValue,
    asked,
    found_in,
    given_back,
    has_tensor,
    is_program,
    operand,
    plain,
    traced_key,
    value_of,
    waits,
)
from .tracer import Tracer, top_tracer

# Ufuncs whose rows have NumPy's bits, of one dtype and any number of elements; matmul up to the order of its sums.
_EXACT = frozenset((
    "absolute", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "copysign", "divide", "equal", "fabs",
    "floor", "floor_divide", "fmax", "fmin", "greater", "greater_equal", "heaviside", "invert", "isfinite", "isinf",
    "isnan", "left_shift", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "maximum", "minimum", "multiply", "negative", "not_equal", "positive", "reciprocal", "remainder", "right_shift",
    "rint", "sign", "signbit", "sqrt", "square", "subtract", "trunc",
))  # fmt: skip
_OPERATORS = frozenset(("multiply", "divide", "power", "square"))
_EXACT_COMPLEX = frozenset(("add", "conjugate", "equal", "negative", "not_equal", "positive", "subtract"))
_WRITTEN = ("out", "copy", "overwrite_input")  # parameters by which a function writes to its arguments
_CONSTANTS = (bool, int, float, complex, str, type(None))


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Functions and methods of NumPy by name. Those that only look at shapes, dtypes and memory:
_SHAPES = _named(
    "can_cast empty_like iscomplexobj isrealobj may_share_memory ndim ones_like result_type shape shares_memory size "
    "zeros_like nbytes itemsize strides flags"
)
# Those that may give views:
_VIEWS = _named(
    "T array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diagonal dsplit expand_dims flip "
    "fliplr flipud hsplit mT matrix_transpose moveaxis ravel reshape rollaxis rot90 split squeeze swapaxes transpose "
    "unstack vsplit"
)
# Those of such whose arguments are all arrays; of others they are sizes, axes and places but for the first.
_OF_MANY = _named(
    "atleast_1d atleast_2d atleast_3d broadcast_arrays can_cast may_share_memory result_type shares_memory"
)
# Those that move elements, and those that compute with them, in the dtype of the result:
_MOVES = _named(
    "append choose column_stack concatenate diag diagflat dstack flatten hstack repeat resize roll stack take tile "
    "tril triu vstack where"
)
_SUMS = _named(
    "cumprod cumsum diff dot einsum inner max mean min outer prod ptp std sum tensordot trace trapezoid var vdot amax "
    "amin clip"
)
_ANSWERS = _named("all any argmax argmin argsort count_nonzero")
# Those of a selection that need none of its elements; of none, a check finds that an extreme is an error of NumPy's.
_WAIT = _named("all amax amin any max mean min prod std sum var")
# Those of which data decides how many elements they have:
_CHOOSE = _named("flatnonzero nonzero unique where")
_TENSORS = _MOVES | _SUMS | _ANSWERS | _VIEWS
# Those of parts of arrays in steps of loops: they look at nothing but dtypes and axes.
OF_STEPS = _SUMS | _ANSWERS | _named("column_stack concatenate dstack hstack repeat roll stack tile vstack where")


def of_ufunc(tracer: Tracer, ufunc: np.ufunc, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc, a method of one, or the operator of scalars, of operands without tensors."""
    out = kwargs.get("out")
    function = operator.pow if call == SCALAR_POWER else getattr(ufunc, call)
    if call == "at" and issubclass(type(inputs[0]), ProgramArray) and any(map(has_tensor, inputs)):
        if not _updated(tracer, ufunc, *inputs):
            _settled(tracer, ufunc.at, inputs, kwargs)
        return None
    given = list(found_in([*inputs, *(out or ())]))
    if not any(x._memory.is_traced for x in given) and not any(map(_is_number, inputs)):
        return _by_numpy(tracer, function, inputs, kwargs)
    if raises():
        return _settled(tracer, function, inputs, kwargs)
    if call in ("__call__", SCALAR_POWER) and ufunc.nout == 1 and kwargs.keys() <= {"out"}:
        result = _attempt(lambda: _computed(tracer, ufunc, inputs, call == SCALAR_POWER))
        if result is not None:
            if out is None:
                return value_of(tracer, result, scalar=True)
            if waits(out[0]) or (issubclass(type(out[0]), ProgramArray) and out[0]._memory.becomes_traced()):
                out[0]._store(result)
                return out[0]
    return _settled(tracer, function, inputs, kwargs)


def _power(x: Any, y: Any) -> Any:
    """`x ** y` of NumPy's scalars: their own operator where one has the result's dtype, and else the ufunc."""
    if all(is_dim(v) or isinstance(v, int | float | complex | np.generic) for v in (x, y)):
        *_, dtype = np.power.resolve_dtypes((_type(x), _type(y), None))
        if dtype.kind in "fc" and any(isinstance(v, np.generic) and v.dtype == dtype for v in (x, y)):
            tracer = next(found_in((x, y)))._memory.tracer
            return of_ufunc(tracer, np.power, SCALAR_POWER, (x, y), {})
    return np.power(x, y)


def _computed(tracer: Tracer, ufunc: np.ufunc, inputs: tuple[Any, ...], of_scalars: bool = False) -> Tensor | None:
    """The result of a ufunc in NumPy's dtype; None where no row has it."""
    *wanted, found = ufunc.resolve_dtypes((*map(_type, inputs), None))
    kinds = {dtype.kind for dtype in (*wanted, found)}
    if not kinds <= set("biufc") or np.dtype(np.float16) in (*wanted, found):
        return None
    name = ufunc.__name__
    exact = name in (_EXACT_COMPLEX if "c" in kinds else _EXACT)
    alike = {dtype.kind for dtype in wanted} in ({"f"}, {"c"}) and len(set(wanted)) == 1
    if not exact and (not alike or len(wanted) > 2 or ufunc.signature is not None):
        return None
    if "c" in kinds and not exact and name in _OPERATORS and not (of_scalars or any(map(is_array, inputs))):
        return None  # of scalars they round in another way
    operands = [_cast_operand(tracer, x, dtype) for x, dtype in zip(inputs, wanted, strict=True)]
    if any(x is None for x in operands) or getattr(np, name, None) is not ufunc:  # one of SciPy's
        return None
    if exact:
        return cast(ufunc(*operands), found)
    row = OPS["numpy_unary" if len(wanted) == 1 else "numpy_binary"]
    tracer.may_be_slower |= bool(tracer.loops)
    result: Tensor = row.fn(*operands, name=SCALAR_POWER if of_scalars else name)
    return result


def _updated(tracer: Tracer, ufunc: np.ufunc, x: ProgramArray, key: Any, *values: Any) -> bool:
    """Whether `np.add.at(x, key, value)` and its like are an update of the program's: in x's own dtype."""
    if len(values) != 1:
        return False
    (value,) = values
    if issubclass(type(value), Tensor):
        check_written(tracer, value, lambda: False)
    kind = value.dtype if issubclass(type(value), Tensor) else _type(value)
    if set(_attempt(lambda: ufunc.resolve_dtypes((x.dtype, kind, None))) or ()) != {x.dtype}:
        return False
    t = _cast_operand(tracer, value, x.dtype)
    places = with_indices(key) if x.is_of_step or of_step(tracer, key) else traced_key(tracer, key, x._array)
    found, places = x._value().clone(), places if type(places) is tuple else (places,)
    update: Any = ufunc.at
    if t is None or _attempt(lambda: [update(found, places, t)]) is None or not x._memory.becomes_traced():
        return False
    x[...] = found
    return True


def _is_number(x: Any) -> bool:
    """Whether an operand is a number of the program, but for sizes that come with the call."""
    if type(x) is IntProxy:
        return x._value is None
    return type(x) in (ScalarProxy, ComplexProxy) or (is_dim(x) and bool(steps_of(x)))


def of_numbers(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """A ufunc of Python's numbers, as a float64 of NumPy's in the trace, or of such and arrays; None where there is
    none."""
    tracer = top_tracer()
    if tracer is None or ufunc.nout != 1:
        return None
    if any(map(_is_number, inputs)) and any(isinstance(x, np.ndarray) for x in inputs):
        return of_ufunc(tracer, ufunc, "__call__", inputs, {})
    if any(isinstance(x, complex) for x in inputs):
        return ComplexProxy.compute(ufunc, *inputs)
    if not all(is_dim(x) or isinstance(x, int | float) for x in inputs):
        return None
    result = _attempt(lambda: _computed(tracer, ufunc, inputs))
    if result is None or result.dtype != np.float64:
        return None
    return ScalarProxy(tracer.wrap(result._array, True, double=True))


NumberProxy.by_numpy = staticmethod(of_numbers)


_errors: Any = import_module("numpy._core.umath")._extobj_contextvar  # in which `np.errstate` is


def raises() -> bool:
    """Whether NumPy's floating-point errors are more than warnings now (`np.errstate`), which programs do not know."""
    return _errors.get(None) is not None and not {"warn", "ignore"}.issuperset(np.geterr().values())


_NUMPYS = (np.ndarray, np.generic)
_OF_INTS: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
}  # fmt: skip


def _has_ufuncs(x: Any) -> bool:
    return hasattr(type(x), "__array_ufunc__")


def _of_sizes(size: Any, ufunc: np.ufunc, call: str, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc of sizes, and of the numbers of steps: of these as numbers of the trace, or of the ints themselves."""
    if any(type(x) is not Dim and not issubclass(type(x), _NUMPYS) and _has_ufuncs(x) for x in inputs):
        return NotImplemented  # a tensor, or a number of the program
    if ufunc in _OF_INTS and not kwargs and all(is_dim(x) or isinstance(x, int | np.integer) for x in inputs):
        return _OF_INTS[ufunc](*(int(x) if type(x) is not Dim else x for x in inputs))
    found = None if kwargs or call != "__call__" else of_numbers(ufunc, inputs)
    return getattr(ufunc, call)(*(int(x) if is_dim(x) else x for x in inputs), **kwargs) if found is None else found


Dim.__array_ufunc__ = _of_sizes  # type: ignore[attr-defined]  # here, as it takes what NumPy's functions are in a trace


def _type(x: Any) -> Any:
    """The type that NumPy promotes an operand as: Python's numbers are weak."""
    if isinstance(x, bool | np.generic | np.ndarray):
        return np.dtype(bool) if isinstance(x, bool) else x.dtype
    if is_dim(x):
        return int
    if isinstance(x, int | float | complex):
        kind: type = x.__class__
        return next(k for k in (int, float, complex) if issubclass(kind, k))
    return np.asarray(plain(x)).dtype


def _cast_operand(tracer: Tracer, x: Any, dtype: np.dtype) -> Tensor | None:
    if is_dim(x):
        return of_size(x, dtype)
    x = x._number if type(x) is IntProxy else x
    t = operand(tracer, x)
    return cast(
        literal(tracer, np.array(concrete_value(asked(x, "a number in a list")), dtype)) if t is None else t, dtype
    )


def _attempt(compute: Callable[[], Any]) -> Any:
    """The result of rows; None where they have none, or NumPy has its own error."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return compute()
    except Undecided:
        raise
    except (HybridmlError, TypeError, ValueError, IndexError, OverflowError):
        return None


def _by_numpy(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's result, of memory that is NumPy's."""
    result = function(*plain(args), **plain(kwargs))
    for x in found_in([args, kwargs]):
        x._memory.touched()
    out = list(found_in([kwargs.get("out")]))
    return out[0] if len(out) == 1 else given_back(tracer, result, [args, kwargs])


def _settled(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's result, of values that are asked for."""
    for x in found_in([args, kwargs]):
        x._memory.settle(_called_as(function))
    return _by_numpy(tracer, function, args, kwargs)


def _called_as(function: Any) -> str:
    """The name of a function of NumPy's, of a ufunc or a method of one."""
    of: Any = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "function")
    if isinstance(of, np.ufunc):
        own: str = of.__name__
        whole = f"np.{own}" if getattr(np, own, None) is of else own
        return whole if name == "__call__" else f"{whole}.{name}"
    module = (getattr(function, "__module__", None) or "numpy").replace("numpy", "np", 1)
    return f"{module}.{name}" if module[:2] == "np" and "_" not in module else f"np.{name}"


def of_function(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy's, of arguments without tensors."""
    name = func.__name__ if func.__module__ == "numpy" else ""
    given = list(found_in([args, kwargs]))
    if name == "copyto" and len(args) == 2 and not kwargs and all(type(x) is ProgramArray for x in args):
        args[0]._store(args[1])
        return None
    if any(x.is_of_step for x in given):
        known = name in OF_STEPS and kwargs.get("out") is None
        found = _attempt(lambda: _as_tensors(tracer, func, name, args, kwargs, _model(args))) if known else None
        return _settled(tracer, func, args, kwargs) if found is None else found
    if raises() or (name in ("may_share_memory", "shares_memory") and any(x._memory.is_given for x in given)):
        return _settled(tracer, func, args, kwargs)
    looks = name in _SHAPES or (name == "full_like" and not any(True for _ in found_in([args[1:], kwargs])))
    if (looks or name in _VIEWS) and name not in _OF_MANY:
        asked([args[1:], kwargs], f"np.{name}")
    if name in ("real", "imag"):
        return getattr(given[0], name)
    if looks or not any(x._memory.is_traced for x in given):
        return _by_numpy(tracer, func, args, kwargs)
    if name in _VIEWS:
        result = _views(tracer, lambda: func(*plain(args), **plain(kwargs)), given)
        if result is not None:
            return result
    if name == "copy":
        return value_of(tracer, args[0]._value())
    found = None
    if name in _WAIT and kwargs.get("out") is None and any(map(waits, given)):
        found = _attempt(lambda: _as_selections(tracer, func, name, args, kwargs))
    if name in _CHOOSE and len(args) == 1 and not kwargs and top_tracer() is tracer:
        found = _attempt(lambda: _as_chosen(tracer, func, args[0]))
    if found is None and name in _TENSORS and kwargs.get("out") is None and top_tracer() is tracer:
        found = _attempt(lambda: _as_tensors(tracer, func, name, args, kwargs))
    if found is None and _name_of(func) in NAMES:
        found = _attempt(lambda: _as_call(tracer, func, args, kwargs))
    return _settled(tracer, func, args, kwargs) if found is None else found


def _views(tracer: Tracer, make: Callable[[], Any], given: list[ProgramValue]) -> Any:
    """NumPy's views of the memory; None where it makes a copy."""
    result = make()
    parts = result if type(result) in (tuple, list) else [result]
    bases = {id(x._memory.base): x._memory.base for x in given}
    for p in parts:
        base = bases.get(id(p.base)) if isinstance(p, np.ndarray) else None
        if base is None or (p.dtype != base.dtype and not is_part(p, base)):
            return None
    return given_back(tracer, result, given)


def _as_tensors(tracer: Tracer, func: Any, name: str, args: Any, kwargs: Any, like: Any = None) -> Any:
    """The result of a function, computed by that of tensors in the dtype that NumPy's has for such memory, or for
    arguments `like` these."""
    model = func(*(plain(args) if like is None else like), **plain(kwargs))
    if not isinstance(model, np.ndarray | np.generic) or (name in _SUMS and model.dtype == np.float16):
        return None
    if like is None and isinstance(model, np.ndarray) and any(base_of(model) is x._memory.base for x in found_in(args)):
        return given_back(tracer, model, args)  # a view
    dtype = model.dtype
    keep = name in _ANSWERS or dtype.kind == "b"

    def tensors(x: Any, first: bool = False) -> Any:
        if is_program(x):
            t, chooses = x._value(), first and name in ("where", "choose")
            return t if keep or chooses or (t.dtype.kind == "b" and name not in _SUMS) else cast(t, dtype)
        if type(x) in (tuple, list):
            return type(x)(map(tensors, x))
        return literal(tracer, x) if isinstance(x, np.ndarray) else x

    result = func(*(tensors(x, not k) for k, x in enumerate(args)), **{k: tensors(x) for k, x in kwargs.items()})
    if not isinstance(result, Tensor) or result.ndim != model.ndim:
        return None
    if like is None and tuple(map(int, result.shape)) != model.shape:
        return None
    lies = model if like is None and isinstance(model, np.ndarray) else None
    return value_of(tracer, cast(result, dtype), scalar=isinstance(model, np.generic), lies=lies)


def _as_chosen(tracer: Tracer, func: Any, x: Any) -> Any:
    """The arrays that a function makes of the elements that it chooses."""
    result = func(x._value())
    return tuple([value_of(tracer, t) for t in result]) if type(result) is tuple else value_of(tracer, result)


def _name_of(func: Any) -> str:
    """The name by which a function of NumPy's is found there."""
    return f"{func.__module__}.{func.__name__}".removeprefix("numpy.")


def _as_call(tracer: Tracer, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a function of NumPy's that the program calls; None where it takes what no operand stands for, or
    writes to an argument."""
    bound = inspect.signature(func).bind(*args, **kwargs).arguments
    if any(bound.get(name) is not None for name in _WRITTEN):
        return None
    given, model = [*found_in([args, kwargs])], None
    if any(type(x) is ProgramArray and x.ndim > 1 and not x._array.flags.c_contiguous for x in given):
        model = func(*plain(args), **plain(kwargs))  # the result may lie as they do
    dtypes = {x.dtype for x in given}
    operands: list[Tensor | None] = []

    def part(x: Any) -> tuple[str, Any]:
        if type(x) in (tuple, list):
            return LIST, tuple(map(part, x))
        if type(x) in _CONSTANTS:
            return CONSTANT, x
        is_number = type(x) in (ScalarProxy, IntProxy) or is_dim(x)
        if not (is_number or is_program(x) or isinstance(x, _NUMPYS)):
            raise TypeError
        dtype = np.dtype(np.float64 if type(x) is ScalarProxy else np.int64) if is_number else x.dtype
        dtypes.add(dtype)
        operands.append(_cast_operand(tracer, x, dtype))
        return NUMBER if is_number else ARRAY, len(operands) - 1

    form = tuple(map(part, args)), tuple([(key, part(x)) for key, x in sorted(kwargs.items())])
    if len(dtypes) != 1 or np.dtype(np.float16) in dtypes or any(x is None for x in operands):
        return None
    tracer.may_be_slower |= bool(tracer.loops)
    result = OPS["numpy_function"].fn(operands, name=_name_of(func), form=form)
    lies = model if isinstance(model, np.ndarray) and model.shape == result.shape else None
    return value_of(tracer, result, scalar=True, lies=lies)


def _model(args: Any) -> Any:
    """Arrays of one element in the places of stand-ins."""
    if type(args) in (tuple, list):
        return type(args)(map(_model, args))
    return np.ones((1,) * args.ndim, args.dtype)[()] if is_program(args) else args


def _as_selections(tracer: Tracer, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The result of a function of selections that wait, in the dtype that NumPy's has for one element."""
    model = func(*_model(args), **kwargs)
    dtype = model.dtype
    if dtype == np.float16 or any(True for _ in found_in(kwargs)):
        return None
    keep = name in _ANSWERS or dtype.kind == "b"
    given = [x if not is_program(x) else x._value() if keep else cast(x._value(), dtype) for x in args]
    result = func(*given, **kwargs)
    return value_of(tracer, cast(result, dtype), scalar=isinstance(model, np.generic))


def of_attribute(x: ProgramValue, name: str) -> Any:
    """A method or an attribute of NumPy's array or scalar."""
    if name in ("flags", "ctypes", "data") and x._memory.is_given:
        x._own(name)  # of the caller's array: whether it may be written to, where it is
    if name[:8] == "__array_":  # by which NumPy would take the memory unseen, where `__array__` is asked otherwise
        raise AttributeError(name)
    if waits(x) and callable(getattr(np.ndarray, name, None)):
        return partial(_called, x, name)
    memory, found = x._memory, getattr(plain(x), name)
    if callable(found):
        return partial(_called, x, name)
    if name == "base":
        if memory.is_given:
            memory.settle(name)
        owns = (x._array.shape, x._array.strides) == (memory.base.shape, memory.base.strides)
        return None if owns else ProgramArray(memory, memory.base.view())
    if memory.is_traced and name not in _SHAPES:
        views = _views(memory.tracer, lambda: found, [x])
        return given_back(memory.tracer, getattr(x._own(name), name), (x,)) if views is None else views
    return given_back(memory.tracer, found, (x,))


def _called(x: ProgramValue, name: str, *args: Any, **kwargs: Any) -> Any:
    """The result of a method."""
    tracer, given = x._memory.tracer, [x, *found_in([args, kwargs])]
    if any(v._memory.is_traced for v in given):
        plainly = not (kwargs or any(type(a) is str for a in args))
        if name in _VIEWS:
            asked([args, kwargs], f"{name}()")
        if name in _VIEWS and type(x) is ProgramArray:
            result = _views(tracer, lambda: getattr(x._array, name)(*plain(args), **plain(kwargs)), given)
            if result is not None:
                return result
        if name == "fill" and type(x) is ProgramArray:
            x[...] = args[0]
            return None
        result = None
        if name == "copy" and type(x) is ProgramArray and x.ndim > 1:
            return value_of(tracer, x._value(), lies=_copied(x._array, *args, **kwargs))
        if name in ("copy", "astype") and len(args) < 2 and kwargs.keys() <= {"copy"}:
            dtype = np.dtype(args[0]) if name == "astype" and args else x.dtype
            if name == "astype" and dtype == x.dtype and not kwargs.get("copy", True):
                return x
            result = _attempt(lambda: cast(x._value(), dtype))
        elif name in ("reshape", "flatten") and plainly:
            result = _attempt(lambda: x._value().reshape(getattr(x._array, name)(*plain(args)).shape))
        elif name in _TENSORS and hasattr(np, name):
            return getattr(np, name)(x, *args, **kwargs)
        if result is not None:
            return value_of(tracer, result, scalar=type(x) is ProgramScalar)
        for v in given:
            v._memory.settle(f"{name}()")
    return _by_numpy(tracer, lambda own, *a, **k: getattr(own, name)(*a, **k), (x, *args), kwargs)


def _copied(array: np.ndarray, order: Any = "C") -> np.ndarray:
    """An array of zeros that lies as `array.copy(order)`."""
    if order == "K" or (order == "A" and array.flags.fnc):
        return np.zeros_like(array)
    return np.zeros(array.shape, array.dtype, "F" if order == "F" else "C")


def _of_ufunc(self: ProgramValue, ufunc: Any, call: str, *inputs: Any, **kwargs: Any) -> Any:
    tensors = [x for x in inputs if issubclass(type(x), Tensor)]
    if tensors and not all(map(is_element, tensors)):
        return NotImplemented  # the tensor knows
    return of_ufunc(self._memory.tracer, ufunc, call, _with_scalars(self._memory.tracer, inputs), kwargs)


def _with_scalars(tracer: Tracer, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands with stand-ins of NumPy's scalars that are tensors in the step of a loop."""
    return tuple([value_of(tracer, x, scalar=True) if issubclass(type(x), Tensor) else x for x in inputs])


def _by_rule(self: ProgramValue, ufunc: Any, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return of_ufunc(self._memory.tracer, ufunc, call, inputs, kwargs)


def _of_function(self: ProgramValue, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    if any(issubclass(kind, Tensor) for kind in types):
        return NotImplemented
    return of_function(self._memory.tracer, func, args, kwargs)


for _name, _method in {
    "__array_ufunc__": _of_ufunc, "__array_function__": _of_function, "__getattr__": of_attribute,
    "_by_numpy": _by_rule,
}.items():  # fmt: skip
    setattr(ProgramValue, _name, _method)
for _name in ("__pow__", "__ipow__"):
    setattr(ProgramScalar, _name, lambda self, y, modulo=None: _power(self, y))
setattr(ProgramScalar, "__rpow__", lambda self, x: _power(x, self))  # noqa: B010
