"""The state that decides how an operation runs: the interpreter and the grad mode, one context variable each.

Context variables and not globals: threads and async tasks must not see each other's trace or `no_grad`.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import ref

from hybridml_compiler.config import Settings
from hybridml_compiler.errors import ArgumentError

from .interpreter import Interpreter, interpreter_stack
from .tensor import CPU, Tensor, default_device_var, place_of, place_var

P = ParamSpec("P")
R = TypeVar("R")

# 1/0 is inf and 0/0 is nan, as in compiled code, and nothing to warn about. NumPy ascribes a warning to the module that
# called it, so a filter for our modules leaves the user's own NumPy code alone, where `np.seterr` would silence it too.
# Where a later filter or `np.seterr` makes it an exception, `recover` computes again without.
warnings.filterwarnings(
    "ignore",
    "(divide by zero|overflow|underflow|invalid value) encountered",
    RuntimeWarning,
    r"hybridml(_compiler)?(\.|$)",
)
FLOAT_FLAGS = (RuntimeWarning, FloatingPointError)

_no_grad: ContextVar[bool] = ContextVar("hybridml_no_grad", default=False)
grad_is_off = _no_grad.get


class Way(NamedTuple):
    """The way of calls of traced functions in a block: the stance (see stances.py), and the settings on which programs
    depend (see settings.py)."""

    stance: str | None
    settings: Settings


@functools.cache
def way(stance: str | None, settings: Settings) -> Way | None:
    """One object for each way, None for the usual one: native calls compare by identity."""
    return Way(stance, settings) if stance is not None or settings else None


# How calls of traced functions are done, and what is looked at after each operation and program: NaNs (nans.py), the
# clock (deadlines.py); None: as usual. One variable for all that blocks decide, as native calls look at each.
call_var: ContextVar[Way | None] = ContextVar("hybridml_call", default=None)
watch_var: ContextVar[Any] = ContextVar("hybridml_watch", default=None)

# The interpreters of devices other than the CPU that this process has used, by name (see device_tensor.py).
homes: dict[str, Any] = {}

# One clock for tape nodes and in-place writes: newest first is a topological order, and a kept value is stale when its
# last write is younger than the node that kept it.
clock: Callable[[], int] = count(1).__next__

# Moves when `requires_grad`, a hook or the default dtype is switched: compiled calls then check all they rely on.
switches = ctypes.c_int64(0)

# How many profiles and counts of operations are on: calls of library functions then go the way that these watch.
watchers = ctypes.c_int64(0)


def stance() -> str | None:
    """The stance in force, None for the usual one."""
    found = call_var.get()
    return None if found is None else found.stance


def settings_here() -> Settings:
    """The settings of the blocks around on which programs depend."""
    found = call_var.get()
    return () if found is None else found.settings


def is_grad_enabled() -> bool:
    """True where operations record their history for gradients.

    >>> import hybridml as hm
    >>> with hm.no_grad():
    ...     hm.is_grad_enabled()
    False
    """
    return not grad_is_off()


def current_interpreter() -> Interpreter[Tensor] | None:
    """The interpreter on top of the stack; None where operations run eagerly."""
    level = interpreter_stack()
    return None if level is None else level.interpreter


def lift(t: Tensor) -> Tensor:
    """The tensor that stands for `t` here: itself in eager code."""
    level = interpreter_stack()
    return t if level is None else level.interpreter.lift(t)


def constant(t: Tensor, weak: bool = False) -> Tensor:
    """A literal of the program as an operand, a number that may meet tensors of any device; `weak` if Python's."""
    level = interpreter_stack()
    return t if level is None else level.interpreter.constant(t, weak)


def literal(t: Tensor) -> Tensor:
    """A literal of the program, where operations without operands make their results."""
    place = place_var.get()
    return constant(t) if place is None else constant(t).to(device=place)


def at_place(place: str | None, fn: Callable[[], R]) -> R:
    """Runs `fn()`; operations without operands make their results on this device. None: where they do outside."""
    outer = place_var.get()
    if place is None or place == (outer or CPU.type):
        return fn()
    try:
        place_var.set(None if place == CPU.type else place)
        return fn()
    finally:
        place_var.set(outer)


