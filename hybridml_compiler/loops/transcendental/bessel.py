"""The Bessel functions i0, i0e, i1, i1e, j0, j1, y0, y1 over the scalar instruction set, in float64 (float32 by
way of it).

Method: below 8 the modified ones are their power series (DLMF 10.25.2), whose terms are all positive, and j0 and j1 a
polynomial in x^2 times the factors of their two zeros there; y0 and y1 add to the logarithm times those a polynomial in
x^2 (DLMF 10.8.1); from 8 on Hankel's form (DLMF 10.40.1, 10.17.3), a
polynomial in 1 / x or two in 1 / x^2. Coefficients: our own fits.
"""

from __future__ import annotations

import math

from ...dtypes import float64
from ..notation import Value, at_most, fma, in_float64, ldexp, polynomial, where
from .exp import EXP, exp, reduce
from .log import log
from .trig import cos, sin

INF = float("inf")
_FAR = 8.0
# i0(x) and 2 i1(x) / x in (x / 2)^2: the terms left out are 2^-57 of the sum at 8
_I0 = tuple(1 / math.factorial(k) ** 2 for k in range(22))
_I1 = tuple(1 / (math.factorial(k) * math.factorial(k + 1)) for k in range(22))
# sqrt(x) e^-x i0(x) and i1(x) in 1 / x - 0.06275 for x >= 8: relative error 2^-54.2 and 2^-55.2
_TAIL_CENTRE = 0.06275
_I0_TAIL = (0.40218995383311346, 0.053786275960142425, 0.034905582959971954, 0.04573930717049902, 0.09763659101755812,
            0.31405123824441544, 1.5071471843379538, 10.74225244273268, 93.69792721228342, 500.7180886429394,
            -8076.437199894059, -241466.49042607847, -1405480.7852277132, 36840443.03216218, 518081657.95365757,
            -5025187256.302462, -107206145636.58357, 732909574957.5491, 16806067963938.342, -105430448503864.16,
            -1915171082972313.5, 1.223537414801613e+16, 1.386207471376388e+17, -9.259994102238038e+17,
            -4.706604524115578e+18, 3.286376857521791e+19)  # fmt: skip
_I1_TAIL = (0.38935945720836423, -0.15602130882667026, -0.05617059911039264, -0.06171837083295269,
            -0.12071088597450083, -0.36784106187269466, -1.6983739264483115, -11.77903726489074, -101.67357834417218,
            -560.6748811081546, 8092.780990500178, 252897.81845823105, 1564393.8202318829, -37321138.696503095,
            -551429525.0924675, 4932745117.394345, 112658149488.40894, -703990431087.2183, -17567129894787.44,
            100584670821598.42, 1997358202550828.0, -1.1689020179205578e+16, -1.4442973590608832e+17,
            8.876728083101039e+17, 4.901849554298568e+18, -3.1606022719266775e+19)  # fmt: skip
# the zeros of j0 and j1 below 8, as sums of two floats
_ZEROS0 = ((2.404825557695773, -1.176691651530894e-16), (5.520078110286311, 8.088597146146722e-17))
_ZEROS1 = ((3.8317059702075125, -1.5269184090088067e-16), (7.015586669815619, -9.414165653410389e-17))
# j0(x) and j1(x) / x over those factors, in x^2 - 32: relative error 2^-49.8, most of it next to 8
_J0 = (0.0011434937743762545, -6.624357154624037e-05, 1.5269952779230138e-06, -1.9578218525409324e-08,
       1.6190720285413593e-10, -9.409614027211442e-13, 4.067022655755743e-15, -1.3612234096218512e-17,
       3.6369231980155456e-20, -7.943478178282108e-23, 1.4456426575091793e-25, -2.226978729196834e-28,
       2.9423933108603476e-31, -3.3719807978272546e-34, 3.384261323028044e-37, -2.999812477251509e-40,
       2.3707494912253432e-43, -1.6738624578583807e-46)  # fmt: skip
