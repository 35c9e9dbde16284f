"""Code generation: the Python text of the function of a row.

The generated function handles the common case only: eager, tensors of one dtype, parameters seen before. It tests for
it in one line and leaves everything else (Python scalars, promotion, arrays, tracing, first use of a shape) to
`dispatch.slow`. Its text is written at the first call (`source_of` shows it): all at once they would be a fifth of the
time that `import hybridml` takes. Measured on 16 float32 elements: add 0.6 us, recorded 0.75 us (PyTorch 1.15
and 1.7 on the same machine); a second Python frame or an `__init__` would add 0.1-0.2 us each.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any
from weakref import ref

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.compile_policy import KEPT
from hybridml_compiler.eager.large import compute, deciding, has_kernels, keeps, kept, least, may_grow
from hybridml_compiler.errors import DTypeError
from hybridml_compiler.ops.examples import example_of
from hybridml_compiler.ops.op import REQUIRED, Op, hash_key
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import file_of

from . import aliasing
from .autodiff.history import record
from .autodiff.pullbacks import digits, kept_names, may_be_stale, pull_of
from .autodiff.tape import node_source
from .context import clock, grad_is_off
from .dispatch import (
    RowLibrary,
    checked,
    has_no_dtype,
    is_plain_elementwise,
    libraries,
    not_yet,
    of_list,
    slow,
    slow_operator,
)
from .eager import recover
from .interpreter import interpreter_stack
from .library import MISS
from .source_location import outer, users
from .spellings import MARK, UNSET, is_name, other_names, renaming, respelled
from .tensor import Tensor, place_var
from .tracebacks import shorten

_ndarray = np.ndarray
_NATIVE_KINDS = ("creation", "movement", "reduction", "scan", "gather", "scatter")
# Rows that native_methods.py has calls of where they reduce all axes, without a history.
REDUCED = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_KEYED = frozenset((float, complex))  # classes of parameters that equality alone does not tell apart
_SHOWN = (bool, int, float, str)  # classes of default values that are the parameter's type
_CAPTURED = 32  # calls while something is traced, which all go to `dispatch.slow`: compiling the text takes as long
_spaces: list[dict[str, Any]] = []  # the globals of every generated function
_mode: Callable[[], Any] = interpreter_stack


def set_mode(mode: Callable[[], Any]) -> None:
    """Lets generated functions, those of later rows too, take the general path where this is not None."""
    global _mode
    _mode = mode
    for space in _spaces:
        space["_mode"] = mode


def generate(op: Op) -> Callable[..., Any]:
    """The public function of a row; it becomes `op.fn` as well, so that vjp rules run through it."""
    env: dict[str, Any] = {
        "__name__": __name__,  # where NumPy's warnings come from, see context.py
        "_op": op, "_of_list": of_list, "_hash_key": hash_key, "_keyed": _KEYED, "_frame": sys._getframe,
        "_kernel": op.eager, "_kept": kept, "_compute": compute, "_slow": slow, "_recover": recover, "_mode": _mode,
        "_shorten": shorten, "_no_grad": grad_is_off, "_clock": clock, "_Tensor": Tensor, "_ndarray": _ndarray,
        "_asarray": np.asarray, "_record": record, "_checked": {}, "_accepted": accepted(op), "_ref": ref,
        "_link": aliasing.link, "_forget": aliasing.forget, "_overlap": np.may_share_memory,
        "_default": dtypes.default_float, "_place": place_var.get, "_users": users, "_outer": outer,
        "_library": RowLibrary(op), "_MISS": MISS, "_row": not_yet, "_grown": {}, "_UNSET": UNSET,
        "_respelled": respelled,
    }  # fmt: skip
    if _has_native_calls(op) and not is_plain_elementwise(op):
        libraries[op] = env["_library"]
    _expect_pulls(op, env)
    fn = _unwritten(op, env)
    env["_fn"] = fn
    _spaces.append(env)
    fn.__doc__ = "\n\n".join(_paragraphs(op))
    fn.__annotations__ = _annotations(op)
    fn.__module__ = "hybridml"
    fn.__qualname__ = op.name
    op.fn = fn
    if _uses_cache(op):
        checked[op] = env["_checked"]
    return fn


def as_operator(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same code as an operator slot: a foreign operand gives NotImplemented, so that its own class is asked."""
    env = {**fn.__globals__, "_slow": slow_operator}
    _expect_pulls(env["_op"], env)
    _spaces.append(env)
    copy = _unwritten(env["_op"], env)
    copy.__doc__, copy.__annotations__ = fn.__doc__, fn.__annotations__
    return copy


