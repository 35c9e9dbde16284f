"""Operations whose rows are made of what a function is at present: its code, and the variables that it reads."""

from __future__ import annotations

import abc
import builtins
import functools
import types
from collections.abc import Callable
from typing import Any

from hybridml_compiler.ops.op import Op

from ..core.codegen import generate
from ..tracing.python_state.builtin_patches import original
from .code_digest import codes_of

MISSING = object()  # the value of a variable that has none


class Reads:
    """Values that functions have read from variables around them, and whether these still have them."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], tuple[Callable[[], Any], Any]] = {}

    def variable(self, fn: types.FunctionType, name: str) -> Any:
        """The value of a free or global variable of a function; MISSING where there is none."""
        if name in fn.__code__.co_freevars:
            cell = (fn.__closure__ or ())[fn.__code__.co_freevars.index(name)]
            return self._seen((id(cell), name), lambda: _contents(cell))
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
            if isinstance(value, types.FunctionType) and value not in seen and value.__module__ == fn.__module__:
                self.all_of(value, seen | {fn})

    def _seen(self, key: tuple[int, str], read: Callable[[], Any]) -> Any:
        if key not in self._found:
            self._found[key] = read, read()
        return self._found[key][1]

    def hold(self) -> bool:
        """Whether all variables have the values that were read."""
        for read, value in self._found.values():
            now = read()
            if now is not value and not (type(now) is type(value) and isinstance(now, int | float) and now == value):
                return False
        return True


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


class Operation(abc.ABC):
    """A function whose calls are those of an operation.

    The row is made at the first call, and again where a variable that the function reads has changed, so that a call
    never computes with the value of yesterday.
    """

    reads_around = True  # so that a trace guards the variables, and makes no stand-ins of them (guards.py)

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
        if self._row is None or self.fn.__code__ is not self._code or not self._reads.hold():
            reads = Reads()
            row = self.row(reads)
            generate(row)
            self._row, self._code, self._reads = row, self.fn.__code__, reads
        return self._row

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.op.fn(*args, **params)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"  # type: ignore[attr-defined]
