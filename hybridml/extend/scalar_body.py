"""The meaning of a plain Python function of scalars, read from its source: statements run in order, as in Python, and
what depends on an element becomes a choice between both ways.

    y = x * x                       y = x * x
    if y > 4: return 2.0      ->    where(y > 4, 2.0, where(x > 0, y, -y))
    return y if x > 0 else -y

Short loops over what is known are written out; others are loops of each element (scalar_loops.py). What a way that is
not taken would compute is thrown away, so it may divide by zero; it cannot raise.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import TraceError
from hybridml_compiler.record import record, replace

from ..arrays import elementwise
from ..core.ops import names as rows
from ..core.tensor import Tensor
from .code_digest import is_own
from .operation import MISSING, Operation, Reads, op_of
from .scalar_loops import ANY, NUMBERS, Env, Exits, Next, Steps, is_endless, is_scalar, number, of_elements, rank_of
from .source import Source

MOST_STEPS = 64  # of a loop that is written out, those of the loops inside of it included
_logical_and, _logical_not, _not_equal, _where, _trunc = (
    rows[name] for name in ("logical_and", "logical_not", "not_equal", "where", "trunc")
)

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


@record(frozen=False, eq=False)
class Attempt:
    """A loop that is being written out, in those around it."""

    around: Attempt | None
    steps: int = 0


class TooLong(Exception):
    """A loop cannot be written out: it has too many steps, or an element says how many."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt


class Run:
    """One run of a function on tensors without axes. `unwrapped` gives the Python function of an object that stands for
    one, such as another kernel; None for any other. `caller`: the run whose function calls this one."""

    def __init__(
        self, source: Source, reads: Reads, unwrapped: Callable[[Any], Source | None], caller: Run | None = None
    ) -> None:
        self.source, self.reads, self.unwrapped = source, reads, unwrapped
        self.depth: int = 0 if caller is None else caller.depth + 1
        # What has been decided on the way to a statement: conditions of elements, and whether they hold.
        self.path: tuple[tuple[Any, bool], ...] = () if caller is None else caller.path
        self.dtype: np.dtype | None = None if caller is None else caller.dtype  # of the kernel's operands
        self.attempt: Attempt | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.source.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        env = dict(bound.arguments)
        self.dtype = self.dtype or _common([x for x in env.values() if is_scalar(x)])
        tree = self.source.tree
        if isinstance(tree, ast.Lambda):
            return self.value(tree.body, env)
        return self.run(tree.body, env, lambda env: None, Exits())

    # ---- statements

    def run(self, body: Sequence[ast.stmt], env: Env, then: Next, exits: Exits) -> Any:
        """The value that the function returns from these statements on; `then` goes on after them."""
        for k, stmt in enumerate(body):
            rest = body[k + 1 :]

            def after(env: Env, rest: Sequence[ast.stmt] = rest) -> Any:
                return self.run(rest, env, then, exits)

            if isinstance(stmt, ast.Return):
                return exits.on_return(env, None if stmt.value is None else self.value(stmt.value, env))
            if isinstance(stmt, ast.If):
                return self.choose(stmt, env, after, exits)
            if isinstance(stmt, ast.For | ast.While):
                return self.loop(stmt, env, after, exits)
            if isinstance(stmt, ast.Break) and exits.on_break is not None:
                return exits.on_break(env)
            if isinstance(stmt, ast.Continue) and exits.on_continue is not None:
                return exits.on_continue(env)
            self.assign(stmt, env)
        return then(env)

    def where(self, condition: Any, holds: bool, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(*args)` on the way of those elements for which a condition holds, or does not."""
        outer = self.path
        try:
            self.path = (*outer, (condition, holds))
            return fn(*args)
        finally:
            self.path = outer

    def assign(self, stmt: ast.stmt, env: Env) -> None:
        if isinstance(stmt, ast.Assign):
            value = self.value(stmt.value, env)
            for target in stmt.targets:
                self.bind(target, value, env)
        elif isinstance(stmt, ast.AnnAssign):
            if stmt.value is not None:
                self.bind(stmt.target, self.value(stmt.value, env), env)
        elif isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
            now = self.value(ast.copy_location(ast.Name(stmt.target.id, ast.Load()), stmt), env)
            env[stmt.target.id] = self.binary(stmt, stmt.op, now, self.value(stmt.value, env))
        elif isinstance(stmt, ast.Expr) and not isinstance(stmt.value, ast.Constant):
            name = self.source.fn.__name__
            raise self.unsupported(
                stmt, f"values are, not what is printed or kept on the way: {name}.__wrapped__ is the Python function"
            )
        elif not isinstance(stmt, ast.Pass | ast.Expr):
            raise self.unsupported(stmt, "assignments, if, for, while and return are")

    def bind(self, target: ast.expr, value: Any, env: Env) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, tuple | list):
            if len(target.elts) != len(value):
                raise self.unsupported(target, f"{len(target.elts)} names take {len(value)} values")
            for each, item in zip(target.elts, value, strict=True):
                self.bind(each, item, env)
        else:
            raise self.unsupported(target, "names are")

    def choose(self, stmt: ast.If, env: Env, after: Next, exits: Exits) -> Any:
        found = self.truth(self.value(stmt.test, env))
        if not is_scalar(found):
            return self.run(stmt.body if found else stmt.orelse, env, after, exits)
        both = ((stmt.body, True), (stmt.orelse, False))
        if any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(stmt)):
            ways = [self.where(found, holds, self.run, body, dict(env), after, exits) for body, holds in both]
            return self.select(stmt, found, *ways)
        envs = [self.where(found, holds, self.run, body, dict(env), _as_it_is, exits) for body, holds in both]
        return after(self.merged(stmt, found, *envs))

    def merged(self, stmt: ast.If, condition: Any, then: Env, other: Env) -> Env:
        """The variables after both ways. One that only one way has is missing after it."""
        env = {}
        for name in [*then, *(name for name in other if name not in then)]:
            a, b = then.get(name, MISSING), other.get(name, MISSING)
            env[name] = a if a is b else MISSING if MISSING in (a, b) else self.select(stmt, condition, a, b)
        return env

    def loop(self, stmt: ast.For | ast.While, env: Env, after: Next, exits: Exits) -> Any:
        """A loop and the rest of the function: written out where it is short, and Python values say its steps."""
        items = self.items(stmt, env) if isinstance(stmt, ast.For) else None
        around = self.attempt
        endless = isinstance(stmt, ast.While) and is_endless(stmt)
        known = stmt, *[(name, x) for name, x in env.items() if isinstance(x, bool | int | float | complex)]
        is_loop = endless or known in self.reads.loops or isinstance(items, Steps)
        if not (is_loop or (isinstance(items, range) and len(items) > MOST_STEPS)):
            attempt = Attempt(around)
            try:
                return self.written_out(stmt, dict(env), items, after, exits, attempt)
            except TooLong as found:
                if found.attempt is not attempt:
                    raise
                if isinstance(items, tuple | list):
                    raise self.unsupported(stmt, f"ranges, and lists of at most {MOST_STEPS} steps are") from None
                self.reads.loops.add(known)
            finally:
                self.attempt = around
        return of_elements(self, stmt, env, items, after, exits)

    def written_out(
        self, stmt: ast.For | ast.While, env: Env, items: Any, after: Next, exits: Exits, attempt: Attempt
    ) -> Any:
        """The steps one after the other, for as long as Python values say; then the rest of the function."""

        def outside(then: Next, env: Env) -> Any:
            self.attempt = attempt.around
            found = then(env)
            self.attempt = attempt
            return found

        def over(env: Env) -> Any:
            return self.run(stmt.orelse, env, after, exits)

        def step(env: Env, at: int) -> Any:
            if items is None:
                assert isinstance(stmt, ast.While)
                goes_on = self.truth(self.value(stmt.test, env))
                if is_scalar(goes_on):
                    raise TooLong(attempt)
                if not goes_on:
                    return outside(over, env)
            elif at == len(items):
                return outside(over, env)
            else:
                assert isinstance(stmt, ast.For)
                self.bind(stmt.target, items[at], env)
            _count(attempt)

            def again(env: Env) -> Any:
                return step(env, at + 1)

            return self.run(stmt.body, env, again, replace(exits, on_break=break_, on_continue=again))

        def break_(env: Env) -> Any:
            return outside(after, env)

        self.attempt = attempt
        return step(env, 0)

    def items(self, stmt: ast.For, env: Env) -> Any:
        found = self.value(stmt.iter, env)
        if isinstance(stmt.iter, ast.Call) and isinstance(found, Iterator):  # enumerate, zip, reversed
            found = tuple(islice(found, MOST_STEPS + 1))
        if isinstance(found, np.ndarray) and found.ndim:
            found = tuple(found)
        if not isinstance(found, range | Steps | tuple | list):
            raise self.unsupported(stmt.iter, "ranges, tuples, lists and arrays are")
        return found

    # ---- expressions

    def value(self, node: ast.expr, env: Env) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.name(node, env)
        if isinstance(node, ast.BinOp):
            return self.binary(node, node.op, self.value(node.left, env), self.value(node.right, env))
        if isinstance(node, ast.UnaryOp):
            operand = self.value(node.operand, env)
            if isinstance(node.op, ast.Not):
                found = self.truth(operand)
                return _logical_not(found) if is_scalar(found) else not found
            return _UNARY[type(node.op)](operand)
        if isinstance(node, ast.BoolOp):
            return self.logic(node, env)
        if isinstance(node, ast.Compare):
            return self.comparison(node, env)
        if isinstance(node, ast.IfExp):
            found = self.truth(self.value(node.test, env))
            if not is_scalar(found):
                return self.value(node.body if found else node.orelse, env)
            ways = [self.where(found, way is node.body, self.value, way, env) for way in (node.body, node.orelse)]
            return self.select(node, found, *ways)
        if isinstance(node, ast.Call):
            return self.call(node, env)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value, env)
            if is_scalar(owner) and node.attr in ("real", "imag"):
                return rows[node.attr](owner)
            if is_scalar(owner):
                raise self.unsupported(node, "operators and functions are, attributes of an element are not")
            return self.outside(node, self.reads.attribute(owner, node.attr))
        if isinstance(node, ast.Tuple | ast.List):
            return tuple([self.value(item, env) for item in node.elts])
        if isinstance(node, ast.Subscript):
            return self.item(node, self.value(node.value, env), self.value(node.slice, env))
        raise self.unsupported(node, "arithmetic, comparisons, conditions and calls are")

    def item(self, node: ast.Subscript, owner: Any, key: Any) -> Any:
        if is_scalar(owner):
            raise self.unsupported(node, "an element is one number; what else it needs is an argument")
        parts = key if isinstance(key, tuple) else (key,)
        if is_scalar(*parts):
            raise self.unsupported(
                node, f"indices are Python numbers, as in loops of at most {MOST_STEPS} steps over a range, and no "
                "element's; look it up before, and pass what is found as an argument",
            )  # fmt: skip
        if not isinstance(owner, tuple | list | dict | np.ndarray):
            raise self.unsupported(node, "items of tuples, lists, dicts and arrays are")
        return owner[key]

    def outside(self, node: ast.expr, found: Any) -> Any:
        """A value from around the function. A tensor there may be updated in place, which no kernel would see."""
        if isinstance(found, Tensor):
            raise self.unsupported(node, "numbers around the function are, this is a tensor; pass it as an argument")
        return found

    def name(self, node: ast.Name, env: Env) -> Any:
        found = env.get(node.id, MISSING)
        if node.id not in env:
            found = self.outside(node, self.reads.variable(self.source.fn, node.id))
        if found is MISSING:
            raise TraceError(f"{self.what}: {node.id!r} has no value on every way to {self.place(node)}")
        return found

    def binary(self, node: Any, op: ast.operator, left: Any, right: Any) -> Any:
        if type(op) not in _BINARY:
            raise self.unsupported(node, "operators of numbers are")
        return _BINARY[type(op)](left, right)

    def logic(self, node: ast.BoolOp, env: Env) -> Any:
        """`and` and `or` as Python has them: the first operand that settles it."""
        found = self.value(node.values[0], env)
        for operand in node.values[1:]:
            known = self.truth(found)
            if not is_scalar(known):
                if bool(known) is isinstance(node.op, ast.Or):
                    return found
                found = self.value(operand, env)
                continue
            holds = isinstance(node.op, ast.And)
            other = self.where(known, holds, self.value, operand, env)
            found = self.select(node, known, *((other, found) if holds else (found, other)))
        return found

    def comparison(self, node: ast.Compare, env: Env) -> Any:
        found, left = True, self.value(node.left, env)
        for op, operand in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise self.unsupported(node, "comparisons of numbers are")
            right = self.value(operand, env)
            holds = _COMPARE[type(op)](left, right)
            found = (
                holds if found is True else _logical_and(found, holds) if is_scalar(found, holds) else found and holds
            )
            left = right
        return found

    def truth(self, value: Any) -> Any:
        """Whether a value is true: a bool, or a scalar of bools."""
        if not is_scalar(value):
            return bool(value)
        return value if value.dtype.kind == "b" else _not_equal(value, 0)

    def select(self, node: ast.AST, condition: Any, then: Any, other: Any) -> Any:
        if then is ANY or other is ANY:
            return other if then is ANY else then
        if isinstance(then, tuple) and isinstance(other, tuple) and len(then) == len(other):
            return tuple([self.select(node, condition, a, b) for a, b in zip(then, other, strict=True)])
        for value in (then, other):
            if not is_scalar(value) and not isinstance(value, NUMBERS):
                shown = "None; is a `return` missing?" if value is None else f"a {type(value).__name__}"
                raise self.unsupported(node, f"both ways give a number, and one gives {shown}")
        if then is other:
            return then
        if not is_scalar(then, other) and self.dtype is not None:
            kinds = [np.asarray(value).dtype.kind for value in (then, other)]
            then = number(then, self.dtype, max(kinds, key="biufc".index))
        return _where(condition, then, other)

    def call(self, node: ast.Call, env: Env) -> Any:
        fn = self.value(node.func, env)
        args: list[Any] = []
        for arg in node.args:
            value = self.value(arg.value if isinstance(arg, ast.Starred) else arg, env)
            args += value if isinstance(arg, ast.Starred) else [value]
        kwargs = {str(k.arg): self.value(k.value, env) for k in node.keywords}
        if _varies(fn):
            raise self.unsupported(node, "functions of numbers are, not random numbers and clocks; pass them in")
        if not is_scalar(*args, *kwargs.values()):
            if isinstance(fn, types.FunctionType) and is_own(fn):
                self.reads.all_of(fn)
            return fn(*args, **kwargs)
        if fn is range:
            return Steps(*(args if len(args) > 1 else (0, *args)))
        inner = self.unwrapped(fn)
        if inner is None and isinstance(fn, Operation):  # one with rules of its own
            return self.reads.attribute(fn, "op").fn(*args, **kwargs)
        if inner is None:
            known = function_of(fn)
            if known is not None:
                return known(*args, **kwargs)
            name = getattr(fn, "__qualname__", repr(fn))
            raise self.unsupported(node, f"functions of math, NumPy, hybridml and Python code are, not {name}")
        if self.depth >= 32:
            raise self.unsupported(node, "functions that call themselves are not; write a loop")
        return Run(inner, self.reads, self.unwrapped, self)(*args, **kwargs)

    # ---- errors

    @property
    def what(self) -> str:
        """The function as errors name it."""
        return f"kernel {self.source.fn.__name__}"

    def place(self, node: Any) -> str:
        """The line of a node in the user's file."""
        return f"{self.source.file}:{node.lineno}"

    def unsupported(self, node: Any, instead: str) -> TraceError:
        text = ast.unparse(node).partition("\n")[0]
        what = f"{self.what}: `{text}` cannot be computed for all elements at once"
        return TraceError(f"{what}; {instead}\n  {self.place(node)}")


def _common(scalars: Sequence[Tensor]) -> np.dtype:
    """The dtype of numbers in the text that are of the kind of a kernel's operands: where these have several, that of
    the highest kind, and of complex numbers the dtype of their parts."""
    first, *others = [x.dtype for x in scalars]
    if all(dtype is first for dtype in others):
        return dtypes.real_of(first)
    rank = max(map(rank_of, (first, *others)))
    return dtypes.real_of(dtypes.result_type([(x, False) for x in (first, *others) if rank_of(x) == rank]))


def _as_it_is(env: Env) -> Env:
    return env


def _count(attempt: Attempt) -> None:
    """Counts a step. TooLong of the outermost loop that it is one too many for."""
    chain: list[Attempt] = []
    found: Attempt | None = attempt
    while found is not None:
        found.steps += 1
        chain.append(found)
        found = found.around
    for each in reversed(chain):
        if each.steps > MOST_STEPS:
            raise TooLong(each)


def _rounded(x: Any, digits: Any = None) -> Any:
    if digits is not None:
        raise TraceError("round: in a kernel it takes one number")
    return rows["round"](x)


def _extreme(name: str) -> Callable[..., Any]:
    def fold(*values: Any) -> Any:
        items = values[0] if len(values) == 1 else values
        found = items[0]
        for value in items[1:]:
            found = rows[name](found, value)
        return found

    return fold


def _log(x: Any, base: Any = None) -> Any:
    if base is not None:
        return _log(x) / _log(base)
    return rows["log"](x) if is_scalar(x) else math.log(x)


_INT, _FLOAT = np.dtype(np.int64), "f"


def _as_float(x: Any) -> Any:
    return x if x.dtype.kind == _FLOAT else rows["astype"](x, np.dtype(np.float32))


# Python's own functions by those of tensors; others are found by their names.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    abs: rows["abs"], min: _extreme("minimum"), max: _extreme("maximum"), pow: rows["pow"], round: _rounded,
    int: lambda x: rows["astype"](_trunc(x), _INT), float: _as_float, bool: lambda x: _not_equal(x, 0),
    math.fabs: rows["abs"], math.log: _log,
}  # fmt: skip
_VARYING = ("random", "secrets", "uuid", "time", "numpy.random", "hybridml.random")


def _varies(fn: Any) -> bool:
    """Whether a function gives something else each time."""
    module = getattr(fn, "__module__", None) or type(getattr(fn, "__self__", None)).__module__
    return any(module == name or str(module).startswith(f"{name}.") for name in _VARYING)


_OTHER_MEANING = (math.remainder,)  # than NumPy's function of the name
_SOURCES = ("math", "numpy")


def function_of(fn: Any) -> Callable[..., Any] | None:
    """The function of tensors that stands for one of Python, math, NumPy or hybridml; None for any other."""
    try:
        known = _FUNCTIONS.get(fn)
    except TypeError:  # not hashable
        return None
    if known is not None:
        return known
    module = str(getattr(fn, "__module__", "") or "").partition(".")[0]
    name = str(getattr(fn, "__name__", ""))
    if isinstance(fn, np.ufunc):
        module = "numpy"
    if module == "hybridml" or op_of(fn) is not None:
        return fn if callable(fn) and not isinstance(fn, type) else None
    if module in _SOURCES:
        return None if fn in _OTHER_MEANING else rows.get(name) or getattr(elementwise, name, None)
    return None