def _paragraphs(op: Op) -> list[str]:
    """The docstring of a row: what it means, an example, and where it is defined."""
    file = file_of(op)
    return [op.doc, *example_of(op.name), *([f"A row of {file}."] if file else [])]


def _annotations(op: Op) -> dict[str, Any]:
    """Types as far as the row tells them; a type checker has all of them from the stubs."""
    given = {name: "Sequence[Tensor]" if op.variadic else "Tensor" for name in op.inputs}
    plain = {name: type(default).__name__ for name, default in op.params.items() if type(default) in _SHOWN}
    return {**given, **plain, "return": f"tuple[{', '.join(['Tensor'] * len(op.results))}]" if op.results else "Tensor"}


def source_of(op: Op) -> str:
    """The text of the function of a row."""
    return "\n".join(_forward(op)) + "\n"


@functools.cache
def _code_of(op: Op) -> types.CodeType:
    module = compile(source_of(op), f"<dispatch {op.name}>", "exec")
    return next(code for code in module.co_consts if isinstance(code, types.CodeType))


@functools.cache
def _waiting(count: int, keywords: tuple[str, ...]) -> types.CodeType:
    """Code with so many arguments, and `keywords`, that writes the text of the function, and then runs it."""
    names = [f"_{k}" for k in range(count)]
    signature = ", ".join([*names, "*", *keywords] if keywords else names)
    call = ", ".join([*names, *(f"{k}={k}" for k in keywords)])
    source = [f"def _({signature}):", *_door([f"    return _write()({call})"])]
    module = compile("\n".join(source), "<dispatch>", "exec")
    return next(code for code in module.co_consts if isinstance(code, types.CodeType))


def _unwritten(op: Op, env: dict[str, Any]) -> types.FunctionType:
    """The function of a row before its first call. It keeps its identity: only its code is exchanged."""
    inputs, params, others = list(op.inputs), _parameters(op), _others(op)
    names = (*inputs, *params)
    waiting = _waiting(len(names), tuple(others)).replace(
        co_name=op.name, co_qualname=op.name, co_varnames=(*names, *others, "_error"), co_posonlyargcount=len(inputs),
        co_filename=f"<dispatch {op.name}>",
    )  # fmt: skip
    defaults = tuple(_default(op, p) for p in params if others or not _is_needed(op, p))
    fn = types.FunctionType(waiting, env, op.name, defaults)
    if others:
        fn.__kwdefaults__ = dict.fromkeys(others, UNSET)
        env["_defaults"] = {p: _default(op, p) for p in params}
        env |= {f"_default_of_{p}": default for p, default in env["_defaults"].items()}
    setattr(fn, MARK, others)

    captured = count()

    def general(*given: Any, **by_other_names: Any) -> Any:
        if any([v is UNSET for v in given]) or any([v is not UNSET for v in by_other_names.values()]):
            return written()(*given, **by_other_names)
        k = len(inputs)
        return env["_slow"](op, given[:k], dict(zip(params, given[k:], strict=True)))

    def write() -> Callable[..., Any]:
        return written() if env["_mode"]() is None or next(captured) >= _CAPTURED else general

    def written() -> types.FunctionType:
        if fn.__code__ is waiting:
            fn.__code__ = _code_of(op)
            return fn
        # Somebody else has written it by now, or watches (profiler/watch.py).
        other = types.FunctionType(_code_of(op), env, op.name, fn.__defaults__)
        other.__kwdefaults__ = fn.__kwdefaults__
        return other

    env["_write"] = write
    return fn


def _parameters(op: Op) -> list[str]:
    return [p for p in op.params if p != "result" or not op.results]


def _others(op: Op) -> dict[str, str]:
    """Other names of its parameters that a public row takes, by keyword alone."""
    return other_names(op.name, [p for p in _parameters(op) if p != "shape"]) if op.public else {}


def _default(op: Op, name: str) -> Any:
    return UNSET if _is_needed(op, name) else op.params[name]


_accepted_by: dict[Any, frozenset[np.dtype]] = {}


def accepted(op: Op) -> frozenset[np.dtype]:
    """Dtypes that the row's `eager` takes without a cast, when all its operands have that dtype."""
    key = op.accepts, op.complex_eager is None
    found = _accepted_by.get(key)
    if found is None:
        found = _accepted_by[key] = frozenset(_try_dtypes(op))
    return found


