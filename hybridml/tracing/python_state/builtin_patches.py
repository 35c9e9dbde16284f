"""Names of Python that ask what a trace cannot answer by itself: `type`, `print`, `os.environ`, `time`, `math`; NumPy's
creation functions.

For the time of a trace the modules of the code that names one of them have another object of that name, which does
what Python's does for all but the thread that traces. There `type(x)` is what eager code would have, and `print(x)` is
noted: every call prints, with its own values, and reads the clocks that are read. Environment variables that anybody
reads are noted, to be guarded.
"""

from __future__ import annotations

import builtins
import cmath
import dis
import math
import operator
import os
import sys
import time
import types
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache, partial, reduce
from itertools import repeat
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import float32, float64
from hybridml_compiler.hooks import hooks
from hybridml_compiler.in_force import Changes
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import is_dim, steps_of

from ...core.proxies.base import NumberProxy, Proxy
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..bytecode import called_with_dtype
from ..capture import created_arrays, python_math
from ..capture.loops.one_memory import WHICH, root_of
from ..capture.memory import is_element
from ..capture.numbers import complex_numbers, perhaps
from ..capture.numbers import whole_numbers as whole_numbers  # what `int`, `round` and `math.floor` make of numbers
from ..capture.numbers.lengths import length_of
from ..capture.numbers.stored_ints import INTS
from ..capture.program_arrays import is_program, value_of, waits
from ..capture.traced_tensor import Traced
from ..capture.tracer import Tracer, current_tracer, top_tracer
from ..rolling.lists.of_data import DataList
from . import clocks, guards
from .guard_types import ItemGuard
from .reads import ABSENT

_OF_A_TRACE = (Traced, Proxy)
# Methods of loggers -> the level that they say something at; 0: it is asked for.
LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "exception": 40, "critical": 50, "log": 50,
          "isEnabledFor": 0, "getEffectiveLevel": 0}  # fmt: skip


