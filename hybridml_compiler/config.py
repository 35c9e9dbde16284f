"""Settings that a user may make, by the environment, for a block or for the program: one table, read in one place.

A value that a variable does not take is reported once and ignored. `docs/configuration.md` is generated from the table.
Of a setting the innermost block decides (`scoped`), then the program (`change`), then the environment.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from .record import record

MAX_THREADS = 512  # of one process: the pool has a cache line for each
OFF = frozenset({"0", "off", "none", "no", "false"})
ON = frozenset({"1", "on", "yes", "true"})


@record
class Flag:
    """A setting and its environment variable; `field` is its name in `Config`, `read` raises ValueError for values that
    it does not take.

    `scope`: a block sets it for its own "thread" (or task), or for the whole "process", as long as it lasts; a setting
    of "start" is read once. `decides`: programs depend on it, so that there is one for each value.
    """

    field: str
    variable: str
    default: Any
    shown: str  # the default, for people
    takes: str
    read: Callable[[str], Any]
    meaning: str
    scope: Literal["thread", "process", "start"] = "thread"
    decides: bool = False


def _level(text: str) -> int:
    return _whole(text, 0, 5)


def _megabytes(text: str) -> int:
    return _whole(text, 0, 1 << 30)


def _threads(text: str) -> int:
    return _whole(text, 1, MAX_THREADS)


def _whole(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(text)
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in ON | OFF:
        raise ValueError(text)
    return text.lower() in ON


def _frames(text: str) -> str:
    if text.lower() not in ("user", "full"):
        raise ValueError(text)
    return text.lower()


def _switch_of(field: str, meaning: str) -> Flag:
    """A part of the compiler that is on unless somebody wants to know what it is worth."""
    return Flag(field, f"HYBRIDML_{field.upper()}", True, "1", "0 or 1", _switch, meaning, decides=True)


FLAGS: tuple[Flag, ...] = (
    Flag(
        "debug",
        "HYBRIDML_DEBUG",
        0,
        "0",
        "a whole number from 0 to 5",
        _level,
        "What compiling writes to stderr, each level with all below it. 0: nothing. 1: a line for each compiled graph. "
        "2: the milliseconds of every stage, and a line for each launch. 3: the plan, launch by launch, with the "
        "reason for each, its loops and its operands. 4: the generated LLVM IR. 5: the graph as captured, and after "
        "every pass that changed it.",
    ),
    Flag(
        "cache_dir",
        "HYBRIDML_CACHE_DIR",
        None,
        "the platform's cache directory",
        "a path, or off",
        str,
        "Where compiled object code is kept between processes; `off` keeps it in memory only. Damaged entries are "
        "reported, removed and compiled again. Entries are machine code: the directory `objects` in it, and all in "
        "that, is used only while it belongs to this user and nobody else can write it; links in it are not followed. "
        "Choose a parent that only you can write as well. Nothing raises for the disk's sake: where warnings are "
        "errors, reports go to the logger `hybridml`. Read once, when something is compiled.",
        scope="start",
    ),
    Flag(
        "num_threads",
        "HYBRIDML_NUM_THREADS",
        None,
        "the CPUs that the process may use",
        f"a whole number from 1 to {MAX_THREADS}",
        _threads,
        "Threads that share a parallel loop; `hm.set_num_threads` changes it later. Results do not depend on it.",
        scope="process",
    ),
    Flag(
        "verify",
        "HYBRIDML_VERIFY",
        True,
        "1",
        "0 or 1",
        _switch,
        "Check the rules of each internal language between the stages of the compiler (about 3 % of a compilation). A "
        "defect of hybridml is then reported where it arises.",
    ),
    Flag(
        "sanitize",
        "HYBRIDML_SANITIZE",
        False,
        "0",
        "0 or 1",
        _switch,
        "Check every load and store of generated code against the bounds of the buffer that it addresses, on the stack "
        "and in scratch memory too. One outside becomes a `CompileError` that names kernel, buffer, offset and size, "
        "and touches no memory. Code is slower by the factor of 2 to 50; it is for tests, and for reports of defects.",
        decides=True,
    ),
    Flag(
        "progress",
        "HYBRIDML_PROGRESS",
        True,
        "1",
        "0 or 1",
        _switch,
        "Say on a terminal, and in a notebook, what is compiled once that takes longer than a second. Files and pipes "
        "get no such line.",
    ),
    Flag(
        "traceback",
        "HYBRIDML_TRACEBACK",
        "user",
        "user",
        "user or full",
        _frames,
        "What the traceback of an error shows: the frames of the user, or those of hybridml between them as well. "
        "Debuggers have all of them either way.",
    ),
    Flag(
        "deterministic",
        "HYBRIDML_DETERMINISTIC",
        False,
        "0",
        "0 or 1",
        _switch,
        "Give every operation the same bits in every run, whatever ran before it; `hm.use_deterministic` changes it "
        "later.",
    ),
    Flag(
        "gradient_memory",
        "HYBRIDML_GRADIENT_MEMORY",
        256,
        "256",
        "a whole number of megabytes (2**20 bytes)",
        _megabytes,
        "What the gradient of a traced Python loop keeps of its steps, at most, as long as that can be had by running "
        "the loop once more: of a longer loop it keeps what goes from step to step, at the start of each of about "
        "sqrt(n) segments of the n steps.",
        decides=True,
    ),
    Flag(
        "tf32",
        "HYBRIDML_TF32",
        False,
        "0",
        "0 or 1",
        _switch,
        "Let tensor cores of GPUs multiply float32 numbers, of which they read 10 of 23 bits of the mantissa; sums are "
        "those of float32. cuBLAS may then do so, too.",
        decides=True,
    ),
    Flag(
        "fast_math",
        "HYBRIDML_FAST_MATH",
        False,
        "0",
        "0 or 1",
        _switch,
        "Let kernels of GPUs contract a * b + c, flush subnormal numbers and divide with less care, as NVRTC's "
        "`--use_fast_math` does. Results are then not those of the CPU to the bit. The simulated GPU stays exact.",
        decides=True,
    ),
    _switch_of(
        "fusion",
        "Compute several operations in one launch: values that only one launch reads are never in memory. Off: each "
        "operation is a launch, as in eager code, but for views, which are read where they are. Sums may be added up "
        "in another order.",
    ),
    _switch_of(
        "memory_plan",
        "Give intermediate values the memory of others that are dead by then. Off: each has memory of its own.",
    ),
    _switch_of(
        "recompute",
        "Compute an elementwise value again in each kernel that reads it, where that takes less time than to write and "
        "to load it. Off: what several kernels read is kept. What the gradients of loops keep is `gradient_memory`'s.",
    ),
    _switch_of(
        "in_place",
        "Write updates, and the state that a program changes, into the memory of what they replace. Off: into memory "
        "of their own, which is copied there at the end. Within a loop, what goes from step to step is updated in "
        "place in any case.",
    ),
    _switch_of(
        "layout",
        "Keep images with their channels last between convolutions. Off: with their channels where the program has "
        "them.",
    ),
    _switch_of(
        "own_products",
        "Multiply matrices by kernels that are made for the shapes, where these are faster than BLAS. Off, on the CPU: "
        "by BLAS where it has the dtype. Products are then rounded otherwise, and eager code has kernels all the same.",
    ),
    _switch_of(
        "own_convolutions",
        "Compute convolutions by kernels that are made for the shapes. Off, on the CPU: by loops over the sums that "
        "define them, which are rounded otherwise; those of one tap, or of one window, are products.",
    ),
)


@record
class Config:
    """The flags' values; the fields are described in `FLAGS`."""

    debug: int = 0
    cache_dir: str | None = None
    num_threads: int | None = None
    verify: bool = True
    sanitize: bool = False
    progress: bool = True
    traceback: str = "user"
    deterministic: bool = False
    gradient_memory: int = 256
    tf32: bool = False
    fast_math: bool = False
    fusion: bool = True
    memory_plan: bool = True
    recompute: bool = True
    in_place: bool = True
    layout: bool = True
    own_products: bool = True
    own_convolutions: bool = True


