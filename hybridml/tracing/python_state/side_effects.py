"""Side effects of a trace that no guard can see: it draws from Python's or NumPy's random numbers, takes the next item
of an iterator, reads a clock, prints.

State is compared before and after the trace. Calls are noticed by a profile hook, which is set only if the code names
one of them: a trace would take a third longer with it.
"""

from __future__ import annotations

import builtins
import io
import itertools
import os
import pickle
import random
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import TraceError, describe_line

from .builtin_patches import LEVELS, takes_logs
from .guards import Watch
from .libraries import is_library
from .numpy_random import UNUSED, generators, global_generator, legacy_generators

if TYPE_CHECKING:
    import logging

_READS: dict[Any, str] = {
    f: f.__name__
    for f in (time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, time.perf_counter_ns,
              time.process_time, os.urandom, builtins.input)
}  # fmt: skip
_SHOWS: dict[Any, str] = {builtins.open: "open", time.sleep: "sleep", warnings.warn: "warn"}
_TODAY = frozenset(("now", "utcnow", "today"))
_WRITES = frozenset(("write", "writelines", "tofile"))
_FILES = frozenset(("save", "savez", "savetxt", "load", "loadtxt", "fromfile", "dump"))
_NAMES = frozenset((*_READS.values(), *_SHOWS.values(), *_TODAY, *_WRITES, *_FILES, *LEVELS))
# Modules with what reads and changes the world outside, and those that call it; their C functions are noticed.
_OUTSIDE = frozenset((
    "os", "posix", "nt", "posixpath", "ntpath", "genericpath", "shutil", "subprocess", "socket", "pathlib", "tempfile",
    "io", "glob", "threading", "_thread", "queue", "multiprocessing", "concurrent", "sqlite3", "urllib", "http",
    "pprint", "csv", "json", "pickle", "rich", "tqdm", "click",
))  # fmt: skip
_ENTROPY = frozenset(("secrets", "uuid"))  # they draw from the system
_PURE = frozenset(("fspath", "fsencode", "fsdecode"))
_SYSTEM = frozenset(("posix", "nt", "_socket", "_posixsubprocess", "_io", "io"))

_INDEXED: tuple[Any, ...] = tuple(
    type(iter(made)) for made in (["x"], ("x",), "x", b"x", range(1))
)  # iterators that can be set to a place

Seen = tuple[str, str]  # what, the user's line


