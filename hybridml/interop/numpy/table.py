"""The table of NumPy's functions: the function that runs in the place of each when an argument is a tensor.

A row is a function that takes NumPy's parameters by name (its first ones may have other names), or the dotted name of
one in `hybridml`, which is looked up when first called. Arguments are bound by NumPy's own signature, so that a wrong
call gets NumPy's TypeError. `out=` is taken care of here; what says how arrays lie in memory or are cast is dropped.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, GradientError

from ...core.aliasing import assign
from ...core.context import lift
from ...core.proxies.base import Proxy
from ...core.tensor import Tensor, values

Function = Callable[..., Any]
FUNCTIONS: dict[Function | str, Function | str] = {}  # or its dotted name, of a module that few programs load
# What fills the table, each with the first function that is not found in those before.
SUBJECTS = (
    "arrays", "reductions", "linear_algebra", "statistics", "selecting", "assembling", "writing", "polynomials",
    "records", "refused",
)  # fmt: skip
REFUSED: dict[str, str] = {}  # dotted name of a NumPy function or module -> why, and what to use instead

# Parameters that say how an array lies in memory, how it is cast, or which algorithm finds the same result.
_OF_ARRAYS = frozenset({"order", "subok", "like", "casting", "overwrite_input", "device", "kind", "max_work"})


def original(function: Any) -> Any:
    """NumPy's own function: a trace has others in the places of some, which say what they stand for."""
    return getattr(function, "stands_for", function)


def implements(*functions: Function | str) -> Callable[[Function], Function]:
    """Decorator: the function runs in the place of NumPy's `functions`, which may be given by their dotted names."""

    def register(fn: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(map(original, functions), fn))
        return fn

    return register


def same(namespace: Any, names: str, prefix: str = "") -> None:
    """Rows for functions of a NumPy namespace, or of its dotted name, which `hybridml` has under the same name; an
    older NumPy lacks some."""
    for name in names.split():
        if isinstance(namespace, str):
            FUNCTIONS[f"{namespace}.{name}"] = prefix + name
        elif hasattr(namespace, name):
            FUNCTIONS[original(getattr(namespace, name))] = prefix + name


def name_of(func: Function) -> str:
    """NumPy's name of a function, as users write it: `np.linalg.norm`."""
    return _path_of(func).replace("numpy", "np", 1)


def _path_of(func: Function) -> str:
    return f"{getattr(func, '__module__', 'numpy')}.{func.__name__}"  # an older ufunc has no module


def target_of(func: Function) -> Function | None:
    """Function that runs in the place of a NumPy function; None where there is no row, or its home is not there."""
    row, subjects = _row(func), iter(SUBJECTS)
    while row is None and (subject := next(subjects, None)) is not None:
        importlib.import_module(f"{__package__}.{subject}")  # by another thread, perhaps, for which this waits
        row = _row(func)
    return _named(row) if isinstance(row, str) else row


def _row(func: Function) -> Function | str | None:
    return FUNCTIONS.get(public(func)) or FUNCTIONS.get(_path_of(func))


def refusal(func: Function) -> str:
    """The reason why a NumPy function does not take tensors, and what to use."""
    return (
        REFUSED.get(_path_of(func))
        or REFUSED.get(func.__module__)
        or "has no counterpart for tensors; give it arrays (`t.detach().numpy()`), or use functions of hybridml"
    )


@cache
def takes_as_given(func: Function, target: Function, count: int) -> bool:
    """Whether `target` takes so many arguments of NumPy's `func` by place, as they are."""
    by_place, by_name, out = _arguments(func, target, count, ())
    theirs = list(inspect.signature(target).parameters.values())[len(by_place) : count]
    by_order = [(p.name, k) for k, p in enumerate(theirs, len(by_place)) if p.kind is p.POSITIONAL_OR_KEYWORD]
    return by_place == list(range(len(by_place))) and by_name == by_order and out is None