def _try_dtypes(op: Op) -> list[np.dtype]:
    fine = []
    for dtype in dtypes.ALL:
        try:
            wanted = input_dtypes(op, [Aval((), dtype)] * max(1, len(op.inputs)))
        except DTypeError:
            continue
        if all(w is dtype for w in wanted) and not (dtype.kind == "c" and op.complex_eager is not None):
            fine.append(dtype)
    return fine


def _uses_cache(op: Op) -> bool:
    """Whether the hot path needs the row's checks done before (elementwise rows leave shape errors to NumPy)."""
    return not op.results and (op.kind == "creation" or (bool(op.inputs) and not is_plain_elementwise(op)))


def _has_native_calls(op: Op) -> bool:
    """Whether a native call of small tensors takes less than the row's own kernel, with the same bits: NumPy's ufuncs
    are native, and views are made in no time."""
    reorders = op.reorders and op.kind != "scatter"  # scatters combine in the order of their indices
    if op.results or op.is_view or reorders or isinstance(op.eager, np.ufunc):
        return False
    with_params = op.kind == "elementwise" and bool(op.params)
    return is_plain_elementwise(op) or with_params or op.kind in _NATIVE_KINDS or op.routine is not None


def _forward(op: Op) -> list[str]:
    """Source of the public function. Inputs are positional only, as in the array API standard; the names of parameters
    are the user's, everything else has a `_`.
    """
    inputs, params = list(op.inputs), _parameters(op)
    others = _others(op)
    signature = [*inputs, "/"] if inputs else []
    signature += [p if _is_needed(op, p) and not others else f"{p}={_shown(op, p)}" for p in params]
    signature += ["*", *(f"{name}=_UNSET" for name in others)] if others else []
    again = _again(f"_slow(_op, {_tuple(inputs)}, {{{', '.join(f'{p!r}: {p}' for p in params)}}})")
    lines = [f"def {op.name}({', '.join(signature)}):", *_respelling(op, others)]
    if op.variadic and not op.results:
        fast = f"_of_list(_op, {inputs[0]}, {_dict(params)}) if _mode() is None else None"
        return [*lines, f"    _t = {fast}", "    if _t is not None:", "        return _t", *again]
    keyed = [_keyed(op, p) for p in params]
    found = "".join(f"{p}, " for p in params)
    if op.kind == "creation" and not inputs:
        lines += ["    if _mode() is not None or _place() is not None:", *_inner(again)]
        call = ", ".join(f"{p}={p}" for p in params)
        key = ", ".join(["_default()", *(f"{p}.__class__" for p in params), *keyed])
        lines += _native(op, f"_library.direct({', '.join(params)})")
        return [*lines, *_by_signature(op, key, _run(op, f"_kernel({call})", "()", _dict(params))), *again]
    if op.results or not inputs:
        return [*lines, *again]
    if op.name in REDUCED:
        lines += [f"    _t = _row({', '.join([*inputs, *params])}) if axis is None else _MISS"]
        lines += ["    if _t is not _MISS:", "        return _t"]
    if _has_native_calls(op):
        lines += _native(op, f"_library.direct({', '.join([*inputs, *params])})")
    elif is_plain_elementwise(op) and isinstance(op.eager, np.ufunc):  # by native_methods.py, without a history
        lines += [f"    _t = _row({', '.join(inputs)})", "    if _t is not _MISS:", "        return _t"]
    foreign = "".join(f" or type({v}) is not _Tensor" for v in inputs)
    lines += [f"    if _mode() is not None{foreign}:", *_inner(again)]
    if _has_native_calls(op) and is_plain_elementwise(op):
        lines += _native(op, f"_library.of_tensors({', '.join(inputs)})")
    lines += [f"    _{v} = {v}._array" for v in inputs]
    # Views take their parameters by position, which is 0.02 us less.
    call = ", ".join([*(f"_{v}" for v in inputs), *(p if op.is_view else f"{p}={p}" for p in params)])
    arrays = _tuple([f"_{v}" for v in inputs])
    kernel = f"_kernel({call})"
    if has_kernels(op):
        small = f"_{inputs[deciding(op)]}.size < {least(op)}" + " and not _grown" * may_grow(op)
        if keeps(op):
            given = ", ".join(["_kernel", *(f"_{v}" for v in inputs)])
            kernel = f"({kernel} if _{inputs[0]}.nbytes < {KEPT} else _kept({given}))"
        kernel = f"{kernel} if {small} else _compute(_op, {arrays}, {_dict(params)})"
    if is_plain_elementwise(op):
        lines += [f"    _dtype = _{inputs[0]}.dtype"]
        differ = "".join(f"_{v}.dtype is not _dtype or " for v in inputs[1:])
        if len(accepted(op)) < len(dtypes.ALL) or differ:
            allowed = f"{differ}_dtype not in _accepted" if len(accepted(op)) < len(dtypes.ALL) else differ[:-4]
            lines += [f"    if {allowed}:", *_inner(again)]
        return [*lines, *_run(op, kernel, _tuple(inputs), "{}")]
    key = ", ".join([*(f"_{v}.shape" if has_no_dtype(op) else f"_{v}.shape, _{v}.dtype" for v in inputs), *keyed])
    run = _run(op, kernel, _tuple(inputs), _dict(params))
    if not _has_native_calls(op):
        return [*lines, *_known(f"{found}= " if params else "", key), *_inner(run), *again]
    return [*lines, *_by_signature(op, key, run), *again]


