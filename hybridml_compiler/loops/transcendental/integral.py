"""The exponential integrals exp1 and expi over the scalar instruction set, in float64 (float32 by way of it).

Method: exp1 is a series without the logarithm below 1 (DLMF 6.6.2), and e^-x v p(v) with v = 1 / (x + 2) beyond. expi
is log(x / x0) plus x - x0 times a polynomial below 4, x0 its zero (as in Boost), and e^x / x times one of three
polynomials in 1 / x beyond. Each is the other of -x, with its sign changed, below zero. Coefficients: our own fits.
"""

from __future__ import annotations

import math

from ...dtypes import float64
from ..notation import Value, at_least, at_most, fma, in_float64, ldexp, polynomial, where
from .exp import EXP, exp, reduce
from .log import log, log1p

INF, NAN = float("inf"), float("nan")
_EULER = 0.5772156649015329
# (exp1(x) + log x + gamma) / x
_NEAR = tuple((-1.0) ** k / ((k + 1) * math.factorial(k + 1)) for k in range(18))
# (x + 2) e^x exp1(x) in v - 0.16683 for x >= 1: relative error 2^-52.8
_E1_CENTRE = 0.16683333333333333
_E1 = (1.2384075124513385, 2.002460615031776, 4.695870378381127, 10.806457691885154, 27.546897805114313,
       69.48359912340304, 184.81025346360263, 486.5714470472538, 1328.2767457813814, 3584.1643878697764,
       9961.747307174977, 27299.136273954075, 76905.78792353507, 212891.78619116815, 608531.5746122323,
       1689770.7459426278, 4720597.7169357445, 13541652.133435855, 48276630.95092223, 113027579.00405857,
       -28290316.058217295, 762526099.0041382, 12296317162.111643, 12034465068.887833, -136323941130.32385,
       -39818016335.46879, 1519257276655.5574, 1665606127784.946)  # fmt: skip
_ZERO = (0.3725074107813666, 1.3140183414386028e-17)
# (expi(x) - log(x / x0)) / (x - x0) in x - 2 up to 4: 2^-53.4
_EI = (2.0114308664030647, 0.7269447436502741, 0.19765820799866174, 0.04212152070260898, 0.00736602216116821,
       0.0010923826771202221, 0.00014068374360998702, 1.6016704093748854e-05, 1.6344013756631493e-06,
       1.5114093015483214e-07, 1.2780398928890372e-08, 9.956100176081056e-10, 7.19045314224048e-11,
       4.840505992119924e-12, 3.0516167921805924e-13, 1.8089788295862966e-14, 1.0109509548957294e-15,
       5.3552820779543324e-17, 2.815575876244342e-18, 1.342607973166263e-19)  # fmt: skip
# x e^-x expi(x) in 1 / x less a centre, up to 10, up to 30 and beyond: 2^-52
_EI_A = (1.2984511391062206, 2.3256225228614484, -3.163762297910697, -54.93023491652571, 178.3721612239738,
         765.106592053836, -8705.221245530181, 30360.432549332385, 47350.39389854026, -1220501.9106842915,
         7874324.291358498, -26295871.662787538, -19239785.199413724, 955050052.4727426, -7717473726.402095,
         39600979186.01979, -120005660690.19382, -181041805564.03644, 5009475824896.703, -30246967912409.508,
         200097892260368.44, -2241365197317743.0, 7667687579428227.0, 7.66300386164191e+16,
         -4.768961839265222e+17)  # fmt: skip
_EI_B = (1.0781031073861607, 1.4016525510937323, 4.862130017494808, 32.858618210501604, 165.2741057806097,
         -2939.6173689499033, -60385.067179000274, 308133.00000407064, 11888298.708702775, -101253825.34514104,
         -1799800444.0471385, 35434740831.93849, 16679688323.032785, -7546534712553.588, 93923521604240.3,
         259397449787304.97, -2.423799481184795e+16, 3.435973347470707e+17, -7.978394084178485e+16,
         -8.36412749944579e+19, 1.2303524144578259e+21, 1.6259339573447203e+21, -1.9631983370889304e+23,
         1.3827579213086627e+24)  # fmt: skip
_EI_C = (1.0174307828844213, 1.0729467122053564, 2.350570177645547, 8.042854562888998, 38.31477361017154,
         239.03573440228087, 1882.4134042431124, 18282.680168438284, 215888.33328765858, 3076882.507864817,
         52996623.94349756, 1120120161.6487107, 28720419113.443928, 880214812935.1744, 41653795640961.164,
         1991916768933037.0, -1.2667312699819074e+16, -7.128965991164182e+18, -2.0745032800892627e+20,
         7.278484978823341e+21, 3.4817015198243365e+23, -2.9227314831621574e+24, -1.9974342296317188e+26)  # fmt: skip
_PIECES = ((0.175, _EI_A), (0.06666666666666667, _EI_B), (0.016833333333333332, _EI_C))


def _first(a: Value) -> Value:
    """exp1(a) for positive a."""
    below = at_most(a, 1.0)
    near = fma(below, polynomial(below, _NEAR), -_EULER - log(below))
    v = 1.0 / (a + 2.0)
    far = exp(-a) * (v * polynomial(v - _E1_CENTRE, _E1))
    return where(a <= 1.0, near, far)


def _principal(a: Value) -> Value:
    """expi(a) for positive a."""
    from_zero = (a - _ZERO[0]) - _ZERO[1]
    beside = log1p(at_least(from_zero / _ZERO[0], -0.75))  # log(a / x0), which is accurate next to x0
    logarithm = where(a < 0.75, where(a < 0.2, log(a) - math.log(_ZERO[0]), beside), log(a / _ZERO[0]))
    near = fma(from_zero, polynomial(a - 2.0, _EI), logarithm)
    u = 1.0 / a
    first, second, third = (polynomial(u - centre, piece) for centre, piece in _PIECES)
    n, r, _ = reduce(at_most(a, 720.0))
    far = ldexp(polynomial(r, EXP[float64]) * (u * where(a < 10.0, first, where(a < 30.0, second, third))), n)
    return where(a < 4.0, near, where(a < 720.0, far, INF))


@in_float64
def exp1(x: Value) -> Value:
    """The integral of e^-t / t from x to infinity; inf at 0, nan below."""
    y = where(x.equals(0.0), INF, where(x < 0.0, NAN, _first(x)))
    return where(x.differs(x), x, where(x < INF, y, 0.0))


@in_float64
def expi(x: Value) -> Value:
    """The principal value of the integral of e^t / t up to x; -inf at 0."""
    a = abs(x)
    y = where(x < 0.0, where(a < INF, -_first(a), -0.0), _principal(a))
    return where(x.differs(x), x, where(x.equals(0.0), -INF, y))
