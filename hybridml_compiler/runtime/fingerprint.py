"""Fingerprints of the compiler's own code: programs of an edited or another compiler must not be found.

They are of the bytes that Python would load, as the loaders give them: sources, bytecode without sources, extension
modules, in a folder, in a zip archive or frozen into an executable. The version is not among them: it says less.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader, all_suffixes
from types import CodeType

from ..once import once
from .cache import key

PACKAGE, _, OWN = __name__.partition(".")


@once
def fingerprint(*patterns: str) -> str:
    """A digest of the compiler's modules that have these names, or begin as one that ends in `*`, such as `loops.*`; a
    package is `loops.__init__`.

    Where the modules cannot be listed or read it is random: nothing that another process has made is found.
    """
    found = modules()
    if OWN not in found:
        return os.urandom(8).hex()
    begins = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    names = sorted(name for name in found if name in patterns or name.startswith(begins))
    return key(*(part for name in names for part in (name, _digest(name))))[:16]


@once
def modules() -> dict[str, Callable[[], bytes]]:
    """Every module of the compiler by its name in it, with what reads its bytes."""
    spec = sys.modules[PACKAGE].__spec__
    assert spec is not None
    return {"__init__": lambda: _data(spec), **dict(_inside(spec, ""))}


def _inside(package: ModuleSpec, prefix: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    folders = package.submodule_search_locations or ()
    found = _sources(folders, prefix) if all(map(_holds_files, folders)) else None
    return _listed(package, prefix) if found is None else iter(found.items())


def _holds_files(folder: str) -> bool:
    """Whether Python loads the sources of a folder as they are, by no finder or loader of somebody else's."""
    finder = sys.path_importer_cache.get(folder)
    spec = finder.find_spec("__init__") if type(finder) is FileFinder else None
    return spec is not None and type(spec.loader) is SourceFileLoader


def _sources(folders: Iterable[str], prefix: str) -> dict[str, Callable[[], bytes]] | None:
    """Modules that are sources in folders, with those in their packages; None where there are others. Python's way to
    each of them, by finder and loader, takes 0.04 ms, and reading it 0.02."""
    found: dict[str, Callable[[], bytes]] = {}
    waiting = [(folder, prefix) for folder in folders]
    with suppress(OSError):
        while waiting:
            folder, inside = waiting.pop()
            for entry in list(os.scandir(folder)):  # to its end, which closes it
                name, suffix = os.path.splitext(entry.name)
                if suffix in _OTHERS:
                    return None
                if suffix == ".py" and "." not in name:  # as Python lists them: editors leave others beside
                    found[inside + name] = partial(_bytes, entry.path)
                elif not suffix and name != "__pycache__" and entry.is_dir():
                    waiting.append((entry.path, f"{inside}{name}."))
        del found[f"{prefix}__init__"]
        return found
    return None


_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_MOST = 1 << 17
_OTHERS = frozenset(os.path.splitext(f"module{suffix}")[1] for suffix in all_suffixes()) - {".py"}


def _bytes(path: str) -> bytes:
    """The bytes of a file: two thirds of the time that `open` takes, which asks for its size and place first."""
    try:
        file = os.open(path, _READ)
        try:
            parts = [os.read(file, _MOST)]
            while len(parts[-1]) == _MOST:
                parts.append(os.read(file, _MOST))
        finally:
            os.close(file)
    except OSError:
        return os.urandom(16)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _listed(package: ModuleSpec, prefix: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The same for modules of any kind, as Python lists and finds them."""
    import pkgutil

    for finder, name, is_package in pkgutil.iter_modules(package.submodule_search_locations, prefix):
        spec = finder.find_spec(f"{PACKAGE}.{name}", None)
        assert spec is not None
        yield f"{name}.__init__" if is_package else name, partial(_data, spec)
        if is_package:
            yield from _inside(spec, f"{name}.")


@cache
def _digest(name: str) -> str:
    return key(modules()[name]())


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
