"""Operands of the functions of `hybridml.linalg`, and their checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, ShapeError

from ..arrays.contracting.products import conjugate
from ..arrays.elementwise import _floating as floating
from ..arrays.shaping.manipulation import _tensor as tensor
from ..core.tensor import Tensor


def matrices(name: str, x: Any) -> Tensor:
    """A tensor of two axes or more."""
    x = tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"{name}: needs a matrix or a batch of them, got {described(x)}; reshape it")
    return x


def described(x: Tensor) -> Aval:
    return Aval(x.shape, x.dtype)


def adjoint(x: Tensor) -> Tensor:
    return conjugate(x).mT


def precision(x: Tensor) -> float:
    """The distance from 1 to the next number of the dtype, times the larger side of a matrix."""
    real = dtypes.real_of(x.dtype)
    epsilon = 2.0**-7 if real.kind == "V" else float(np.finfo(real).eps)
    return max(x.shape[-2:], default=0) * epsilon


def one_of(name: str, what: str, value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise ArgumentError(f"{name}: {what} is one of {', '.join(map(repr, known))}, got {value!r}")
    return value


__all__ = ["adjoint", "described", "floating", "matrices", "one_of", "precision", "tensor"]
