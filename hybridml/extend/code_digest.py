"""Digests of Python functions: equal in every process that runs the same code with the same values around it."""

from __future__ import annotations

import builtins
import hashlib
import itertools
import os
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), np.dtype, np.generic)
_PROCESS = f"{os.getpid()} {time.time_ns()}"  # makes a value of this process alone
_unknown = itertools.count()
LENGTH = 12  # hexadecimal digits of a version


def version_of(*values: Any) -> str:
    """A digest of functions and values, as the version of a row.

    Of a function: its code, defaults, and the globals and cells that it reads; functions of the same package are
    followed, others stand by name and the version of their package. What has no value that all processes agree on
    (an open file, an object of a class) makes the digest one of this process.
    """
    data = hashlib.sha256()
    seen: dict[int, int] = {}
    for value in values:
        for part in _parts(value, seen, _home(value)):
            data.update(part.encode() + b"\0")
    return data.hexdigest()[:LENGTH]


def _home(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _parts(value: Any, seen: dict[int, int], home: str) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        yield f"again {seen[id(value)]}"
        return
    seen[id(value)] = len(seen)
    if isinstance(value, tuple | list):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from _parts(item, seen, home)
    elif isinstance(value, dict):
        yield f"dict {len(value)}"
        for pair in value.items():
            yield from _parts(pair, seen, home)
    elif isinstance(value, frozenset | set):
        yield f"set {sorted(map(repr, value))}"
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"array {value.shape} {value.dtype.name} {hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()}"
    elif isinstance(value, types.ModuleType):
        yield f"module {value.__name__} {_release(value.__name__)}"
    elif isinstance(value, types.FunctionType) and _home(value) in (home, "__main__"):
        yield from _function(value, seen, home)
    elif isinstance(value, type | types.BuiltinFunctionType | types.FunctionType | np.ufunc):
        name = getattr(value, "__qualname__", value.__name__)
        yield f"named {getattr(value, '__module__', '')} {name} {_release(_home(value))}"
    elif isinstance(value, types.MethodType):
        yield from _parts((value.__func__, value.__self__), seen, home)
    elif callable(getattr(value, "__wrapped__", None)):
        yield from _parts(value.__wrapped__, seen, home)
    else:
        yield f"{_PROCESS} {next(_unknown)}"


def _release(module: str) -> str:
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))


def _function(fn: types.FunctionType, seen: dict[int, int], home: str) -> Iterator[str]:
    yield "function"
    yield from _parts((fn.__defaults__, fn.__kwdefaults__), seen, home)
    for cell in fn.__closure__ or ():
        try:
            yield from _parts(cell.cell_contents, seen, home)
        except ValueError:  # not assigned yet
            yield "empty"
    for code in codes_of(fn.__code__):
        yield f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
        yield f"{[const for const in code.co_consts if not isinstance(const, types.CodeType)]!r}"
        for name in code.co_names:
            if name in fn.__globals__:
                yield name
                yield from _parts(fn.__globals__[name], seen, home)
            elif hasattr(builtins, name):
                yield f"builtin {name}"


def codes_of(code: types.CodeType) -> list[types.CodeType]:
    """The code and that of the functions made in it."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return [code, *(found for const in inner for found in codes_of(const))]
