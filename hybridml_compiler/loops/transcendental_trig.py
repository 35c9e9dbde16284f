"""sin, cos over the scalar instruction set.

Method: x = n pi + r with |r| <= pi/2, so that one odd polynomial serves both, and the sign is the parity of n. pi is a sum of three floats (Cody and Waite 1980): the first fused step is exact, because r1 = x - n p1 is a multiple of
the last place of p1; from `_LIMIT` on the fraction of x / pi is computed with integers (Payne and Hanek 1983).
"""

from __future__ import annotations

from ..dtypes import float32, float64
from .notation import Value, fma, polynomial, rarely, where
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


def _sin_reduced(r: Value, parity: Value) -> Value:
    """sin(r), negated where the low bit of `parity` is set."""
    z = r * r
    y = fma(r * z, polynomial(z, _SIN[r.dtype]), r)
    return (y.bits() ^ (parity << (8 * r.dtype.itemsize - 1))).bitcast(r.dtype)


def _subtract_pi(x: Value, n: Value) -> Value:
    """x - n pi."""
    p1, p2, p3 = _PI[x.dtype]
    return fma(n, -p3, fma(n, -p2, fma(n, -p1, x)))


def sin(x: Value) -> Value:
    """sin x. float32: degree 9, 18 instructions for |x| <= 2^17; float64: degree 17, for |x| <= 2^24."""
    magic = x.format.magic
    shifted = fma(x, _INV_PI[x.dtype], magic)
    near = _sin_reduced(_subtract_pi(x, shifted - magic), shifted.bits())

    def far() -> Value:
        r, parity = payne_hanek(abs(x))
        return (_sin_reduced(r, parity).bits() ^ (x.bits() & x.format.sign)).bitcast(x.dtype)

    return rarely(abs(x) > _LIMIT[x.dtype], far, where(x.equals(0.0), x, near))


def cos(x: Value) -> Value:
    """cos x = (-1)^n sin(x - (n - 1/2) pi), at the cost of sin."""
    magic = x.format.magic
    shifted = fma(x, _INV_PI[x.dtype], 0.5) + magic
    near = _sin_reduced(_subtract_pi(x, (shifted - magic) - 0.5), shifted.bits())

    def far() -> Value:
        return _sin_reduced(*payne_hanek(abs(x), quarter=True))

    return rarely(abs(x) > _LIMIT[x.dtype], far, near)