_J1 = (0.00019498936985895625, -8.42975858348865e-06, 1.5488297655634642e-07, -1.6503916134904502e-09,
       1.1675046589866266e-11, -5.927960622054756e-14, 2.2747761204391646e-16, -6.845780458049326e-19,
       1.661514733815798e-21, -3.324468135009803e-24, 5.5819649226118256e-27, -7.981250785221847e-30,
       9.83863557966674e-33, -1.0567112855308332e-35, 9.979096409176693e-39, -8.352146404464005e-42,
       6.250802108294849e-45, -4.192146362969794e-48)  # fmt: skip
# y0(x) - 2 / pi log(x) j0(x), and y1(x) - 2 / pi (log(x) j1(x) - 1 / x) over x, in x^2 - 32: relative error 2^-60
_Y0 = (-0.382250654459425, -0.025888621573764335, 0.0016084926551509244, 4.398386343170911e-06,
       -1.0276295984474178e-06, 2.003243799040235e-08, -2.0392003558735968e-10, 1.3494586944972137e-12,
       -6.3898742676154374e-15, 2.2912405656115432e-17, -6.465532005592548e-20, 1.4769626171632285e-22,
       -2.7916105091645426e-25, 4.442807100741209e-28, -6.039782779390637e-31, 7.098762090835586e-34,
       -7.287895850721322e-37, 6.59382283266395e-40, -5.311086793805073e-43)  # fmt: skip
_Y1 = (0.07075985882118005, -0.007605544712247848, 2.2819894258782797e-05, 7.173830934652635e-06,
       -1.8730010852747369e-07, 2.3409089214332535e-09, -1.8280704350303328e-11, 9.96075902343159e-14,
       -4.036495224786156e-16, 1.2697208299284483e-18, -3.1983303778270245e-21, 6.6071953225061755e-24,
       -1.1408688576436573e-26, 1.6723120753360473e-29, -2.10806681899608e-32, 2.3105065607480037e-35,
       -2.2227350964551138e-38, 1.8923390248554623e-41, -1.4391488837932485e-44)  # fmt: skip
# sqrt(pi x / 2) j(x) = P cos(x - phase) - Q sin(x - phase) / x; P and Q in 1 / x^2 - 2^-7 for x >= 8: 2^-54, 2^-49
_CENTRE = 0.0078125005
_P0 = (0.9994572757539244, -0.06865501675870832, 0.10055542442957567, -0.43049178358220735, 3.436979817717984,
       -41.64789449999446, 681.9763875093238, -14019.375612050331, 336868.217336914, -9443188.561196398,
       407565307.63720864, -15046270107.390854)  # fmt: skip
_Q0 = (-0.1244409110011223, 0.06997144658366435, -0.19361153943035736, 1.1922249985959572, -12.173447080308621,
       176.82171074688128, -3333.9801771104553, 76794.14249440386, -2012134.7051075832, 60945920.01284142,
       -2946750562.293067, 115763505772.65234)  # fmt: skip
_P1 = (1.0009070263356057, 0.11504703240341886, -0.1304116371873154, 0.5145732766270587, -3.948282432296336,
       46.739571571437374, -753.7026576092088, 15326.869768177852, -365492.7178971218, 10182966.966263942,
       -436144566.46988744, 16035588327.95232)  # fmt: skip
_Q1 = (0.37421499217032983, -0.09852373809912293, 0.2387085671121489, -1.3911601381233247, 13.787099923235447,
       -196.56677079236064, 3659.436814875387, -83516.32216654625, 2174205.0249204943, -65501602.49461238,
       3144056809.7960534, -123061132453.01216)  # fmt: skip


def _near(a: Value, scaled: bool, series: tuple[float, ...]) -> Value:
    half = at_most(a, _FAR) * 0.5
    y = polynomial(half * half, series)
    return y * exp(-a) if scaled else y


def _modified(a: Value, scaled: bool, tail: tuple[float, ...]) -> Value:
    """e^a / sqrt(a) times the tail, a >= 8."""
    y = polynomial(1.0 / a - _TAIL_CENTRE, tail) / a.sqrt()
    if scaled:
        return y
    n, r, _ = reduce(at_most(a, 720.0))
    return where(a < 720.0, ldexp(polynomial(r, EXP[float64]) * y, n), INF)