def at_default_place(fn: Callable[[], R]) -> R:
    """`at_place`, with the default device: runs a function of the user that the library calls."""
    return at_place(default_device_var.get().place or CPU.type, fn)


def place_beside(values: Iterable[Any]) -> str | None:
    """The name of the device of what is created for these values: of the first tensor that is not on the CPU, or is in
    a list of such; else that of any tensor. None where there is none."""
    found = None
    for value in values:
        kind = type(value)
        if kind is list or kind is tuple:
            value = next((item for item in value if issubclass(type(item), Tensor)), None)
        if issubclass(type(value), Tensor) and not type(value).is_number:
            place = place_of(value)
            if place is not None:
                return place
            found = CPU.type
    return found


def beside(values: Iterable[Any], fn: Callable[[], R]) -> R:
    """`at_place`, with the device of `place_beside`."""
    return at_place(place_beside(values), fn)


def placed(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorator: what the function creates, such as a mask, is on the device of its tensors, as in PyTorch. The first
    of them decides.
    """

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if place_var.get() is None:
            for a in args:
                if type(a) is Tensor:  # on the CPU
                    return fn(*args, **kwargs)
        return beside((*args, *kwargs.values()), partial(fn, *args, **kwargs))

    return call


def trusted(found: Tensor) -> Tensor:
    """The result of a look-up whose indices the library makes to exist: no program checks them for their own sake."""
    level = interpreter_stack()
    if level is not None:
        level.interpreter.trust(found)
    return found


class set_grad_enabled:
    """Context manager or decorator: record history inside (`True`) or not (`False`).

    >>> import hybridml as hm
    >>> x = hm.tensor([1.0], requires_grad=True)
    >>> with hm.set_grad_enabled(False):
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    __slots__ = ("__weakref__", "_off", "_outer", "_undo")

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise ArgumentError(f"set_grad_enabled: needs True or False, got {mode!r}")
        self._off = not mode
        self._outer: list[bool] = []  # what to go back to, innermost last
        self._undo: Any = None

    def __enter__(self) -> None:
        outer = grad_is_off()
        self._outer.append(outer)
        # Ctrl-C can strike on entry to `__exit__`, which then never runs: the mode ends with this object at the latest.
        # The callback is C code only (`next` of a `map` calls `set`), so no second Ctrl-C gets lost in it.
        self._undo = ref(self, partial(next, map(_no_grad.set, (outer,))))
        try:
            _no_grad.set(self._off)
        except BaseException:
            _no_grad.set(outer)
            raise

    def __exit__(self, *exc: object) -> None:
        _no_grad.set(self._outer[-1])
        self._outer.pop()
        self._undo = None

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        off = self._off

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            outer = grad_is_off()
            try:
                _no_grad.set(off)
                return fn(*args, **kwargs)
            finally:
                _no_grad.set(outer)

        return wrapper


class _Preset(set_grad_enabled):
    """`no_grad()` as context manager, `@no_grad()` and plain `@no_grad` as decorator."""

    __slots__ = ()
    mode = True

    def __new__(cls, fn: Callable[..., Any] | None = None) -> Any:
        self = object.__new__(cls)
        set_grad_enabled.__init__(self, cls.mode)
        return self if fn is None else self(fn)

    def __init__(self, fn: Callable[..., Any] | None = None) -> None:
        """Nothing left to do after `__new__`, which may return the decorated function."""


class no_grad(_Preset):
    """Context manager or decorator: operations inside record no history.

    >>> import hybridml as hm
    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> with hm.no_grad():
    ...     w -= 0.1
    """

    __slots__ = ()
    mode = False


class enable_grad(_Preset):
    """Context manager or decorator: record history inside, also where an outer `no_grad` is in force.

    >>> import hybridml as hm
    >>> x = hm.tensor([1.0], requires_grad=True)
    >>> with hm.no_grad(), hm.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    __slots__ = ()
    mode = True
