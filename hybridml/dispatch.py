"""Dispatch: one generated Python function per row of the operation table, which *is* the public function and the method.

The generated function handles the common case only: eager, tensors of one dtype, parameters seen before. It tests for it
in one line and leaves everything else (Python scalars, promotion, arrays, tracing, first use of a shape) to `slow`.
Its text is at `fn.source`. Measured on 16 float32 elements: add 0.8 us, recorded 1.1 us; a second Python frame or an
`__init__` would add 0.1-0.2 us each, `functools.singledispatch` 0.6 us.

`pull` functions (the reverse step of a row, see tape.py) are generated when first needed, one for each subset of inputs
that want a gradient, and keep exactly the values that the rules of that subset name.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DTypeError, OutOfBoundsError
from hybridml_compiler.ops.op import REQUIRED, Op
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import OPS

from . import aliasing
from .context import clock, current_interpreter, grad_is_off, interpreter
from .tape import KEPT, stale
from .tensor import Tensor, adopt, leaked, wrap

_ndarray = np.ndarray
_SCALARS = (bool, int, float, np.generic)
_OPERANDS = (Tensor, np.ndarray, *_SCALARS)
_CACHE_LIMIT = 4096  # signatures of one row; a program that makes more shapes than that starts over


# -- operands


_constants: dict[tuple[Any, np.dtype], Tensor] = {}


def constant(value: bool | int | float, dtype: np.dtype) -> Tensor:
    """A cached 0-d tensor: `x + 2.0` converts its scalar once."""
    found = _constants.get((value, dtype))
    if found is not None and value != 0:  # 0.0 == -0.0 share a key
        return found
    if len(_constants) > 1000:
        _constants.clear()
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ArgumentError(f"the Python number {value} does not fit {dtype.name}; cast the tensor with astype first")
    array = np.array(value, dtype)
    array.flags.writeable = False
    t = _constants[value, dtype] = wrap(array)
    return t


def _operand(op: Op, position: int, value: Any, interp: Any) -> Tensor | bool | int | float:
    if isinstance(value, Tensor):
        if interp is not None:
            return interp.lift(value)
        if type(value) is not Tensor:
            raise leaked(value)
        return value
    if isinstance(value, _SCALARS):
        # a NumPy scalar is weak as a Python one: `x * np.float64(2)` keeps float32
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, _ndarray):
        return adopt(value) if interp is None else interp.lift(adopt(value), source=value)
    name = op.inputs[0] if op.variadic else op.inputs[position]
    raise DTypeError(f"{op.name}: {name} must be a tensor, an array or a number, got {type(value).__name__}; use hm.asarray")


def _scalar_aval(value: bool | int | float) -> Aval:
    return Aval((), dtypes.of_scalar(value), weak=True)


def operands(op: Op, values: Sequence[Any], interp: Any, arithmetic: bool = False) -> list[Tensor]:
    """Tensors of the dtypes that the row wants, from anything that stands for one.

    `arithmetic` (operators of Python floats that a trace has lifted): floats alone stay Python floats, as they would eager.
    """
    given = [_operand(op, k, v, interp) for k, v in enumerate(values)]
    avals = [_aval(v) if isinstance(v, Tensor) else _scalar_aval(v) for v in given]
    if op is _astype and isinstance(given[0], Tensor):
        return [given[0]]
    weak = arithmetic and all(a.weak for a in avals) and any(a.dtype.kind == "f" for a in avals)
    wanted = interp.weak_dtypes(op, avals) if weak else input_dtypes(op, avals)
    result = []
    for value, aval, dtype in zip(given, avals, wanted, strict=True):
        if not isinstance(value, Tensor):
            t = constant(value, dtype)
            result.append(t if interp is None else interp.constant(t, weak))
        elif value._array.dtype is dtype and (weak or not aval.weak):
            result.append(value)
        else:
            result.append(_astype.fn(value, dtype))
    return result


def _aval(t: Tensor) -> Aval:
    array = t._array
    return Aval(array.shape, array.dtype) if type(array) is _ndarray else array.aval


# -- the slow path


def slow(op: Op, args: tuple[Any, ...], params: dict[str, Any], arithmetic: bool = False) -> Tensor:
    """Run a row on anything: the general form of what the generated functions do for the common case."""
    interp = current_interpreter()
    if interp is None and len(args) == 2:
        fast = _with_scalar(op, *args)
        if fast is not None:
            return op.fn(*fast)
    values = _sequence(op, args[0]) if op.variadic else args
    tensors = operands(op, values, interp, arithmetic and interp is not None)
    avals = [_aval(t) for t in tensors]
    params = _canonical(op, avals, values, tensors, params)
    if interp is not None:
        out = interp.apply(op, tensors, params)
    else:
        arrays = [t._array for t in tensors]
        try:
            result = op.eager(arrays, **params) if op.variadic else op.eager(*arrays, **params)
        except Exception as error:
            fail(op, error, tensors, params)
        out = wrap(result if type(result) is _ndarray else np.asarray(result))
    record(op, out, tensors, params)
    if op.kind == "movement" and not op.variadic:
        aliasing.link(tensors[0], out, op, params)
    return out


_weak_fits: dict[tuple[Op, np.dtype, type], bool] = {}


def _with_scalar(op: Op, x: Any, y: Any) -> tuple[Tensor, Tensor] | None:
    """`x * 2.0` with a scalar that takes the tensor's dtype: the operands for the hot path (1.5 us, 6 in general)."""
    if type(x) is Tensor:
        t, value = x, y
    elif type(y) is Tensor:
        t, value = y, x
    else:
        return None
    kind, dtype = type(value), t._array.dtype
    if kind is not float and kind is not int and kind is not bool:
        return None
    fits = _weak_fits.get((op, dtype, kind))
    if fits is None:
        avals = [_aval(t), _scalar_aval(value)]
        fits = _bare(op) and all(w is dtype for w in input_dtypes(op, avals if t is x else avals[::-1]))
        _weak_fits[op, dtype, kind] = fits
    if not fits:
        return None
    c = constant(value, dtype)
    return (t, c) if t is x else (c, t)


