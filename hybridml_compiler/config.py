"""Settings that a user may make through the environment: one table of flags, read in one place.

A value that a flag does not take is reported once and ignored. `docs/configuration.md` is generated from the table.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from .record import record

MAX_THREADS = 512  # of one process: the pool has a cache line for each
OFF = frozenset({"0", "off", "none", "no", "false"})
ON = frozenset({"1", "on", "yes", "true"})


@record
class Flag:
    """An environment variable; `field` is its name in `Config`, `read` raises ValueError for values that it does not
    take."""

    field: str
    variable: str
    default: Any
    shown: str  # the default, for people
    takes: str
    read: Callable[[str], Any]
    meaning: str


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
        "errors, reports go to the logger `hybridml`.",
    ),
    Flag(
        "num_threads",
        "HYBRIDML_NUM_THREADS",
        None,
        "the CPUs that the process may use",
        f"a whole number from 1 to {MAX_THREADS}",
        _threads,
        "Threads that share a parallel loop; `hm.set_num_threads` changes it later. Results do not depend on it.",
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


_reported: set[tuple[str, str]] = set()
_FLAGS = {flag.field: flag for flag in FLAGS}
_changed: dict[str, Any] = {}  # changes by the program itself


def read(environment: Mapping[str, str] = os.environ) -> Config:
    """The settings of this moment. Reading takes microseconds, so nobody keeps a copy that could become stale.

    >>> found = read({"HYBRIDML_DEBUG": "3", "HYBRIDML_CACHE_DIR": "off"})
    >>> found.debug, found.cache_dir, found.num_threads
    (3, 'off', None)
    """
    found = dict(_changed)
    for flag in FLAGS:
        text = environment.get(flag.variable, "").strip()
        if not text or flag.field in _changed:
            continue
        try:
            found[flag.field] = flag.read(text)
        except ValueError:
            if (flag.variable, text) not in _reported:
                _reported.add((flag.variable, text))
                message = f"hybridml: {flag.variable}={text!r} is ignored; it takes {flag.takes}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
    return Config(**found)


def field(name: str) -> Any:
    """One of the settings of this moment, in a fifth of the time where it is as usual."""
    flag = _FLAGS[name]
    if name not in _changed and not os.environ.get(flag.variable):
        return flag.default
    return getattr(read(), name)


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
    _changed["deterministic"] = mode


def is_deterministic() -> bool:
    """Whether `use_deterministic` (or `HYBRIDML_DETERMINISTIC`) is in force.

    >>> import hybridml as hm
    >>> hm.is_deterministic()
    False
    """
    return read().deterministic
