"""Parts of complex numbers. Of real numbers they are themselves, or zero.

Rules are transposes, see `hybridml.autograd`: a change dz of z changes a real result by the real part of g * dz.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import DTypeError, ShapeError
from .elementwise import elementwise, zero_gradient
from .indexing import at
from .op import Op, Rule
from .samples import cases, fails
from .shapes import broadcast


def _part(name: str, of_real: Callable[[np.ndarray], np.ndarray], vjp: Rule, doc: str) -> Op:
    """A row for a part of a number; a real number has itself, or zero."""
    ufunc = getattr(np, name)

    def lower(s: Any, x: Any) -> Any:
        if s.dtype(x).kind == "c":
            return getattr(s, name)(x)
        return x if name == "real" else s.const(0, s.dtype(x))

    return elementwise(
        name,
        lambda x: np.array(ufunc(x)) if x.dtype.kind == "c" else of_real(x),
        (vjp,),
        doc,
        lower=lower,
        complex_kernels=True,
        accepts="number",
        result=dtypes.real_of,
        constant_of="" if name == "real" else "biufV",
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
    lambda x: np.conj(x) if x.dtype.kind == "c" else np.array(x),
    (lambda g: g.conj(),),
    "The complex conjugate; of a real number itself.",
    lower=lambda s, x: x if s.dtype(x).kind != "c" else s.pair(s.real(x), s.neg(s.imag(x))),
    accepts="any",
    complex_kernels=True,
)


def _complex_infer(real: Aval, imag: Aval) -> Aval:
    if real.dtype is not imag.dtype or real.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"complex: takes two tensors of float32 or of float64, got {real} and {imag}; cast them with astype"
        )
    return Aval(broadcast("complex", real, imag), dtypes.complex_of(real.dtype))


def _complex_eager(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """Written part by part: ``real + 1j * imag`` would make a nan of an infinite part."""
    found = np.empty(np.broadcast_shapes(real.shape, imag.shape), dtypes.complex_of(real.dtype))
    found.real, found.imag = real, imag
    return found


complex_ = Op(
    "complex",
    "elementwise",
    inputs=("real", "imag"),
    infer=_complex_infer,
    eager=_complex_eager,
    lower=lambda s, i, real, imag: s.pair(at(real, i), at(imag, i)),
    unify=(),
    complex_kernels=True,
    vjp=(lambda g: g.real, lambda g: -g.imag),
    samples=cases(
        *(((shape, other), {}) for shape, other in (((3, 4), (3, 4)), ((2, 1), (3,)), ((), ()), ((0, 2), (2,)))),
        values=[((np.array([np.inf, np.nan, -0.0]), np.array([1.0, -np.inf, 0.0])), {})],
    ),
    error_samples=lambda: (
        fails(DTypeError, "complex: takes two tensors of float32 or of float64", (2,), np.zeros(2, np.int64)),
        fails(ShapeError, "complex: shapes", (2,), (3,)),
    ),
    accepts="float",
    doc="The number with the real part x and the imaginary part y, of two floats of one dtype that broadcast.",
)

ROWS = (real, imag, conj, complex_)