def _shown(op: Op, p: str) -> str:
    return "_UNSET" if _is_needed(op, p) else repr(op.params[p])


def _respelling(op: Op, others: Mapping[str, str]) -> list[str]:
    """Source that takes calls by other names of parameters, and those that lack one which would have been needed."""
    if not others:
        return []
    params = _parameters(op)
    by_name = ", ".join(f"{name}={name}" for name in others)
    general = _again(f"_respelled(_fn, {_tuple(op.inputs)}, {_dict(params)}, _defaults, {by_name})")
    named = [(other, own, is_name(op.name, other, own)) for other, own in others.items()]
    return renaming(named, [p for p in params if _is_needed(op, p)], general, "_UNSET", "_default_of_")


def _keyed(op: Op, p: str) -> str:
    """Source of a parameter as part of a key, as `hash_key` and `size_key` have it, without the call."""
    if p == "dtype" or type(op.params[p]) is bool:  # what is compared is no number
        return p
    classes = f"sum({p}).__class__" if op.is_view else f"*map(type, {p})"
    return f"({p}, {classes}) if {p}.__class__ is tuple else _hash_key({p}) if {p}.__class__ in _keyed else {p}"


def _native(op: Op, call: str) -> list[str]:
    """Source that returns the result of a native call, with its history. Without one where a rule needs a parameter in
    its canonical form, which is not known yet: there the call takes no tensors that have a history."""
    recording = _inner(_recording(op)) if not op.params else []
    return [
        f"    _t = {call}",
        "    if _t is not _MISS:",
        *_inner(_read(op, recording)),
        *recording,
        "        return _t",
    ]


def _read(op: Op, recording: Sequence[str]) -> list[str]:
    """Source of the arrays that a history names."""
    result = ["    _o = _t._array"] if recording else []
    return [*result, *(f"    _{v} = {v}._array" for v in op.inputs if any(f"_{v}." in line for line in recording))]


def _by_signature(op: Op, key: str, run: Sequence[str]) -> list[str]:
    """Source that looks a signature up, and takes its native call or the kernel."""
    inputs, params = list(op.inputs), _parameters(op)
    found = "".join(f"{p}, " for p in params)
    native = [
        f"_f = _s.native or _library.find(_s, {_tuple(inputs)}, {_tuple(params)})",
        *([f"{found}= _s.params"] if params else []),
        "if _f is not None:",
        f"    _t = _f({', '.join(inputs)})",
        "    if _t is not _MISS:",
        "        _library.direct = _s.direct",
        "        _o = _t._array",
        *_inner(_recording(op)),
        "        return _t",
    ]
    return [*_known("_s = ", key), *_inner(_inner(native)), *_inner(run)]


def _known(found: str, key: str) -> list[str]:
    """Source that looks for parameters that the checks have accepted, up to what is done with them."""
    # Outside of the handler: an error of the slow path is no consequence of the key that was not found.
    return [
        "    try:",
        f"        {found}_checked[{key}]",
        "    except (KeyError, TypeError):",
        "        pass",
        "    else:",
    ]


def _again(call: str) -> list[str]:
    """Source of the general path."""
    return _door([f"    return {call}"])


def _door(lines: Sequence[str]) -> list[str]:
    """Source that raises errors without a frame of ours."""
    return ["    try:", *_inner(lines), "    except Exception as _error:", "        _shorten(_error)", "        raise"]