def _sequence(op: Op, xs: Any) -> Sequence[Any]:
    if isinstance(xs, Tensor | _ndarray):
        return list(xs)
    try:
        return list(xs)
    except TypeError:
        raise DTypeError(f"{op.name}: takes a sequence of tensors, got {type(xs).__name__}") from None


def _canonical(
    op: Op, avals: list[Aval], values: Sequence[Any], tensors: list[Tensor], params: dict[str, Any]
) -> dict[str, Any]:
    """Checked, canonical parameters; remembered for the hot path when the operands came as the row wants them."""
    for name, value in params.items():
        if value is REQUIRED:
            raise TypeError(f"{op.name}() missing required argument: {name!r}")
        if isinstance(value, Tensor):
            params[name] = value.item() if not value.shape else value.tolist()
    canonical = op.canonical_params(avals, params)
    if op.variadic:
        op.infer(avals, **canonical)
        return canonical
    op.infer(*avals, **canonical)
    if op in _checked and all(v is t for v, t in zip(values, tensors, strict=True)):
        cache = _checked[op]
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        key = tuple(x for a in avals for x in (a.shape, a.dtype))
        try:
            cache[(*key, *(params[p] for p in op.params))] = tuple(canonical[p] for p in op.params)
        except TypeError:  # a list as axis: canonical every time
            pass
    return canonical


def fail(op: Op, error: Exception, tensors: Sequence[Tensor], params: dict[str, Any]) -> NoReturn:
    """NumPy refused: raise what the row's own shape rule says, which is what a traced program would raise."""
    avals = [_aval(t) for t in tensors]
    canonical = op.canonical_params(avals, params)
    if op.variadic:
        op.infer(avals, **canonical)
    else:
        op.infer(*avals, **canonical)
    if isinstance(error, IndexError) and not isinstance(error, OutOfBoundsError):
        raise OutOfBoundsError(f"{op.name}: {error}") from None
    raise error


# -- recording


def record(op: Op, out: Tensor, tensors: Sequence[Tensor], params: dict[str, Any]) -> None:
    """Give `out` its history, if an input has one (the general form; generated functions inline it)."""
    if not op.differentiable or grad_is_off() or out._array.dtype.kind != "f":
        return
    if op.variadic:
        wanting = tuple(k for k, t in enumerate(tensors) if t._node is not None)
    else:
        wanting = tuple(k for k, t in enumerate(tensors) if t._node is not None and op.vjp[k] is not None)
    if not wanting:
        return
    if op.variadic:
        parents = [tensors[k]._node for k in wanting]
        out._node = [clock(), _pull_variadic, out._array.shape, *parents, op, wanting, list(tensors), params, out._array]
        return
    node = [clock(), _pull(op, wanting), out._array.shape, *(tensors[k]._node for k in wanting)]
    for name in kept_names(op, wanting):
        if name == "out":
            if type(out._version) is int:
                out._version = [out._version]
            node.append((out._array, out._version))
        elif name in op.params:
            node.append(params[name])
        elif name in op.inputs:
            node.append(tensors[op.inputs.index(name)])
        else:
            source, _, what = name.rpartition("_")
            array = tensors[op.inputs.index(source)]._array
            node.append(array.shape if what == "shape" else array.dtype)
    out._node = node


