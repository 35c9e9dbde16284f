"""Operations whose rows are made of what a function is at present: its code, and the variables that it reads."""

from __future__ import annotations

import abc
import builtins
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.ops.op import Op

from ..core.codegen import generate
from ..tracing.python_state.builtin_patches import original
from .code_digest import codes_of, is_own, named_of

MISSING = object()  # the value of a variable that has none


class Reads:
    """Values that functions have read from variables around them, and whether these still have them."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], tuple[Callable[[], Any], Any, Any]] = {}
        # Loops that were too long to be written out, and the numbers around them: derivatives need not try again.
        self.loops: set[Any] = set()

    def variable(self, fn: types.FunctionType, name: str) -> Any:
        """The value of a free or global variable of a function; MISSING where there is none."""
        if name in fn.__code__.co_freevars:
            cell = (fn.__closure__ or ())[fn.__code__.co_freevars.index(name)]
            return self._seen((id(cell), name), lambda: _inside(cell))
        space = fn.__globals__
        if name in space:
            return self._seen((id(space), name), lambda: original(space.get(name, MISSING)))
        return getattr(builtins, name, MISSING)

    def attribute(self, owner: Any, name: str) -> Any:
        """An attribute of an object around the function."""
        return self._seen((id(owner), name), lambda: original(getattr(owner, name)))

    def all_of(self, fn: types.FunctionType, seen: frozenset[types.FunctionType] = frozenset()) -> None:
        """Reads all variables that a function names, and those of the Python functions among them."""
        names = {name for code in codes_of(fn.__code__) for name in (*code.co_names, *code.co_freevars)}
        for name in names & {*fn.__globals__, *fn.__code__.co_freevars}:
            value = self.variable(fn, name)
            self._named(value, names)
            if isinstance(value, types.FunctionType) and value not in seen and is_own(value):
                self.all_of(value, seen | {fn})

    def _named(self, owner: Any, names: set[str]) -> None:
        """Reads what a function with these names in it may read of a module, a class or an object."""
        for name, value in named_of(owner, names):
            key = id(owner), f".{name}"  # as it is there: a property is not run
            if key not in self._found:
                self._seen(key, lambda name=name: dict(named_of(owner, [name])).get(name, MISSING))
                self._named(value, names)

    def _seen(self, key: tuple[int, str], read: Callable[..., Any]) -> Any:
        if key not in self._found:
            value = read()
            self._found[key] = read, value, _contents(value)
        return self._found[key][1]

    def hold(self) -> bool:
        """Whether all variables have the values that were read, and what can be changed in place its contents."""
        for read, value, contents in self._found.values():
            now = read()
            if now is value:
                if contents is not None and _contents(now) != contents:
                    return False
            elif not isinstance(now, int | float | types.MethodType) or _told(now) != _told(value):
                return False
        return True


def _contents(value: Any) -> Any:
    """The present contents of a value, to compare; None for what cannot be changed in place."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, dict):
        return [*map(_told, value.keys()), *map(_told, value.values())]
    return [*map(_told, value)] if isinstance(value, list | tuple | set) else None


def _told(value: Any) -> Any:
    if isinstance(value, int | float):
        return type(value), repr(value)
    if isinstance(value, types.MethodType):
        return id(value.__func__), id(value.__self__)
    contents = _contents(value)
    return id(value) if contents is None else contents


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def op_of(fn: Any) -> Op | None:
    """The row that a function of `hm.op` or `hm.kernel` runs; None for any other."""
    row = fn.op if isinstance(fn, Operation) else getattr(fn, "__globals__", {}).get("_op")
    return row if isinstance(row, Op) else None


class Operation(abc.ABC):
    """A function whose calls are those of an operation.

    The row is made at the first call, and again where a variable that the function reads has changed, so that a call
    never computes with the value of yesterday.
    """

    # The functions and values that make the operation what it is. A trace guards the variables around them, and makes
    # no stand-ins of these (guards.py).
    digested: tuple[Any, ...] = ()

    def __init__(self, fn: types.FunctionType) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)
        self._row: Op | None = None
        self._code, self._reads = fn.__code__, Reads()

    @abc.abstractmethod
    def row(self, reads: Reads) -> Op:
        """The row for the present values of variables, which it reads through `reads`."""

    @property
    def op(self) -> Op:
        """The row that a call now runs."""
        row = self._row  # another thread may forget it
        if row is None or self.fn.__code__ is not self._code or not self._reads.hold():
            reads = Reads()
            row = self.row(reads)
            generate(row)
            self._row, self._code, self._reads = row, self.fn.__code__, reads
        return row

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.op.fn(*args, **params)

    def __reduce__(self) -> str:  # as a function: pickled by name, and not copied
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"  # type: ignore[attr-defined]
