"""Rows about exact parts of numbers: common divisors, mantissa and exponent; Python's `math` and complex numbers, and
NumPy's functions, to their last bit. NumPy and Python compute them."""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, DTypeError, ShapeError
from . import samples
from .op import REQUIRED, Op, Sample
from .samples import fails, floats
from .shapes import broadcast


def _of_integers(name: str, ufunc: np.ufunc, doc: str) -> Op:
    return Op(
        name,
        "opaque",
        inputs=("x", "y"),
        infer=lambda x, y: Aval(broadcast(name, x, y), x.dtype, x.weak and y.weak),
        eager=lambda x, y: np.asarray(ufunc(x, y)),
        vjp=(None, None),
        memory_order="operands",
        samples=samples.elementwise(2, (-2.0, 2.0), "integer"),
        error_samples=lambda: (
            fails(ShapeError, f"{name}: shapes", np.zeros((2, 3), int), np.zeros(4, int)),
            fails(DTypeError, f"{name}: takes integers", (2,), (2,)),
        ),
        accepts="integer",
        unify=(0, 1),
        doc=doc,
    )


gcd = _of_integers("gcd", np.gcd, "Greatest common divisor of |x| and |y|; that of 0 and y is |y|.")
lcm = _of_integers("lcm", np.lcm, "Least common multiple of |x| and |y|; 0 where one of them is 0.")


def _ldexp_infer(x: Aval, exponent: Aval) -> Aval:
    if exponent.dtype.kind not in "iu":
        raise DTypeError(f"ldexp: the exponent must be integers, got {exponent}; cast it with astype(hm.int64)")
    return Aval(broadcast("ldexp", x, exponent), x.dtype, x.weak)


