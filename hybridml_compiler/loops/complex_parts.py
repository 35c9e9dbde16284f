"""Instructions on complex numbers by their parts, so that generated code knows only `real`, `imag` and `pair`.

A product is the plain formula, as in PyTorch and XLA: where the processor has fused multiply-adds NumPy rounds one of
the two products of a part less, so that its last bit depends on the machine. A quotient is NumPy's (Smith, "Algorithm
116: Complex division", 1962), with one division by the divisor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import bool_, real_of

PARTS = ("real", "imag", "pair")  # what no code is expanded from


def expanded(s: Any, op: str, args: Sequence[Any], dtype: np.dtype) -> Any:
    """The instruction `op` on complex operands, or with the complex result `dtype`, in instructions on real ones."""
    return _cast(s, args[0], dtype) if op == "cast" else BY_PARTS[op](s, *args)


def _each(op: str) -> Callable[..., Any]:
    """An instruction that computes each part from those parts."""

    def by_parts(s: Any, *args: Any) -> Any:
        of_reals = getattr(s, op)
        return s.pair(of_reals(*map(s.real, args)), of_reals(*map(s.imag, args)))

    return by_parts


def _select(s: Any, cond: Any, x: Any, y: Any) -> Any:
    return s.pair(s.select(cond, s.real(x), s.real(y)), s.select(cond, s.imag(x), s.imag(y)))


def _mul(s: Any, x: Any, y: Any) -> Any:
    (a, b), (c, d) = _parts(s, x), _parts(s, y)
    return s.pair(s.sub(s.mul(a, c), s.mul(b, d)), s.add(s.mul(a, d), s.mul(b, c)))


def _div(s: Any, x: Any, y: Any) -> Any:
    (a, b), (c, d) = _parts(s, x), _parts(s, y)
    real_is_greater = s.ge(s.abs(c), s.abs(d))
    greater, less = s.select(real_is_greater, c, d), s.select(real_is_greater, d, c)
    u, v = s.select(real_is_greater, a, b), s.select(real_is_greater, b, a)
    zero, one = s.const(0, s.dtype(a)), s.const(1, s.dtype(a))
    ratio = s.div(less, greater)
    scale = s.div(one, s.add(greater, s.mul(less, ratio)))
    turned = s.mul(u, ratio)
    across = s.select(real_is_greater, s.sub(v, turned), s.sub(turned, v))
    by_zero = s.and_(s.eq(c, zero), s.eq(d, zero))
    return s.pair(
        s.select(by_zero, s.div(a, s.abs(c)), s.mul(s.add(u, s.mul(v, ratio)), scale)),
        s.select(by_zero, s.div(b, s.abs(c)), s.mul(across, scale)),
    )


def _sign(s: Any, z: Any) -> Any:
    """z / |z|, of which nothing overflows, and 0 at 0; along an axis where one part is infinite, nan where both are."""
    parts = _parts(s, z)
    dtype = s.dtype(parts[0])
    zero, one, endless, nowhere = (s.const(number, dtype) for number in (0, 1, np.inf, np.nan))
    sizes = [s.abs(part) for part in parts]
    greater = s.maximum(*sizes)
    x, y = (s.div(part, s.select(s.eq(greater, zero), one, greater)) for part in parts)
    length = s.sqrt(s.add(s.mul(x, x), s.mul(y, y)))
    length = s.select(s.eq(greater, zero), one, length)
    ends = [s.eq(size, endless) for size in sizes]
    along = s.select(s.and_(*ends), nowhere, one)
    axis = (s.select(end, s.copysign(along, part), zero) for end, part in zip(ends, parts, strict=True))
    return s.pair(*(s.select(s.or_(*ends), end, s.div(part, length)) for end, part in zip(axis, (x, y), strict=True)))


def _exp(s: Any, z: Any) -> Any:
    """e**x (cos y + i sin y), in two factors where the first alone may overflow; special cases as C99."""
    x, y = _parts(s, z)
    dtype = s.dtype(x)
    far = s.gt(x, s.const(80, dtype))
    growth = s.exp(s.select(far, s.mul(x, s.const(0.5, dtype)), x))
    again = s.select(far, growth, s.const(1, dtype))
    real, imag = (s.mul(s.mul(growth, turn), again) for turn in (s.cos(y), s.sin(y)))
    no_angle = s.ne(s.sub(y, y), s.const(0, dtype))
    lost = s.and_(no_angle, s.eq(s.abs(x), s.const(np.inf, dtype)))
    nowhere = s.and_(no_angle, s.eq(x, s.const(-np.inf, dtype)))
    imag = s.select(nowhere, growth, s.select(s.eq(y, s.const(0, dtype)), y, imag))
    return s.pair(s.select(lost, growth, real), imag)


def _cast(s: Any, x: Any, dtype: np.dtype) -> Any:
    if s.dtype(x).kind != "c":
        real = s.cast(x, real_of(dtype))
        return s.pair(real, s.const(0, s.dtype(real)))
    if dtype is bool_:
        return s.or_(*(s.cast(part, dtype) for part in _parts(s, x)))
    return s.pair(*(s.cast(part, real_of(dtype)) for part in _parts(s, x)))


def _parts(s: Any, x: Any) -> tuple[Any, Any]:
    return s.real(x), s.imag(x)


BY_PARTS: dict[str, Callable[..., Any]] = {
    **{op: _each(op) for op in ("add", "sub", "neg")},
    "select": _select,
    "mul": _mul,
    "div": _div,
    "abs": lambda s, x: s.hypot(s.real(x), s.imag(x)),
    "exp": _exp,
    "sign": _sign,
    "eq": lambda s, x, y: s.and_(s.eq(s.real(x), s.real(y)), s.eq(s.imag(x), s.imag(y))),
    "ne": lambda s, x, y: s.or_(s.ne(s.real(x), s.real(y)), s.ne(s.imag(x), s.imag(y))),
}
