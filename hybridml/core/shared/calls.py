"""Calls with effects (ops/effects.py of the compiler): their order, and notes of those that were made.

A program that ends at a failed check is run again for its error, and again what it looks at in Python's `if`s: what it
has done to others must not be done twice. So each call is noted by the token that it was given, until one comes with
the token that the last complete program has left.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.ops.effects import TOKEN
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.weak import WeakValues

from ..context import no_grad, watch_var
from ..interpreter import interpreter_stack
from ..tensor import Tensor, aval_of, wrap

_tokens = itertools.count(1)
_ndarray = np.ndarray


def next_token() -> np.ndarray:
    """A token that no call in this process has made."""
    return np.asarray(next(_tokens), dtypes.int64)


class Calls:
    """The calls of one thread, in one order. `token` is what the last call of the last program has left, so that a
    traced function takes it from the one before it and leaves it to the one behind. Since then: `notes` of calls, and
    what calls have `left` for rows behind them, by the token that they have made."""

    def __init__(self) -> None:
        self.token: Tensor = wrap(np.zeros((), dtypes.int64))  # real inside of a trace, too
        self.notes: dict[Any, Any] = {}
        self.left: dict[int, Any] = {}

    def call(self, name: str, *operands: Tensor, **params: Any) -> Any:
        """Runs a row behind the last call; its result, or the token of one without."""
        is_plain = interpreter_stack() is None and watch_var.get() is None
        if is_plain and all(type(x._array) is _ndarray for x in operands):
            return self._at_once(OPS[name], operands, params)
        with no_grad():
            found = OPS[name].fn(*operands, self.token, **params)
            result, token = found if isinstance(found, tuple) else (found, found)
            self.token.copy_(token)
        return result

    def _at_once(self, row: Op, operands: Sequence[Tensor], params: dict[str, Any]) -> Any:
        """`call` where nothing is traced and nobody watches, without the dispatch of rows: an all-reduce of a process
        alone takes 26 us in place of 67."""
        given = row.with_defaults(params)
        row.infer_from(avals := [*map(aval_of, operands), TOKEN], row.canonical_params(avals, given))  # may refuse it
        found = row.eager(*(x._array for x in operands), self.token._array, **given)
        result, token = found if isinstance(found, tuple) else (found, found)
        self.token._array[...] = token
        return wrap(result)

    def read(self, name: str, token: Tensor, **params: Any) -> Any:
        """Runs a row for what the call has left that has made the token: it makes none."""
        with no_grad():
            return OPS[name].fn(token, **params)

    def forget(self) -> None:
        """Drops all notes: the next call is another one."""
        self.notes.clear()
        self.left.clear()

    def noted(self, key: Any, token: int) -> Any:
        """The note of the call of a row; None if it has not been made."""
        found = self.notes.get((key, token))
        if found is None and token == int(self.token._array):
            left = self.left.get(token)
            self.forget()
            self.left = {} if left is None else {token: left}
        return found

    def note(self, key: Any, token: int, what: Any) -> None:
        """Notes the call of a row that has been made."""
        self.notes[key, token] = what


_free: list[Calls] = []


class _Lent:
    """The calls of a thread, which another one gets when it has ended: programs are for the tokens of one."""

    def __init__(self) -> None:
        self.calls = _free.pop() if _free else Calls()
        _of_threads.add(id(self.calls.token), self.calls.token)

    def __del__(self, free: list[Calls] = _free) -> None:  # as Python ends, the module may have no names any more
        self.calls.forget()
        free.append(self.calls)


class _Threads(threading.local):
    def __init__(self) -> None:
        self.lent = _Lent()


_of_threads: WeakValues[int, Tensor] = WeakValues()  # their tokens, by id
_threads = _Threads()


def calls_of_thread() -> Calls:
    """The calls of this thread, whatever they are about, but for those of groups, which are in the group's order."""
    return _threads.lent.calls


def is_of_a_thread(value: object) -> bool:
    """Whether a tensor is the token of a thread, which a program of another one does not take."""
    return value is not None and _of_threads.get(id(value)) is value


def forget_calls() -> None:
    """Drops the notes of this thread, of a program that has failed: the next call is another one."""
    calls_of_thread().forget()