def _ldexp(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(np.ldexp(x, np.clip(exponent, -10_000, 10_000).astype(np.int32)))


def _ldexp_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for dtype in ("f8", "f4"):
        yield Sample((floats(rng, (3, 4), dtype=dtype), rng.integers(-5, 5, (4,))), grad=dtype == "f8")
        yield Sample(
            (np.array([1.5, -3.0, 0.0, np.inf, np.nan, 1.75], dtype), np.array([5, -1100, 9, 1, 2, 2**40])), grad=False
        )


ldexp: Op = Op(
    "ldexp",
    "opaque",
    inputs=("x", "exponent"),
    infer=_ldexp_infer,
    eager=_ldexp,
    vjp=(lambda g, exponent: ldexp(g, exponent), None),
    memory_order="operands",
    samples=_ldexp_samples,
    error_samples=lambda: (
        fails(DTypeError, "ldexp: the exponent must be integers", (2,), (2,)),
        fails(ShapeError, "ldexp: shapes", (2, 3), np.zeros(4, int)),
    ),
    accepts="float",
    unify=(0,),
    doc="x * 2 ** exponent for integers, rounded once.",
)


def _frexp_rule(g: Any, out: Any) -> Any:
    return ldexp(g[0], -out[1])


def _frexp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mantissa, exponent = np.frexp(x)
    return np.asarray(mantissa), np.asarray(exponent, np.int32)


frexp = Op(
    "frexp",
    "opaque",
    inputs=("x",),
    infer=lambda x: (x, Aval(x.shape, dtypes.int32)),
    eager=_frexp,
    vjp=(_frexp_rule,),
    memory_order="operands",
    samples=lambda rng: (
        *(Sample((floats(rng, (3, 4), (0.6, 0.9), dtype),), grad=dtype == "f8") for dtype in ("f8", "f4")),
        Sample((np.array([0.0, -0.0, -6.0, 1e-310, 1.0, 0.1]),), grad=False),
    ),
    error_samples=lambda: (fails(DTypeError, "frexp: takes real numbers", np.zeros(2, "c8")),),
    results=("mantissa", "exponent"),
    accepts="float",
    unify=(0,),
    doc="Mantissa in [1/2, 1) and exponent with x = mantissa * 2 ** exponent; 0 has the exponent 0.",
)


def _python_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(np.frompyfunc(lambda a, b: float(a) ** float(b), 2, 1)(x, y), x.dtype)
    except (ArithmeticError, TypeError) as error:
        raise ArgumentError(f"python_power: a power is no float ({error})") from None


python_power = Op(
    "python_power",
    "opaque",
    public=False,
    inputs=("x", "y"),
    infer=lambda x, y: Aval(broadcast("python_power", x, y), x.dtype, x.weak and y.weak),
    fails=True,
    eager=_python_power,
    vjp=(None, None),
    memory_order="operands",
    samples=samples.elementwise(2, (0.5, 2.0), "float", edges=False),
    error_samples=lambda: (
        fails(ShapeError, "python_power: shapes", (2, 3), (4,)),
        fails(ArgumentError, "python_power: a power is no float", -np.ones(2), np.full(2, 0.5)),
        fails(DTypeError, "python_power: takes real numbers", np.zeros(2, "c8"), np.zeros(2, "c8")),
    ),
    accepts="float",
    unify=(0, 1),
    doc="x ** y of Python's floats, in their last bit (`pow` is faster) and in their errors. Without derivatives.",
)


def _python_math(x: np.ndarray, *, name: str) -> np.ndarray:
    function = getattr(math, name)
    try:
        return np.asarray(np.frompyfunc(lambda a: function(float(a)), 1, 1)(x), x.dtype)
    except (ArithmeticError, ValueError) as error:
        raise ArgumentError(f"python_math: {name} has no value ({error})") from None


python_math = Op(
    "python_math",
    "opaque",
    public=False,
    inputs=("x",),
    params={"name": REQUIRED},
    infer=lambda x, *, name: Aval(x.shape, x.dtype, x.weak),
    fails=True,
    eager=_python_math,
    vjp=(None,),
    memory_order="operands",
    samples=lambda rng: (Sample((floats(rng, (3,), (0.5, 2.0)),), {"name": name}, False) for name in ("cos", "log")),
    error_samples=lambda: (
        fails(ArgumentError, "python_math: sqrt has no value", -np.ones(2), name="sqrt"),
        fails(DTypeError, "python_math: takes real numbers", np.zeros(2, "c8"), name="cos"),
    ),
    accepts="float",
    unify=(0,),
    doc="A function of Python's `math`, of floats, in its last bit and in its errors. Without derivatives.",
)


SCALAR_POWER = "**"  # NumPy's operator of scalars: the C library rounds it, where `np.power` has vectors of its own


def one_by_one(xs: Sequence[np.ndarray], dtype: np.dtype, name: str) -> np.ndarray:
    """A ufunc of NumPy's, or the operator, of one number at a time."""
    function = operator.pow if name == SCALAR_POWER else getattr(np, name)
    arrays = np.broadcast_arrays(*xs)
    with np.errstate(all="ignore"):
        found = [function(*given) for given in zip(*(a.ravel() for a in arrays), strict=True)]
    return np.asarray(found, dtype).reshape(arrays[0].shape)


def _numpy_eager(*xs: np.ndarray, name: str) -> np.ndarray:
    if name == SCALAR_POWER:
        return one_by_one(xs, xs[0].dtype, name)
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(*xs))


def _numpy_infer(*xs: Aval, name: str) -> Aval:
    ufunc = getattr(np, "power" if name == SCALAR_POWER else name)
    if ufunc.nin != len(xs):
        raise ArgumentError(f"numpy_{('unary', 'binary')[len(xs) - 1]}: np.{name} takes {ufunc.nin} arrays")
    dtype = ufunc.resolve_dtypes((*(x.dtype for x in xs), None))[-1]
    return Aval(broadcast(name, *xs), dtypes.canonical(dtype))