class SideEffects:
    """A context for a trace; `found` has its side effects afterwards."""

    def __init__(self, watch: Watch, name_of: Callable[[Any], str]) -> None:
        self.found: list[Seen] = []
        self._name_of = name_of
        self._states = [(obj, _state(obj), way_back(obj)) for obj in _stateful(watch)]
        reaches_out = not _NAMES.isdisjoint(watch.names) or _names_a_module(watch, _OUTSIDE) or _draws_entropy(watch)
        self._listens = sys.getprofile() is None and reaches_out
        self.levels: dict[int, logging.Logger] = {}  # loggers whose level counts, by id

    def __enter__(self) -> SideEffects:
        if self._listens:
            sys.setprofile(self._hear)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._listens:
            sys.setprofile(None)
        for obj, before, _ in self._states:
            if _state(obj) != before:
                self.found.append((self._name_of(obj), ""))

    def set_back(self) -> str:
        """Undoes the side effects before Python makes the call again; returns the names of those that remain."""
        lost = [name for name, where in self.found if where]
        for obj, before, back in self._states:
            if _state(obj) != before:
                if back is not None:
                    back()
                if _state(obj) != before:
                    lost.append(self._name_of(obj))
        return ", ".join(lost)

    def _hear(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            what, _ = _meaning(arg)
            if what and _is_users(frame):
                self._note(what, frame)
            elif what in _WRITES or (getattr(arg, "__module__", None) in _SYSTEM and arg.__name__ not in _PURE):
                caller = _user_behind(frame)
                if caller is not None:
                    self._note(arg.__name__, caller)
        elif event == "call" and frame.f_globals.get("__name__") == "logging" and frame.f_code.co_name in LEVELS:
            if frame.f_back is not None and _is_users(frame.f_back):
                self._log(frame, frame.f_back)

    def _log(self, frame: types.FrameType, caller: types.FrameType) -> None:
        """Notes a call of a logger that a trace cannot take: it is made in every call, or in none as long as the level
        stays."""
        name = frame.f_code.co_name
        logger = frame.f_locals.get("self", frame.f_globals["root"])
        logger = getattr(logger, "logger", logger)  # of an adapter
        if LEVELS[name] and logger.isEnabledFor(LEVELS[name]) and not takes_logs(logger):
            self._note(f"logging.{name}", caller)
        else:
            self.levels[id(logger)] = logger

    def _note(self, what: str, frame: types.FrameType) -> None:
        seen = what, describe_line(frame.f_code.co_filename, frame.f_lineno)
        if seen not in self.found:
            self.found.append(seen)


def _names_a_module(watch: Watch, modules: frozenset[str]) -> bool:
    """Whether code names one of these modules, or something of one."""
    for guard in watch.free:
        value = guard.value
        name = getattr(value, "__name__" if type(value) is types.ModuleType else "__module__", None)
        if type(name) is str and name.partition(".")[0] in modules:
            return True
    return False


def _draws_entropy(watch: Watch) -> bool:
    """Whether code can reach a generator that asks the system for each number, and has no state to compare."""
    return any(isinstance(x, random.SystemRandom) for x in watch.reached()) or _names_a_module(watch, _ENTROPY)


def _user_behind(frame: types.FrameType) -> types.FrameType | None:
    """The user's frame that a library works for; None where it is our own, or one that imports a module."""
    at: types.FrameType | None = frame
    while at is not None:
        name = at.f_globals.get("__name__", "")
        if name.partition(".")[0] in ("hybridml", "hybridml_compiler", "importlib", "linecache"):
            return None
        if not is_library(name):
            return at
        at = at.f_back
    return None


class Undone:
    """A context for a trace whose call is made again by Python if it had side effects: random numbers and iterators
    are set back, and a read that cannot be is refused before it happens, by what `refuse` makes of its name and line.

    What prints is left to the context around it. `found`: what has been set back. `lost`: what could not be.
    """

    def __init__(self, watch: Watch, name_of: Callable[[Any], str], refuse: Callable[[str, str], Exception]) -> None:
        self.found: list[Seen] = []
        self.lost: list[Seen] = []
        self._name_of, self._refuse = name_of, refuse
        self._states = [(obj, _state(obj), way_back(obj)) for obj in _stateful(watch)]
        self._keeps_items = all(back is not None for _, _, back in self._states)
        names = _NAMES if self._keeps_items else _NAMES | {"next"}
        self._around: Any = sys.getprofile()
        ours = self._around is None or isinstance(getattr(self._around, "__self__", None), SideEffects | Undone)
        self._listens = ours and (not names.isdisjoint(watch.names) or _draws_entropy(watch))

    def __enter__(self) -> Undone:
        if self._listens:
            sys.setprofile(self._hear)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._listens:
            sys.setprofile(self._around)
        for obj, before, back in self._states:
            if _state(obj) == before:
                continue
            if back is not None:
                back()
            (self.found if _state(obj) == before else self.lost).append((self._name_of(obj), ""))

    def _hear(self, frame: types.FrameType, event: str, arg: Any) -> None:
        users = frame if _is_users(frame) else _user_behind(frame) if arg is os.urandom else None
        if event == "c_call" and users is not None:
            what, reads = _meaning(arg)
            if arg is builtins.next and not self._keeps_items:
                what, reads = "next", True
            if what and reads:
                raise self._refuse(what, describe_line(users.f_code.co_filename, users.f_lineno))
        if self._around is not None:
            self._around(frame, event, arg)


def way_back(obj: Any) -> Callable[[], object] | None:
    """Returns a function that sets an object's hidden state back to the present one; None if nothing can."""
    indexed: Any = obj
    if isinstance(obj, random.Random):
        return partial(obj.setstate, obj.getstate())
    if obj is UNUSED:
        return UNUSED.set_back
    if isinstance(obj, generators()):
        return partial(setattr, obj.bit_generator, "state", obj.bit_generator.state)
    if isinstance(obj, legacy_generators()):
        return partial(obj.set_state, obj.get_state(legacy=False))
    if isinstance(obj, zip | map | filter):
        ways = [way_back(part) for part in _parts(obj) if not isinstance(part, int)]
        return None if None in ways else lambda: [way() for way in ways if way is not None]
    if isinstance(obj, _INDEXED):
        place = obj.__reduce__()[2:]  # an iterator over a range has one on Python 3.11 alone: later ones only go on
        return partial(indexed.__setstate__, *place) if place not in ((), (None,)) else None
    return None


def _meaning(function: Any) -> tuple[str, bool]:
    try:
        if function in _READS:
            return _READS[function], True
        if function in _SHOWS:
            return _SHOWS[function], False
    except TypeError:  # a method of something that cannot be hashed
        return "", False
    name = getattr(function, "__name__", "")
    if name in _WRITES and isinstance(getattr(function, "__self__", None), io.IOBase | np.ndarray):
        return name, False
    return (name, True) if name in _TODAY and isinstance(function.__self__, type) else ("", False)


def _is_users(frame: types.FrameType) -> bool:
    return not is_library(frame.f_globals.get("__name__", ""))


def _stateful(watch: Watch) -> Iterator[Any]:
    """Yields the objects within the code's reach whose state shows only when it is asked for."""
    yield random._inst
    yield global_generator()
    kinds = (random.Random, *generators(), *legacy_generators())
    for value in watch.reached():
        if isinstance(value, random.SystemRandom):  # none: its calls are heard
            continue
        if isinstance(value, kinds) or hasattr(type(value), "__next__"):
            yield value


def _state(obj: Any) -> Any:
    if isinstance(obj, random.Random):
        return obj.getstate()
    if obj is UNUSED:
        return UNUSED.state()
    if isinstance(obj, generators()):
        return pickle.dumps(obj.bit_generator.state)
    if isinstance(obj, legacy_generators()):
        return pickle.dumps(obj.get_state(legacy=False))  # its 624 words as text would take 3 ms
    if isinstance(obj, types.GeneratorType):
        frame = obj.gi_frame
        return None if frame is None else (frame.f_lasti, [*map(id, frame.f_locals.values())])
    if isinstance(obj, zip | map | filter | enumerate | reversed):
        return [part if isinstance(part, int) else _state(part) for part in _parts(obj)]
    if type(obj).__module__ == "itertools":
        return repr(obj) if type(obj) is itertools.count else object()  # of the others nothing can be seen
    try:
        return obj.tell() if hasattr(obj, "tell") else length_hint(obj, -1)
    except Exception:  # a closed file: nothing can be said
        return None


def _parts(iterator: Any) -> Any:
    """The iterators that an iterator goes through, and the position it has come to."""
    made_of = iterator.__reduce__()
    return [part for part in (*made_of[1], *made_of[2:]) if isinstance(part, int) or hasattr(type(part), "__next__")]


def set_back(hidden: SideEffects, name: str) -> None:
    """Sets back what a trace has gone through; a TraceError where it cannot be, and Python would do it again."""
    lost = hidden.set_back()
    if lost and sys.exception() is not None:
        raise TraceError(
            f"{name} has to run eagerly, and its trace has gone through or done what cannot be set back: {lost}. Trace "
            "a function that does not, or call it in `with hybridml.eager():`"
        )
