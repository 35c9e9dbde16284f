"""Other names of parameters: NumPy's `axis` and PyTorch's `dim` are one, whichever a function is written with.

A function keeps its identity and its code gets a door before it, which takes the other names as well. A call without
them takes 0.04 us more through the door; rows have it in their generated text, where each name takes 0.03 us.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from .tracebacks import shorten

_FILE = "<spellings"  # of generated code
MARK = "__other_names__"
_VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Unset:
    """The default value of a parameter that says that it was not given."""

    def __repr__(self) -> str:
        return "..."


UNSET = Unset()

# Other names of a parameter, PyTorch's and NumPy's. A function that has one of them itself keeps it.
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "arrays": ("tensors",),
    "axes": ("dims", "dim"),
    "axis": ("dim",),
    "axis1": ("dim1",),
    "axis2": ("dim2",),
    "correction": ("ddof", "unbiased"),
    "dim": ("axis",),
    "keepdim": ("keepdims",),
    "keepdims": ("keepdim",),
    "num": ("steps",),
    "ord": ("p",),
    "repetitions": ("reps", "dims"),
    "shape": ("size",),
    "stop": ("end",),
}
# And of the parameters of one function.
OF_FUNCTION: dict[str, dict[str, str]] = {
    "argsort": {"kind": "stable"},
    "asarray": {"data": "obj"},
    "bernoulli": {"input": "p"},
    "clip": {"a_min": "min", "a_max": "max"},
    "diag": {"diagonal": "k"},
    "diagflat": {"offset": "k"},
    "empty_like": {"input": "x"},
    "flip": {"dims": "axis"},
    "full_like": {"input": "x"},
    "load": {"f": "path"},
    "multinomial": {"input": "probs"},
    "normal": {"loc": "mean", "scale": "std"},
    "ones_like": {"input": "x"},
    "rand_like": {"input": "x"},
    "randn_like": {"input": "x"},
    "roll": {"dims": "axis", "shifts": "shift"},
    "swapaxes": {"dim0": "axis1", "dim1": "axis2"},
    "save": {"f": "path"},
    "sort": {"kind": "stable"},
    "split": {"split_size": "split_size_or_sections"},
    "tril": {"diagonal": "k"},
    "tril_indices": {"col": "m", "offset": "k", "row": "n"},
    "triu": {"diagonal": "k"},
    "triu_indices": {"col": "m", "offset": "k", "row": "n"},
    "zeros_like": {"input": "x"},
}
_CREATION = (
    "arange", "asarray", "empty_like", "eye", "full_like", "linspace", "logspace", "ones_like", "zeros_like",
)  # fmt: skip
# Parameters beside their own: what is done with them is PyTorch's manner (see `pytorchs`), or asks for a gradient.
_BESIDE = {"add": "alpha", "subtract": "alpha"} | dict.fromkeys(_CREATION, "requires_grad")
_RENAMED = frozenset(OTHER_NAMES)
_MEANINGS: dict[str, Callable[[Any], Any]] = {"unbiased": int}  # of values that mean another number by another name

# Functions that return what PyTorch's do when they are called by one of its names, as values with their indices.
IN_MANNER = ("add", "max", "median", "min", "sort", "squeeze", "std", "subtract", "var")
_MANNER = ("dim", "keepdim", "alpha")
pytorchs: dict[str, Callable[..., Any]] = {}

# What to write instead of names that a module has not, by the module's name; `interop.pytorch.hints` fills it.
advice: dict[str, Mapping[str, str]] = {}


def other_names(function: str, own: Iterable[str]) -> dict[str, str]:
    """Other names that a function with these parameters takes, and the parameter of each.

    >>> other_names("sum", ["x", "axis", "keepdims"])
    {'dim': 'axis', 'keepdim': 'keepdims'}
    """
    own = list(own)
    found = {other: name for name in own for other in OTHER_NAMES.get(name, ())} | OF_FUNCTION.get(function, {})
    taken = {other: name for other, name in found.items() if other not in own and name in own}
    beside = _BESIDE.get(function)
    return taken if beside is None or beside in own else taken | {beside: beside}


def renamed(function: str, given: Mapping[str, Any], others: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments by a function's own names; TypeError for a parameter that is given by two names."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = others.get(name, name)
        if own in found:
            both = " and ".join(f"{n}=" for n in given if others.get(n, n) == own)
            raise TypeError(f"{function}() got {both}, which are one argument; give one of them")
        found[own] = _MEANINGS[name](value) if name in _MEANINGS else value
    return found


def respelled(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    **others: Any,
) -> Any:
    """The result of a call with other names.

    `inputs`: what is given by position alone. `values` and `defaults`: of the function's own parameters. `others`: of
    the other names. UNSET stands for what is not given, and for a default that is not there.
    """
    given = {name: value for name, value in values.items() if value is not defaults[name]}
    given |= {name: value for name, value in others.items() if value is not UNSET}
    name = fn.__name__
    # `keepdim` is PyTorch's word as well; without an axis there is one manner.
    if name in pytorchs and (not given.keys().isdisjoint(("dim", "alpha")) or {"axis", "keepdim"} <= given.keys()):
        return pytorchs[name](*inputs, **given)
    found = renamed(name, given, other_names(name, values))
    for parameter, default in defaults.items():
        if default is UNSET and parameter not in found:
            raise TypeError(f"{name}() missing a required argument: {parameter!r}")
    is_leaf = found.pop("requires_grad", False)
    result = fn(*inputs, **found)
    return result.detach().requires_grad_() if is_leaf else result  # not the operand itself


def renaming(
    others: Sequence[tuple[str, str, bool]], needed: Sequence[str], general: Sequence[str], unset: str, default: str
) -> list[str]:
    """Source that takes values of other names, (other, own, whether it is no more than a name) each, as those of own.

    `general`: source of the call that asks for more, or is wrong. `needed`: parameters that must be given. `unset` and
    `default`, with the own name after it, are the source of UNSET and of a default value.
    """
    free = [
        f"({other} is {unset} or {own} is {default}{own})" if is_name else f"{other} is {unset}"
        for other, own, is_name in others
    ]
    given = [
        f"({' or '.join([f'{p} is not {unset}', *(f'{o} is not {unset}' for o, own, _ in others if own == p)])})"
        for p in needed
    ]
    asked = [*(f"{other} is not {unset}" for other, _, _ in others), *(f"{p} is {unset}" for p in needed)]
    lines = [f"    if {' or '.join(asked)}:", f"        if not ({' and '.join([*free, *given])}):"]
    lines += [f"        {line}" for line in general]
    for other, own, is_name in others:
        lines += [f"        if {other} is not {unset}:", f"            {own} = {other}"] if is_name else []
    return lines


def is_name(function: str, other: str, own: str) -> bool:
    """Whether another name of a parameter says no more than its own."""
    in_manner = function in IN_MANNER and other in _MANNER
    return not in_manner and other != own and other not in _MEANINGS


class _Form(NamedTuple):
    """The numbers of parameters that decide about the text of a door, and those that have a default for its sake."""

    inputs: int
    places: int  # parameters that may be given by position, inputs among them
    keywords: int
    others: tuple[tuple[int, bool], ...]  # place of the own parameter, whether it is no more than a name
    needed: tuple[int, ...]


@functools.cache
def _door(form: _Form) -> types.CodeType:
    """Code that calls `_fn` if no other name is given and nothing is missing, else `_again`."""
    names = [f"p{k}" for k in range(form.places + form.keywords)]
    others = [f"o{k}" for k in range(len(form.others))]
    places, keywords = names[: form.places], names[form.places :]
    signature = [*places[: form.inputs], *["/"] * bool(form.inputs), *places[form.inputs :], "*", *keywords, *others]
    call = ", ".join([*places, *(f"{k}={k}" for k in keywords)])
    of = [(o, names[own] if own >= 0 else o, is_name) for o, (own, is_name) in zip(others, form.others, strict=True)]
    general = [f"    return _again({''.join(f'{p}, ' for p in [*names, *others])})"]
    lines = renaming(of, [names[k] for k in form.needed], general, "_unset", "_default_")
    source = "\n".join([f"def door({', '.join(signature)}):", *lines, f"    return _fn({call})"])
    # Names of globals become constants: the function that gets this code keeps its own globals.
    source = re.sub(r"(?<=[ (])(_unset|_fn|_again|_default_p\d+)\b", r"'\1'", source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of a constant that is called: it stands for a function
        module = compile(source, f"{_FILE}>", "exec")
    return next(code for code in module.co_consts if isinstance(code, types.CodeType))


def accept(namespace: Mapping[str, Any], names: Iterable[str]) -> None:
    """Gives functions of a namespace the other names of their parameters."""
    for name in names:
        value = namespace.get(name)
        if callable(value) and not isinstance(value, type):
            accepts_other_names(value)


def parameters_of(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a function's parameters, behind its decorators, without `*args` and `**kwargs`."""
    inner: Any = fn
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = inner.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def accepted(fn: Any) -> dict[str, str]:
    """Other names that a function takes, and the parameter of each."""
    while not hasattr(fn, MARK) and hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return dict(getattr(fn, MARK, {}))