def _of_numpy(row: str, names: tuple[str, ...], inputs: tuple[str, ...], other: str) -> Op:
    return Op(
        row,
        "opaque",
        public=False,
        inputs=inputs,
        params={"name": REQUIRED},
        infer=_numpy_infer,
        eager=_numpy_eager,
        vjp=(None,) * len(inputs),
        element_map="broadcast",
        memory_order="operands",
        samples=lambda rng: (
            Sample((floats(rng, (3,), (0.5, 2.0)),) * len(inputs), {"name": name}, False) for name in names
        ),
        error_samples=lambda: (
            fails(ArgumentError, f"{row}: np.{other} takes", *(np.zeros(2) for _ in inputs), name=other),
        ),
        accepts="inexact",
        unify=tuple(range(len(inputs))),
        doc="A ufunc of NumPy, of floats or complex numbers, by its name and in its last bit. Without derivatives.",
    )


numpy_unary = _of_numpy("numpy_unary", ("exp", "cos"), ("x",), "power")
numpy_binary = _of_numpy("numpy_binary", ("power", "hypot", SCALAR_POWER), ("x", "y"), "exp")


_OF_COMPLEX = "acos acosh asin asinh atan atanh cos cosh exp log log10 phase rect sin sinh sqrt tan tanh"
# What a number is to the function: all operands are complex in the program.
_KINDS: dict[str, Callable[[complex], Any]] = {
    "int": lambda z: int(z.real), "float": lambda z: z.real, "complex": complex,
    "float64": lambda z: np.float64(z.real), "complex128": np.complex128,
}  # fmt: skip
# Functions of complex numbers by the names that `python_complex` has for them.
COMPLEX_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "truediv": operator.truediv, "pow": operator.pow, "abs": abs,
    **{f"cmath.{name}": getattr(cmath, name) for name in _OF_COMPLEX.split()},
    **{f"np.{name}": getattr(np, name) for name in ("absolute", "exp", "log", "sqrt", "sin", "cos", "sinh", "cosh")},
}  # fmt: skip
_REAL = ("abs", "cmath.phase", "np.absolute")


def _python_complex(x: np.ndarray, y: np.ndarray, *, name: str, kinds: tuple[str, ...]) -> np.ndarray:
    function, of = COMPLEX_FUNCTIONS[name], [_KINDS[kind] for kind in kinds]
    dtype = _python_complex_type(name, x.dtype)

    def call(*operands: complex) -> Any:
        return function(*[kind(z) for kind, z in zip(of, operands, strict=False)])

    try:
        with np.errstate(all="ignore"):
            return np.asarray(np.frompyfunc(call, 2, 1)(x, y), dtype)
    except (ArithmeticError, ValueError) as error:
        raise ArgumentError(f"python_complex: {name} has no value ({error})") from None


def _python_complex_type(name: str, dtype: np.dtype) -> np.dtype:
    return dtypes.real_of(dtype) if name in _REAL else dtype


python_complex = Op(
    "python_complex",
    "opaque",
    public=False,
    inputs=("x", "y"),
    params={"name": REQUIRED, "kinds": REQUIRED},
    infer=lambda x, y, *, name, kinds: Aval(
        broadcast("python_complex", x, y), _python_complex_type(name, x.dtype), x.weak and y.weak
    ),
    fails=True,
    eager=_python_complex,
    vjp=(None, None),
    memory_order="operands",
    samples=lambda rng: (
        Sample(tuple(rng.random(3) + 1j for _ in "xy"), {"name": name, "kinds": kinds}, False)
        for name, kinds in (("truediv", ("complex", "float")), ("cmath.exp", ("complex",)), ("abs", ("complex",)))
    ),
    error_samples=lambda: (
        fails(ArgumentError, "python_complex: truediv has no value", np.ones(2, "c16"), np.zeros(2, "c16"),
              name="truediv", kinds=("complex", "complex")),
        fails(ShapeError, "python_complex: shapes", np.ones((2, 3), "c16"), np.ones(4, "c16"), name="truediv",
              kinds=("complex", "complex")),
    ),
    accepts="number",
    unify=(0, 1),
    doc="A function of Python's complex numbers, or of NumPy's, in its last bit and in its errors. A function of one"
        " number is given it twice. Without derivatives.",
)  # fmt: skip


ROWS = (gcd, lcm, ldexp, frexp, python_power, python_math, numpy_unary, numpy_binary, python_complex)
