"""sin, cos, tan over the scalar instruction set.

Method: for sin and cos x = n pi + r with |r| <= pi/2, so that one odd polynomial serves both and the sign is the parity
of n; for tan x = n pi/2 + r. pi is a sum of three floats (Cody and Waite 1980), and the first fused step is exact,
because x - n p1 is a multiple of the last place of p1. From `_LIMIT` on the fraction of x / pi is computed with
integers (`payne_hanek`). Coefficients: our own fits.
"""

from __future__ import annotations

from ...dtypes import float32, float64
from ..notation import Value, at_least, at_most, fast_two_sum, fma, polynomial, rarely, two_product, where
from .payne_hanek import payne_hanek

_INV_PI = {float32: 0.31830987334251404, float64: 0.3183098861837907}
_PI = {
    float32: (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
    float64: (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
}
_LIMIT = {float32: 2.0**17, float64: 2.0**24}
# (sin(r) / r - 1) / r^2 in r^2 on |r| <= pi/2: relative error of the sine 2^-27.2 and 2^-61
_SIN = {
    float32: (-0.16666659712791443, 0.008333069272339344, -0.00019809768127743155, 2.6060538402816746e-06),
    float64: (-0.16666666666666666, 0.008333333333333194, -0.00019841269841205654, 2.755731921013296e-06,
              -2.505210675585015e-08, 1.6058932903500494e-10, -7.642796093682425e-13, 2.7189656035064758e-15),
}  # fmt: skip
# (tan(r) / r - 1) / r^2 in r^2 on |r| <= pi/4: relative error of the tangent 2^-29.2 and 2^-59.4
_TAN = {
    float32: (0.3333333432674408, 0.13333062827587128, 0.05402311682701111, 0.021443834528326988,
              0.010468611493706703, 0.0005061118281446397, 0.004189515020698309),
    float64: (0.3333333333333333, 0.13333333333331218, 0.05396825397030334, 0.021869488459920733,
              0.008863237061922973, 0.0035921089372415774, 0.0014559933976857073, 0.0005891046226891464,
              0.00024295404546421183, 8.547358335943072e-05, 6.392550741415293e-05, -2.1669297682324414e-05,
              4.5473903044526327e-05, -2.2771435316090828e-05, 9.477162191704722e-06),
}  # fmt: skip


def _sin_reduced(r: Value, parity: Value) -> Value:
    """sin(r), negated where the low bit of `parity` is set."""
    z = r * r
    # one in a million results near a crest would be the float beyond 1, whose asin is nan
    y = at_most(at_least(fma(r * z, polynomial(z, _SIN[r.dtype]), r), -1.0), 1.0)
    return (y.bits() ^ (parity << (8 * r.dtype.itemsize - 1))).bitcast(r.dtype)


def _subtract_pi(x: Value, n: Value) -> Value:
    """x - n pi, with pi in three parts."""
    p1, p2, p3 = _PI[x.dtype]
    return fma(n, -p3, fma(n, -p2, fma(n, -p1, x)))


def sin(x: Value) -> Value:
    """sin x. float32: degree 9, in one branch for |x| <= 2^17; float64: degree 17, for |x| <= 2^24."""
    magic = x.format.magic
    shifted = fma(x, _INV_PI[x.dtype], magic)
    near = _sin_reduced(_subtract_pi(x, shifted - magic), shifted.bits())

    def far() -> Value:
        r, _, parity = payne_hanek(abs(x))
        return (_sin_reduced(r, parity).bits() ^ (x.bits() & x.format.sign)).bitcast(x.dtype)

    return rarely(abs(x) > _LIMIT[x.dtype], far, where(x.equals(0.0), x, near))


def cos(x: Value) -> Value:
    """cos x = (-1)^n sin(x - (n - 1/2) pi), at the cost of sin."""
    magic = x.format.magic
    shifted = fma(x, _INV_PI[x.dtype], 0.5) + magic
    near = _sin_reduced(_subtract_pi(x, (shifted - magic) - 0.5), shifted.bits())

    def far() -> Value:
        r, _, parity = payne_hanek(abs(x), quarter=True)
        return _sin_reduced(r, parity)

    return rarely(abs(x) > _LIMIT[x.dtype], far, near)


def _tan_reduced(r: Value, low: Value, odd: Value) -> Value:
    """tan(r + low), or -1 / tan(r + low) where the low bit of `odd` is set."""
    z = r * r
    t = r + fma(r * z, polynomial(z, _TAN[r.dtype]), fma(low, z, low))
    flip = odd << (8 * r.dtype.itemsize - 1)
    swap = flip.differs(0)
    y = where(swap, 1.0, t) / where(swap, t, 1.0)
    return (y.bits() ^ flip).bitcast(r.dtype)


def tan(x: Value) -> Value:
    """tan(r) or its negated inverse, |r| <= pi/4."""
    magic = x.format.magic
    shifted = fma(x, 2.0 * _INV_PI[x.dtype], magic)
    n = shifted - magic
    p1, p2, p3 = (0.5 * p for p in _PI[x.dtype])
    product, lost = two_product(n, n.lift(p2))
    r, low = fast_two_sum(fma(n, -p1, x), -product)  # exact: the first is a multiple of the second's last place
    low = fma(n, -p3, low - lost)
    near = _tan_reduced(r, low, shifted.bits())

    def far() -> Value:
        return (_tan_reduced(*payne_hanek(abs(x), period=2)).bits() ^ (x.bits() & x.format.sign)).bitcast(x.dtype)

    return rarely(abs(x) > _LIMIT[x.dtype], far, where(x.equals(0.0), x, near))
