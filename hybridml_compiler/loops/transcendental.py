"""The transcendental functions of the compiler: name -> function(builder, x[, y]) over the scalar instruction set.

Every backend runs these same polynomials, which is why a function has the same bits eager, compiled, and on every
device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DTypeError
from .float_format import FORMATS
from .notation import Value
from .scalar import Builder
from .transcendental_arc import acos, asin, atan, atan2
from .transcendental_erf import erf, erfc
from .transcendental_exp import cosh, exp, exp2, expm1, sigmoid, sinh, tanh
from .transcendental_log import acosh, asinh, atanh, log, log1p, log2, log10
from .transcendental_pow import hypot, pow, rsqrt
from .transcendental_trig import cos, sin, tan


def _over_builder(formula: Callable[..., Value]) -> Callable[..., Any]:
    def function(s: Builder[Any], *operands: Any) -> Any:
        values = [Value(s, operand) for operand in operands]
        if values[0].dtype not in FORMATS:
            got = values[0].dtype.name
            raise DTypeError(f"{formula.__name__} takes float32 or float64, got {got}; cast it first")
        return formula(*values).raw

    function.__name__, function.__doc__ = formula.__name__, formula.__doc__
    return function


TABLE: dict[str, Callable[..., Any]] = {
    formula.__name__: _over_builder(formula)
    for formula in (
        exp,
        exp2,
        expm1,
        sigmoid,
        sinh,
        cosh,
        tanh,
        log,
        log2,
        log10,
        log1p,
        asinh,
        acosh,
        atanh,
        sin,
        cos,
        tan,
        asin,
        acos,
        atan,
        atan2,
        erf,
        erfc,
        pow,
        hypot,
        rsqrt,
    )
}
