"""Elementwise rows: arithmetic, rounding, extremes, selection. `elementwise` is the constructor of every such row.

`eager` is the bare NumPy ufunc wherever NumPy is exact, so that dispatch costs nothing; floating-point flags
(division by zero, overflow, nan) are results here, not warnings: the front end filters those of our modules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import DTypeError, ShapeError
from ..hooks import hooks
from . import complex_functions, samples
from .conversion import cast, convert
from .creation import full
from .indexing import Index, Load, Scalar, at
from .op import DIVISION, REQUIRED, SIMPLE, TRANSCENDENTAL, Accepts, DecidedBy, ErrorSample, Op, Rule, Sample
from .samples import Domain, fails
from .shapes import broadcast

INPUTS = (("x",), ("x", "y"), ("x", "y", "z"))


def elementwise(
    name: str,
    eager: Callable[..., Any],
    vjp: Sequence[Rule | None],
    doc: str,
    *,
    lower: Callable[..., Any] | None = None,
    n: int | None = None,
    inputs: tuple[str, ...] | None = None,
    accepts: Accepts = "numeric",
    result: np.dtype | Callable[[np.dtype], np.dtype] | None = None,
    domain: Domain | Sequence[Domain] = (-2.0, 2.0),
    edges: bool = True,
    operator: str | None = None,
    method: bool = True,
    more_samples: Callable[[], Iterable[Sample]] = tuple,
    cost: float = SIMPLE,
    decided_by: DecidedBy = "",
    constant_of: str = "",
    complex_kernels: bool | None = None,
    complex_eager: Callable[..., Any] | None = None,
) -> Op:
    """A row whose element i depends on element i of its broadcast operands.

    `lower(s, *scalars)` is the scalar meaning; without one it is the builder's instruction of the row's name.
    """
    names = inputs or INPUTS[(n or len(vjp)) - 1]
    count = len(names)
    scalar = lower or (lambda s, *values: getattr(s, name)(*values))
    generated = samples.elementwise(count, domain, accepts, edges)

    def infer(*avals: Aval) -> Aval:
        weak = all(a.weak for a in avals)
        common = avals[0].dtype
        made = common if result is None else result(common) if callable(result) else result
        return Aval(broadcast(name, *avals), made, weak)

    def lower_at(s: Any, i: Index, *loads: Load) -> Scalar:
        return scalar(s, *(at(load, i) for load in loads))

    def error_samples() -> Iterable[ErrorSample]:
        if count > 1:
            shapes = [(2, 3), (4,), (1,)][:count]
            yield fails(ShapeError, f"{name}: shapes", *(np.zeros(shape, _accepted(accepts)) for shape in shapes))
        wrong = _REFUSED.get(accepts)
        if wrong is not None:
            yield fails(DTypeError, f"{name}: takes", *[np.zeros(2, wrong)] * count)

    def all_samples(rng: np.random.Generator) -> Iterable[Sample]:
        yield from generated(rng)
        yield from more_samples()

    return Op(
        name,
        "elementwise",
        inputs=names,
        infer=infer,
        eager=eager,
        lower=lower_at,
        vjp=vjp,
        samples=all_samples,
        error_samples=error_samples,
        accepts=accepts,
        method=name if method else None,
        operator=operator,
        cost=cost,
        decided_by=decided_by,
        constant_of=constant_of,
        complex_kernels=complex_kernels,
        complex_eager=complex_eager,
        doc=doc,
    )


# A dtype that rows refuse.
_REFUSED = {"ordered": "c8", "number": "?", "numeric": "c8", "float": "c8", "integer": "?", "integral": "f4"}


def _accepted(accepts: Accepts) -> str:
    return {"bool": "?", "integer": "i8", "integral": "i8"}.get(accepts, "f4")


def transcendental(name: str) -> Callable[..., np.ndarray]:
    """The eager meaning of a polynomial row: NumPy's own functions differ by a few bits from compiled code."""
    return functools.partial(_evaluated, name)


def _evaluated(name: str, *arrays: np.ndarray) -> np.ndarray:
    if arrays[0].dtype.kind == "c":
        return complex_functions.evaluate(name, *arrays)
    return hooks.transcendental(name, *arrays)


