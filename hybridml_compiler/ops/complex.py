"""Parts of complex numbers. Of real numbers they are themselves, or zero.

Rules are transposes, see `hybridml.autograd`: a change dz of z changes a real result by the real part of g * dz.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from .elementwise import elementwise, zero_gradient
from .op import Op, Rule


def _part(name: str, of_real: Callable[[np.ndarray], np.ndarray], vjp: Rule, doc: str) -> Op:
    """Of a real number: itself, or zero."""
    ufunc = getattr(np, name)
    return elementwise(
        name,
        lambda x: np.array(ufunc(x)) if x.dtype.kind == "c" else of_real(x),
        (vjp,),
        doc,
        lower=lambda s, x: x if name == "real" else s.const(0, s.dtype(x)),
        accepts="number",
        result=dtypes.real_of,
        method=False,  # a property, see `hybridml.tensor`
    )


def _complex_of(part: Any, factor: Any, x_dtype: Any) -> Any:
    return part if x_dtype.kind != "c" else part.astype(dtype=x_dtype) * factor


real = _part(
    "real", np.positive, lambda g, x_dtype: _complex_of(g, 1.0, x_dtype), "The real part; of a real number itself."
)
imag = _part(
    "imag",
    np.zeros_like,
    lambda g, x_shape, x_dtype: (
        _complex_of(g, -1j, x_dtype) if x_dtype.kind == "c" else zero_gradient(g, x_shape, x_dtype)
    ),
    "The imaginary part; of a real number zero.",
)
conj = elementwise(
    "conj",
    np.conj,
    (lambda g: g.conj(),),
    "The complex conjugate; of a real number itself.",
    lower=lambda s, x: x,
    accepts="number",
)

ROWS = (real, imag, conj)