def kept_names(op: Op, wanting: tuple[int, ...]) -> tuple[str, ...]:
    """What the rules of these inputs keep, each name once, in the order of first use."""
    return tuple(dict.fromkeys(name for k in wanting for name in op.needs[k] or ()))


_pulls: dict[tuple[Op, tuple[int, ...]], Callable[..., Any]] = {}


def _pull(op: Op, wanting: tuple[int, ...]) -> Callable[..., Any]:
    found = _pulls.get((op, wanting))
    if found is None:
        found = _pulls[op, wanting] = _generate_pull(op, wanting)
    return found


def _generate_pull(op: Op, wanting: tuple[int, ...]) -> Callable[..., Any]:
    name = f"pull_{op.name}_{_digits(wanting)}"
    names = kept_names(op, wanting)
    at = {kept: f"n[{KEPT + len(wanting) + i}]" for i, kept in enumerate(names)}
    lines = [f"def {name}(g, n):"]
    for kept in names:
        if kept == "out":
            lines += [f"    out = _rebuild({at[kept]}, n)", f"    _stale({op.name!r}, 'result', out._version, n[0])"]
        elif kept in op.inputs:
            message = f"input {kept}"
            lines += [
                f"    {kept} = {at[kept]}",
                f"    if {kept}._version:",
                f"        _stale({op.name!r}, {message!r}, {kept}._version, n[0])",
            ]
        else:
            lines += [f"    {kept} = {at[kept]}"]
    calls = [
        f"(n[{KEPT + i}], _rule{k}({', '.join(['g', *(f'{p}={p}' for p in op.needs[k] or ())])}))"
        for i, k in enumerate(wanting)
    ]
    lines += [f"    return ({', '.join(calls)},)"]
    return _compile(op, name, lines, {f"_rule{k}": rule for k, rule in enumerate(op.vjp)} | {"_rebuild": _rebuild, "_stale": stale})


def _rebuild(kept: tuple[Any, Any], node: list[Any]) -> Tensor:
    """The result of a node that keeps its own result (a reference to the tensor would be a cycle)."""
    array, version = kept
    if type(array) is _ndarray:
        t = wrap(array)
    else:
        t = current_interpreter().wrap(array)
    t._version, t._node = version, node
    return t


def _pull_variadic(g: Tensor, node: list[Any]) -> Any:
    op, wanting, tensors, params, out_array = node[-5:]
    rule, needs = op.vjp[0], op.needs[0] or ()
    xs = op.inputs[0]
    pairs = []
    for parent, k in zip(node[KEPT:-5], wanting, strict=True):
        kept: dict[str, Any] = {}
        for name in needs:
            if name == "k":
                kept[name] = k
            elif name == f"{xs}_shapes":
                kept[name] = tuple(t.shape for t in tensors)
            elif name == f"{xs}_dtypes":
                kept[name] = tuple(t.dtype for t in tensors)
            else:
                kept[name] = tensors if name == xs else params[name]
        pairs.append((parent, rule(g, **kept)))
    return pairs


# -- code generation


def _compile(op: Op, name: str, lines: list[str], env: dict[str, Any]) -> Callable[..., Any]:
    source = "\n".join(lines) + "\n"
    exec(compile(source, f"<dispatch {op.name}>", "exec"), env)
    fn: Any = env[name]
    fn.source = source
    return fn


_checked: dict[Op, dict[Any, tuple[Any, ...]]] = {}