def instructions_of(op: Op) -> dict[str, str]:
    """The instructions whose kernels are the eager meaning of a row, by the kinds of dtypes."""
    if isinstance(op.eager, functools.partial) and op.eager.func is _evaluated:
        name = op.eager.args[0]
        return {"f": name, "c": name} if name in complex_functions.COMPILED else {"f": name}
    return {"multiply": {"c": "mul"}, "abs": {"c": "abs"}, "pow": {"f": "pow"}}.get(op.name, {})


def zero_gradient(g: Any, x_shape: Any, x_dtype: Any) -> Any:
    """Gradient of a step function: zero, as PyTorch (an error would forbid straight-through estimators and rounding
    losses)."""
    return full(shape=x_shape, value=0.0, dtype=x_dtype)


# ---------------------------------------------------------------- arithmetic


def _or_bool(instruction: str, on_bool: str) -> Callable[..., Scalar]:
    """Arithmetic of bool is logic, as NumPy and PyTorch."""
    return lambda s, x, y: getattr(s, on_bool if s.dtype(x).kind == "b" else instruction)(x, y)


add = elementwise(
    "add",
    np.add,
    (lambda g: g, lambda g: g),
    "x + y. Integers wrap; of bools: logical or, as NumPy.",
    lower=_or_bool("add", "or_"),
    accepts="any",
    operator="add",
    complex_kernels=True,
)
subtract = elementwise(
    "subtract", np.subtract, (lambda g: g, lambda g: -g), "x - y. Integers wrap.", lower=lambda s, x, y: s.sub(x, y),
    accepts="number", operator="sub", complex_kernels=True,
)  # fmt: skip
multiply = elementwise(
    "multiply",
    np.multiply,
    (lambda g, y: g * y, lambda g, x: g * x),
    "x * y. Integers wrap; of bools: logical and, as NumPy.",
    lower=_or_bool("mul", "and_"),
    accepts="any",
    operator="mul",
    complex_eager=complex_functions.product,
)
divide = elementwise(
    "divide",
    np.divide,
    (lambda g, y: g / y, lambda g, out, y: -g * out / y),
    "x / y in floating point. Integers become the default float first, as PyTorch; x / 0 is inf or nan, no error.",
    lower=lambda s, x, y: s.div(x, y),
    accepts="inexact",
    domain=((-2.0, 2.0), (0.5, 2.0)),
    operator="truediv",
    cost=DIVISION,
    complex_kernels=True,
)
floor_divide = elementwise(
    "floor_divide",
    np.floor_divide,
    (zero_gradient, lambda g, y_shape, y_dtype: zero_gradient(g, y_shape, y_dtype)),
    "Floor of x / y, as Python's //. Integers: x // 0 is 0 (an error could not be raised from compiled code); "
    "the gradient is zero, that of a step function.",
    lower=lambda s, x, y: s.floordiv(x, y),
    domain=((-2.0, 2.0), (0.5, 2.0)),
    operator="floordiv",
    cost=DIVISION,
    decided_by="number",
)
remainder = elementwise(
    "remainder",
    np.remainder,
    (lambda g: g, lambda g, x, y: -g * (x // y)),
    "x - (x // y) * y with the sign of y, as Python's %. Integers: x % 0 is 0, which goes with x // 0 = 0.",
    lower=lambda s, x, y: s.mod(x, y),
    domain=((-2.0, 2.0), (0.5, 2.0)),
    operator="mod",
    cost=DIVISION,
    decided_by="number",
)
negative = elementwise(
    "negative", np.negative, (lambda g: -g,), "-x. Integers wrap.", lower=lambda s, x: s.neg(x), accepts="number",
    operator="neg", complex_kernels=True,
)  # fmt: skip
positive = elementwise(  # NumPy's own takes four times the time of a copy of a slice
    "positive", lambda x: x.copy("K"), (lambda g: g,), "+x, a copy.", lower=lambda s, x: x, accepts="number",
    operator="pos", complex_kernels=True,
)  # fmt: skip


def _abs_vjp(g: Any, x: Any) -> Any:
    direction = x.sign()
    return g * (direction.conj() if x.dtype.kind == "c" else direction)


abs_ = elementwise(
    "abs",
    np.absolute,
    (_abs_vjp,),
    "|x|, of a complex x its distance from 0. Gradient at 0 is 0, the middle of the subgradient, as PyTorch and JAX.",
    lower=lambda s, x: s.abs(x),
    accepts="number",
    result=dtypes.real_of,
    operator="abs",
    complex_eager=complex_functions.modulus,
)
square = elementwise(
    "square", np.square, (lambda g, x: g * (x + x),), "x * x, the square.", lower=lambda s, x: s.mul(x, x),
    accepts="number",
    complex_eager=lambda z: complex_functions.product(z, z),
)  # fmt: skip
reciprocal = elementwise(
    "reciprocal",
    np.reciprocal,
    (lambda g, out: -g * out * out,),
    "1 / x in floating point.",
    lower=complex_functions.reciprocal,
    complex_kernels=True,
    accepts="inexact",
    domain=(0.5, 2.0),
    cost=DIVISION,
)
sqrt = elementwise(
    "sqrt",
    np.sqrt,
    (lambda g, out: g * 0.5 / out,),
    "Square root, exactly rounded; nan below 0. Gradient at 0 is inf, the true limit, as PyTorch.",
    accepts="inexact",
    domain=(0.1, 3.0),
    cost=DIVISION,
)
rsqrt = elementwise(
    "rsqrt",
    lambda x: np.reciprocal(np.sqrt(x)),
    (lambda g, out: g * -0.5 * out * out * out,),
    "1 / sqrt(x), two exactly rounded steps (no approximate instruction, so all backends agree).",
    lower=lambda s, x: s.div(s.const(1, s.dtype(x)), s.sqrt(x)),
    accepts="inexact",
    domain=(0.1, 3.0),
    cost=DIVISION,
)


def _sign_lower(s: Any, x: Scalar) -> Scalar:
    if s.dtype(x).kind in "bc":
        return x if s.dtype(x).kind == "b" else s.sign(x)
    zero, one = s.const(0, s.dtype(x)), s.const(1, s.dtype(x))
    # the last branch is reached by nan, which stays
    rest = s.select(s.eq(x, zero), zero, x)
    return s.select(s.gt(x, zero), one, rest if s.dtype(x).kind == "u" else s.select(s.lt(x, zero), s.neg(one), rest))


def _sign_vjp(g: Any, x: Any, x_dtype: Any) -> Any:
    """Gradient of sign, for a complex number x / |x|: a change along its own direction has no effect."""
    if x_dtype.kind != "c":
        return zero_gradient(g, x.shape, x_dtype)
    size, out = x.abs(), x.sign()
    along = (g * out).imag
    return where(size == 0, 0.0, along * out.conj() * 1j / where(size == 0, 1.0, size))


sign = elementwise(
    "sign",
    lambda x: np.sign(x) if x.dtype.kind != "b" else np.array(x),
    (_sign_vjp,),
    "-1, 0 or 1 by the sign of x; nan stays nan. Gradient 0. Of a complex x: x / |x|, and 0 at 0.",
    lower=_sign_lower,
    accepts="any",
    complex_eager=complex_functions.direction,
)

# ---------------------------------------------------------------- powers


def _int_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """NumPy refuses negative exponents of integers; here the result is the exact one cut to an integer."""
    if y.dtype.kind == "u" or not np.any(y < 0):
        return np.asarray(np.power(x, y))
    unit = np.where((x == -1) & (y % 2 != 0), -1, np.where((x == 1) | (x == -1), 1, 0)).astype(x.dtype)
    return np.where(y < 0, unit, np.power(x, np.maximum(y, 0)))


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return np.asarray(np.power(x, y))
    return hooks.transcendental("pow", x, y) if x.dtype.kind == "f" else _int_power(x, y)


def _power_lower(s: Any, x: Scalar, y: Scalar) -> Scalar:
    dtype = s.dtype(x)
    if dtype.kind == "f":
        return s.pow(x, y)
    zero, one = s.const(0, dtype), s.const(1, dtype)
    result, base, left = one, x, y
    for _ in range(8 * dtype.itemsize - (dtype.kind == "i")):  # by repeated squaring, modulo 2**width
        odd = s.ne(s.and_(left, one), zero)
        result = s.select(odd, s.mul(result, base), result)
        base = s.mul(base, base)
        left = s.shr(left, one)
    if dtype.kind == "u":
        return result
    minus = s.const(-1, dtype)
    unit = s.select(s.eq(x, minus), s.select(s.ne(s.and_(y, one), zero), minus, one), zero)
    return s.select(s.lt(y, zero), s.select(s.eq(x, one), one, unit), result)


def _power_dx(g: Any, x: Any, y: Any) -> Any:
    # At x = y = 0 the exponent -1 would make 0 * inf; the true derivative of x**0 is 0.
    return g * y * x ** where((x == 0) & (y == 0), 1.0, y - 1)


def _power_dy(g: Any, out: Any, x: Any, y: Any) -> Any:
    # 0**y is flat for y >= 0 (of a complex y everywhere), where log(0) * 0 would be nan.
    flat = x == 0 if x.dtype.kind == "c" else (x == 0) & (y >= 0)
    return g * out * where(flat, 1.0, x).log()


power = elementwise(
    "pow",
    _power,
    (_power_dx, _power_dy),
    "x ** y. Integers with a negative exponent: the quotient cut to an integer (2 ** -1 is 0), as PyTorch, because "
    "compiled code cannot raise on values. Gradients at x = 0 are finite where the true ones are.",
    lower=_power_lower,
    accepts="number",
    domain=((0.2, 2.0), (-2.0, 2.0)),
    operator="pow",
    more_samples=lambda: (
        Sample((np.array([2, -3, -1, 1, 0, 7]), np.array([-1, 3, -3, -9, -2, 70])), grad=False),
        Sample((np.array([-2.0, -1.5, 0.0, 3.0]), np.array([2.0, 3.0, 2.0, 0.0])), grad=False),
    ),
    cost=TRANSCENDENTAL,
    decided_by="number",
)

# ---------------------------------------------------------------- rounding


def _rounding(name: str, ufunc: Any, instruction: str, doc: str, accepts: Accepts = "numeric") -> Op:
    return elementwise(
        name,
        lambda x: ufunc(x) if x.dtype.kind in "fc" else np.positive(x),
        (zero_gradient,),
        doc + " Integers stay as they are; gradient 0.",
        lower=lambda s, x: getattr(s, instruction)(x) if s.dtype(x).kind == "f" else x,
        accepts=accepts,
    )


floor = _rounding("floor", np.floor, "floor", "Largest integer not above x.")
ceil = _rounding("ceil", np.ceil, "ceil", "Smallest integer not below x.")
trunc = _rounding("trunc", np.trunc, "trunc", "x without its fraction.")
round_ = _rounding(
    "round", np.rint, "rint", "Nearest integer, ties to even (IEEE 754, the array API), of each part.", "number"
)

# ---------------------------------------------------------------- extremes, selection


def _extreme(name: str, ufunc: Any, wins: Callable[[Any, Any], Any], on_bool: str) -> Op:
    def gradient(g: Any, mine: Any, other: Any) -> Any:
        return where(mine == other, g * 0.5, where(wins(mine, other), g, 0.0))

    return elementwise(
        name,
        ufunc,
        (lambda g, x, y: gradient(g, x, y), lambda g, x, y: gradient(g, y, x)),
        f"Elementwise {name}; nan if either is nan. At ties each operand gets half of the gradient: symmetric, as JAX.",
        lower=_or_bool(name, on_bool),
        accepts="ordered",
        decided_by="extremum",
    )


maximum = _extreme("maximum", np.maximum, lambda a, b: a > b, "or_")
minimum = _extreme("minimum", np.minimum, lambda a, b: a < b, "and_")

clip = elementwise(
    "clip",
    lambda x, low, high: np.minimum(np.maximum(x, low), high),
    (
        lambda g, x, low, high: where((x >= low) & (x <= high), g, 0.0),
        lambda g, x, low, high: where((x < low) & (low <= high), g, 0.0),
        lambda g, x, low, high: where((x > high) | (low > high), g, 0.0),
    ),
    "minimum(maximum(x, low), high). The gradient passes where low <= x <= high, bounds included, as PyTorch's clamp.",
    lower=lambda s, x, low, high: s.minimum(s.maximum(x, low), high),
    inputs=("x", "low", "high"),
    domain=((-2.0, 2.0), (-1.0, -0.5), (0.5, 1.0)),
    decided_by="extremum",
)


def _where_infer(condition: Aval, x: Aval, y: Aval) -> Aval:
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(f"where: the condition must be bool, got {condition}; compare it, as in `condition != 0`")
    return Aval(broadcast("where", condition, x, y), x.dtype, condition.weak and x.weak and y.weak)


def _where_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for sample in samples.elementwise(2, (-2.0, 2.0), "any")(rng):
        x, y = sample.args
        for shape in {np.broadcast_shapes(x.shape, y.shape), ()}:
            yield Sample((rng.integers(0, 2, shape).astype(bool), x, y), grad=sample.grad)


where: Op = Op(
    "where",
    "elementwise",
    inputs=("condition", "x", "y"),
    infer=_where_infer,
    eager=np.where,
    lower=lambda s, i, condition, x, y: s.select(at(condition, i), at(x, i), at(y, i)),
    vjp=(None, lambda g, condition: where(condition, g, 0.0), lambda g, condition: where(condition, 0.0, g)),
    samples=_where_samples,
    error_samples=lambda: (
        fails(DTypeError, "where: the condition must be bool", (2,), (2,), (2,)),
        fails(ShapeError, "where: shapes", np.zeros(3, bool), (2,), (2,)),
    ),
    unify=(1, 2),
    complex_kernels=True,
    decided_by="choice",
    doc="x where the bool `condition` holds, else y. Both sides are evaluated, so a nan in the side not taken has no "
    "effect on the value, but its gradient rule runs on a zero.",
)


def _after_infer(x: Aval, token: Aval) -> Aval:
    if token.size != 1:
        raise ShapeError(f"after: the token must have one element, got {token}; take one of it")
    return x


after: Op = Op(
    "after",
    "elementwise",
    public=False,
    inputs=("x", "token"),
    infer=_after_infer,
    eager=lambda x, token: x.copy(),
    lower=lambda s, i, x, token: at(x, i),
    vjp=(lambda g: g, None),
    samples=lambda rng: (Sample((rng.uniform(-2, 2, shape), rng.uniform(-2, 2, ()))) for shape in ((), (3,), (2, 3))),
    error_samples=lambda: (fails(ShapeError, "after: the token must have one element", (2,), (2,)),),
    cost=0.0,
    complex_kernels=True,
    unify=(),
    doc="x, which is read once `token`, of one element, is known: what is computed from it is another value than what "
    "is computed from x, and is computed later. For checkpoints in traced programs.",
)

# ---------------------------------------------------------------- casts


def _astype_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.uniform(-2, 2, (3, 4)),), {"dtype": "float32"}, grad=False)
    yield Sample((rng.uniform(-2, 2, (3, 4)).T,), {"dtype": "float64"})
    for source, target in (
        ("f4", "f8"),
        ("f8", "i4"),
        ("f4", "?"),
        ("?", "f4"),
        ("i8", "i1"),
        ("i4", "u8"),
        ("u1", "f4"),
    ):
        yield Sample((rng.integers(0, 100, (5,)).astype(source),), {"dtype": np.dtype(target)}, grad=False)
    yield Sample((np.array([np.nan, 0.0, -0.0, np.inf, 1e300]),), {"dtype": "bool"}, grad=False)
    yield Sample((np.zeros((0, 2)),), {"dtype": "int64"}, grad=False)


