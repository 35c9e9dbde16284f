"""Dispatch: what happens between a call of a row and its kernel.

`slow` is the general form: operands from anything that stands for a tensor, promotion, checks, the interpreter in force
(NumPy's, a tracer), history. The functions that codegen.py generates do the same for the common case, and call it for
all others.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.compile_policy import COMPOSITE, LISTED, WORTH, WORTH_CREATED
from hybridml_compiler.eager.large import compute, created, is_small
from hybridml_compiler.errors import ArgumentError, CompileWarning, DTypeError
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.memory_order import order_of
from hybridml_compiler.ops.op import REQUIRED, Op, hash_key, size_key
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import Dim, is_dim

from . import aliasing
from .autodiff.history import record
from .context import current_interpreter, grad_is_off
from .device_tensor import OnDevice, home_of
from .devices.calls import keep, on_device
from .eager import EAGER, active_interpreter
from .interpreter import Interpreter, interpreter_stack
from .library import MISS, compiled, factories, is_early, missed
from .nested import Nesting
from .precision.autocast import Autocast, autocast_around
from .precision.operands import brought_to, is_numpys, promoted_dtypes, scalar_aval, wanted_dtypes
from .proxies.base import concrete_value
from .proxies.integer import IntProxy
from .proxies.scalar import ScalarProxy, tensor_of
from .tensor import StandIn, Tensor, adopt, aval_of, constant, place_var, wrap

_ndarray, _ascontiguous = np.ndarray, np.ascontiguousarray
_astype, _full, _pow, _square = OPS["astype"], OPS["full"], OPS["pow"], OPS["square"]
_SCALARS = (bool, int, float, complex, Dim, IntProxy, np.generic)
_ARRAYS = (Tensor, np.ndarray)
_OPERANDS = (*_ARRAYS, *_SCALARS)
_LOCAL = frozenset((Tensor, float, int, bool, np.ndarray))
_STANDING = (Tensor, IntProxy, ScalarProxy)  # for something else, inside a trace
_CACHE_LIMIT = 4096  # signatures of one row; a program that makes more shapes than that starts over


# What the checks of a row have accepted: (shapes, dtypes, parameters) -> canonical parameters, or the `Signature` where
# there may be native calls. Read by the hot path.
checked: dict[Op, dict[Any, Any]] = {}


# -- operands


def _operand(op: Op, position: int, value: Any, interp: Interpreter[Tensor]) -> Any:
    value = tensor_of(value)
    if issubclass(type(value), _ARRAYS):  # and not what says so, as a mock does
        return interp.lift(value)
    if isinstance(value, _SCALARS):
        # a NumPy scalar is weak as a Python one: `x * np.float64(2)` keeps float32
        return value.item() if isinstance(value, np.generic) else value
    name = op.inputs[0] if op.variadic else op.inputs[position]
    raise DTypeError(
        f"{op.name}: {name} must be a tensor, an array or a number, got {type(value).__name__}; use hm.asarray"
    )


def operands(
    op: Op, values: Sequence[Any], interp: Interpreter[Tensor], arithmetic: bool = False
) -> tuple[list[Tensor], list[Aval]]:
    """Tensors of the dtypes that the row wants, from anything that stands for one, and their types.

    `arithmetic` (operators of Python floats that a trace has lifted): floats alone stay floats, as in eager code.
    """
    given = [_operand(op, k, v, interp) for k, v in enumerate(values)]
    if op.kind != "elementwise" or op is _pow:  # x**2 is a multiplication, and the program for it another
        given = [concrete_value(v) for v in given]
    avals = [aval_of(v) if isinstance(v, Tensor) else scalar_aval(v) for v in given]
    if any(isinstance(v, Tensor) and type(v).is_element for v in given):
        avals = [_beside(v, a, avals) for v, a in zip(given, avals, strict=True)]
    if op is _astype and isinstance(given[0], Tensor):
        return [given[0]], [avals[0]]
    weak = arithmetic and all(a.weak for a in avals) and any(dtypes.is_float(a.dtype) for a in avals)
    wanted = (dtypes.float64,) * len(avals) if weak else input_dtypes(op, avals)
    result: list[Tensor] = []
    for k, (value, aval, dtype) in enumerate(zip(given, avals, wanted, strict=True)):
        if isinstance(value, Tensor) and value._array.dtype is dtype and (weak or not aval.weak):
            result.append(value)
            continue
        if is_dim(value):
            result += interp.apply(_full, (), {"shape": (), "value": value, "dtype": dtype})
        elif type(value) is IntProxy and (dtypes.is_float(dtype) or dtype is dtypes.int64):
            real = value._number._tensor
            result.append(real if weak else _astype.fn(real, dtype))
        elif not isinstance(value, Tensor):
            result.append(interp.constant(constant(concrete_value(value), dtype), weak))
        else:
            result.append(_astype.fn(value, dtype))
        avals[k] = aval_of(result[k])
    return result, avals


def _beside(value: Any, aval: Aval, avals: Sequence[Aval]) -> Aval:
    """The type of an operand: a scalar of NumPy's is weak beside tensors of other dtypes, as `x * np.float64(2)`."""
    others = any(a.dtype is not aval.dtype and a.dtype.kind != "b" and not a.weak for a in avals)
    is_element = isinstance(value, Tensor) and type(value).is_element and aval.dtype.kind != "b"
    return Aval((), aval.dtype, weak=True) if is_element and others else aval