Settings = tuple[tuple[str, Any], ...]  # by name, in the order of names

_reported: set[tuple[str, str]] = set()
_FLAGS = {flag.field: flag for flag in FLAGS}
SWITCHES = tuple(flag.field for flag in FLAGS if flag.decides and flag.default is True)  # parts of the compiler
_changed: dict[str, Any] = {}  # changes by the program itself
of_program: Settings = ()  # of these, the ones on which programs depend
_NONE: Mapping[str, Any] = {}
_here: ContextVar[Mapping[str, Any]] = ContextVar("hybridml_settings", default=_NONE)  # of the blocks around
# Called after a setting of the process has changed, with its value, or None where it is as usual again.
on_change: dict[str, Callable[[Any], object]] = {}


def read(environment: Mapping[str, str] = os.environ) -> Config:
    """The settings of this moment. Reading takes microseconds, so nobody keeps a copy that could become stale.

    >>> found = read({"HYBRIDML_DEBUG": "3", "HYBRIDML_CACHE_DIR": "off"})
    >>> found.debug, found.cache_dir, found.num_threads
    (3, 'off', None)
    """
    found = {**_changed, **_here.get()}
    return Config(**{flag.field: _from(flag, environment) for flag in FLAGS if flag.field not in found}, **found)


def field(name: str) -> Any:
    """One of the settings of this moment, in a fifth of the time."""
    here = _here.get()
    return here[name] if name in here else usual(name)