def generate(op: Op) -> Callable[..., Any]:
    """The public function of a row; it becomes `op.fn` as well, so that vjp rules run through it."""
    env: dict[str, Any] = {
        "_op": op, "_kernel": op.eager, "_slow": slow, "_fail": fail, "_mode": interpreter, "_no_grad": grad_is_off,
        "_clock": clock, "_Tensor": Tensor, "_ndarray": _ndarray, "_asarray": np.asarray, "_record": record,
        "_link": aliasing.link, "_checked": {}, "_accepted": _accepted(op),
        **{f"_default_{p}": v for p, v in op.params.items()},
    }  # fmt: skip
    rules = [k for k, rule in enumerate(op.vjp) if rule is not None] if not op.variadic else []
    for wanting in (*((k,) for k in rules), tuple(rules)):
        env[_pull_name(wanting)] = _lazy_pull(op, wanting, env)
    fn = _compile(op, op.name, _forward(op), env)
    fn.__doc__ = op.doc
    fn.__module__ = "hybridml"
    fn.__qualname__ = op.name
    op.fn = fn
    if _uses_cache(op):
        _checked[op] = env["_checked"]
    return fn


def as_operator(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same code as an operator slot: a foreign operand gives NotImplemented, so that its own class is asked."""
    copy = types.FunctionType(fn.__code__, {**fn.__globals__, "_slow": slow_operator}, fn.__name__, fn.__defaults__)
    copy.__doc__ = fn.__doc__
    return copy


def slow_operator(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    for a in args:
        if not isinstance(a, _OPERANDS):
            return NotImplemented
    return slow(op, args, params, arithmetic=True)


def reflected(op: Op) -> Callable[..., Any]:
    """`2 - x`: the operand order of the row, from the right operand's method."""

    def reflected_operator(self: Tensor, other: Any) -> Any:
        return slow_operator(op, (other, self), {})

    return reflected_operator


_accepted_by: dict[Any, frozenset[np.dtype]] = {}


def _accepted(op: Op) -> frozenset[np.dtype]:
    """Dtypes that the row takes without a cast, when all its operands have that dtype."""
    found = _accepted_by.get(op.accepts)
    if found is None:
        found = _accepted_by[op.accepts] = frozenset(_try_dtypes(op))
    return found


def _try_dtypes(op: Op) -> list[np.dtype]:
    fine = []
    for dtype in dtypes.ALL:
        try:
            wanted = input_dtypes(op, [Aval((), dtype)] * max(1, len(op.inputs)))
        except DTypeError:
            continue
        if all(w is dtype for w in wanted):
            fine.append(dtype)
    return fine


def _uses_cache(op: Op) -> bool:
    """Whether the hot path needs the row's checks done before (elementwise rows leave shape errors to NumPy)."""
    return bool(op.inputs) and not op.variadic and not _bare(op)


def _bare(op: Op) -> bool:
    return op.kind == "elementwise" and not op.params and len(op.unify) == len(op.inputs)


def _forward(op: Op) -> list[str]:
    """Source of the public function. The names of inputs and parameters are the user's; everything else has a `_`."""
    inputs, params = list(op.inputs), list(op.params)
    signature = [*inputs]
    for p, default in op.params.items():
        required = default is REQUIRED and len(signature) == len(inputs) + params.index(p)
        signature.append(p if required and _only_required_before(op, p) else f"{p}=_default_{p}")
    again = f"_slow(_op, {_tuple(inputs)}, {{{', '.join(f'{p!r}: {p}' for p in params)}}})"
    lines = [f"def {op.name}({', '.join(signature)}):"]
    if op.variadic or not inputs:
        return [*lines, f"    return {again}"]
    foreign = "".join(f" or type({v}) is not _Tensor" for v in inputs)
    lines += [f"    if _mode() is not None{foreign}:", f"        return {again}"]
    lines += [f"    _{v} = {v}._array" for v in inputs]
    call = ", ".join([*(f"_{v}" for v in inputs), *(f"{p}={p}" for p in params)])
    if _bare(op):
        lines += [f"    _dtype = _{inputs[0]}.dtype"]
        differ = "".join(f"_{v}.dtype is not _dtype or " for v in inputs[1:])
        if len(_accepted(op)) < len(dtypes.ALL) or differ:
            allowed = f"{differ}_dtype not in _accepted" if len(_accepted(op)) < len(dtypes.ALL) else differ[:-4]
            lines += [f"    if {allowed}:", f"        return {again}"]
        lines += [
            "    try:",
            f"        _o = _kernel({call})",
            "    except Exception as _error:",
            f"        _fail(_op, _error, {_tuple(inputs)}, {{}})",
        ]
    else:
        key = ", ".join([*(f"_{v}.shape, _{v}.dtype" for v in inputs), *params])
        found = "".join(f"{p}, " for p in params)
        lines += [
            "    try:",
            f"        {f'{found}= ' if params else ''}_checked[{key}]",
            "    except (KeyError, TypeError):",
            f"        return {again}",
        ]
        if op.kind == "gather" or op.kind == "scatter" or "indices" in inputs:
            lines += [
                "    try:",
                f"        _o = _kernel({call})",
                "    except IndexError as _error:",
                f"        _fail(_op, _error, {_tuple(inputs)}, {_dict(params)})",
            ]
        else:
            lines += [f"    _o = _kernel({call})"]
    lines += [
        "    if type(_o) is not _ndarray:",
        "        _o = _asarray(_o)",
        "    _t = _Tensor()",
        "    _t._array = _o",
        "    _t._version = 0",
    ]
    lines += _recording(op)
    if op.kind == "movement":
        lines += [f"    _link({inputs[0]}, _t, _op, {_dict(params)})"]
    return [*lines, "    return _t"]


def _dict(params: Sequence[str]) -> str:
    return "{" + ", ".join(f"{p!r}: {p}" for p in params) + "}"


def _tuple(names: Sequence[str]) -> str:
    return "(" + "".join(f"{v}, " for v in names).rstrip(" " if len(names) == 1 else ", ") + ")"


def _only_required_before(op: Op, name: str) -> bool:
    for p, default in op.params.items():
        if default is not REQUIRED:
            return False
        if p == name:
            return True
    return False


def _recording(op: Op) -> list[str]:
    """Inline history for rows with one or two differentiable inputs; `_record` does it for the few that have more."""
    rules = [k for k, rule in enumerate(op.vjp) if rule is not None]
    if not rules:
        return ["    _t._node = None"]
    if len(rules) > 2 or (len(rules) == 2 and "dtype" in op.params):
        some = " or ".join(f"{op.inputs[k]}._node is not None" for k in rules)
        return [
            "    _t._node = None",
            f"    if {some}:",
            f"        _record(_op, _t, {_tuple(op.inputs)}, {_dict(list(op.params))})",
        ]
    if len(rules) == 1:
        (k,) = rules
        cast = " or _o.dtype.kind != 'f'" if "dtype" in op.params else ""
        return [
            f"    if {op.inputs[k]}._node is None or _no_grad(){cast}:",
            "        _t._node = None",
            "    else:",
            *_node(op, (k,), "        "),
        ]
    a, b = rules
    x, y = op.inputs[a], op.inputs[b]
    return [
        f"    if {x}._node is None:",
        f"        if {y}._node is None or _no_grad():",
        "            _t._node = None",
        "        else:",
        *_node(op, (b,), "            "),
        "    elif _no_grad():",
        "        _t._node = None",
        f"    elif {y}._node is None:",
        *_node(op, (a,), "        "),
        "    else:",
        *_node(op, (a, b), "        "),
    ]


def _pull_name(wanting: tuple[int, ...]) -> str:
    return f"_pull_{_digits(wanting)}"


def _digits(wanting: tuple[int, ...]) -> str:
    return "".join(map(str, wanting))


def _lazy_pull(op: Op, wanting: tuple[int, ...], env: dict[str, Any]) -> Callable[..., Any]:
    """Stands in the function's globals until the first backward through this subset generates the real one."""

    def generate_and_pull(g: Tensor, node: list[Any]) -> Any:
        env[_pull_name(wanting)] = pull = _pull(op, wanting)
        return pull(g, node)

    generate_and_pull.__name__ = f"pull_{op.name}_{_digits(wanting)}"  # what a tensor shows as its grad_fn
    return generate_and_pull


def _node(op: Op, wanting: tuple[int, ...], indent: str) -> list[str]:
    names = kept_names(op, wanting)
    lines = [f"{indent}_c = _t._version = [0]"] if "out" in names else []
    kept = []
    for name in names:
        if name == "out":
            kept.append("(_o, _c)")
        elif name in op.inputs or name in op.params:
            kept.append(name)
        else:
            source, _, what = name.rpartition("_")
            kept.append(f"_{source}.{what}")
    parts = ["_clock()", _pull_name(wanting), "_o.shape", *(f"{op.inputs[k]}._node" for k in wanting), *kept]
    return [*lines, f"{indent}_t._node = [{', '.join(parts)}]"]


_astype = OPS["astype"]