def _inner(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _run(op: Op, kernel: str, inputs: str, params: str) -> list[str]:
    """Source that computes, wraps the result, records it and returns it."""
    lines = [
        "    try:",
        f"        _o = {kernel}",
        "    except Exception as _error:",
        *_inner(_door([f"    _o = _recover(_op, _error, {inputs}, {params})"])),
        *([] if op.is_view else ["    if type(_o) is not _ndarray:", "        _o = _asarray(_o)"]),
        "    _t = _Tensor()",
        "    _t._array = _o",
        "    _t._version = 0",
    ]
    if may_grow(op):  # a program that does this once does it again: its next calls look
        lines += [f"    if _o.size >= {least(op)} > _{op.inputs[0]}.size:", "        _grown[_op] = True"]
    lines += _recording(op)
    if op.is_view:
        lines += _linking(op.inputs[0], params)
    elif op.kind == "movement":
        lines += [f"    _link({op.inputs[0]}, _t, (_op, {params}))"]
    return [*lines, "    return _t"]


def _linking(parent: str, params: str) -> list[str]:
    """Source of `aliasing.link` of arrays: of the 1.0 us that a view takes, the call would be 0.15."""
    return [
        "    _b = _o.base",
        f"    if _b is not None and (_b is _{parent} or _b is _{parent}.base or _overlap(_o, _{parent})):",
        f"        _c = {parent}._version",
        "        if _c.__class__ is not list:",
        f"            _c = {parent}._version = [_c]",
        "        _t._version = _c",
        f"        if _t._node is not None or {parent}._node is None:",
        f"            _t._view, _t._made = {parent}, (_op, {params})",
        "            _c.append(_ref(_t))",
        "            if not len(_c) & 63:",
        "                _forget(_c)",
    ]


def _dict(params: Sequence[str]) -> str:
    return "{" + ", ".join(f"{p!r}: {p}" for p in params) + "}"


def _tuple(names: Sequence[str]) -> str:
    return "(" + "".join(f"{v}, " for v in names).rstrip(" " if len(names) == 1 else ", ") + ")"


def _is_needed(op: Op, name: str) -> bool:
    """Whether a parameter has no default. Those behind one that has have one too, `REQUIRED`, refused later."""
    for p, default in op.params.items():
        if default is not REQUIRED:
            return False
        if p == name:
            return True
    return False


def _recording(op: Op) -> list[str]:
    """Source of the history of ops with one or two differentiable inputs; `_record` makes that of the few with more."""
    rules = [k for k, rule in enumerate(op.vjp) if rule is not None]
    if not rules:
        return ["    _t._node = None"]
    if len(rules) > 2 or (len(rules) == 2 and "dtype" in op.params):
        some = " or ".join(f"{op.inputs[k]}._node is not None" for k in rules)
        return [
            "    _t._node = None",
            f"    if {some}:",
            f"        _record(_op, (_t,), {_tuple(op.inputs)}, {_dict(list(op.params))})",
        ]
    if len(rules) == 1:
        (k,) = rules
        cast = " or _o.dtype.kind not in 'fVc'" if "dtype" in op.params else ""
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
    return f"_pull_{digits(wanting)}"


def _expect_pulls(op: Op, env: dict[str, Any]) -> None:
    """Gives the globals of a row's function its pulls, which are generated when they are first needed."""
    one = not op.variadic and not op.results
    rules = [k for k, rule in enumerate(op.vjp) if rule is not None] if one else []
    for wanting in (*((k,) for k in rules), tuple(rules)):
        env[_pull_name(wanting)] = _lazy_pull(op, wanting, env)


def _lazy_pull(op: Op, wanting: tuple[int, ...], env: dict[str, Any]) -> Callable[..., Any]:
    """A placeholder among the function's globals: the first backward through this subset generates the pullback."""

    def generate_and_pull(g: Tensor, node: list[Any]) -> Any:
        env[_pull_name(wanting)] = pull = pull_of(op, wanting)
        return pull(g, node)

    generate_and_pull.__name__ = f"pull_{op.name}_{digits(wanting)}"  # what a tensor shows as its grad_fn
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
    if may_be_stale(op, names):
        lines += [
            f"{indent}_f = _frame(1)",
            f"{indent}if _f.f_code.co_filename not in _users:",
            f"{indent}    _f = _outer(_f)",
        ]
        kept += ["_f.f_code", "_f.f_lasti"]
    made = node_source(_pull_name(wanting), "_o.shape", [f"{op.inputs[k]}._node" for k in wanting], kept)
    return [*lines, f"{indent}_t._node = {made}"]


def reflected(op: Op) -> Callable[..., Any]:
    """The right operand's method, `2 - x`: calls the op with the operands in order."""

    def reflected_operator(self: Tensor, other: Any) -> Any:
        return slow_operator(op, (other, self), {})

    return reflected_operator