def _even(x: Value, scaled: bool) -> Value:
    a = abs(x)
    y = where(a < _FAR, _near(a, scaled, _I0), _modified(a, scaled, _I0_TAIL))
    return where(x.differs(x), x, y)


def _odd(x: Value, scaled: bool) -> Value:
    a = abs(x)
    y = where(a < _FAR, a * 0.5 * _near(a, scaled, _I1), _modified(a, scaled, _I1_TAIL))
    return where(x.differs(x), x, y.copysign(x))


@in_float64
def i0(x: Value) -> Value:
    """The modified Bessel function of the first kind, of order 0."""
    return _even(x, scaled=False)


@in_float64
def i0e(x: Value) -> Value:
    """i0 scaled: e^-|x| i0(x)."""
    return _even(x, scaled=True)


@in_float64
def i1(x: Value) -> Value:
    """The modified Bessel function of the first kind, of order 1."""
    return _odd(x, scaled=False)


@in_float64
def i1e(x: Value) -> Value:
    """i1 scaled: e^-|x| i1(x)."""
    return _odd(x, scaled=True)


def _over_zeros(a: Value, zeros: tuple[tuple[float, float], ...], rest: tuple[float, ...]) -> Value:
    y = polynomial(fma(a, a, -32.0), rest)
    for high, low in zeros:
        y = y * (((a - high) - low) * (a + high))
    return y


def _wave(
    a: Value, sine: float, cosine: float, p: tuple[float, ...], q: tuple[float, ...], *, second: bool = False
) -> Value:
    """Hankel's form of the function of the first or the `second` kind, whose phase has a sine and a cosine of
    +-sqrt(1/2): `sine` and `cosine` are their signs."""
    u = 1.0 / a
    w = fma(u, u, -_CENTRE)
    s, c = sin(a), cos(a)
    in_phase, beside = c * cosine + s * sine, s * cosine - c * sine
    first, other = (beside, in_phase) if second else (in_phase, -beside)
    y = fma(polynomial(w, p), first, u * polynomial(w, q) * other)
    return where(a < INF, y * (u * (1 / math.pi)).sqrt(), 0.0)


@in_float64
def j0(x: Value) -> Value:
    """The Bessel function of the first kind, of order 0. Beside zeros beyond 8 the error is absolute, not relative."""
    a = abs(x)
    y = where(a < _FAR, _over_zeros(a, _ZEROS0, _J0), _wave(a, 1.0, 1.0, _P0, _Q0))
    return where(x.differs(x), x, y)


@in_float64
def j1(x: Value) -> Value:
    """The Bessel function of the first kind, of order 1. Beside zeros beyond 8 the error is absolute, not relative."""
    a = abs(x)
    y = where(a < _FAR, a * _over_zeros(a, _ZEROS1, _J1), _wave(a, 1.0, -1.0, _P1, _Q1))
    return where(x.differs(x), x, y * y.lift(1.0).copysign(x))


def _second_kind(x: Value, near: Value, far: Value) -> Value:
    """The function of the second kind: -inf at 0, nan below."""
    y = where(x < _FAR, near, far)
    y = where(x.differs(0.0), y, -INF)
    return where(x < 0.0, float("nan"), where(x.differs(x), x, y))


@in_float64
def y0(x: Value) -> Value:
    """The Bessel function of the second kind, of order 0. Beside its zeros the error is absolute, not relative."""
    a = where(x > 0.0, x, 1.0)
    b = at_most(a, _FAR)
    near = fma(log(b) * (2 / math.pi), _over_zeros(b, _ZEROS0, _J0), polynomial(fma(b, b, -32.0), _Y0))
    return _second_kind(x, near, _wave(a, 1.0, 1.0, _P0, _Q0, second=True))


@in_float64
def y1(x: Value) -> Value:
    """The Bessel function of the second kind, of order 1. Beside its zeros the error is absolute, not relative."""
    a = where(x > 0.0, x, 1.0)
    b = at_most(a, _FAR)
    smooth = fma(log(b) * (2 / math.pi), _over_zeros(b, _ZEROS1, _J1), polynomial(fma(b, b, -32.0), _Y1))
    return _second_kind(x, fma(b, smooth, -(2 / math.pi) / b), _wave(a, 1.0, -1.0, _P1, _Q1, second=True))