def usual(name: str) -> Any:
    """A setting of this moment as it is outside of all blocks."""
    return _changed[name] if name in _changed else initial(name)


def initial(name: str) -> Any:
    """A setting as the environment has it."""
    return _from(_FLAGS[name], os.environ)


def _from(flag: Flag, environment: Mapping[str, str]) -> Any:
    """The value in the environment, or else the default."""
    text = environment.get(flag.variable, "").strip()
    if text:
        try:
            return flag.read(text)
        except ValueError:
            if (flag.variable, text) not in _reported:
                _reported.add((flag.variable, text))
                message = f"hybridml: {flag.variable}={text!r} is ignored; it takes {flag.takes}"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
    return flag.default


def source(name: str) -> str:
    """Who has decided about a setting: "block", "program", "environment", or "default"."""
    if name in _here.get():
        return "block"
    if name in _changed:
        return "program"
    return "default" if usual(name) == _FLAGS[name].default else "environment"


def deciding() -> Settings:
    """The settings on which programs depend that blocks around or the program have made: those that the environment has
    otherwise."""
    return tuple([(n, value) for n, value in deciding_of({**_changed, **_here.get()}) if value != initial(n)])


def deciding_of(values: Mapping[str, Any]) -> Settings:
    """Returns the settings on which programs depend, in order.

    One that is as usual counts: `change` may make it unusual while a block lasts.
    """
    return tuple(sorted((n, value) for n, value in values.items() if _FLAGS[n].decides))


def set_here(settings: Mapping[str, Any]) -> None:
    """Makes these the settings of the blocks around, in this thread or task."""
    _here.set(settings)


@contextmanager
def scoped(settings: Mapping[str, Any]) -> Iterator[None]:
    """These are the settings of this thread or task inside, and no others that blocks around have made."""
    outer = _here.get()
    try:
        _here.set(settings)
        yield
    finally:
        _here.set(outer)


def here() -> Mapping[str, Any]:
    """The settings that the blocks around have made."""
    return _here.get()


def compiling(settings: Settings) -> Mapping[str, Any]:
    """The settings in which a program for these is compiled: those on which it depends are these, whatever blocks and
    the program have made of them, or the environment's."""
    made = {**_changed, **_here.get()}
    return {n: initial(n) if _FLAGS[n].decides else value for n, value in made.items()} | dict(settings)


def change(name: str, value: Any) -> None:
    """Changes a setting for the rest of the program; None: to what it was before that."""
    global of_program
    if value is None:
        _changed.pop(name, None)
    else:
        _changed[name] = value
    of_program = tuple([(n, own) for n, own in deciding_of(_changed) if own != initial(n)])
    if name in on_change:
        on_change[name](value)


def changed(name: str) -> Any:
    """The value that the program has given a setting, or None."""
    return _changed.get(name)


def use_deterministic(mode: bool = True) -> None:
    """Give every operation the same bits in every run, whatever ran before it.

    On one machine all operations give the same bits with any number of threads, eager and traced, run after run, in
    this mode or not, as long as compiled code computes them. Functions of the library compile a limited number of
    shapes (64, matrix products 256) and compute further ones with NumPy, whose sums are ordered in another way: a
    result may then depend on which shapes came before. In this mode there is no such limit.

    An operation that is unordered by nature (sums by atomic updates on a GPU) is refused in this mode; the CPU back end
    has none. Raises TypeError for anything but True or False.

    >>> import hybridml as hm
    >>> hm.use_deterministic()
    >>> hm.is_deterministic()
    True
    >>> hm.use_deterministic(False)
    """
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic takes True or False, got {mode!r}")
    change("deterministic", mode)


def is_deterministic() -> bool:
    """Whether `use_deterministic` (or `HYBRIDML_DETERMINISTIC`) is in force.

    >>> import hybridml as hm
    >>> hm.is_deterministic()
    False
    """
    return bool(field("deterministic"))
