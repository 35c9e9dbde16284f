"""NumPy's polynomials and what it computes of sampled functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import arrays as xp
from ...arrays.shaping.manipulation import _tensor
from ...core.tensor import Tensor
from .table import implements, same

same(np, "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots")
same(np, "convolve correlate ediff1d gradient interp trapezoid unwrap")


# -- np.polynomial: the lowest power first, along the first axes of the coefficients


def _horner(c: Tensor, x: Tensor, each: bool = True) -> Any:
    """The polynomials along the first axis of c at x: each of them at each x, or only those in the same place."""
    if each:
        c = xp.reshape(c, c.shape + (1,) * x.ndim)
    found = c[-1] + xp.zeros_like(x)
    for k in reversed(range(c.shape[0] - 1)):
        found = found * x + c[k]
    return found


@implements("numpy.polynomial.polynomial.polygrid2d")
def polygrid2d(x: Any, y: Any, c: Any) -> Any:
    """Values of a polynomial at each pair of an x and a y."""
    along_x = _horner(_tensor(c), _tensor(x))
    return _horner(along_x, _tensor(y))


@implements("numpy.polynomial.polynomial.polyval2d")
def polyval2d(x: Any, y: Any, c: Any) -> Any:
    """Values of a polynomial at pairs of an x and the y in its place."""
    return polyvalnd((x, y), c)


@implements("numpy.polynomial.polynomial.polyvalnd")  # NumPy 2.5
def polyvalnd(pts: Any, c: Any) -> Any:
    """Values of a polynomial at points whose coordinates are in the same places of the arrays of `pts`."""
    first, *others = (_tensor(x) for x in pts)
    found = _horner(_tensor(c), first)
    for x in others:
        found = _horner(found, x, each=False)
    return found