class _Type:
    """`type`, for `type(x)`, `isinstance(C, type)`, `class Meta(type)` and `type[C]`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            return type(*args, **kwargs)
        x = args[0]
        kind = type(x)
        if kind is _Type:
            return type
        return x.__class__ if issubclass(kind, _OF_A_TRACE) or is_dim(x) or kind.__module__ == "hybridml" else kind

    def __instancecheck__(self, obj: Any) -> bool:
        return isinstance(obj, type)

    def __subclasscheck__(self, cls: Any) -> bool:
        return issubclass(cls, type)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type,)

    def __eq__(self, other: object) -> bool:
        return other is type or other is self

    def __hash__(self) -> int:
        return hash(type)

    def __getitem__(self, item: Any) -> Any:
        return type[item]

    def __or__(self, other: Any) -> Any:
        return type | other

    def __ror__(self, other: Any) -> Any:
        return other | type

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)

    def __repr__(self) -> str:
        return repr(type)


class _Float(_Type):
    """`float`, for `float(x)`: a number that a trace computes stays one. It is there only where code calls `float`, or
    makes arrays of that dtype, and does nothing else with it, so that `x is float` needs no care."""

    dtype = np.dtype(float)  # NumPy asks for that

    def __call__(self, *args: Any) -> Any:
        x: Any = args[0] if len(args) == 1 else None
        x = x._value() if is_program(x) and x._memory.is_traced else x
        if issubclass(type(x), Traced) and not x.ndim and x.dtype.kind in "fiub":
            return (x if x.dtype.kind == "f" else x.astype(np.float64)).item()
        if is_dim(x) and steps_of(x):
            return hooks.size_as_float(x)
        return x if type(x) is ScalarProxy and x._kind is float else float(*args)


class _Int(_Type):
    """`int`, for `int(x)`, in the same places: an int that a step of a loop makes of a number stays one."""

    dtype = np.dtype(int)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = current_tracer()
        if tracer is None or kwargs or len(args) != 1 or not _keeps_ints(tracer):
            return int(*args, **kwargs)
        x: Any = args[0]
        x = x._value() if is_program(x) and x._memory.is_traced else x
        if issubclass(type(x), Traced) and not x.ndim and x.dtype.kind in "fiu":
            x = ScalarProxy(tracer.wrap(x.astype(np.float64)._array, True))
        if type(x) is ScalarProxy and (found := NumberProxy.whole(x, "trunc")) is not None:
            return found
        return x if (is_dim(x) and steps_of(x)) or (type(x) is IntProxy and x._kind is int) else int(*args)


def _keeps_ints(tracer: Tracer) -> bool:
    """Whether an int of data stays one of the program; outside of loops it may, unless something else needs it."""
    if tracer.stages is not None or tracer.loops:
        return tracer.stages is None
    if tracer is not top_tracer() or tracer.rolling is None or tracer.frames or INTS in tracer.alone.get(None, ()):
        return False
    tracer.keeps_ints = True
    return True


class _Complex(_Type):
    """`complex`, for `complex(x, y)`, in the same places: of numbers that steps decide it is one of the program."""

    dtype = np.dtype(complex)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = None if kwargs else complex_numbers.complex_of(args)
        return complex(*args, **kwargs) if found is None else found


say = builtins.print


def _print(*args: Any, **kwargs: Any) -> None:
    tracer = current_tracer()
    if tracer is None or tracer.prints is None:
        say(*args, **kwargs)
    else:
        tracer.prints(args, kwargs)


@lru_cache
def _of_loggers() -> tuple[Any, Any]:
    """`logging.Logger._log`, which is called for a message that the level lets through, and what a trace has there."""
    import logging  # 2 ms

    log: Any = logging.Logger._log

    def patch(logger: Any, *args: Any, **kwargs: Any) -> None:
        tracer = current_tracer()
        if tracer is None or tracer.logs is None:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            log(logger, *args, **kwargs)
        else:
            tracer.logs(logger, *args, **kwargs)

    return log, patch


def takes_logs(logger: Any) -> bool:
    """Whether what a logger says in a trace is noted."""
    return type(logger)._log is _of_loggers()[1]


_variables: Any = vars(os.environ)["_data"]
_encode_key: Any = os.environ.encodekey
_READING = os._Environ.__getitem__.__code__


def _reads(name: Any) -> Any:
    """The key of a variable, as `os.environ[name]` asks for it, whoever reads it: a library, too."""
    tracer = current_tracer()
    if tracer is not None and isinstance(name, str) and name[:8] != "HYBRIDML":
        if sys._getframe(1).f_code is _READING:  # `os.environ[name] = value` asks as well
            tracer.environment[name] = _variables.get(_encode_key(name), ABSENT)
    return _encode_key(name)


def variables_read(tracer: Tracer) -> Iterator[ItemGuard]:
    """Guards for the environment variables that a trace has read."""
    return (ItemGuard(_variables, _encode_key(name), value) for name, value in tracer.environment.items())


def _range(*args: Any) -> Any:
    tracer = current_tracer()
    if tracer is None or tracer.rolling is None:
        return range(*args)
    return tracer.rolling.range(sys._getframe(1), args)


def _going_over(of_python: Any) -> Callable[..., Any]:
    """`enumerate`, `zip` or `reversed`, which a loop may go over."""

    def patch(*args: Any, **kwargs: Any) -> Any:
        tracer = current_tracer()
        if tracer is None or tracer.rolling is None or not args:
            return of_python(*args, **kwargs)
        return getattr(tracer.rolling, of_python.__name__)(sys._getframe(1), *args, **kwargs)

    return patch


def _extreme(name: str, better: Callable[[Any, Any], Any]) -> Any:
    """`max` or `min`: of numbers of one dtype, which are tensors or NumPy's scalars of the program, a number of the
    program and no question. In a step that stands for all of a loop there may be Python's ints among them, and floats
    among NumPy's scalars, which are no views, where a step computes with these as with the others (see
    rolling/number_types.py)."""
    of_python: Any = getattr(builtins, name)

    def chosen(tracer: Any, a: Any, b: Any) -> Any:
        if type(a) in (int, float) and type(b) in (int, float):
            return of_python(a, b)
        question = better(b, a)
        if not issubclass(type(question), Traced):  # of numbers of steps
            return b if question else a
        found = OPS["where"].fn(question, b, a)
        perhaps.note(tracer, found, perhaps.chosen(question, perhaps.type_of(tracer, b), perhaps.type_of(tracer, a)))
        return found

    def patch(*args: Any, **kwargs: Any) -> Any:
        tracer = current_tracer()
        if len(args) < 2 or kwargs or tracer is None or WHICH in tracer.alone.get(None, ()):
            return of_python(*args, **kwargs)
        numbers = [a._value() if is_program(a) and a._memory.is_traced else a for a in args]
        given = [(a, number) for a, number in zip(args, numbers, strict=True) if issubclass(type(number), Traced)]
        scalars, dtypes = [is_program(a) for a, _ in given], {number.dtype for _, number in given}
        kinds = {is_element(number) for _, number in given}  # one of a tensor and a NumPy scalar is either
        loop: Any = tracer.loops[-1] if tracer.loops else None
        floats = any(type(a) is float for a in args)
        alike = len(dtypes) == len(kinds) == 1 and all(scalars) == any(scalars) and (not floats or loop is not None)
        if not alike or not all(map(_is_number, numbers, repeat(loop is not None), repeat(next(iter(dtypes))))):
            return of_python(*args, **kwargs)
        tracer.is_alike = True
        try:
            found = reduce(partial(chosen, tracer), numbers)
        finally:
            tracer.is_alike = False
        if floats:
            loop.of_floats.add(found._array)
        if any(scalars):
            return value_of(tracer, found, scalar=True)
        tracer.marked.choose(found, [root_of(number) for _, number in given])
        return found

    return patch


def _is_number(x: Any, in_step: bool, dtype: Any) -> bool:
    if issubclass(type(x), Traced):
        return x.shape == () and x.dtype.kind in "fiu"
    if type(x) is float:  # that is the same number as one of the dtype
        return dtype is float64 or (dtype is float32 and float(np.float32(x)) == x)
    return in_step and (type(x) is int or is_dim(x))


def _len(*args: Any) -> Any:
    """`len`: a list that grows where data decides has an int of the program for a length, and so have selections; that
    of an array may come with the call."""
    found = None
    if len(args) == 1:
        of = args[0]
        found = of.count if type(of) is DataList else length_of(of)
        if found is None and (issubclass(type(of), Tensor) or is_program(of)) and not waits(of) and of.ndim:
            found = of.shape[0]
    return len(*args) if found is None else found


_len.stands_for = len  # type: ignore[attr-defined]
PATCHES: dict[str, Any] = {
    "len": _len,
    "type": _Type(), "print": _print, "float": _Float(), "int": _Int(), "complex": _Complex(), "range": _range,
    **{of.__name__: _going_over(of) for of in (enumerate, zip, reversed)},
    "max": _extreme("max", operator.gt), "min": _extreme("min", operator.lt),
}  # fmt: skip
# Modules -> functions of theirs, and what a trace has in the places of these.
_OF_MODULES: dict[types.ModuleType, tuple[dict[str, Any], dict[str, Any]]] = {
    time: (clocks.CLOCKS, clocks.PATCHES),
    math: (python_math.FUNCTIONS, python_math.PATCHES),
    cmath: (complex_numbers.FUNCTIONS, complex_numbers.PATCHES),
    np: (created_arrays.FUNCTIONS, created_arrays.PATCHES),
}
guards.PATCHES.update(map(id, (*PATCHES.values(), *(p for _, found in _OF_MODULES.values() for p in found.values()))))
_ORIGINALS: dict[int, Any] = {id(patch): getattr(builtins, name) for name, patch in PATCHES.items()} | {
    id(patches[name]): function for found, patches in _OF_MODULES.values() for name, function in found.items()
}
_changes = Changes()
_CREATES = frozenset(created_arrays.FUNCTIONS)
_DTYPES = ("int", "float", "complex")


def original(value: Any) -> Any:
    """The function that a patch stands for; anything else as it is."""
    return _ORIGINALS.get(id(value), value)


def patches(functions: Iterable[types.FunctionType], names: Iterable[str]) -> AbstractContextManager[None]:
    """A context in which these functions find patches under these names."""
    functions = list(functions)
    wanted = [
        name for name in PATCHES if name in names and (name in ("type", "print") or _only_called(functions, name))
    ]
    replaced = [(module, name) for module, (found, _) in _OF_MODULES.items() for name in found if name in names]
    spaces = {id(f.__globals__): f.__globals__ for f in functions} if wanted or replaced else {}
    changes: dict[Hashable, Callable[[], Callable[[], object] | None]] = {"environ": _watch_environ}
    changes |= {(i, name): partial(_shadow, space, name) for i, space in spaces.items() for name in wanted}
    if "logging" in sys.modules and not LEVELS.keys().isdisjoint(names):
        changes["logging"] = _watch_loggers
    for module, name in replaced:
        change = partial(_replace, module, name)
        changes |= {(i, name): partial(change, space) for i, space in (*spaces.items(), (module, vars(module)))}
    return _changes.hold(changes)


def _only_called(functions: Iterable[types.FunctionType], name: str) -> bool:
    """Whether code does nothing with a global variable but call it, or make arrays of that dtype."""
    pending = [(f.__code__, f.__globals__) for f in functions]
    while pending:
        code, space = pending.pop()
        pending += [(const, space) for const in code.co_consts if isinstance(const, types.CodeType)]
        if name in code.co_names and not _uses_are_known(code, space, name):
            return False
    return True


def _uses_are_known(code: types.CodeType, space: dict[str, Any], name: str) -> bool:
    found = list(dis.get_instructions(code))
    for k, i in enumerate(found):
        if i.argval != name or not i.opname.endswith(("_GLOBAL", "_NAME", "_FAST", "_DEREF")):
            continue
        if i.opname != "LOAD_GLOBAL":
            return False
        if i.arg is not None and i.arg & 1:  # says that a call follows, of what is loaded
            continue
        called = called_with_dtype(found, k) if name in _DTYPES else None
        if called is None or not (called[1] == "astype" or (called[1] in _CREATES and _has_arrays(space, called[0]))):
            return False
    return True


def _has_arrays(space: dict[str, Any], name: str | None) -> bool:
    """Whether a global variable is NumPy, or the framework."""
    found = space.get(name or "")
    return type(found) is types.ModuleType and found.__name__ in ("numpy", "hybridml")


def _replace(module: types.ModuleType, name: str, space: dict[str, Any]) -> Callable[[], object] | None:
    """Puts the patch of a module's function in its place, if the name means the function there."""
    functions, made = _OF_MODULES[module]
    if space.get(name) is not functions[name]:
        return None
    space[name] = made[name]
    return partial(space.__setitem__, name, functions[name])


def _watch_loggers() -> Callable[[], object]:
    logger: Any = sys.modules["logging"].Logger
    log, logger._log = _of_loggers()
    return partial(setattr, logger, "_log", log)


def _watch_environ() -> Callable[[], object]:
    """Observes reads by an attribute of the one object: code that Python 3.13 has specialised does not see the
    1001st change of a class."""
    environ: Any = os.environ
    environ.encodekey = _reads
    return partial(setattr, environ, "encodekey", _encode_key)


def _shadow(space: dict[str, Any], name: str) -> Callable[[], object] | None:
    """Puts a patch into global variables, unless they have the user's own."""
    if name in space:
        return None
    space[name] = PATCHES[name]

    def undo() -> None:
        if space.get(name) is PATCHES[name]:
            del space[name]

    return undo