def run(func: Function, target: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls `target` with the arguments of NumPy's `func`."""
    by_place, by_name, out = _arguments(func, target, len(args), tuple(kwargs))
    given: Any = {**dict(enumerate(args)), **kwargs}
    result = target(*[given[key] for key in by_place], **{name: given[key] for name, key in by_name})
    return result if out is None or given[out] is None else store(given[out], result, name_of(func))


def store(out: Any, result: Any, what: str, where: Any = True) -> Any:
    """Writes to `out=`: a tensor takes the result in place, with its history; an array the values of an eager one."""
    if isinstance(out, tuple):
        if len(out) == 1 and not isinstance(result, tuple):
            return store(out[0], result, what, where)
        return tuple(r if o is None else store(o, r, what, where) for o, r in zip(out, result, strict=True))
    if where is not True:
        from ...arrays.indexing.selecting import where as select

        result = select(where, result, out)
    if isinstance(out, Tensor):
        return assign(out, lift(result.astype(out.dtype) if _same_kind(result, out) else result), f"{what}(out=)")
    if isinstance(result, Tensor):
        if result.requires_grad:
            raise GradientError(f"{what}: out= is an array, which records no gradient; give a tensor, or .detach()")
        if issubclass(type(out), Proxy):
            out._store(result)
            return out
        result = values(result, f"{what}(out=array)")
    np.copyto(out, result, casting="same_kind")
    return out


def _same_kind(result: Tensor, out: Tensor) -> bool:
    return result.dtype is not out.dtype and np.can_cast(result.dtype, out.dtype, "same_kind")


@cache
def _arguments(
    func: Function, target: Function, count: int, keywords: tuple[str, ...]
) -> tuple[list[Any], list[tuple[str, Any]], Any]:
    """Three parts of `count` arguments and the keywords: those `target` takes by place, those by a name, and `out`.

    By name where it knows NumPy's name, else in order.
    """
    signature = _signature(func)
    if signature is None:  # NumPy's own names, then
        takes = inspect.signature(target).parameters
        return list(range(count)), [(k, k) for k in keywords if k in takes or k not in _OF_ARRAYS], None
    given = signature.bind(*range(count), **{name: name for name in keywords}).arguments
    out = given.pop("out", None)
    places, names, others = _parameters(func, target)
    by_place: list[Any] = []
    by_name: list[tuple[str, Any]] = []
    by_name_too: list[Any] = [inspect.Parameter.KEYWORD_ONLY]
    if not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values()):
        by_name_too.append(inspect.Parameter.POSITIONAL_OR_KEYWORD)  # else it stands before `*args`
    for name, key in given.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            by_place += key
        elif kind is inspect.Parameter.VAR_KEYWORD:
            by_name += key.items()
        elif name in names:
            by_name.append((name, key))
        elif len(by_place) < places:
            by_place.append(key)
        elif others and kind in by_name_too:
            by_name.append((name, key))
        elif others:
            by_place.append(key)
        elif name not in _OF_ARRAYS:
            raise ArgumentError(f"{name_of(func)}: {name}= is not supported on tensors; {_takes(target)}")
    return by_place, by_name, out


def _takes(target: Function) -> str:
    return f"{target.__name__} takes {inspect.signature(target)}"


@cache
def _parameters(func: Function, target: Function) -> tuple[int, frozenset[str], bool]:
    """Number of arguments of NumPy's `func` that a function takes by place (those at its start under other names), the
    names that it takes, and whether it takes any others.
    """
    found = list(inspect.signature(target).parameters.values())
    numpys = _signature(func).parameters  # type: ignore[union-attr]  # asked for only where there is one
    of_its_own = takewhile(lambda p: p.kind is p.POSITIONAL_ONLY or (_is_plain(p) and p.name not in numpys), found)
    by_place = [p.name for p in of_its_own]
    by_name = {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return len(by_place), frozenset(by_name.difference(by_place)), any(p.kind is p.VAR_KEYWORD for p in found)


def _is_plain(p: inspect.Parameter) -> bool:
    return p.kind is p.POSITIONAL_OR_KEYWORD


@cache
def _signature(func: Function) -> inspect.Signature | None:
    try:
        return inspect.signature(func)
    except ValueError:  # functions in C have none before NumPy 2.4, np.fromstring before 2.5
        return None


@cache
def public(func: Function) -> Function:
    """The function that users call: NumPy has a second one behind each that takes `like=`."""
    module = importlib.import_module(getattr(func, "__module__", "numpy"))
    found = original(getattr(module, func.__name__, func))
    return found if callable(found) else func


@cache
def _named(path: str) -> Function | None:
    found: Any = importlib.import_module("hybridml")
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return None
    return found