def _astype_infer(x: Aval, dtype: Any) -> Aval:
    wanted = dtypes.canonical(dtype)
    if x.dtype.kind == "c" and wanted.kind not in "cb":
        raise DTypeError(f"astype: {x} has no value in {wanted.name}; take x.real, x.imag or abs(x) of complex numbers")
    return Aval(x.shape, wanted)


astype = Op(
    "astype",
    "elementwise",
    inputs=("x",),
    params={"dtype": REQUIRED},
    canon=lambda x, dtype: {"dtype": dtypes.canonical(dtype)},
    infer=_astype_infer,
    eager=lambda x, dtype: cast(x, dtypes.canonical(dtype)),
    lower=lambda s, i, x, dtype: convert(s, x(i), x.dtype, dtype),
    complex_kernels=True,
    vjp=(lambda g, x_dtype: (g if x_dtype.kind == "c" else g.real).astype(dtype=x_dtype),),
    samples=_astype_samples,
    error_samples=lambda: (
        fails(DTypeError, "astype: c64[2] has no value in float32", np.zeros(2, "c8"), dtype="float32"),
        fails(DTypeError, "is not supported", (2,), dtype="datetime64[s]"),
        fails(DTypeError, "is not a data type", (2,), dtype="float31"),
    ),
    method="astype",
    doc="x in another dtype. Floats are cut to integers; nan and what the integer cannot hold become what x86-64 makes "
    "of them, on every machine: the low bits of an int32 (of an int64 for uint32, int64, uint64), which is the least "
    "for them. Complex numbers have real, imag and abs to become real ones: a cast is an error.",
)

ROWS = (
    *(add, subtract, multiply, divide, floor_divide, remainder, negative, positive, abs_, square, reciprocal),
    *(sqrt, rsqrt, sign, power, floor, ceil, trunc, round_, maximum, minimum, clip, where, astype),
    after,
)
