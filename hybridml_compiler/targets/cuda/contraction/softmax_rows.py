"""Rows of a softmax: the loop nest between two products, whose weights are exponentials below the maximum of a row.

    most = max over a row of x;  weight = exp(rate * (x - most));  total = sum over a row of weight

So weights of one maximum are those of another times exp(rate * (one - another)), but for roundings, and a row can be
gone over once: what has been added up is multiplied by that whenever the maximum grows (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018). Whether weights are such exponentials is read off their expression, in which
any value may be rounded to a narrower type and back.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from .... import dtypes
from ....loops.builder import LoopBuilder
from ....loops.ir import Expr, For, Kernel, Reduce, Store, perfect_nest
from ....ops.conversion import convert
from ....record import record
from ....walk import postorder

_NARROW = (dtypes.canonical("bfloat16"), dtypes.float16)


@record
class Rows:
    """The parts of the loop nest: its maximum, its weights, what it adds up, and what it stores for each row."""

    row: Expr
    most: Reduce
    key: Expr  # the variable of the loop over a row
    weight: Store
    total: Reduce
    stores: tuple[Store, ...]
    rate: float


def rows_of(kernel: Kernel) -> Rows | None:
    """The parts of a loop nest over rows; None if it is none of a softmax."""
    loops, body = perfect_nest(kernel.body)
    reductions = [stmt for stmt in body if isinstance(stmt, Reduce)]
    inner = [stmt for stmt in body if isinstance(stmt, For)]
    stores = tuple(stmt for stmt in body if isinstance(stmt, Store))
    if len(loops) != 1 or [x.op for x in reductions] != ["max", "add"] or len(inner) != 1 or kernel.scratch:
        return None
    (most, total), weight = reductions, inner[0].body[0]
    if any(len(x.vars) != 1 for x in reductions) or len(inner[0].body) != 1 or not isinstance(weight, Store):
        return None
    if body[0] is not most:
        return None
    rate = _rate(most, inner[0].var, weight, total)
    return None if rate is None else Rows(loops[0].var, most, inner[0].var, weight, total, stores, rate)


def _rate(most: Reduce, key: Expr, weight: Store, total: Reduce) -> float | None:
    """The factor of x - most in the exponent of a weight; None if it is no such exponential, or not what is added."""
    forms = _Forms()
    column = dict.fromkeys((most.vars[0], key, total.vars[0]), key)
    x, value, added = (forms.of(e, column) for e in (most.value, weight.value, total.value))
    read = forms.s.load_of(weight.buffer, (forms.of(weight.index, column),))
    if added is not convert(forms.s, read, read.dtype, dtypes.float32):
        return None
    value = forms.exact(
        value if value.dtype is dtypes.float32 else convert(forms.s, value, value.dtype, dtypes.float32)
    )
    if value.op != "exp":
        return None
    terms = forms.terms(value.args[0], (forms.exact(x), most.result))
    rate = None if terms is None else terms[forms.exact(x)]
    return rate if terms is not None and rate is not None and rate > 0 and terms[most.result] == -rate else None


class _Forms:
    """Expressions in one builder, so that equal ones are one."""

    def __init__(self) -> None:
        self.s = LoopBuilder()

    def of(self, expr: Expr, renamed: Mapping[Expr, Expr]) -> Expr:
        """The expression with other variables."""
        made: dict[Expr, Expr] = {}
        for part in postorder([expr], lambda part: part.args):
            if part.op == "const":
                made[part] = self.s.const(part.attr, part.dtype)
            elif part.op in ("var", "result"):
                made[part] = renamed.get(part, part)
            else:
                made[part] = self.s.with_args(part, tuple(made[a] for a in part.args))
        return made[expr]

    def exact(self, expr: Expr) -> Expr:
        """The value that a float32 is, or is rounded from."""
        while True:
            parts = postorder([expr], lambda part: part.args)
            found = next((x for x in parts[-2::-1] if x.dtype is dtypes.float32 and self._is_rounded(expr, x)), None)
            if found is None:
                return expr
            expr = found

    def _is_rounded(self, expr: Expr, x: Expr) -> bool:
        s, wide = self.s, dtypes.float32
        return any(convert(s, convert(s, x, wide, narrow), narrow, wide) is expr for narrow in _NARROW)

    def terms(self, expr: Expr, leaves: tuple[Expr, Expr]) -> dict[Expr, float] | None:
        """Factors of the leaves in a sum of multiples of them; None if it is something else."""
        expr = self.exact(expr)
        if expr in leaves:
            return {leaf: float(leaf is expr) for leaf in leaves}
        if expr.op not in ("add", "sub", "mul", "neg"):
            return None
        if expr.op == "mul":
            constants = [e for e in expr.args if e.op == "const"]
            others = [e for e in expr.args if e.op != "const"]
            found = self.terms(others[0], leaves) if len(constants) == len(others) == 1 else None
            return None if found is None else {leaf: factor * constants[0].attr for leaf, factor in found.items()}
        total = dict.fromkeys(leaves, 0.0)
        for k, part in enumerate(expr.args):
            found = self.terms(part, leaves)
            if found is None:
                return None
            sign = -1 if expr.op == "neg" or (expr.op == "sub" and k) else 1
            total = {leaf: total[leaf] + sign * found[leaf] for leaf in leaves}
        return total


def rounded_from(value: Expr) -> Expr | None:
    """The float32 that a narrow number is rounded from; None where it is not."""
    forms = _Forms()
    made = forms.of(value, {})
    wide = (part for part in reversed(_all(value)) if part.dtype is dtypes.float32)
    found = (x for x in wide if convert(forms.s, forms.of(x, {}), x.dtype, value.dtype) is made)
    return next(found, None)


def vanishes(value: Expr, low: Expr, zero: Container[str]) -> bool:
    """Whether a value is zero where an operand of it is -inf, and these arrays are zero."""
    forms = _Forms()
    s, low = forms.s, forms.of(low, {})

    def is_low(expr: Expr) -> bool:
        expr = forms.exact(expr)
        if expr is low:
            return True
        if expr.op == "mul":
            factors = [e.attr for e in expr.args if e.op == "const"]
            return len(factors) == 1 and factors[0] > 0 and any(map(is_low, expr.args))
        if expr.op in ("add", "sub"):
            return is_low(expr.args[0]) and not any(part is low for part in _all(expr.args[1]))
        return False

    def is_zero(expr: Expr) -> bool:
        expr = forms.exact(expr)
        if expr.op == "mul":
            return any(map(is_zero, expr.args))
        loads = [e for e in _all(expr) if e.op == "load" and e.attr.name in zero]
        if any(expr is convert(s, e, e.dtype, expr.dtype) for e in loads):
            return True
        return expr.op == "exp" and is_low(expr.args[0])

    value = forms.of(value, {})
    return is_zero(value if value.dtype is dtypes.float32 else convert(s, value, value.dtype, dtypes.float32))


def _all(expr: Expr) -> list[Expr]:
    return postorder([expr], lambda part: part.args)