def accepts_other_names(fn: Callable[..., Any]) -> None:
    """Gives a function the other names of its parameters: it keeps its identity and gets other code.

    Behind decorators, which pass arguments on as they are, the innermost function gets it. One that has a closure, or
    takes any number of arguments, stays as it is.
    """
    inner: Any = fn
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not isinstance(inner, types.FunctionType):
        return
    code = inner.__code__
    name = inner.__name__
    has_names = name in _BESIDE or name in OF_FUNCTION or not _RENAMED.isdisjoint(code.co_varnames)
    if not has_names or code.co_freevars or code.co_flags & _VARIABLE or accepted(fn):
        return
    others = other_names(name, parameters_of(inner))
    if not others:
        return
    original: Any = types.FunctionType(code, inner.__globals__, inner.__name__, inner.__defaults__)
    original.__kwdefaults__ = inner.__kwdefaults__
    functools.update_wrapper(original, inner)
    del original.__dict__["__wrapped__"]
    inner.__defaults__ = inner.__kwdefaults__ = None
    inner.__code__ = _with(_unopened.__code__, inner, {_OPEN: functools.partial(_put_door, inner, original, others)})
    inner.__dict__ |= {"__wrapped__": original, MARK: others}  # whose signature and source are shown


_OPEN = "opens the door"  # stands for what does


