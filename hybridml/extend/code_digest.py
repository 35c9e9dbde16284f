"""Digests of Python functions: equal in every process that runs the same code with the same values around it."""

from __future__ import annotations

import builtins
import hashlib
import itertools
import os
import sys
import time
import types
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hybridml_compiler.ops.op import Op

from ..tracing.python_state.libraries import is_library, is_library_class

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), np.dtype, np.generic)
_PROCESS = f"{os.getpid()} {time.time_ns()}"  # makes a value of this process alone
_unknown = itertools.count()
LENGTH = 12  # hexadecimal digits of a version


def version_of(*values: Any) -> str:
    """A digest of functions and values, as the version of a row.

    Of a function: its code, defaults, and the globals and cells that it reads, with what it names of modules and
    classes there. The program's own functions are followed, those of installed packages stand by name and the version
    of their package. What has no value that all processes agree on (an open file, an object of a class) makes the
    digest one of this process.
    """
    data = hashlib.sha256()
    seen: Seen = {}
    for value in values:
        for part in _parts(value, seen):
            data.update(part.encode() + b"\0")
    return data.hexdigest()[:LENGTH]


# By id, and for what a function names of an object also by the name: a number, and the object, so that no other gets
# its id.
Seen = dict[Any, tuple[int, Any]]


def _parts(value: Any, seen: Seen) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        yield f"again {seen[id(value)][0]}"
        return
    seen[id(value)] = len(seen), value
    if isinstance(value, tuple | list):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from _parts(item, seen)
    elif isinstance(value, dict):
        yield f"dict {len(value)}"
        for pair in value.items():
            yield from _parts(pair, seen)
    elif isinstance(value, frozenset | set) and all(isinstance(item, _PLAIN) for item in value):
        yield f"set {sorted(map(repr, value))}"
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"array {value.shape} {value.dtype.name} {hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()}"
    elif isinstance(value, types.ModuleType):
        yield f"module {value.__name__} {_release(value.__name__)}"
    elif isinstance(value, types.FunctionType) and is_own(value):
        yield from _function(value, seen)
    elif isinstance(value, type | types.BuiltinFunctionType | types.FunctionType | np.ufunc):
        name = getattr(value, "__qualname__", value.__name__)
        yield f"named {getattr(value, '__module__', '')} {name} {_release(str(value.__module__))}"
    elif isinstance(value, types.MethodType):
        yield from _parts((value.__func__, value.__self__), seen)
    elif isinstance(value, Op):
        yield f"operation {value.key}"
    elif hasattr(type(value), "digested"):  # an operation
        yield from _parts(value.digested, seen)
    elif callable(getattr(value, "__wrapped__", None)):
        yield from _parts(value.__wrapped__, seen)
    else:
        yield f"{_PROCESS} {next(_unknown)}"


def _release(module: str) -> str:
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))


def _function(fn: types.FunctionType, seen: Seen) -> Iterator[str]:
    yield "function"
    yield from _parts((fn.__defaults__, fn.__kwdefaults__), seen)
    codes = codes_of(fn.__code__)
    named = [name for code in codes for name in code.co_names]
    for cell in fn.__closure__ or ():
        try:
            yield from _named(cell.cell_contents, named, seen)
        except ValueError:  # not assigned yet
            yield "empty"
    for code in codes:
        yield f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
        yield f"{[const for const in code.co_consts if not isinstance(const, types.CodeType)]!r}"
        for name in code.co_names:
            if name in fn.__globals__:
                yield name
                yield from _named(fn.__globals__[name], named, seen)
            elif hasattr(builtins, name):
                yield f"builtin {name}"


def _named(value: Any, names: Iterable[str], seen: Seen) -> Iterator[str]:
    """A variable of a function, and what the function may read of it, by the names in its code."""
    yield from _parts(value, seen)
    for name, found in named_of(value, names):
        if (id(value), name) not in seen:
            seen[id(value), name] = len(seen), value
            yield name
            yield from _named(found, names, seen)


def named_of(owner: Any, names: Iterable[str]) -> list[tuple[str, Any]]:
    """The attributes with some of these names of a module, a class or an object that is not a library's."""
    spaces: list[Any]
    if isinstance(owner, types.ModuleType):
        fixed, spaces = is_library(owner.__name__), [vars(owner)]
    else:
        kind = owner if isinstance(owner, type) else type(owner)
        fixed, spaces = is_library_class(kind), [getattr(owner, "__dict__", {}), *map(vars, kind.__mro__)]
    if fixed:
        return []
    found: Mapping[str, Any] = ChainMap(*spaces)
    return [(name, found[name]) for name in names if name in found]


def is_own(fn: types.FunctionType) -> bool:
    """Whether a function is the program's own. What `exec` makes only seems to be of a module."""
    return not is_library(str(fn.__module__)) or fn.__globals__ is not vars(sys.modules[str(fn.__module__)])


def codes_of(code: types.CodeType) -> list[types.CodeType]:
    """The code and that of the functions made in it."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return [code, *(found for const in inner for found in codes_of(const))]
