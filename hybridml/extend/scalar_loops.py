"""Loops of a kernel in which each element takes its own number of steps, or more than can be written out.

    while abs(g * g - x) > 1e-6:            go = abs(g * g - x) > 1e-6
        g = (g + x / g) / 2          ->     while go:
                                                g = (g + x / g) / 2
                                                go = abs(g * g - x) > 1e-6

Variables that a step assigns to are carried to the next one: numbers, each of one dtype. So is whether the loop was
left by `break` or `return`, and with what.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import TraceError
from hybridml_compiler.record import record

from ..core import pytree
from ..core.ops import names as rows
from ..core.tensor import Tensor, aval_of
from .operation import MISSING
from .scalar_graph import while_loop

Env = dict[str, Any]
Next = Callable[[Env], Any]
ANY = object()  # a value that nobody reads
NUMBERS = (bool, int, float, complex, np.generic)
_astype, _and, _not, _where = (rows[name] for name in ("astype", "logical_and", "logical_not", "where"))


@record
class Exits:
    """The ways on from statements that do not run to the end of theirs."""

    on_return: Callable[[Env, Any], Any] = lambda env, value: value
    on_break: Next | None = None
    on_continue: Next | None = None


@record
class Steps:
    """A `range` of which an element is a part."""

    start: Any
    stop: Any
    step: Any = 1


class Run(Protocol):
    """The run of a function that a loop is a part of (scalar_body.py)."""

    dtype: np.dtype | None
    path: tuple[tuple[Any, bool], ...]
    attempt: Any

    def run(self, body: Sequence[ast.stmt], env: Env, then: Next, exits: Exits) -> Any: ...
    def where(self, condition: Any, holds: bool, fn: Callable[..., Any], *args: Any) -> Any: ...
    def bind(self, target: ast.expr, value: Any, env: Env) -> None: ...
    def value(self, node: ast.expr, env: Env) -> Any: ...
    def truth(self, value: Any) -> Any: ...
    def select(self, node: ast.AST, condition: Any, then: Any, other: Any) -> Any: ...
    def unsupported(self, node: Any, instead: str) -> TraceError: ...


def is_scalar(*values: Any) -> bool:
    return any(isinstance(value, Tensor) for value in values)


def number(value: Any, operands: np.dtype, kind: str = "") -> Tensor:
    """A Python number as a scalar. It has the dtype of the kernel's operands where these are of its kind, or of a
    higher one that is asked for."""
    found = dtypes.of_scalar(value)
    found = max((found, dtypes.of_scalar({"f": 1.0, "i": 1, "u": 1, "c": 1j}.get(kind, False))), key=rank_of)
    if found.kind == "c" and dtypes.is_float(operands):
        found = dtypes.complex_of(operands)
    made: Tensor = rows["full"](shape=(), value=value, dtype=operands if _same_kind(operands, found) else found)
    return made


_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}


def _same_kind(a: np.dtype, b: np.dtype) -> bool:
    return rank_of(a) == rank_of(b)


def rank_of(dtype: np.dtype) -> int:
    """The kind of a dtype as a number: truth values, integers, floats, complex numbers."""
    return _RANK[dtype.kind]


def of_elements(run: Run, stmt: ast.For | ast.While, env: Env, items: Any, after: Next, exits: Exits) -> Any:
    """The value of the function from this loop on. `items`: the range of a `for`."""
    loop = _Loop(run, stmt, env, items)
    env, broke, returned, value = loop.run_all()

    def over(env: Env) -> Any:
        return run.run(stmt.orelse, env, after, exits)

    def rest(env: Env) -> Any:
        if broke is False or not stmt.orelse:
            return over(env)
        ways = [run.where(broke, holds, way, env) for way, holds in ((after, True), (over, False))]
        return run.select(stmt, broke, *ways)

    if returned is False:
        return rest(env)
    found = exits.on_return(env, value)
    if loop.is_endless and broke is False:
        return found
    return run.select(stmt, returned, found, run.where(returned, False, rest, env))


class Unsettled(Exception):
    """A step has told more of what is carried: the loop begins anew."""


class _Loop:
    """A loop of elements while it is captured."""

    def __init__(self, run: Run, stmt: ast.For | ast.While, env: Env, items: Any) -> None:
        self.run, self.stmt, self.outer, self.items = run, stmt, env, items
        assert run.dtype is not None
        self.dtype = run.dtype
        self.is_endless = isinstance(stmt, ast.While) and is_endless(stmt)
        assigned = [
            node.id for node in ast.walk(stmt) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        if isinstance(items, range) and isinstance(stmt, ast.For) and isinstance(stmt.target, ast.Name) and items:
            self.outer = {stmt.target.id: items.start, **env}  # it has a value after the loop
        self.names = [name for name in dict.fromkeys(assigned) if self.outer.get(name, MISSING) is not MISSING]
        self.fresh = dict.fromkeys(assigned, MISSING)  # what an earlier step has made is not there in the next
        if items is not None:
            self.start, self.count, self.step = self.positions()
        # What is carried, as far as steps have told: the dtypes of the variables, whether some element leaves the loop
        # by `break` or by `return`, and the dtypes and the structure of what that returns.
        self.starts, self.shape = self.flattened([self.outer[name] for name in self.names])
        self.kept = [x.dtype if is_scalar(x) else number(x, self.dtype).dtype for x in self.starts]
        self.owners = [name for name in self.names for _ in self.flattened([self.outer[name]])[0]]
        self.flags = [False, False]
        self.returned: tuple[list[np.dtype], Any] = [], None

    def positions(self) -> tuple[Any, Any, Any]:
        """The first number of a range, how many there are, and the distance of two."""
        if isinstance(self.items, range):
            return self.items.start, len(self.items), self.items.step
        parts = [self.items.start, self.items.stop, self.items.step]
        if any(rank_of(x.dtype) != 1 if is_scalar(x) else not isinstance(x, int | np.integer) for x in parts):
            raise self.run.unsupported(self.stmt, "ranges of integers are")
        start, stop, step = (_astype(x, np.dtype(np.int64)) if is_scalar(x) else int(x) for x in parts)
        if is_scalar(step):
            count = _where(step > 0, (stop - start + step - 1) // step, (stop - start + step + 1) // step)
        elif step == 0:
            raise self.run.unsupported(self.stmt, "ranges with a step that is not 0 are")
        else:
            count = (stop - start + step + (-1 if step > 0 else 1)) // step
        return parts[0], count, parts[2]

    # ---- a step

    def goes_on(self, env: Env, at: Any) -> Any:
        if self.items is not None:
            return at < self.count
        assert isinstance(self.stmt, ast.While)
        return self.run.truth(self.run.value(self.stmt.test, env))

    def one(self, at: Any, values: Sequence[Any]) -> tuple[Any, ...]:
        """A step: its flags, what it returns from the function, and the variables after it."""
        env = {**self.outer, **self.fresh, **dict(zip(self.names, values, strict=True))}
        if isinstance(self.stmt, ast.For):
            self.run.bind(self.stmt.target, self.position(at), env)

        def ends(goes: bool, broke: bool, returned: bool) -> Callable[..., Any]:
            return lambda env, value=ANY: (goes, broke, returned, value, *[env[name] for name in self.names])

        on = ends(True, False, False)
        found = self.run.run(self.stmt.body, env, on, Exits(ends(False, False, True), ends(False, True, False), on))
        goes, broke, returned, value, *after = found
        if goes is False:
            return tuple(found)
        env = {**env, **self.fresh, **dict(zip(self.names, after, strict=True))}
        more = self.run.where(goes, True, self.goes_on, env, None if at is None else at + 1)
        return _both(goes, more), broke, returned, value, *after

    def position(self, at: Any) -> Any:
        """The number of a range at this position."""
        at = _astype(at, self.dtype if self.dtype.kind in "iu" else np.dtype(np.int64))
        if is_scalar(self.step) or self.step != 1:
            at = at * self.step
        return self.start + at if is_scalar(self.start) or self.start else at

    # ---- all of them

    def run_all(self) -> tuple[Env, Any, Any, Any]:
        """The variables after the loop, whether it was left by `break` or `return`, and what that returns."""
        at = None if self.items is None else number(0, np.dtype(np.int64))
        begins = self.goes_on(self.outer, at)
        for condition, holds in self.run.path:
            begins = _both(begins, condition if holds else _not(condition))
        if begins is False:
            return {**self.fresh, **self.outer}, False, False, ANY
        begins = self.cast(begins, np.dtype(np.bool_))
        while True:
            start = [*map(self.cast, self.starts, self.kept), *[number(False, self.dtype)] * sum(self.flags)]
            start += [self.cast(0, dtype) for dtype in self.returned[0]]
            with suppress(Unsettled):
                found = while_loop(lambda state: state[0], self.body, [begins, *([] if at is None else [at]), *start])
                break
        values, _, (broke, returned), value = self.parts(found)
        return {**self.outer, **self.fresh, **dict(zip(self.names, values, strict=True))}, broke, returned, value

    def parts(self, state: Sequence[Any]) -> tuple[list[Any], Any, list[Any], Any]:
        """(variables, position, whether it was left by `break` and by `return`, what that returns) of what is
        carried."""
        left = iter(state[1:])
        at = None if self.items is None else next(left)
        values = pytree.unflatten(self.shape, left)
        left_by = [next(left) if flag else False for flag in self.flags]
        return values, at, left_by, ANY if self.returned[1] is None else pytree.unflatten(self.returned[1], left)[0]

    def body(self, state: Sequence[Tensor]) -> list[Tensor]:
        """Returns what is carried after a step. Unsettled where that is more, or of other dtypes, than was known."""
        values, at, _, _ = self.parts(state)
        with self.alone():
            goes, broke, returned, value, *after = self.one(at, values)
        left_by = broke, returned
        leaves, shape = self.flattened(after)
        if shape != self.shape:
            raise self.run.unsupported(self.stmt, "loops whose variables keep their structure are")
        results, shape = self.flattened([] if value is ANY else [value])
        known = self.kept, self.flags, self.returned
        self.kept = [*map(self.common, self.owners, self.kept, leaves, self.starts)]
        self.flags = [flag is not False for flag in left_by]
        if value is not ANY:
            self.returned = [(x if is_scalar(x) else number(x, self.dtype)).dtype for x in results], shape
        if known != (self.kept, self.flags, self.returned):
            raise Unsettled
        leaves += [flag for flag in left_by if flag is not False]
        after = [goes, *([] if at is None else [at + 1]), *leaves, *results]
        return [self.cast(x, old.dtype) for x, old in zip(after, state, strict=True)]

    def common(self, name: str, kept: np.dtype, new: Any, start: Any) -> np.dtype:
        """The dtype of variable `name` that has `kept` before a step and is `new` after it. A number from the text may
        take another dtype by the first steps."""
        if not is_scalar(new):
            found = kept if rank_of(dtypes.of_scalar(new)) <= rank_of(kept) else number(new, self.dtype).dtype
        else:
            found = dtypes.result_type([(kept, not is_scalar(start)), (new.dtype, aval_of(new).weak)])
        if is_scalar(start) and found is not kept:
            raise self.run.unsupported(
                self.stmt, f"variables keep their dtypes in a loop, and {name} is {kept.name} before a step and "
                f"{found.name} after it; start with a {found.name}",
            )  # fmt: skip
        return found

    def cast(self, value: Any, dtype: np.dtype) -> Tensor:
        if not is_scalar(value):
            value = rows["full"](shape=(), value=value, dtype=dtype)
        found: Tensor = value if value.dtype is dtype else _astype(value, dtype)
        return found

    def flattened(self, values: Sequence[Any]) -> tuple[list[Any], Any]:
        """The numbers in variables, which may be tuples."""
        leaves: list[Any] = []
        shape = pytree.flatten(list(values), leaves)
        for leaf in leaves:
            if not is_scalar(leaf) and not isinstance(leaf, NUMBERS):
                shown = "nothing" if leaf is None else f"a {type(leaf).__name__}"
                raise self.run.unsupported(self.stmt, f"loops whose variables are numbers are, and one is {shown}")
        return leaves, shape

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A step is run for elements that take it; loops in it are written out, or not, by themselves."""
        run = self.run
        outer = run.path, run.attempt
        try:
            run.path, run.attempt = (), None
            yield
        finally:
            run.path, run.attempt = outer


def is_endless(stmt: ast.While) -> bool:
    """Whether only a `break` or `return` ends the loop."""
    return isinstance(stmt.test, ast.Constant) and bool(stmt.test.value)


def _both(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    if a is True or b is True:
        return b if a is True else a
    return _and(a, b)
