"""Elementwise functions that are compositions of rows: `fmax`, `fmod`, `modf`, `heaviside`, `isclose`, ..."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import DTypeError
from hybridml_compiler.ops.table import OPS

from ..core import ops
from ..core.context import placed
from ..core.tensor import Tensor
from .data_types import result_type
from .inspection import finfo, iinfo
from .shaping.manipulation import _tensor

_where, _isnan, _copysign, _abs, _trunc = (OPS[name] for name in ("where", "isnan", "copysign", "abs", "trunc"))


def _floating(x: Any) -> Tensor:
    """The tensor, with integers in the default float."""
    x = _tensor(x)
    return x if x.dtype.kind in "fcV" else x.astype(dtypes.default_float())


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | int | float)


def fabs(x: Tensor, /) -> Tensor:
    """Absolute value of x as a float.

    >>> import hybridml as hm
    >>> hm.fabs(hm.tensor([-1, 2])).tolist()
    [1.0, 2.0]
    """
    return _abs(_floating(x))


def deg2rad(x: Tensor, /) -> Tensor:
    """Converts degrees to radians.

    >>> import hybridml as hm
    >>> f"{hm.deg2rad(hm.tensor(180.0)).item():.4f}"
    '3.1416'
    """
    return _floating(x) * (math.pi / 180)


def rad2deg(x: Tensor, /) -> Tensor:
    """Converts radians to degrees.

    >>> import hybridml as hm
    >>> f"{hm.rad2deg(hm.tensor(hm.pi)).item():.3f}"
    '180.000'
    """
    return _floating(x) * (180 / math.pi)


def angle(x: Tensor, /) -> Tensor:
    """The angle of complex numbers with the positive real axis, in radians; of real ones 0 or pi. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.angle(hm.tensor([1.0, -1.0, 2.0j])).tolist()
    [0.0, 3.1415927410125732, 1.5707963705062866]
    """
    x = _floating(x)
    if x.dtype.kind == "c":
        return ops.atan2(ops.imag(x), ops.real(x))
    return ops.atan2(0.0, x)


def fmax(x: Tensor, y: Tensor, /) -> Tensor:
    """The greater of x and y; where one of them is NaN, the other.

    >>> import hybridml as hm
    >>> hm.fmax(hm.tensor([1.0, hm.nan]), 0.5).tolist()
    [1.0, 0.5]
    """
    return _either("maximum", x, y)


def fmin(x: Tensor, y: Tensor, /) -> Tensor:
    """The lesser of x and y; where one of them is NaN, the other.

    >>> import hybridml as hm
    >>> hm.fmin(hm.tensor([1.0, hm.nan]), 2.5).tolist()
    [1.0, 2.5]
    """
    return _either("minimum", x, y)


def _either(name: str, x: Any, y: Any) -> Tensor:
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = _tensor(x)
    found = getattr(ops, name)(x, y)
    if found.dtype.kind not in "fV":
        return found
    for one, other in ((x, y), (y, x)):
        if isinstance(one, Tensor):
            found = _where(_isnan(one), other, found)
        elif one != one:
            found = other
    return _tensor(found)


def fmod(x: Tensor, y: Tensor, /) -> Tensor:
    """Remainder of x after division by y, with the sign of x (that of `remainder` has the sign of y).

    >>> import hybridml as hm
    >>> hm.fmod(hm.tensor([-7.0, 7.0]), 3.0).tolist()
    [-1.0, 1.0]
    """
    x = _tensor(x)
    negative, size = _apart(x) if x.dtype.kind in "fV" else (x < 0, _abs(x))
    rest = ops.remainder(size, abs(y) if _is_number(y) else _abs(y))
    return rest if rest.dtype.kind == "u" else _where(negative, -rest, rest)


def _apart(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sign bit and the modulus, whose slope at 0 is 1 or -1, where that of abs is 0: put together they are x."""
    negative = ops.signbit(x)
    return negative, _where(negative, -x, x)


def modf(x: Tensor, /) -> tuple[Tensor, Tensor]:
    """The part behind the point and the whole part, both with the sign of x.

    >>> import hybridml as hm
    >>> [t.item() for t in hm.modf(hm.tensor(-1.5))]
    [-0.5, -1.0]
    """
    x = _floating(x)
    negative, size = _apart(x)
    rest = _where(ops.isinf(size), 0.0, size - ops.floor(size))
    return _where(negative, -rest, rest), _trunc(x)


def frac(x: Tensor, /) -> Tensor:
    """The part behind the point, with the sign of x; nan at infinity. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.frac(hm.tensor([1.5, -0.25])).tolist()
    [0.5, -0.25]
    """
    x = _tensor(x)
    if x.dtype.kind not in "fV":
        raise DTypeError(f"frac: takes floats, got {x.dtype.name}; cast it with astype")
    return x - _trunc(x)


