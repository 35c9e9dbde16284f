"""The transcendental functions of the compiler: name -> function(builder, x[, y]) over the scalar instruction set.

Every backend runs these same instructions, which is why a function has the same bits eager, compiled, and on every
device. They are straight-line: selects, and `rarely` for code that no ordinary argument needs.

Largest error found, in ulp, and float32 instructions without constants (the rare side not counted). float32: every
value with 2^-6 <= |x| < 2^6 for most functions, every 307th of all 2^32 for each; float64: a million points against 80
bits, 28,000 against mpmath for erf and erfc; two operands: 1.6 million pairs.

    function  float32 float64  instr. | function  float32 float64  instr. | function  float32 float64  instr.
    exp          0.90    0.86      16 | log          1.21    0.85      26 | sin          1.72    1.51      25
    exp2         0.83    0.89      14 | log2         1.46    0.95      27 | cos          1.81    1.68      25
    expm1        1.56    1.85      23 | log10        1.31    1.00      28 | tan          1.64    1.55      37
    sigmoid      1.70    1.60      24 | log1p        1.28    0.86      44 | asin         1.71    1.55      19
    sinh         1.62    1.50      28 | asinh        1.48    1.26      55 | acos         1.20    1.05      26
    cosh         1.28    1.27      18 | acosh        1.78    1.46      57 | atan         1.25    1.47      19
    tanh         1.86    1.93      25 | atanh        1.30    1.06      58 | atan2        1.46    1.42      32
    erf          1.29    1.05      27 | erfc         0.80    3.31      35 | pow          0.53    1.03      71
    hypot        1.17    1.16      20 | rsqrt        1.49    1.50       2 |

Special functions are computed in float64; float32 is its rounding (0.50 ulp). Largest error of float64 among
1,000 points against mpmath, where the function has no zero beyond those that are taken care of:

    cbrt 0.5, gamma 3.0, lgamma 4.0, digamma 2.3, trigamma 3.6, erfcx 2.1, ndtr 3.7, log_ndtr 2.8, erfinv 5.2,
    erfcinv 3.5, ndtri 3.2, i0 2.7, i0e 2.8, i1 2.4, i1e 2.2, exp1 3.8, expi 3.2; j0 and j1 absolute: 4e-16
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import DTypeError
from ..float_format import FORMATS
from ..notation import Value
from ..scalar import Builder
from .arc import acos, asin, atan, atan2
from .bessel import i0, i0e, i1, i1e, j0, j1, y0, y1
from .erf import erf, erfc
from .exp import cosh, exp, exp2, expm1, sigmoid, sinh, tanh
from .gamma import digamma, gamma, lgamma, trigamma
from .integral import exp1, expi
from .log import acosh, asinh, atanh, log, log1p, log2, log10, logaddexp, logaddexp2
from .normal import erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri
from .pow import cbrt, hypot, pow, rsqrt
from .trig import cos, sin, tan


def _over_builder(formula: Callable[..., Value]) -> Callable[..., Any]:
    def function(s: Builder[Any], *operands: Any) -> Any:
        values = [Value(s, operand) for operand in operands]
        if values[0].dtype not in FORMATS:
            got = values[0].dtype.name
            raise DTypeError(f"{formula.__name__} takes float32 or float64, got {got}; cast it first")
        return formula(*values).raw

    function.__name__, function.__doc__ = formula.__name__, formula.__doc__
    return function


_ELEMENTARY = (
    *(exp, exp2, expm1, sigmoid, sinh, cosh, tanh, log, log2, log10, log1p, asinh, acosh, atanh, sin, cos, tan),
    *(asin, acos, atan, atan2, erf, erfc, pow, hypot, rsqrt),
)
_SPECIAL = (
    *(cbrt, logaddexp, logaddexp2, gamma, lgamma, digamma, trigamma, erfcx, erfinv, erfcinv, ndtr, log_ndtr, ndtri),
    *(i0, i0e, i1, i1e, j0, j1, y0, y1, exp1, expi),
)
ELEMENTARY, SPECIAL = (
    {formula.__name__: _over_builder(formula) for formula in formulas} for formulas in (_ELEMENTARY, _SPECIAL)
)
TABLE: dict[str, Callable[..., Any]] = ELEMENTARY | SPECIAL
