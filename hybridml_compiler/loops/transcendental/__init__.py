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
from importlib import import_module
from typing import Any

from ...errors import DTypeError
from ...once import once
from ..scalar import Builder


@once
def _formula(module: str, name: str) -> Callable[..., Any]:
    """A function over values that are written as formulas."""
    formula: Callable[..., Any] = getattr(import_module(f".{module}", __name__), name)
    return formula


def _over_builder(module: str, name: str) -> Callable[..., Any]:
    def function(s: Builder[Any], *operands: Any) -> Any:
        from ..float_format import FORMATS
        from ..notation import Value

        values = [Value(s, operand) for operand in operands]
        if values[0].dtype not in FORMATS:
            raise DTypeError(f"{name} takes float32 or float64, got {values[0].dtype.name}; cast it first")
        return _formula(module, name)(*values).raw

    function.__name__ = name
    return function


def _table(modules: dict[str, str]) -> dict[str, Callable[..., Any]]:
    """Functions of modules that are imported with the first call of one: all take 5 ms, and most kernels call none."""
    return {name: _over_builder(module, name) for module, names in modules.items() for name in names.split()}


ELEMENTARY = _table({
    "exp": "exp exp2 expm1 sigmoid sinh cosh tanh",
    "log": "log log2 log10 log1p asinh acosh atanh",
    "trig": "sin cos tan",
    "arc": "asin acos atan atan2",
    "erf": "erf erfc",
    "pow": "pow hypot rsqrt",
})  # fmt: skip
SPECIAL = _table({
    "pow": "cbrt",
    "log": "logaddexp logaddexp2",
    "gamma": "gamma lgamma digamma trigamma",
    "normal": "erfcx erfinv erfcinv ndtr log_ndtr ndtri",
    "bessel": "i0 i0e i1 i1e j0 j1 y0 y1",
    "integral": "exp1 expi",
})  # fmt: skip
TABLE = ELEMENTARY | SPECIAL