def round(x: Tensor, /, decimals: int = 0) -> Tensor:
    """The nearest number of `decimals` digits behind the point (before it where negative), halves to even ones.

    As NumPy's: x times a power of ten is rounded and divided again. Integers stay integers, and are exact. The gradient
    is 0.

    >>> import hybridml as hm
    >>> hm.round(hm.tensor([0.125, 2.5]), decimals=2).tolist(), hm.round(hm.tensor([149]), -2).tolist()
    ([0.11999999731779099, 2.5], [100])
    """
    x = _tensor(x)
    if decimals == 0 or x.dtype.kind == "b":  # which it refuses
        return ops.round(x)
    if x.dtype.kind not in "fcV":
        return x if decimals > 0 else _to_multiple(x, 10**-decimals)
    scale = 10.0 ** abs(decimals)
    return ops.round(x * scale) / scale if decimals > 0 else ops.round(x / scale) * scale


@placed
def _to_multiple(x: Tensor, step: int) -> Tensor:
    """The multiple of a step next to each integer, of two the even one; without floats, which round a large integer."""
    if step > iinfo(x.dtype).max:
        return ops.full(shape=x.shape, value=0, dtype=x.dtype)
    below, rest = ops.floor_divide(x, step), ops.remainder(x, step)
    up = (rest > step - rest) | ((rest == step - rest) & (ops.remainder(below, 2) == 1))
    return (below + ops.astype(up, x.dtype)) * step


@placed
def isreal(x: Tensor, /) -> Tensor:
    """Whether the imaginary part is 0, elementwise; true for real numbers. Source: NumPy, PyTorch.

    >>> import hybridml as hm
    >>> hm.isreal(hm.tensor([1 + 0j, 1j])).tolist()
    [True, False]
    """
    x = _tensor(x)
    return ops.equal(ops.imag(x), 0) if x.dtype.kind == "c" else ops.full(shape=x.shape, value=True, dtype=dtypes.bool_)


def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``x + weight * (end - x)``, from x for a weight of 0 to `end` for 1; all broadcast. Source: PyTorch.

    From a half on it is ``end - (end - x) * (1 - weight)``, which is exactly `end` at 1.

    >>> import hybridml as hm
    >>> hm.lerp(hm.tensor([0.0, 1.0]), hm.tensor([4.0, 3.0]), 0.25).tolist()
    [1.0, 1.5]
    """
    x, end = _tensor(x), _tensor(end)
    way = end - x
    if _is_number(weight):
        return x + way * weight if abs(weight) < 0.5 else end - way * (1 - weight)
    return _where(_abs(weight) < 0.5, x + way * weight, end - way * (1 - weight))


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """``real + 1j * imag``: two tensors of float32 or of float64, which broadcast. Source: PyTorch.

    DTypeError for other or different dtypes.

    >>> import hybridml as hm
    >>> hm.complex(hm.tensor([1.0, 0.0]), hm.tensor([2.0, -1.0])).tolist()
    [(1+2j), -1j]
    """
    found: Tensor = OPS["complex"].fn(_tensor(real), _tensor(imag))
    return found


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their moduli and angles in radians: ``abs * (cos(angle) + 1j * sin(angle))``.

    Dtypes and errors as `complex`. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.polar(hm.tensor([2.0]), hm.tensor([0.0])).tolist()
    [(2+0j)]
    """
    return complex(_tensor(abs) * ops.cos(angle), _tensor(abs) * ops.sin(angle))


def divmod(x: Tensor, y: Tensor, /) -> tuple[Tensor, Tensor]:
    """Floor quotient and remainder, `(x // y, x % y)`.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.divmod(hm.tensor([7, -7]), 4)]
    [[1, -2], [3, 1]]
    """
    return ops.floor_divide(x, y), ops.remainder(x, y)


