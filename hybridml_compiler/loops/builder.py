"""LoopBuilder: builds interned loop-dialect expressions. It is the `s` that `lower` columns of the table receive.

Integer arithmetic is simplified while it is built, so that the index of `reshape(transpose(x))` arrives as plain
strides: constants fold, ranges decide divisions and comparisons, and `(x // c) * c + x % c` becomes `x`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import CompileError
from ..sizes.dims import Dim, Size, at_most, is_dim, same
from ..walk import postorder, reachable
from .complex_parts import BY_PARTS, PARTS, expanded
from .index import constant_factor, terms, value_range
from .ir import Buffer, Expr, Reduce, Region, args_of

Scalar = Expr | Dim | int | float | bool
_INT64 = 1 << 63

_COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _comparison(op: str) -> Callable[[LoopBuilder, Scalar, Scalar], Expr]:
    return lambda self, a, b: self.compare(op, a, b)


def _logical(op: str, neutral: bool) -> Callable[[LoopBuilder, Scalar, Scalar], Expr]:
    """An instruction on bits, without a bool that leaves the other as it is, or decides the result."""

    def method(self: LoopBuilder, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        for one, other in ((x, y), (y, x)) if x.dtype.kind == "b" else ():
            if one.op == "const":
                return other if one.attr == neutral else one
        return x if x is y else self.emit(op, x, y)

    return method


class LoopBuilder:
    def __init__(self) -> None:
        self.pending: list[Reduce] = []  # reductions that the expressions built so far rely on, in order
        self._interned: dict[Any, Any] = {}
        self._integers: dict[int, Expr] = {}  # int64 constants, most of all that is built: found in a tenth of the time
        self._masks: list[Expr] = []
        self._promised = False  # whether any expression is `bounded`
        self._fresh = 0

    # ---- leaves

    def const(self, value: Any, dtype: np.dtype) -> Expr:
        if dtype is dtypes.int64 and type(value) is int:
            found = self._integers.get(value)
            if found is None:
                found = self._integers[value] = self._const(value, dtype)
            return found
        return self._const(value, dtype)

    def _const(self, value: Any, dtype: np.dtype) -> Expr:
        if dtype is dtypes.int64 and type(value) is int and -_INT64 <= value < _INT64:  # the rest does the same, slower
            key = ("const", dtype.char, value.to_bytes(8, sys.byteorder, signed=True))
            return self._intern(key, "const", (), value, dtype, value, value)
        if is_dim(value):
            if dtype is not dtypes.int64:
                return self.cast(self.const(value, dtypes.int64), dtype)
            return self._intern(("const", value), "const", (), value, dtype, value, value)
        if dtype.kind in "iu" and isinstance(value, int):
            value = _wrapped(value, dtype)
        number = np.asarray(value).astype(dtype)[()]
        if dtype.kind == "c":
            return self.pair(*(self._const(part, dtypes.real_of(dtype)) for part in (number.real, number.imag)))
        key = ("const", dtype.char, number.tobytes())
        low = high = int(number) if dtype.kind in "iub" else None
        return self._intern(key, "const", (), number.item(), dtype, low, high)

    def var(self, name: str, size: Size) -> Expr:
        """A loop variable that runs from 0 to size - 1; every call makes a new one."""
        last = size - 1 if is_dim(size) else max(size - 1, 0)
        expr = self._make("var", (), f"{name}{self._fresh}", dtypes.int64, 0, last)
        self._fresh += 1
        expr.depends = frozenset((expr,))
        return expr

    def variables(self, name: str, extents: Sequence[Size]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """(index, loop variables) of an index space: an axis of size 1 has index 0 and no variable."""
        index = tuple(self.const(0, dtypes.int64) if n == 1 else self.var(name, n) for n in extents)
        return index, tuple(k for k in index if k.op == "var")

    def load(self, buffer: Buffer, index: Scalar) -> Expr:
        """Element of a buffer; under `masked`, zero where the mask is false and the index is not looked at."""
        return self.load_of(buffer, (self._index(index), *self._current_mask()))

    def load_of(self, buffer: Buffer, args: tuple[Expr, ...]) -> Expr:
        """The load with operands `(index)` or `(index, mask)`."""
        bounds = (0, 1) if buffer.dtype.kind == "b" else (None, None)
        return self._intern(("load", buffer.name, *map(id, args)), "load", args, buffer, buffer.dtype, *bounds)

    def dtype(self, value: Expr) -> np.dtype:
        return value.dtype

    # ---- arithmetic

    def emit(self, op: str, *args: Scalar, dtype: np.dtype | None = None, attr: Any = None) -> Expr:
        """The expression `op(args)` without simplification beyond interning."""
        exprs = self._unify(args)
        result = dtype or (dtypes.bool_ if op in _COMPARE else exprs[1 if op == "select" else 0].dtype)
        key = (op, attr, result.char, *map(id, exprs))
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self._emitted(op, exprs, result, attr)
        return found

    def _emitted(self, op: str, exprs: tuple[Expr, ...], result: np.dtype, attr: Any) -> Expr:
        if (result.kind == "c" or exprs[-1].dtype.kind == "c") and op not in PARTS:
            if op != "cast" and op not in BY_PARTS:
                raise CompileError(f"{op} of {dtypes.short(exprs[-1].dtype)}: no instruction takes complex numbers so")
            by_parts: Expr = expanded(self, op, exprs, result)
            return by_parts
        low, high = value_range(op, exprs, result) if result.kind in "iu" else (None, None)
        return self._make(op, exprs, attr, result, low, high)

    def pair(self, a: Scalar, b: Scalar) -> Expr:
        real, imag = self._unify((a, b))
        return self.emit("pair", real, imag, dtype=dtypes.complex_of(real.dtype))

    def real(self, x: Expr) -> Expr:
        return x.args[0] if x.op == "pair" else self.emit("real", x, dtype=dtypes.real_of(x.dtype))

    def imag(self, x: Expr) -> Expr:
        return x.args[1] if x.op == "pair" else self.emit("imag", x, dtype=dtypes.real_of(x.dtype))

    def __getattr__(self, op: str) -> Callable[..., Expr]:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *args: self.emit(op, *args)

    def add(self, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if x.dtype.kind not in "iu":
            return self.emit("add", x, y)
        if x.op == "const":
            x, y = y, x
        if y.op == "const":
            if x.op == "const":
                return self.const(x.attr + y.attr, x.dtype)
            if y.attr == 0:
                return x
            if x.op == "add" and x.args[1].op == "const":
                return self.add(x.args[0], self.add(x.args[1], y))
        return self._recombine(x, y) or self._recombine(y, x) or self.emit("add", x, y)

    def _recombine(self, x: Expr, y: Expr) -> Expr | None:
        """(p + z // c) * c + z % c  ->  p * c + z, p may be absent; for a constant c: the left side is 0 where c is 0.

        This is what makes `reshape` after `permute_dims` a plain stride where the merged axes are adjacent.
        """
        if x.op != "mul" or y.op != "mod" or x.args[1] is not y.args[1]:
            return None
        z, c = y.args
        if c.op != "const" or not c.attr:
            return None
        left = x.args[0]
        for rest, quotient in ((None, left), left.args, left.args[::-1]) if left.op == "add" else ((None, left),):
            if quotient.op == "floordiv" and quotient.args[0] is z and quotient.args[1] is c:
                return z if rest is None else self.add(self.mul(rest, c), z)
        return None

    def sub(self, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if x.dtype.kind in "iu" and y.op == "const":
            return self.add(x, self.const(-y.attr, y.dtype)) if y.dtype.kind == "i" else self.emit("sub", x, y)
        return self.emit("sub", x, y)

    def mul(self, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if x.dtype.kind not in "iu":
            return self.emit("mul", x, y)
        if x.op == "const":
            x, y = y, x
        if y.op == "const":
            if x.op == "const":
                return self.const(x.attr * y.attr, x.dtype)
            if y.attr in (0, 1):
                return y if y.attr == 0 else x
            if x.op == "mul" and x.args[1].op == "const":
                return self.mul(x.args[0], self.mul(x.args[1], y))
        return self.emit("mul", x, y)

    def floordiv(self, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if x.dtype.kind not in "iu" or y.op != "const" or y.attr <= 0:
            return self.emit("floordiv", x, y)
        c = y.attr
        if c == 1:
            return x
        if x.low is not None and x.high is not None and x.low // c == x.high // c:
            return self.const(x.low // c, x.dtype)
        whole, rest = self._split_multiples(x, c)
        if whole:
            quotients = [self.mul(t.args[0], t.args[1].attr // c) if t.op == "mul" else t.attr // c for t in whole]
            return self.add(self._sum(quotients, x.dtype), self.floordiv(self._sum(rest, x.dtype), y))
        return self.emit("floordiv", x, y)

    def mod(self, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if x.dtype.kind not in "iu" or y.op != "const" or y.attr <= 0:
            return self.emit("mod", x, y)
        c = y.attr
        if c == 1:
            return self.const(0, x.dtype)
        if x.low is not None and x.high is not None and x.low // c == x.high // c:
            return self.sub(x, (x.low // c) * c)
        whole, rest = self._split_multiples(x, c)
        if whole:
            return self.mod(self._sum(rest, x.dtype), y)
        return self.emit("mod", x, y)

    def _split_multiples(self, x: Expr, c: Size) -> tuple[list[Expr], list[Expr]]:
        """Summands of x that c divides, and the others. Only for ranges that cannot have wrapped."""
        if x.low is None:
            return [], [x]
        whole = [t for t in terms(x) if constant_factor(t) % c == 0]
        return whole, [t for t in terms(x) if constant_factor(t) % c != 0]

    def _sum(self, items: Iterable[Scalar], dtype: np.dtype) -> Expr:
        total = self.const(0, dtype)
        for item in items:
            total = self.add(total, item)
        return total

    def minimum(self, a: Scalar, b: Scalar) -> Expr:
        return self._extreme(
            "minimum", a, b, lambda x, y: x.high is not None and y.low is not None and at_most(x.high, y.low)
        )

    def maximum(self, a: Scalar, b: Scalar) -> Expr:
        return self._extreme(
            "maximum", a, b, lambda x, y: x.low is not None and y.high is not None and at_most(y.high, x.low)
        )

    def _extreme(self, op: str, a: Scalar, b: Scalar, first_wins: Callable[[Expr, Expr], bool]) -> Expr:
        x, y = self._unify((a, b))
        if x.dtype.kind in "iu":
            if first_wins(x, y):
                return x
            if first_wins(y, x):
                return y
        return self.emit(op, x, y)

    def compare(self, op: str, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if any(is_dim(n) for e in (x, y) for n in (e.low, e.high)):
            known = _compared(op, x, y)
            return self.emit(op, x, y) if known is None else self.const(known, dtypes.bool_)
        if x.low is not None and x.high is not None and y.low is not None and y.high is not None:
            outcomes = {_COMPARE[op](p, q) for p in (x.low, x.high) for q in (y.low, y.high)}
            monotonic = op in ("lt", "le", "gt", "ge") or (x.low == x.high and y.low == y.high)
            if len(outcomes) == 1 and monotonic:
                return self.const(outcomes.pop(), dtypes.bool_)
            if x.high < y.low or y.high < x.low:
                if op in ("eq", "ne"):
                    return self.const(op == "ne", dtypes.bool_)
        return self.emit(op, x, y)

    eq, ne, lt, le, gt, ge = map(_comparison, ("eq", "ne", "lt", "le", "gt", "ge"))
    and_, or_ = _logical("and_", True), _logical("or_", False)

    def select(self, cond: Expr, a: Scalar, b: Scalar) -> Expr:
        x, y = self._unify((a, b))
        if cond.op == "const":
            return x if cond.attr else y
        return x if x is y else self.emit("select", cond, x, y)

    def cast(self, x: Expr, dtype: np.dtype) -> Expr:
        if x.dtype is dtype:
            return x
        if x.op == "const" and dtype.kind in "iub" and x.dtype.kind in "iub" and not is_dim(x.attr):
            return self.const(x.attr, dtype)
        return self.emit("cast", x, dtype=dtype)

    def bitcast(self, x: Expr, dtype: np.dtype) -> Expr:
        return self.emit("bitcast", x, dtype=dtype)

    def table(self, values: Sequence[float], index: Expr, dtype: np.dtype) -> Expr:
        return self.emit("table", index, dtype=dtype, attr=tuple(values))

    def while_(
        self, go: Scalar, carries: Sequence[Expr], given: Sequence[Expr], body: Callable[..., Sequence[Scalar]]
    ) -> list[Expr]:
        """The carries after a loop. Under `masked` it takes no step where the mask does not hold: it might not end."""
        first = go if isinstance(go, Expr) else self.const(go, dtypes.bool_)
        masks, self._masks = self._masks, []
        params = [self.param(k, x.dtype) for k, x in enumerate((*carries, *given))]
        results = [self._unify((r, p))[0] for r, p in zip(body(*params), (first, *params), strict=False)]
        self._masks = masks
        first = self.and_(masks[-1], first) if masks else first
        whole = self.loop_of(self.region(params, results), (first, *carries, *given))
        return [self.emit("carry", whole, dtype=x.dtype, attr=k) for k, x in enumerate(carries)]

    def param(self, k: int, dtype: np.dtype) -> Expr:
        """The k-th parameter of a region; regions share them, so that equal ones are one object."""
        return self._intern(("param", k, dtype.char), "param", (), k, dtype, None, None)

    def region(self, params: Sequence[Expr], results: Sequence[Expr]) -> Region:
        key = ("region", len(params), *map(id, (*params, *results)))
        made: Region = self._interned.setdefault(key, Region(tuple(params), tuple(results)))
        return made

    def loop_of(self, region: Region, args: Sequence[Expr]) -> Expr:  # operands (go, *carries, *given)
        return self.emit("while", *args, dtype=dtypes.bool_, attr=region)

    # ---- arrays

    def masked(self, cond: Expr, thunk: Callable[[], Expr], default: Scalar) -> Expr:
        """thunk() where cond holds, else default; loads inside are not executed where it does not."""
        if cond.op == "const":
            if cond.attr:
                return thunk()
            pending = len(self.pending)
            value = self._unify((self.under(cond, thunk), default))[1]  # whose loads are not those of other places
            del self.pending[pending:]  # reductions that only the dropped value needs
            return value
        return self.select(cond, self.under(cond, thunk), default)

    def under(self, cond: Expr, thunk: Callable[[], Expr]) -> Expr:
        """thunk(), whose loads are not executed where cond does not hold: there its value means nothing."""
        self._masks.append(cond if not self._masks else self.and_(self._masks[-1], cond))
        try:
            return thunk()
        finally:
            self._masks.pop()

    def bounded(self, value: Scalar, size: Size) -> Expr:
        """The value, which the caller knows to be in [0, size) wherever it is used: under the mask that says so.

        Divisions that undo a reshape then simplify. The promise is for the simplifier alone: `without_bounds` takes it
        out again once the index is built.
        """
        expr = self._index(value)
        inside = (
            expr.low is not None and expr.high is not None and at_most(0, expr.low) and at_most(expr.high, size - 1)
        )
        if inside or (not is_dim(size) and size < 1):
            return expr
        self._promised = True
        return self._intern(("bounded", size, id(expr)), "bounded", (expr,), size, dtypes.int64, 0, size - 1)

    def without_bounds(self, expr: Expr, memo: dict[Expr, Expr]) -> Expr:
        """The expression without its `bounded` promises, otherwise as it is."""
        if not self._promised:
            return expr
        for part in postorder([expr], lambda part: () if part in memo else part.args):
            if part not in memo:
                memo[part] = self._unbounded(part, [memo[a] for a in part.args])
        return memo[expr]

    def _unbounded(self, part: Expr, args: list[Expr]) -> Expr:
        if part.op == "bounded":
            return args[0]
        if tuple(args) == part.args:
            return part
        return self.with_args(part, tuple(args))

    def with_args(self, part: Expr, args: tuple[Expr, ...]) -> Expr:
        """The same operation on other operands, without simplification beyond interning."""
        if part.op == "load":
            return self.load_of(part.attr, args)
        if part.op == "index":
            return self.index_of(args, *part.attr)
        return self.emit(part.op, *args, dtype=part.dtype, attr=part.attr)

    @property
    def mask(self) -> Expr | None:
        return self._masks[-1] if self._masks else None

    def index(self, value: Scalar, size: Size, what: str = "index") -> Expr:
        """A data-dependent index: negatives wrapped, out-of-range ones reported when the kernel runs (and clamped).

        Under `masked` only an index where the mask holds is reported."""
        wide = self.cast(value, dtypes.int64) if isinstance(value, Expr) else self.const(value, dtypes.int64)
        return self.index_of((wide, *self._current_mask()), size, what)

    def index_of(self, args: tuple[Expr, ...], size: Size, what: str) -> Expr:
        """The checked index with operands `(value)` or `(value, mask)`."""
        key = ("index", size, what, *map(id, args))
        return self._intern(key, "index", args, (size, what), dtypes.int64, 0, size - 1 if size else 0)

    def checked(self, value: Scalar, position: Expr) -> Expr:
        """The value at a checked index. It stays an expression of the index, even where its range is known: an element
        that is the same everywhere is looked up, too."""
        found = value if isinstance(value, Expr) else self.const(value, dtypes.int64)
        if not _reads(found, position):
            other = self.const(int(found.op == "const" and not found.attr), found.dtype)
            return self.emit(
                "select", self.emit("ge", self._hidden(position), self.const(0, dtypes.int64)), found, other
            )
        return found if found.low is None or found.dtype.kind == "b" else self._hidden(found)

    def _hidden(self, value: Expr) -> Expr:
        """The value, with no known range."""
        return self.emit("bitcast", value, dtype=value.dtype)

    def reduce(self, op: str, extents: Sequence[Size], body: Callable[[tuple[Expr, ...]], Expr]) -> Expr:
        """Combination of body(r) over the index space `extents`, row-major."""
        index, variables = self.variables("r", extents)
        value = body(index)
        if 0 in extents:
            return self.const(identity(op, value.dtype), value.dtype)
        if not variables:
            return self.const(0, dtypes.int64) if op.startswith("arg") else value
        result = self.reduction_result(op, value, variables)
        self.pending.append(Reduce(result, op, variables, value))
        return result

    def reduction_result(self, op: str, value: Expr, variables: Sequence[Expr]) -> Expr:
        """A new name for the result of a reduction."""
        dtype = dtypes.int64 if op.startswith("arg") else value.dtype
        result = self._make("result", (), f"%{self._fresh}", dtype, None, None)
        self._fresh += 1
        result.depends = (value.depends - frozenset(variables)) | {result}
        return result

    def substitute(self, expr: Expr, mapping: Mapping[Expr, Expr], memo: dict[Expr, Expr] | None = None) -> Expr:
        """The expression with variables replaced, simplified again."""
        memo = {} if memo is None else memo

        def replaced(part: Expr) -> Any:
            if part in mapping:
                return mapping[part]
            if not part.args or part.depends.isdisjoint(mapping):
                return part
            return memo.get(part)

        for part in postorder([expr], lambda part: () if replaced(part) is not None else part.args):
            if replaced(part) is None:
                memo[part] = self._rebuild(part, [replaced(a) for a in part.args])
        result: Expr = replaced(expr)
        return result

    def _rebuild(self, expr: Expr, args: list[Expr]) -> Expr:
        if expr.op == "cast":
            return self.cast(args[0], expr.dtype)
        if expr.op in _REBUILT:
            simplified: Expr = getattr(self, expr.op)(*args)
            return simplified
        return self.with_args(expr, tuple(args))

    # ---- internals

    def _index(self, value: Scalar) -> Expr:
        return value if isinstance(value, Expr) else self.const(value, dtypes.int64)

    def _current_mask(self) -> tuple[Expr, ...]:
        return (self._masks[-1],) if self._masks else ()

    def _unify(self, args: Sequence[Scalar]) -> tuple[Expr, ...]:
        """Python numbers become constants of the dtype of their expression neighbours (int64 when there is none)."""
        for a in args:
            if type(a) is not Expr:
                break
        else:
            return tuple(args)  # type: ignore[arg-type]
        dtype = next((a.dtype for a in reversed(args) if isinstance(a, Expr)), dtypes.int64)
        return tuple(a if isinstance(a, Expr) else self.const(a, dtype) for a in args)

    def _intern(
        self, key: Any, op: str, args: tuple[Expr, ...], attr: Any, dtype: np.dtype, low: Size | None, high: Size | None
    ) -> Expr:
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self._make(op, args, attr, dtype, low, high)
        return found

    @staticmethod
    def _make(op: str, args: tuple[Expr, ...], attr: Any, dtype: np.dtype, low: Size | None, high: Size | None) -> Expr:
        expr = Expr()
        expr.op, expr.args, expr.attr, expr.dtype, expr.low, expr.high = op, args, attr, dtype, low, high
        first = args[0].depends if args else _NOTHING
        expr.depends = first.union(*[a.depends for a in args[1:] if a.depends is not first]) if args[1:] else first
        return expr


def _reads(value: Expr, part: Expr) -> bool:
    """True if one expression is part of the other."""
    return any(found is part for found in reachable([value], args_of))


_NOTHING: frozenset[Expr] = frozenset()
_REBUILT = frozenset(
    "add sub mul floordiv mod minimum maximum eq ne lt le gt ge and_ or_ select".split()
)  # instructions that simplify when their operands change


def _compared(op: str, x: Expr, y: Expr) -> bool | None:
    """A comparison of sizes, if the form decides it."""
    if x.low is None or x.high is None or y.low is None or y.high is None:
        return None
    if op in ("gt", "ge"):
        return _compared({"gt": "lt", "ge": "le"}[op], y, x)
    if op in ("lt", "le"):
        gap = 1 if op == "lt" else 0
        if at_most(x.high + gap, y.low):
            return True
        return False if at_most(y.high + 1 - gap, x.low) else None
    if at_most(x.high + 1, y.low) or at_most(y.high + 1, x.low):
        return op == "ne"
    if same(x.low, x.high) and same(y.low, y.high) and same(x.low, y.low):
        return op == "eq"
    return None


def _wrapped(value: int, dtype: np.dtype) -> int:
    """The value modulo the width of an integer dtype."""
    bits = 8 * dtype.itemsize
    low = -(1 << bits - 1) if dtype.kind == "i" else 0
    return (value - low) % (1 << bits) + low


def identity(op: str, dtype: np.dtype) -> bool | int | float:
    """The value that leaves a combination unchanged."""
    if op in ("add", "or"):
        return False if dtype.kind == "b" else 0
    if op in ("mul", "and"):
        return True if dtype.kind == "b" else 1
    if dtype.kind == "f":
        return float("-inf") if op == "max" else float("inf")
    if dtype.kind == "b":
        return op == "min"
    info = np.iinfo(dtype)
    return int(info.min if op == "max" else info.max)


def scan_start(op: str, dtype: np.dtype) -> complex:
    """Start of a running combination: the first element comes out as it is, the sign of a zero included."""
    if op == "add" and dtype.kind in "fc":
        return -0.0 if dtype.kind == "f" else complex(-0.0, -0.0)
    return identity(op, dtype)
