"""The meaning of a plain Python function of scalars, read from its source: statements run in order, as in Python, and
what depends on an element becomes a choice between both ways.

    y = x * x                       y = x * x
    if y > 4: return 2.0      ->    where(y > 4, 2.0, where(x > 0, y, -y))
    return y if x > 0 else -y

Loops over a range that is known are written out. What a way that is not taken would compute is thrown away, so it may
divide by zero; it cannot raise.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, TraceError
from hybridml_compiler.record import record

from ..arrays import elementwise
from ..core.ops import names as rows
from ..core.tensor import Tensor
from .code_digest import is_own
from .operation import MISSING, Operation, Reads, op_of

MOST_STEPS = 64  # of loops that are written out
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


class EndlessLoop(TraceError):
    """A loop that cannot be written out, since it ends where an element says, or has too many steps."""


@record
class Source:
    """A function as it is written, in a file whose lines `tree` counts."""

    fn: Any
    tree: ast.FunctionDef | ast.Lambda
    file: str


def source_of(fn: Any) -> Source:
    """The source of a function. ArgumentError where there is none, as in `python -c` or for what C code makes."""
    if not isinstance(fn, types.FunctionType):
        raise ArgumentError(f"hm.kernel: takes a Python function of scalars, got {type(fn).__name__}")
    try:
        module = _parsed(fn)
    except (OSError, TypeError, SyntaxError):
        raise ArgumentError(
            f"hm.kernel: the source of {fn.__name__} is not to be found; write it in a file or a notebook"
        ) from None
    found: list[Any] = [node for node in ast.walk(module) if _is(node, fn)]
    file = inspect.getsourcefile(fn) or "?"
    if len(found) != 1:
        place = f"{file}:{fn.__code__.co_firstlineno}"
        raise ArgumentError(
            f"hm.kernel: the source of {fn.__name__} is not to be found at {place}; write it in a file or a "
            "notebook, and make the kernel anew where that has changed"
        )
    return Source(fn, found[0], file)


def _parsed(fn: types.FunctionType) -> ast.Module:
    """The file of a function; of one that is no program, such as a page with code in it, the function's lines."""
    try:
        return ast.parse("".join(inspect.findsource(fn)[0]))
    except SyntaxError:
        lines, first = inspect.getsourcelines(fn)
    indented = lines[0][:1].isspace()
    module = ast.parse("".join(["if True:\n"] * indented + lines))
    ast.increment_lineno(module, first - 1 - indented)
    return module


def _is(node: ast.AST, fn: types.FunctionType) -> bool:
    """Whether a node is the function: by its line, and for a lambda by the columns of its instructions."""
    first = fn.__code__.co_firstlineno
    if isinstance(node, ast.FunctionDef):
        return (
            node.name == fn.__code__.co_name and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == first
        )
    if not isinstance(node, ast.Lambda) or fn.__code__.co_name != "<lambda>" or node.lineno != first:
        return False
    places = [(line, column) for line, _, column, _ in fn.__code__.co_positions() if column]
    inside = (node.body.lineno, node.body.col_offset), (node.body.end_lineno, node.body.end_col_offset)
    return bool(places) and inside[0] <= places[-1] < inside[1] and inside[0] == min(places)


Env = dict[str, Any]
Next = Callable[[Env], Any]