# -- the slow path


def slow(op: Op, args: tuple[Any, ...], params: dict[str, Any], arithmetic: bool = False) -> Any:
    """A tensor, or several, of a row on anything: what generated functions leave to the general form."""
    if not _LISTS.isdisjoint(map(type, _flat(op, args))):
        args = _of_lists(op, args)
    if op is _pow and (found := _power(*args)) is not None:
        return found
    if op.kind == "elementwise" and not params:
        level = interpreter_stack()
        if level is None:  # numbers of NumPy's are weak as Python's are, but those of narrow floats
            args = tuple([a.item() if isinstance(a, np.generic) and not _is_narrow(a) else a for a in args])
        if level is None and _LOCAL.issuperset(map(type, args)):
            args = tuple([adopt(a) if type(a) is _ndarray else a for a in args])
            wanted = wanted_dtypes(op, args)
            if not (wanted and is_numpys(op, args, wanted)) and _is_native(op, args):
                return by_native_call(op, arithmetic)(*args)
            if wanted is not None:
                return op.fn(*brought_to(wanted, args))
        if level is not None and isinstance(level.interpreter, Nesting) and autocast_around() is None:
            nested = _nested(op, args, level.interpreter)
            if nested is not None:
                outs = level.interpreter.apply(op, nested, params)
                record(op, outs, nested, params)
                return outs if op.results else outs[0]
    out = on_device(op, args, params)
    return general(op, args, params, arithmetic) if out is MISS else out


