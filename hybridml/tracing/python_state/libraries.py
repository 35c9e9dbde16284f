"""Code and classes that a trace takes as constant: those of Python, of this package, and of installed packages that
know nothing of it. An installed package that uses hybridml is part of a program, like the user's own.

What such a library keeps for itself (caches, registries) changes with every use, so that no guard on it would last.
What a program *names* of an installed package is guarded all the same: see `Watch` in guards.py.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

_OURS = ("hybridml", "hybridml_compiler")
_PROGRAMS = "hybridml.models."  # written as a user's program is, and captured as one
_INSTALLED = ("site-packages", "dist-packages")
HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
_TELLING = (types.ModuleType, types.FunctionType, type)  # what says where it is from, without running code


def is_ours(module: str) -> bool:
    """Whether a module is one of this package, or of the compiler."""
    return module.partition(".")[0] in _OURS and not module.startswith(_PROGRAMS)


@functools.cache
def is_fixed(module: str) -> bool:
    """Whether a module is ours, Python's or NumPy's, of which nothing that a program names is looked at."""
    top = module.partition(".")[0]
    return is_ours(module) or top == "numpy" or top in sys.stdlib_module_names


@functools.cache
def is_library(module: str) -> bool:
    """Whether the functions of a module are taken not to depend on changing state."""
    top = module.partition(".")[0]
    if top == "__main__":  # whatever file it is
        return False
    if is_fixed(module):
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return any(place in file for place in _INSTALLED) and not any(map(is_ours, _sources(top)))


def is_library_class(cls: type) -> bool:
    """Whether a class is a library's. One that its module does not have (made by `exec`, which calls its module
    "builtins", or by a function) is the user's.
    """
    if not cls.__flags__ & HEAP or cls.__flags__ & _IMMUTABLE or is_ours(cls.__module__):
        return True
    if not is_library(cls.__module__):
        return False
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is cls


def _sources(package: str) -> Iterator[str]:
    """The modules that a package has taken something from, by the contents of its loaded modules."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and type(module) is types.ModuleType:
            for value in list(vars(module).values()):
                if type(value) in _TELLING:
                    yield str(value.__name__ if type(value) is types.ModuleType else value.__module__)