class Body:
    """One run of a function on tensors without axes. `unwrapped` gives the Python function of an object that stands for
    one, such as another kernel; None for any other."""

    def __init__(self, source: Source, reads: Reads, unwrapped: Callable[[Any], Source | None], depth: int = 0) -> None:
        self.source, self.reads, self.unwrapped, self.depth = source, reads, unwrapped, depth
        self.steps = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.source.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        env = dict(bound.arguments)
        tree = self.source.tree
        if isinstance(tree, ast.Lambda):
            return self.value(tree.body, env)
        return self.run(tree.body, env, lambda env: None, None, None)

    # ---- statements

    def run(
        self, body: Sequence[ast.stmt], env: Env, then: Next, on_break: Next | None, on_continue: Next | None
    ) -> Any:
        """The value that the function returns from these statements on; `then` goes on after them."""
        for k, stmt in enumerate(body):
            rest = body[k + 1 :]

            def after(env: Env, rest: Sequence[ast.stmt] = rest) -> Any:
                return self.run(rest, env, then, on_break, on_continue)

            if isinstance(stmt, ast.Return):
                return None if stmt.value is None else self.value(stmt.value, env)
            if isinstance(stmt, ast.If):
                return self.choose(stmt, env, after, on_break, on_continue)
            if isinstance(stmt, ast.For | ast.While):
                return self.loop(stmt, env, after)
            if isinstance(stmt, ast.Break) and on_break is not None:
                return on_break(env)
            if isinstance(stmt, ast.Continue) and on_continue is not None:
                return on_continue(env)
            self.assign(stmt, env)
        return then(env)

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
        elif not (isinstance(stmt, ast.Pass) or (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))):
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

    def choose(self, stmt: ast.If, env: Env, after: Next, on_break: Next | None, on_continue: Next | None) -> Any:
        found = self.truth(self.value(stmt.test, env))
        if not _is_scalar(found):
            return self.run(stmt.body if found else stmt.orelse, env, after, on_break, on_continue)
        if any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(stmt)):
            ways = [self.run(body, dict(env), after, on_break, on_continue) for body in (stmt.body, stmt.orelse)]
            return self.select(stmt, found, *ways)
        envs = [self.run(body, dict(env), lambda env: env, None, None) for body in (stmt.body, stmt.orelse)]
        return after(self.merged(stmt, found, *envs))

    def merged(self, stmt: ast.If, condition: Any, then: Env, other: Env) -> Env:
        """The variables after both ways. One that only one way has is missing after it."""
        env = {}
        for name in [*then, *(name for name in other if name not in then)]:
            a, b = then.get(name, MISSING), other.get(name, MISSING)
            env[name] = a if a is b else MISSING if MISSING in (a, b) else self.select(stmt, condition, a, b)
        return env

    def loop(self, stmt: ast.For | ast.While, env: Env, after: Next) -> Any:
        """The steps one after the other, for as long as Python values say; then the rest of the function."""

        def over(env: Env) -> Any:
            return self.run(stmt.orelse, env, after, None, None)

        items = iter(self.items(stmt, env)) if isinstance(stmt, ast.For) else None

        def step(env: Env, items: Sequence[Any] | None, at: int) -> Any:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise self.unsupported(stmt, f"loops of at most {MOST_STEPS} steps in all are", EndlessLoop)
            if items is None:
                assert isinstance(stmt, ast.While)
                goes_on = self.truth(self.value(stmt.test, env))
                if _is_scalar(goes_on):
                    raise self.unsupported(stmt, "loops whose steps do not depend on an element are", EndlessLoop)
                if not goes_on:
                    return over(env)
            elif at == len(items):
                return over(env)
            else:
                assert isinstance(stmt, ast.For)
                self.bind(stmt.target, items[at], env)

            def again(env: Env) -> Any:
                return step(env, items, at + 1)

            return self.run(stmt.body, env, again, after, again)

        return step(env, None if items is None else list(items), 0)

    def items(self, stmt: ast.For, env: Env) -> Any:
        found = self.value(stmt.iter, env)
        if not isinstance(found, range | tuple | list):
            raise self.unsupported(stmt.iter, "ranges, tuples and lists are")
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
                return _logical_not(found) if _is_scalar(found) else not found
            return _UNARY[type(node.op)](operand)
        if isinstance(node, ast.BoolOp):
            return self.logic(node, env)
        if isinstance(node, ast.Compare):
            return self.comparison(node, env)
        if isinstance(node, ast.IfExp):
            found = self.truth(self.value(node.test, env))
            if not _is_scalar(found):
                return self.value(node.body if found else node.orelse, env)
            return self.select(node, found, self.value(node.body, env), self.value(node.orelse, env))
        if isinstance(node, ast.Call):
            return self.call(node, env)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value, env)
            if _is_scalar(owner):
                raise self.unsupported(node, "operators and functions are, attributes of an element are not")
            return self.reads.attribute(owner, node.attr)
        if isinstance(node, ast.Tuple | ast.List):
            return tuple([self.value(item, env) for item in node.elts])
        if isinstance(node, ast.Subscript):
            owner, key = self.value(node.value, env), self.value(node.slice, env)
            if isinstance(owner, tuple | list) and isinstance(key, int):
                return owner[key]
        raise self.unsupported(node, "arithmetic, comparisons, conditions and calls are")

    def name(self, node: ast.Name, env: Env) -> Any:
        found = env.get(node.id, MISSING)
        if node.id not in env:
            found = self.reads.variable(self.source.fn, node.id)
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
            if not _is_scalar(known):
                if bool(known) is isinstance(node.op, ast.Or):
                    return found
                found = self.value(operand, env)
                continue
            other = self.value(operand, env)
            found = self.select(node, known, *((other, found) if isinstance(node.op, ast.And) else (found, other)))
        return found

    def comparison(self, node: ast.Compare, env: Env) -> Any:
        found, left = True, self.value(node.left, env)
        for op, operand in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise self.unsupported(node, "comparisons of numbers are")
            right = self.value(operand, env)
            holds = _COMPARE[type(op)](left, right)
            found = (
                holds if found is True else _logical_and(found, holds) if _is_scalar(found, holds) else found and holds
            )
            left = right
        return found

    def truth(self, value: Any) -> Any:
        """Whether a value is true: a bool, or a scalar of bools."""
        if not _is_scalar(value):
            return bool(value)
        return value if value.dtype.kind == "b" else _not_equal(value, 0)

    def select(self, node: ast.AST, condition: Any, then: Any, other: Any) -> Any:
        if isinstance(then, tuple) and isinstance(other, tuple) and len(then) == len(other):
            return tuple([self.select(node, condition, a, b) for a, b in zip(then, other, strict=True)])
        for value in (then, other):
            if not _is_scalar(value) and not isinstance(value, bool | int | float | np.generic):
                shown = "nothing" if value is None else f"a {type(value).__name__}"
                raise self.unsupported(node, f"both ways give a number, and one gives {shown}")
        if then is other:
            return then
        return _where(condition, then, other)

    def call(self, node: ast.Call, env: Env) -> Any:
        fn = self.value(node.func, env)
        args: list[Any] = []
        for arg in node.args:
            value = self.value(arg.value if isinstance(arg, ast.Starred) else arg, env)
            args += value if isinstance(arg, ast.Starred) else [value]
        kwargs = {str(k.arg): self.value(k.value, env) for k in node.keywords}
        if not _is_scalar(*args, *kwargs.values()):
            if isinstance(fn, types.FunctionType) and is_own(fn):
                self.reads.all_of(fn)
            return fn(*args, **kwargs)
        if fn is range:
            raise self.unsupported(node, "loops whose steps do not depend on an element are", EndlessLoop)
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
            raise self.unsupported(node, "functions that call themselves without an end are not")
        return Body(inner, self.reads, self.unwrapped, self.depth + 1)(*args, **kwargs)

    # ---- errors

    @property
    def what(self) -> str:
        """The function as errors name it."""
        return f"kernel {self.source.fn.__name__}"

    def place(self, node: Any) -> str:
        """The line of a node in the user's file."""
        return f"{self.source.file}:{node.lineno}"

    def unsupported(self, node: Any, instead: str, error: type[TraceError] = TraceError) -> TraceError:
        text = ast.unparse(node).partition("\n")[0]
        what = f"{self.what}: `{text}` cannot be computed for all elements at once"
        return error(f"{what}; {instead}\n  {self.place(node)}")


def _is_scalar(*values: Any) -> bool:
    return any(isinstance(value, Tensor) for value in values)


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
    return rows["log"](x) if _is_scalar(x) else math.log(x)


_INT, _FLOAT = np.dtype(np.int64), "f"


def _as_float(x: Any) -> Any:
    return x if x.dtype.kind == _FLOAT else rows["astype"](x, np.dtype(np.float32))


# Python's own functions by those of tensors; others are found by their names.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    abs: rows["abs"], min: _extreme("minimum"), max: _extreme("maximum"), pow: rows["pow"], round: _rounded,
    int: lambda x: rows["astype"](_trunc(x), _INT), float: _as_float, bool: lambda x: _not_equal(x, 0),
    math.fabs: rows["abs"], math.log: _log,
}  # fmt: skip
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