def _of_lists(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of `hm.add([1, 2], x)`, `hm.sum([[1, 2], [3, 4]])`: tensors in the places of lists and tuples, whose
    floats have the dtype of the first operand that is none."""
    given = _flat(op, args)
    beside = next((a for a in given if type(a) not in _LISTS), given[0])
    found = tuple([list_operands[0](a, beside) if type(a) in _LISTS else a for a in given])
    return (found,) if op.variadic else found


def _power(x: Any, y: Any) -> Any:
    """`x ** 2`, and `z ** 3` of complex z, as products, in either style: `pow` has not their bits, nor their speed (1M
    of float64: 8.2 ms, 0.34). None for others: Python's numbers, and `x ** 2.0`, whose float may be an input."""
    is_int = type(y) in (int, IntProxy) or isinstance(y, np.integer)
    if not is_int or not isinstance(x, Tensor) or x.dtype.kind not in "iufc" or x.is_number:
        return None
    y = int(concrete_value(y))
    if y < 0 and x.dtype.kind in "iu":  # as in NumPy and PyTorch
        raise ArgumentError(f"pow: integers have no power {y}, got {aval_of(x)}; use x.astype('float64') ** {y}")
    square = _square.fn(x) if y == 2 or (y == 3 and x.dtype.kind == "c") else None
    return x * square if y == 3 and square is not None else square  # in NumPy's order


def _is_native(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether a native call is tried: without a history, of memory without gaps, which NumPy reads as they are."""
    if _left and isinstance(op.eager, np.ufunc) and all([a._array.size < _LEAST for a in args if type(a) is Tensor]):
        return False
    for a in args:
        if type(a) is Tensor and (not a._array.flags.c_contiguous or (a._node is not None and op.differentiable)):
            return a._array.flags.c_contiguous and grad_is_off()
    return True


@functools.cache
def by_native_call(op: Op, arithmetic: bool) -> Callable[..., Any]:
    """The row as a library function: of tensors of several dtypes, and of numbers beside them."""
    return compiled(_operation(op, arithmetic), exact=True, row=True)


def _operation(op: Op, arithmetic: bool, count: int = 0) -> Callable[..., Any]:
    """The row as a function of its operands, of so many where they are a list, and its parameters."""
    names = [f"{op.inputs[0]}{k}" for k in range(count)] if op.variadic else list(op.inputs)
    operands = "".join(f"{name}, " for name in names)
    given = ", ".join(f"{p!r}: {p}" for p in op.params)
    source = f"lambda {', '.join([*names, *op.params])}: general(op, ({operands}), {{{given}}}, arithmetic)"
    if op.variadic:
        source = source.replace(f"({operands})", f"(({operands}),)")
    code = compile(source, f"<dispatch {op.name}>", "eval")  # no file of the user's, whose lines errors tell
    run: Callable[..., Any] = eval(code, {"general": general, "op": op, "arithmetic": arithmetic})
    run.__name__ = op.name
    return run


class RowLibrary:
    """The native calls of a row of small tensors."""

    def __init__(self, op: Op) -> None:
        self.op, self.direct = op, missed
        self.directs: dict[int, Callable[..., Any]] = {}  # of a row over a list, by its length
        self._functions: dict[int, Any] = {}

    def of_tensors(self, *args: Tensor) -> Any:
        """The result of a call of an elementwise row, or MISS."""
        gaps = False
        for t in args:
            array = t._array
            if array.size >= COMPOSITE:
                return MISS
            if not array.flags.c_contiguous:
                gaps = True
                if order_of(array) is not None:  # which the result would have
                    return MISS
        if not self._functions and is_early(args):
            return MISS
        if gaps:
            args = tuple([t if t._array.flags.c_contiguous else wrap(_ascontiguous(t._array)) for t in args])
            out = self.direct(*args)
            if out is not MISS:
                return out
        function = self._function(0)
        out = function.of_row(args)
        self.direct = function.direct
        return out

    def find(self, signature: Signature, tensors: Sequence[Tensor], params: Sequence[Any]) -> Callable[..., Any] | None:
        """The native call of a signature, of its tensors; None until it has come often enough to be worth a program."""
        signature.calls += 1
        if not tensors and signature.calls == WORTH_CREATED:
            kernel = created(self.op, dict(zip(self.op.params, signature.params, strict=True)))
            signature.native = None if kernel is None else lambda: wrap(kernel())
            return signature.native
        if is_early(tensors) or signature.calls < WORTH or not all([t._array.flags.c_contiguous for t in tensors]):
            return None
        signature.native = missed
        made = self.op.infer(**dict(zip(self.op.params, signature.params, strict=True))).size if not tensors else 0
        if made < COMPOSITE and len(tensors) < LISTED and all([t._array.size < COMPOSITE for t in tensors]):
            function = self._function(len(tensors) if self.op.variadic else 0)
            signature.native, signature.direct = function.made((*tensors, *params))
        return signature.native

    def _function(self, count: int) -> Any:
        function = self._functions.get(count)
        if function is None:
            function = factories[0](_operation(self.op, False, count), False, 1, True, True)
            self._functions[count] = function
        return function


class Signature:
    """Shapes, dtypes and parameters of a row that its checks have accepted."""

    __slots__ = ("calls", "direct", "native", "params")

    def __init__(self, params: tuple[Any, ...]) -> None:
        self.params, self.calls = params, 0  # canonical ones
        self.native: Callable[..., Any] | None = None
        self.direct: Callable[..., Any] = missed


libraries: dict[Op, RowLibrary] = {}  # of rows whose signatures have native calls


def general(op: Op, args: tuple[Any, ...], params: dict[str, Any], arithmetic: bool = False) -> Any:
    """`slow`, operation by operation."""
    if interpreter_stack() is not None:
        for a in map(tensor_of, args):
            if issubclass(type(a), StandIn) and (found := a._applied(op, args, params)) is not None:
                return found
    if op.kind == "elementwise" and interpreter_stack() is None:
        wanted = wanted_dtypes(op, args)
        if wanted is not None:
            return op.fn(*brought_to(wanted, args))
    casting = autocast_around()
    if casting is not None:
        args = casting.widened(op, args)
    if op.kind not in _STORAGE and op is not _astype and has_narrow(op, args):
        return through_float32(op, args, params, functools.partial(general, arithmetic=arithmetic))
    values = _sequence(op, args[0]) if op.variadic else args
    place = None if values or interpreter_stack() is not None else place_var.get()
    interp = active_interpreter(*values) if place is None else home_of(place)
    eager = interp is EAGER
    tensors, avals = operands(op, values, interp, arithmetic)
    plain_params(op, params)
    given = params
    if eager:
        params = _canonical(op, avals, values, tensors, params)
    else:  # sizes may be symbols
        params = ir.canonical_params(op, avals, {**params, "result": 0} if op.results else params)
    outs = interp.apply(op, tensors, params)
    if type(interp) is OnDevice:
        keep(interp, op, values, tensors, given, params, outs)
    if type(interp) is Autocast:
        return outs if op.results else outs[0]
    record(op, outs, tensors, params)
    if op.kind == "movement" and not op.variadic:
        aliasing.link(tensors[0], outs[0], (op, params))
    return outs if op.results else outs[0]


def _nested(op: Op, args: Sequence[Any], nesting: Nesting) -> Sequence[Tensor] | None:
    """The operands for an interpreter that stands on another, which are its own, and numbers."""
    own = [nesting.owns(a) and not type(a._array.tensor).is_number for a in args]
    kinds = tuple([a._array.dtype if mine else type(a) for a, mine in zip(args, own, strict=True)])
    wanted = promoted_dtypes(op, kinds)
    if wanted is None or any([mine and k is not d for mine, k, d in zip(own, kinds, wanted, strict=True)]):
        return None
    return [a if mine else nesting.constant(constant(a, d)) for a, d, mine in zip(args, wanted, own, strict=True)]


# Kinds that move data, whatever it is. All others compute on bfloat16 and float16 in float32.
_STORAGE = ("movement", "gather", "creation", "random", "effect")


def _flat(op: Op, args: tuple[Any, ...]) -> Sequence[Any]:
    return args[0] if op.variadic and isinstance(args[0], list | tuple) else args


def has_narrow(op: Op, args: tuple[Any, ...]) -> bool:
    return any(map(_is_narrow, _flat(op, args)))


def _is_narrow(value: Any) -> bool:
    return issubclass(type(value), (Tensor, _ndarray, np.generic)) and dtypes.is_narrow(value.dtype)


# Products of tensors of a narrow storage, by its name: compiled.py, which stands above the tracer, registers them.
narrow_products: dict[str, Callable[..., Any]] = {}


def through_float32(op: Op, args: tuple[Any, ...], params: dict[str, Any], run: Callable[..., Any]) -> Any:
    """Runs an op on bfloat16 or float16 in float32, the results rounded, unless another operand or `dtype` makes them
    wider."""
    given = _flat(op, args)
    narrow = dtypes.result_type([(dtypes.canonical(v.dtype), False) for v in given if _is_narrow(v)])
    is_bfloat16 = all(type(v) is Tensor and v.dtype.kind == "V" for v in given)
    if is_bfloat16 and op.kind == "contraction" and current_interpreter() is None:
        return narrow_products[narrow.name](*given)
    wide = [_astype.fn(v, dtypes.float32) if _is_narrow(v) else v for v in given]
    strong = [v for v in given if isinstance(v, Tensor | _ndarray)]
    stays = all(dtypes.is_narrow(v.dtype) or v.dtype.kind in "iub" for v in strong)
    if params.get("dtype") is not None and dtypes.canonical(params["dtype"]) is narrow:
        params = {**params, "dtype": dtypes.float32}
    elif params.get("dtype") is not None:
        stays = False
    found = run(op, (wide,) if op.variadic else tuple(wide), params)
    rounded = [
        _astype.fn(out, narrow) if stays and out.dtype is dtypes.float32 else out
        for out in (found if op.results else [found])
    ]
    return tuple(rounded) if op.results else rounded[0]


# Seconds in Python before there are native methods: where another process has compiled their code, which takes 0.02 s
# to load, and where none has: that takes 0.15 s, once per machine.
_BEFORE_LOADING, _BEFORE_COMPILING = 0.002, 0.02
_LONGEST = 2e-5  # that a call counts for: two have anything between them
_left, _last = _BEFORE_COMPILING, 0.0
_LEAST = 8192  # elements: smaller tensors wait for native methods, where compiling a row takes 50 ms
# What makes them, compiling code or not, and says whether it has. `native_methods`, which stands above, registers it.
installers: list[Callable[[bool], bool]] = []


def count() -> None:
    """Counts the time of a call in Python of what may have a native method. Where these cannot be made, as with a full
    disk, the Python ones stay, and a CompileWarning says so; deep in a program that recurs they are tried again later.
    """
    global _left, _last
    if not _left or interpreter_stack() is not None:  # a trace has no use for them
        return
    before, now = _left, perf_counter()
    _left, _last = max(before - min(now - _last, _LONGEST), 0.0), now
    compiles = not _left
    if not compiles and not _left <= _BEFORE_COMPILING - _BEFORE_LOADING < before:
        return
    _left = _left or _BEFORE_COMPILING
    try:
        if installers[0](compiles):
            _left = 0
    except RecursionError:
        pass
    except Exception as error:
        _left = 0
        why = f"{type(error).__name__}: {error}"
        warnings.warn(f"small eager operations stay slow, without native methods ({why})", CompileWarning, stacklevel=2)


def not_yet(*args: Any, **kwargs: Any) -> Any:
    """The native call of a row until there are native methods: it takes nothing, and counts what is asked."""
    count()
    return MISS


def slow_operator(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    count()
    out = on_device(op, args, params)
    if out is not MISS:
        return out
    for a in args:
        if not isinstance(a, _OPERANDS):
            is_list = isinstance(a, list | tuple) and not hasattr(a, "_fields")  # `x.max(dim=0)` is a named tuple
            return _with_lists(op, args, params) if is_list else NotImplemented
    return slow(op, args, params, arithmetic=True)


_LISTS = frozenset((list, tuple))
# Makes a tensor of a list or a tuple beside another operand. `arrays.creation`, which stands above, registers it.
list_operands: list[Callable[[Any, Any], Any]] = []


def _with_lists(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """`x * [1, 2, 3]`. A list that is no array (of words, say) gives NotImplemented, as other foreign operands do."""
    x, y = args
    try:
        return slow_operator(op, (list_operands[0](x, y), list_operands[0](y, x)), params)
    except DTypeError:
        return NotImplemented


def is_plain_elementwise(op: Op) -> bool:
    return op.kind == "elementwise" and not op.params and len(op.unify) == len(op.inputs)


def _sequence(op: Op, xs: Any) -> Sequence[Any]:
    if isinstance(xs, Tensor | _ndarray):
        return list(xs)
    try:
        return list(xs)
    except TypeError:
        raise DTypeError(f"{op.name}: takes a sequence of tensors, got {type(xs).__name__}") from None


def plain_params(op: Op, params: dict[str, Any]) -> None:
    """The parameters as Python values: a tensor given as one (`reshape(x, t)`) is read."""
    for name, value in params.items():
        if value is REQUIRED:
            raise TypeError(f"{op.name}() missing required argument: {name!r}")
        if isinstance(value, Tensor):
            params[name] = _plain(value) if not value.shape else value.tolist()
        elif isinstance(value, tuple | list) and any(isinstance(v, _STANDING) for v in value):
            params[name] = type(value)([_plain(v) if isinstance(v, Tensor) else concrete_value(v) for v in value])
        elif type(value) in (IntProxy, ScalarProxy):
            params[name] = concrete_value(value)


def _plain(t: Tensor) -> Any:
    return float(t) if type(t).is_number else concrete_value(t.item())


def has_no_dtype(op: Op) -> bool:
    """Whether the checks of a row look at shapes alone: views are of any dtype."""
    return op.is_view and op.accepts == "any"


def _canonical(
    op: Op, avals: list[Aval], values: Sequence[Any], tensors: list[Tensor], params: dict[str, Any]
) -> dict[str, Any]:
    """Checked, canonical parameters; remembered for the hot path when the operands came as the row wants them."""
    canonical = op.canonical_params(avals, params)
    op.infer_from(avals, canonical)
    if op in checked and all(v is t for v, t in zip(values, tensors, strict=True)):
        cache = checked[op]
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        key: tuple[Any, ...] = tuple(x for a in avals for x in (a.shape, a.dtype))
        if has_no_dtype(op):
            key = tuple(a.shape for a in avals)
        if not avals:  # their classes decide the dtype: True equals 1
            key = (dtypes.default_float(), *(params[p].__class__ for p in op.params))
        try:
            accepted = tuple(canonical[p] for p in op.params)
            found = Signature(accepted) if op in libraries else accepted
            keyed = size_key if op.is_view else hash_key
            cache[(*key, *(keyed(params[p]) for p in op.params))] = found
        except TypeError:  # a list as axis: canonical every time
            pass
    return canonical


def of_list(op: Op, xs: Any, params: dict[str, Any]) -> Tensor | None:
    """The hot path of a row over a list: tensors whose shapes and dtypes have come before (3 us, 12 in general)."""
    if type(xs) is not list and type(xs) is not tuple:
        return None
    library, given = libraries.get(op), params.values()
    if library is None:  # of a row that has no native calls
        return None
    direct = library.directs.get(len(xs))
    if direct is not None:
        out: Tensor = direct(*xs, *given)
        if out is not MISS:
            return out
    key: list[Any] = []
    recorded = False
    for x in xs:
        if type(x) is not Tensor:
            return None
        key += (x._array.shape, x._array.dtype)
        recorded = recorded or x._node is not None
    try:
        found = checked[op][(*key, *map(hash_key, given))]
    except (KeyError, TypeError):
        return None
    if not recorded:
        native = found.native or library.find(found, xs, tuple(given))
        if native is not None:
            out = native(*xs)
            if out is not MISS:
                library.directs[len(xs)] = found.direct
                return out
    known_params = dict(zip(params, found.params, strict=True))
    arrays = [x._array for x in xs]
    out = wrap(op.run(arrays, known_params) if is_small(op, arrays) else compute(op, arrays, known_params))
    if recorded and not grad_is_off():
        record(op, (out,), list(xs), known_params)
    return out
