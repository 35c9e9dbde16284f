"""Fingerprints of the compiler's own code: programs of an edited or another compiler must not be found.

They are of the bytes that Python would load, as the loaders give them: sources, bytecode without sources, extension
modules, in a folder, in a zip archive or frozen into an executable. The version is not among them: it says less.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from functools import partial
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import Any

from ..once import once
from .cache import key

PACKAGE, _, OWN = __name__.partition(".")


@once
def fingerprint(*patterns: str) -> str:
    """A digest of the compiler's modules with names that fit, such as `loops.*`; a package is `loops.__init__`.

    Where the modules cannot be listed or read it is random: nothing that another process has made is found.
    """
    found = modules()
    if OWN not in found:
        return os.urandom(8).hex()
    fits = re.compile("|".join(map(translate, patterns))).match
    return key(*(part for name in sorted(filter(fits, found)) for part in (name, _digest(name))))[:16]


@once
def modules() -> dict[str, Callable[[], Any]]:
    """Every module of the compiler by its name in it, with what finds it: finding all of them takes 4 ms."""
    spec = sys.modules[PACKAGE].__spec__
    assert spec is not None
    return {"__init__": lambda: spec, **dict(_inside(spec.submodule_search_locations or (), ""))}


def _inside(path: Iterable[str], prefix: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    for finder, name, is_package in pkgutil.iter_modules(path, prefix):
        find: Callable[[], Any] = partial(finder.find_spec, f"{PACKAGE}.{name}", None)
        yield f"{name}.__init__" if is_package else name, find
        if is_package:
            yield from _inside(find().submodule_search_locations or (), f"{name}.")


@once
def _digest(name: str) -> str:
    return key(_data(modules()[name]()))


def _data(spec: ModuleSpec) -> bytes:
    """The bytes of a module, or of its code where it has no file; random ones where there are neither."""
    loader, origin = spec.loader, spec.origin
    try:
        return loader.get_data(origin)  # type: ignore[union-attr, no-any-return]
    except (AttributeError, OSError, TypeError):
        pass
    try:
        code = loader.get_code(spec.name)  # type: ignore[union-attr]
    except (AttributeError, ImportError):
        code = None
    return os.urandom(16) if code is None else _text(code).encode()


def _text(code: CodeType) -> str:
    """Text of what code does. (The output of `marshal` depends on reference counts, and since 3.14 it refuses some
    constants.)"""
    constants = [_text(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name, code.co_flags
    return repr((code.co_code, constants, names, code.co_argcount, code.co_kwonlyargcount, code.co_exceptiontable))


def _constant(value: object) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
