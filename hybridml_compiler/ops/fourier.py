"""Discrete Fourier transforms over a set of axes: complex to complex, real to half a spectrum, and back.

Kernels of ours compute them where there are such (`schedule/kernels/transform.py`), eagerly and in compiled programs
with the same bits, and NumPy's transforms (pocketfft) where not. The transform's matrix is symmetric, so the transpose
of a complex transform is itself; those of the real ones are each other, with the inner frequencies, which mean two
each, counted twice or half.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from ..hooks import hooks
from ..record import record, replace
from ..sizes.dims import is_dim
from .creation import arange
from .movement import reshape
from .op import REQUIRED, Op, Sample
from .samples import fails, floats
from .shapes import Shape, axis_index, integer


@record
class AxisTransform:
    """A transform along one axis: `kind` is "c2c", "r2c" or "c2r", of `points` numbers, the result times `scale`."""

    kind: str
    axis: int
    points: Any
    inverse: bool = False
    scale: float = 1.0


def _transforms(
    x: Aval, axes: tuple[int, ...], norm: str, kind: str = "c2c", inverse: bool = False, size: Any = None
) -> list[AxisTransform]:
    """The transforms along each axis, the last one of real numbers: `kind`; all others are of complex ones."""
    points = [x.shape[k] for k in axes]
    if kind == "c2r":
        points[-1] = size
    inner = [AxisTransform("c2c", k, n, inverse) for k, n in zip(axes[:-1], points, strict=False)][::-1]
    outer = AxisTransform(kind, axes[-1], points[-1], inverse)
    found = [*inner, outer] if kind == "c2r" else [outer, *inner]
    divided = norm == "ortho" or (norm == "backward") == inverse
    if divided and not any(map(is_dim, points)):
        n = math.prod(points)
        found[-1] = replace(found[-1], scale=1 / (math.sqrt(n) if norm == "ortho" else n))
    return found


SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _axes(name: str, x: Aval, axes: Any) -> tuple[int, ...]:
    found = tuple([axis_index(name, k, x) for k in axes])
    if not found or len(set(found)) < len(found):
        what = "names an axis twice" if found else "is empty"
        raise ShapeError(f"{name}: axes {tuple(axes)} of {x} {what}; name each axis to transform once")
    return found


def _norm(name: str, norm: Any) -> str:
    if norm not in SWAPPED:
        raise ArgumentError(f'{name}: norm must be "backward", "ortho" or "forward", got {norm!r}')
    return str(norm)


def _points(name: str, x: Aval, axes: Sequence[int]) -> None:
    for k in axes:
        if x.shape[k] < 1:
            raise ShapeError(f"{name}: {x} has no points along axis {k}; a transform needs at least one")


def _like(g: Any, x_dtype: np.dtype) -> Any:
    """The gradient as that of its operand, which may be real."""
    return g if x_dtype.kind == "c" else g.real


# ---------------------------------------------------------------- complex to complex


def _c2c_canon(x: Aval, axes: Any, inverse: Any, norm: Any) -> dict[str, Any]:
    return {"axes": _axes("fft_c2c", x, axes), "inverse": bool(inverse), "norm": _norm("fft_c2c", norm)}


def _c2c_infer(x: Aval, axes: tuple[int, ...], inverse: bool, norm: str) -> Aval:
    _points("fft_c2c", x, axes)
    return Aval(x.shape, dtypes.complex_of(x.dtype))


def _c2c_transforms(x: Aval, axes: tuple[int, ...], inverse: bool, norm: str) -> list[AxisTransform]:
    return _transforms(x, axes, norm, inverse=inverse)


def _c2c_eager(x: np.ndarray, axes: tuple[int, ...], inverse: bool, norm: str) -> np.ndarray:
    found = hooks.fourier(x, _c2c_transforms(Aval(x.shape, x.dtype), axes, inverse, norm))
    if found is not None:
        return found
    return (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm)  # type: ignore[arg-type]


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape, axes in (((7,), (0,)), ((3, 4), (1,)), ((2, 3, 5), (2, 0)), ((1, 6), (0, 1)), ((0, 3), (1,))):
        for dtype in ("c16", "c8"):
            x = floats(rng, shape) + 1j * floats(rng, shape)
            yield Sample((x.astype(dtype),), {"axes": axes, "norm": "ortho"}, grad=dtype == "c16")


def _c2c_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(rng)
    yield Sample((floats(rng, (5,)),), {"axes": (0,)})
    for k, sample in enumerate(_samples(rng)):
        norm = ("backward", "forward")[k % 2]
        yield Sample(sample.args, {**sample.params, "inverse": True, "norm": norm}, grad=sample.grad)


fft_c2c: Op = Op(
    "fft_c2c",
    "opaque",
    public=False,
    inputs=("x",),
    params={"axes": REQUIRED, "inverse": False, "norm": "backward"},
    canon=_c2c_canon,
    infer=_c2c_infer,
    eager=_c2c_eager,
    transforms=_c2c_transforms,
    vjp=(lambda g, x_dtype, axes, inverse, norm: _like(fft_c2c(g, axes=axes, inverse=inverse, norm=norm), x_dtype),),
    samples=_c2c_samples,
    error_samples=lambda: (
        fails(ShapeError, "fft_c2c: axis 2 does not exist in f32[2,3]", (2, 3), axes=(2,)),
        fails(ShapeError, "names an axis twice", (2, 3), axes=(1, -1)),
        fails(ShapeError, "is empty", (2, 3), axes=()),
        fails(ShapeError, "has no points along axis 0", (0, 3), axes=(0,)),
        fails(ArgumentError, 'fft_c2c: norm must be "backward"', (3,), axes=(0,), norm="none"),
    ),
    accepts="inexact",
    doc="The discrete Fourier transform over `axes`, sum over j of x[j] exp(-2 pi i j k / n), or its inverse. norm: "
    "which way is divided by n, or both by its root (ortho).",
)

# ---------------------------------------------------------------- real to half a spectrum


def _r2c_canon(x: Aval, axes: Any, norm: Any) -> dict[str, Any]:
    return {"axes": _axes("fft_r2c", x, axes), "norm": _norm("fft_r2c", norm)}


def _r2c_infer(x: Aval, axes: tuple[int, ...], norm: str) -> Aval:
    _points("fft_r2c", x, axes)
    k = axes[-1]
    return Aval((*x.shape[:k], x.shape[k] // 2 + 1, *x.shape[k + 1 :]), dtypes.complex_of(x.dtype))


def _r2c_transforms(x: Aval, axes: tuple[int, ...], norm: str) -> list[AxisTransform]:
    return _transforms(x, axes, norm, "r2c")


def _r2c_eager(x: np.ndarray, axes: tuple[int, ...], norm: str) -> np.ndarray:
    found = hooks.fourier(x, _r2c_transforms(Aval(x.shape, x.dtype), axes, norm))
    return np.fft.rfftn(x, axes=axes, norm=norm) if found is None else found  # type: ignore[arg-type]


def _inner(like: Any, axis: int, size: Any) -> Any:
    """1 at the frequencies that mean two, 0 at the others, along the axis of half a spectrum of `size` points."""
    k = arange(start=like.shape[axis])
    found = ((k > 0) & (k * 2 < size)).astype(dtypes.real_of(like.dtype))
    return reshape(found, shape=(-1,) + (1,) * (like.ndim - axis - 1))


def _r2c_rule(g: Any, x_shape: Shape, axes: tuple[int, ...], norm: str) -> Any:
    size = x_shape[axes[-1]]
    once = g.conj() * (1 - _inner(g, axes[-1], size) * 0.5)
    return fft_c2r(once, axes=axes, size=size, norm=SWAPPED[norm])


def _r2c_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for k, (shape, axes) in enumerate(
        (((7,), (0,)), ((3, 4), (1,)), ((2, 3, 5), (2, 0)), ((1, 6), (0, 1)), ((1,), (0,)))
    ):
        for dtype in ("f8", "f4"):
            params = {"axes": axes, "norm": tuple(SWAPPED)[k % 3]}
            yield Sample((floats(rng, shape, dtype=dtype),), params, grad=dtype == "f8")


fft_r2c: Op = Op(
    "fft_r2c",
    "opaque",
    public=False,
    inputs=("x",),
    params={"axes": REQUIRED, "norm": "backward"},
    canon=_r2c_canon,
    infer=_r2c_infer,
    eager=_r2c_eager,
    transforms=_r2c_transforms,
    vjp=(_r2c_rule,),
    samples=_r2c_samples,
    error_samples=lambda: (
        fails(ShapeError, "fft_r2c: axis 2 does not exist in f32[2,3]", (2, 3), axes=(2,)),
        fails(ShapeError, "has no points along axis 0", (0, 3), axes=(0,)),
        fails(ArgumentError, 'fft_r2c: norm must be "backward"', (3,), axes=(0,), norm="none"),
    ),
    accepts="float",
    doc="The transform of real numbers: over the last of `axes` the n // 2 + 1 frequencies from 0 up, since the others "
    "are their conjugates.",
)

# ---------------------------------------------------------------- half a spectrum to real


def _c2r_canon(x: Aval, axes: Any, size: Any, norm: Any) -> dict[str, Any]:
    return {
        "axes": _axes("fft_c2r", x, axes),
        "size": integer("fft_c2r", "size", size),
        "norm": _norm("fft_c2r", norm),
    }


def _c2r_infer(x: Aval, axes: tuple[int, ...], size: Any, norm: str) -> Aval:
    k = axes[-1]
    _points("fft_c2r", x, axes[:-1])
    if size < 1 or x.shape[k] != size // 2 + 1:
        raise ShapeError(
            f"fft_c2r: {size} real numbers along axis {k} have {size // 2 + 1 if size > 0 else 'no'} frequencies, got "
            f"{x}; cut it or add zeros to that"
        )
    return Aval((*x.shape[:k], size, *x.shape[k + 1 :]), dtypes.real_of(x.dtype))


def _c2r_transforms(x: Aval, axes: tuple[int, ...], size: Any, norm: str) -> list[AxisTransform]:
    return _transforms(x, axes, norm, "c2r", True, size)


def _c2r_eager(x: np.ndarray, axes: tuple[int, ...], size: int, norm: str) -> np.ndarray:
    found = hooks.fourier(x, _c2r_transforms(Aval(x.shape, x.dtype), axes, size, norm))
    if found is not None:
        return found
    if len(axes) > 1:
        x = np.fft.ifftn(x, axes=axes[:-1], norm=norm)  # type: ignore[arg-type]
    return np.fft.irfft(x, size, axis=axes[-1], norm=norm)  # type: ignore[arg-type]


def _c2r_rule(g: Any, x_dtype: Any, axes: tuple[int, ...], size: Any, norm: str) -> Any:
    back = fft_r2c(g, axes=axes, norm=SWAPPED[norm]).conj()
    return _like(back * (1 + _inner(back, axes[-1], size)), x_dtype)


def _c2r_samples(rng: np.random.Generator) -> Iterator[Sample]:
    rows = (((4,), (0,), 7), ((3, 4), (1,), 6), ((2, 3, 3), (0, 1), 5), ((2, 2), (0, 1), 2), ((1,), (0,), 1))
    for k, (shape, axes, size) in enumerate(rows):
        for dtype in ("c16", "c8"):
            x = floats(rng, shape) + 1j * floats(rng, shape)
            params = {"axes": axes, "size": size, "norm": tuple(SWAPPED)[k % 3]}
            yield Sample((x.astype(dtype),), params, grad=dtype == "c16")
    yield Sample((floats(rng, (3,)),), {"axes": (0,), "size": 4})


fft_c2r: Op = Op(
    "fft_c2r",
    "opaque",
    public=False,
    inputs=("x",),
    params={"axes": REQUIRED, "size": REQUIRED, "norm": "backward"},
    canon=_c2r_canon,
    infer=_c2r_infer,
    eager=_c2r_eager,
    transforms=_c2r_transforms,
    vjp=(_c2r_rule,),
    samples=_c2r_samples,
    error_samples=lambda: (
        fails(ShapeError, "fft_c2r: axis 2 does not exist in f32[2,3]", (2, 3), axes=(2,), size=4),
        fails(ShapeError, "fft_c2r: 4 real numbers along axis 0 have 3 frequencies", (2,), axes=(0,), size=4),
        fails(ShapeError, "have no frequencies", (1,), axes=(0,), size=0),
        fails(ArgumentError, 'fft_c2r: norm must be "backward"', (2,), axes=(0,), size=2, norm="none"),
    ),
    accepts="inexact",
    doc="The `size` real numbers, along the last of `axes`, whose half spectrum is x: the inverse of `fft_r2c`. The "
    "imaginary part of frequency 0 (and size / 2) counts for nothing.",
)

ROWS = (fft_c2c, fft_r2c, fft_c2r)