def heaviside(x: Tensor, values: Tensor, /) -> Tensor:
    """0 where x is negative, 1 where it is positive, `values` where it is 0, nan where it is nan. As NumPy and PyTorch.

    >>> import hybridml as hm
    >>> hm.heaviside(hm.tensor([-1.0, 0.0, 2.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    x = _floating(x)
    return _where(ops.equal(x, 0), values, _where(_isnan(x), x, _where(ops.greater(x, 0), 1.0, 0.0)))


def float_power(x: Tensor, y: Tensor, /) -> Tensor:
    """x ** y in float64. As NumPy and PyTorch.

    >>> import hybridml as hm
    >>> hm.float_power(hm.tensor([2, 3]), -1).dtype.name
    'float64'
    """
    wide = [v if v.dtype.kind == "c" else v.astype(dtypes.float64) for v in (_tensor(x), _tensor(y))]
    return ops.pow(*wide)


def bitwise_count(x: Tensor, /) -> Tensor:
    """Number of bits set in |x|, as uint8. Source: Hacker's Delight, 5-1 (sums of neighbours, in parallel).

    >>> import hybridml as hm
    >>> hm.bitwise_count(hm.tensor([0, 7, -1])).tolist()
    [0, 3, 1]
    """
    x = _tensor(x)
    if x.dtype.kind not in "iu":
        raise DTypeError(f"bitwise_count: needs integers, got {x.dtype.name}")
    n = (_abs(x) if x.dtype.kind == "i" else x).astype(dtypes.uint64)
    for width, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F),
                        (8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0x00000000FFFFFFFF)):  # fmt: skip
        n = (n & mask) + ((n >> width) & mask)
    return n.astype(dtypes.uint8)


def nextafter(x: Tensor, y: Tensor, /) -> Tensor:
    """The float next to x in the direction of y; y where both are equal. The gradient is that of x, one step away.

    Source: array API standard.

    >>> import hybridml as hm
    >>> (hm.nextafter(hm.tensor(1.0), 2.0) - 1.0).item() == hm.finfo(hm.float32).eps
    True
    """
    wanted = result_type(*(v if _is_number(v) else _tensor(v) for v in (x, y)))
    if dtypes.is_narrow(wanted):
        return _nextafter_narrow(_tensor(x).astype(dtypes.float32), _tensor(y).astype(dtypes.float32), wanted)
    found: Tensor = ops.nextafter(x, y)
    return found


@placed
def _nextafter_narrow(x: Tensor, y: Tensor, dtype: Any) -> Tensor:
    """`nextafter` of a 16-bit float, from float32, which holds it exactly: a bit over half a step away, rounded."""
    limits = finfo(dtype)
    plain = _where(ops.isfinite(x), x, 0.0)
    unit = _abs(spacing(plain.detach())) * (limits.eps / finfo(dtypes.float32).eps)  # of the last place in `dtype`
    step = ops.maximum(unit, limits.smallest_normal * limits.eps) * 0.6
    moved = (plain + _where(y > x, step, -step)).astype(dtype)
    from_infinity = _copysign(ops.full(shape=(), value=limits.max, dtype=dtype), x.astype(dtype))
    moved = _where(ops.isinf(x), from_infinity, moved)
    return _where(_isnan(x) | _isnan(y), (x + y).astype(dtype), _where(ops.equal(x, y), y.astype(dtype), moved))


@placed
def spacing(x: Tensor, /) -> Tensor:
    """Distance of x to the next number away from zero, with the sign of x.

    >>> import hybridml as hm
    >>> hm.spacing(hm.tensor(1.0)).item() == hm.finfo(hm.float32).eps
    True
    """
    x = _floating(x)
    return nextafter(x, _copysign(ops.full(shape=(), value=math.inf, dtype=x.dtype), x)) - x


def isposinf(x: Tensor, /) -> Tensor:
    """Whether x is +infinity, elementwise.

    >>> import hybridml as hm
    >>> hm.isposinf(hm.tensor([hm.inf, -hm.inf])).tolist()
    [True, False]
    """
    return ops.equal(x, math.inf) if _tensor(x).dtype.kind in "fV" else ops.isinf(x)


def isneginf(x: Tensor, /) -> Tensor:
    """Whether x is -infinity, elementwise.

    >>> import hybridml as hm
    >>> hm.isneginf(hm.tensor([hm.inf, -hm.inf])).tolist()
    [False, True]
    """
    return ops.equal(x, -math.inf) if _tensor(x).dtype.kind in "fV" else ops.isinf(x)


def isclose(x: Tensor, y: Tensor, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |x - y| <= atol + rtol * |y|, or both are the same infinity, or (`equal_nan`) NaN. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.isclose(hm.tensor([1.0, 2.0]), hm.tensor([1.0, 2.1])).tolist()
    [True, False]
    """
    x, y = _floating(x), _floating(y)
    near = (_abs(x - y) <= atol + rtol * _abs(y)) & ops.isfinite(y)
    found = near | ops.equal(x, y)
    return found | (_isnan(x) & _isnan(y)) if equal_nan else found


def allclose(x: Tensor, y: Tensor, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether `isclose` holds everywhere, as a tensor of one bool.

    >>> import hybridml as hm
    >>> bool(hm.allclose(hm.tensor([1.0, 2.0]), hm.tensor([1.0, 2.0000001])))
    True
    """
    return ops.all(isclose(x, y, rtol, atol, equal_nan))


@placed
def array_equal(x: Tensor, y: Tensor, /, equal_nan: bool = False) -> Tensor:
    """Whether shapes and all elements are the same, as a tensor of one bool.

    >>> import hybridml as hm
    >>> bool(hm.array_equal(hm.tensor([1, 2]), hm.tensor([1, 2])))
    True
    """
    x, y = _tensor(x), _tensor(y)
    if x.shape != y.shape:
        return ops.full(shape=(), value=False, dtype=dtypes.bool_)
    found = ops.equal(x, y)
    return ops.all(found | (_isnan(x) & _isnan(y)) if equal_nan else found)


__all__ = [
    "allclose", "angle", "array_equal", "bitwise_count", "complex", "deg2rad", "divmod", "fabs", "float_power", "fmax",
    "fmin", "fmod", "frac", "heaviside", "isclose", "isneginf", "isposinf", "isreal", "lerp", "modf", "nextafter",
    "polar", "rad2deg", "round", "spacing",
]  # fmt: skip
