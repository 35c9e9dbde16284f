"""Floor division and its remainder as targets compute them, over the machine's division toward zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def int_divmod(s: Any, x: Any, y: Any, divide: Callable[[Any, Any], Any], rest: Callable[[Any, Any], Any]) -> Any:
    """Quotient and remainder of integers: x // 0 = x % 0 = 0, and INT_MIN // -1 wraps.

    `s` is a builder; `divide` and `rest` are the machine's, which get no divisor that would trap.
    """
    zero = s.eq(y, 0)
    if s.dtype(x).kind == "u":
        safe = s.select(zero, 1, y)
        q, r = divide(x, safe), rest(x, safe)
        return s.select(zero, 0, q), s.select(zero, 0, r)
    minus = s.eq(y, -1)
    safe = s.select(s.or_(zero, minus), 1, y)
    q, r = divide(x, safe), rest(x, safe)
    below = s.and_(s.ne(r, 0), s.lt(s.xor(r, safe), 0))
    q = s.select(below, s.sub(q, 1), q)
    r = s.select(below, s.add(r, safe), r)
    q = s.select(minus, s.neg(x), q)
    return s.select(zero, 0, q), s.select(s.or_(zero, minus), 0, r)


def float_divmod(s: Any, x: Any, y: Any, r: Any) -> Any:
    """Quotient and remainder of floats, of which C's `fmod` is `r`.

    NumPy's divmod (npy_divmod), step for step: it decides the signs of zeros and the last bit.
    """
    zero = s.const(0.0, s.dtype(x))
    quotient = s.div(s.sub(x, r), y)
    wrong_sign = s.and_(s.ne(r, zero), s.xor(s.lt(y, zero), s.lt(r, zero)))
    mod = s.select(s.ne(r, zero), s.select(wrong_sign, s.add(r, y), r), s.copysign(zero, y))
    quotient = s.select(wrong_sign, s.sub(quotient, 1.0), quotient)
    whole = s.floor(quotient)
    whole = s.select(s.gt(s.sub(quotient, whole), 0.5), s.add(whole, 1.0), whole)
    exact = s.div(x, y)
    whole = s.select(s.ne(quotient, zero), whole, s.copysign(zero, exact))
    by_zero = s.eq(y, zero)
    return s.select(by_zero, exact, whole), s.select(by_zero, r, mod)