def _unopened(*args: Any, **kwargs: Any) -> Any:
    """Stands for a function before its first call, which writes the door: all at once would take 10 ms at import."""
    opened: Any = "opens the door"
    return opened()(*args, **kwargs)


def _put_door(fn: types.FunctionType, original: types.FunctionType, others: Mapping[str, str]) -> Callable[..., Any]:
    """The function, with the code of its door."""
    names = parameters_of(original)
    count, inputs = original.__code__.co_argcount, original.__code__.co_posonlyargcount
    given = original.__defaults__ or ()
    # Parameters without a default, from the first one on that may be given by another name, get one.
    first = min((names.index(own) for own in others.values() if own in names), default=count)
    needed = tuple(range(first, count - len(given)))
    defaults: list[Any] = [UNSET] * len(needed) + list(given)
    by_name: dict[str, Any] = dict.fromkeys(names[inputs:], UNSET)
    by_name |= dict(zip(names[count - len(defaults) : count], defaults, strict=True)) | (original.__kwdefaults__ or {})

    def again(*values: Any) -> Any:
        own = dict(zip(names, values, strict=False))
        first = [own.pop(name) for name in names[:inputs]]
        try:
            return respelled(original, first, own, by_name, **dict(zip(others, values[len(names) :], strict=True)))
        except Exception as error:
            shorten(error)
            raise

    own = {name: k for k, name in enumerate(names)}
    of = tuple((own.get(mine, -1), is_name(fn.__name__, other, mine)) for other, mine in others.items())
    door = _door(_Form(inputs, count, len(names) - count, of, needed))
    keywords = tuple(f"p{k}" for k in range(count, len(names)))
    constants: dict[Any, Any] = {f"_default_p{own[name]}": default for name, default in by_name.items()}
    constants |= {"_unset": UNSET, "_fn": original, "_again": again, keywords: names[count:]}
    fn.__defaults__ = tuple(defaults)  # before the code, which another thread may run at once
    fn.__kwdefaults__ = (original.__kwdefaults__ or {}) | dict.fromkeys(others, UNSET)
    fn.__code__ = _with(door, fn, constants).replace(co_varnames=(*names, *others))
    return fn


def _with(code: types.CodeType, fn: types.FunctionType, constants: Mapping[Any, Any]) -> types.CodeType:
    """The code by the name of a function, with constants in the place of those that stand for them."""
    return code.replace(
        co_name=fn.__name__, co_qualname=fn.__qualname__, co_filename=f"{_FILE} {fn.__name__}>",
        co_consts=tuple(_replaced(c, constants) for c in code.co_consts),
    )  # fmt: skip


def _replaced(constant: Any, by: Mapping[Any, Any]) -> Any:
    return by.get(constant, constant) if isinstance(constant, str | tuple) else constant


def no_attribute(owner: str, name: str, names: Iterable[str], hints: Mapping[str, str]) -> str:
    """The message of an AttributeError: what to write instead, where that is known, or the names that are nearest.

    >>> no_attribute("module 'hybridml'", "matmull", ["matmul", "exp"], {})
    "module 'hybridml' has no attribute 'matmull'; did you mean 'matmul'?"
    """
    message = f"{owner} has no attribute {name!r}"
    if name in hints:
        return f"{message}; {hints[name]}"
    near = difflib.get_close_matches(name, [n for n in names if n[0] != "_"], 3, 0.75) if name[0] != "_" else []
    return f"{message}; did you mean {' or '.join(map(repr, near))}?" if near else message


def advise(namespace: MutableMapping[str, Any]) -> None:
    """Gives a module the errors of `no_attribute` for names that it has not, with its `advice`."""
    module = namespace["__name__"]

    def missing(name: str) -> Any:
        names = namespace.get("__all__") or [n for n, value in namespace.items() if callable(value)]
        raise AttributeError(no_attribute(f"module {module!r}", name, names, advice.get(module, {})))

    namespace["__getattr__"] = missing  # not written as one: type checkers would take every name for there
