"""Discrete Fourier transforms: the fft extension of the array API standard, and NumPy's transforms of two axes.

Every transform has gradients of any order, those of complex numbers in PyTorch's convention (see `hybridml.autograd`).
float32 gives complex64, float64 gives complex128, integers become the default float. norm: "backward" divides the
inverse by the number of points, "forward" the transform, "ortho" both by its root.

Errors: ShapeError for an axis that is not there or named twice, and for transforms of no points; ArgumentError for
another `norm`; DTypeError where a real transform is given complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.fourier import SWAPPED
from hybridml_compiler.ops.shapes import axis_index, integer

from .arrays.creation import arange, asarray
from .arrays.shaping.manipulation import roll
from .core import ops
from .core.library import compiled_when_repeated
from .core.spellings import accept
from .core.tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Sizes = Sequence[int] | None


def _fit(x: Tensor, axis: int, size: Any) -> Tensor:
    """x cut at, or with zeros up to, `size` points."""
    have = x.shape[axis]
    if have == size:
        return x
    if have > size:
        return x[(slice(None),) * axis + (slice(0, size),)]
    return ops.pad(x, [(0, size - have if k == axis else 0) for k in range(x.ndim)])


def _points(name: str, n: Any) -> Any:
    found = integer(name, "the number of points", n)
    if found < 1:
        raise ShapeError(f"{name}: {found} points; a transform needs at least one")
    return found


def _places(name: str, x: Tensor, s: Sizes, axes: Sequence[int] | None) -> tuple[tuple[int, ...], list[Any]]:
    """Axes to transform and the points of each (-1 and None: as many as there are)."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(s), 0)
    found = tuple([axis_index(name, k, x.shape) for k in axes])
    sizes = [None] * len(found) if s is None else [None if n == -1 else _points(name, n) for n in s]
    if len(sizes) != len(found):
        raise ArgumentError(f"{name}: {len(sizes)} sizes for {len(found)} axes; give one for each")
    return found, sizes


def _all_fit(x: Tensor, axes: Sequence[int], sizes: Sequence[Any]) -> Tensor:
    for axis, n in zip(axes, sizes, strict=True):
        if n is not None:
            x = _fit(x, axis, n)
    return x


def _complex(name: str, x: Any, s: Sizes, axes: Sequence[int] | None, norm: Any, inverse: bool) -> Tensor:
    x = asarray(x)
    found, sizes = _places(name, x, s, axes)
    if not found:
        return ops.astype(x, dtypes.complex_of(x.dtype if dtypes.is_inexact(x.dtype) else dtypes.default_float()))
    return ops.fft_c2c(_all_fit(x, found, sizes), found, inverse, norm or "backward")


def _of_real(name: str, x: Any, s: Sizes, axes: Sequence[int] | None, norm: Any) -> Tensor:
    x = asarray(x)
    found, sizes = _places(name, x, s, axes)
    return ops.fft_r2c(_all_fit(x, found, sizes), found, norm or "backward")


def _to_real(name: str, x: Any, s: Sizes, axes: Sequence[int] | None, norm: Any) -> Tensor:
    x = asarray(x)
    found, sizes = _places(name, x, s, axes)
    if not found:
        raise ShapeError(f"{name}: no axes to transform; name at least one")
    size = sizes[-1] if sizes[-1] is not None else _points(name, (x.shape[found[-1]] - 1) * 2)
    x = _all_fit(x, found, [*sizes[:-1], size // 2 + 1])
    return ops.fft_c2r(x, found, size, norm or "backward")


def _one(n: int | None) -> Sizes:
    return None if n is None else (n,)


@compiled_when_repeated
def fft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The transform along `axis`: sum over j of x[j] exp(-2 pi i j k / n), for k from 0 to n - 1.

    n: points; x is cut or continued with zeros.

    >>> import hybridml as hm
    >>> hm.fft.fft(hm.tensor([1.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _complex("fft", x, _one(n), (axis,), norm, False)


@compiled_when_repeated
def ifft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The inverse of `fft`.

    >>> import hybridml as hm
    >>> hm.fft.ifft(hm.fft.fft(hm.tensor([1.0, 2.0]))).real.tolist()
    [1.0, 2.0]
    """
    return _complex("ifft", x, _one(n), (axis,), norm, True)


@compiled_when_repeated
def fftn(x: Tensor, /, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = "backward") -> Tensor:
    """The transform over `axes`: all, or the last as many as `s`, the points of each (-1: as many as there are).

    >>> import hybridml as hm
    >>> hm.fft.fftn(hm.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _complex("fftn", x, s, axes, norm, False)


@compiled_when_repeated
def ifftn(x: Tensor, /, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = "backward") -> Tensor:
    """The inverse of `fftn`.

    >>> import hybridml as hm
    >>> hm.fft.ifftn(hm.fft.fftn(hm.ones((2, 2)))).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _complex("ifftn", x, s, axes, norm, True)


@compiled_when_repeated
def fft2(x: Tensor, /, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`fftn` over the last two axes.

    >>> import hybridml as hm
    >>> hm.fft.fft2(hm.tensor([[1.0, 2.0], [3.0, 4.0]])).real.tolist()
    [[10.0, -2.0], [-4.0, 0.0]]
    """
    return _complex("fft2", x, s, axes, norm, False)


@compiled_when_repeated
def ifft2(x: Tensor, /, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward") -> Tensor:
    """The inverse of `fft2`.

    >>> import hybridml as hm
    >>> hm.fft.ifft2(hm.fft.fft2(hm.tensor([[1.0, 2.0], [3.0, 4.0]]))).real.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _complex("ifft2", x, s, axes, norm, True)


@compiled_when_repeated
def rfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """`fft` of real numbers: the n // 2 + 1 frequencies from 0 up; the others are their conjugates.

    >>> import hybridml as hm
    >>> hm.fft.rfft(hm.tensor([1.0, 2.0, 3.0, 4.0])).shape
    (3,)
    """
    return _of_real("rfft", x, _one(n), (axis,), norm)


@compiled_when_repeated
def irfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The inverse of `rfft`: n real numbers (an odd n must be given; the default is twice the frequencies less 2).

    >>> import hybridml as hm
    >>> hm.fft.irfft(hm.fft.rfft(hm.tensor([1.0, 2.0, 3.0])), n=3).tolist()
    [1.0, 2.0, 3.0]
    """
    return _to_real("irfft", x, _one(n), (axis,), norm)


@compiled_when_repeated
def rfftn(x: Tensor, /, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = "backward") -> Tensor:
    """`rfft` along the last of `axes` and `fft` along the others.

    >>> import hybridml as hm
    >>> hm.fft.rfftn(hm.ones((4, 6))).shape
    (4, 4)
    """
    return _of_real("rfftn", x, s, axes, norm)


@compiled_when_repeated
def irfftn(
    x: Tensor, /, *, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    """The inverse of `rfftn`; the last of `s` is a number of real points, as `n` of `irfft`.

    >>> import hybridml as hm
    >>> hm.fft.irfftn(hm.fft.rfftn(hm.ones((2, 3))), s=(2, 3)).shape
    (2, 3)
    """
    return _to_real("irfftn", x, s, axes, norm)


@compiled_when_repeated
def rfft2(x: Tensor, /, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`rfftn` over the last two axes.

    >>> import hybridml as hm
    >>> hm.fft.rfft2(hm.ones((5, 4, 6))).shape
    (5, 4, 4)
    """
    return _of_real("rfft2", x, s, axes, norm)


@compiled_when_repeated
def irfft2(x: Tensor, /, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward") -> Tensor:
    """The inverse of `rfft2`.

    >>> import hybridml as hm
    >>> hm.fft.irfft2(hm.fft.rfft2(hm.tensor([[1.0, 2.0], [3.0, 4.0]]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _to_real("irfft2", x, s, axes, norm)


@compiled_when_repeated
def hfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The transform, n real numbers, of a signal whose second half is the conjugate of x, which is its first.

    >>> import hybridml as hm
    >>> hm.fft.hfft(hm.tensor([1.0, 2.0, 3.0])).tolist()
    [8.0, -2.0, 0.0, -2.0]
    """
    return _to_real("hfft", ops.conj(asarray(x)), _one(n), (axis,), _swapped("hfft", norm))


@compiled_when_repeated
def ihfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The inverse of `hfft`.

    >>> import hybridml as hm
    >>> hm.fft.ihfft(hm.tensor([8.0, -2.0, 0.0, -2.0])).real.tolist()
    [1.0, 2.0, 3.0]
    """
    return ops.conj(_of_real("ihfft", x, _one(n), (axis,), _swapped("ihfft", norm)))


@compiled_when_repeated
def hfftn(x: Tensor, /, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = "backward") -> Tensor:
    """`fft` along all of `axes` but the last one, along which it is `hfft`: real numbers. Source: SciPy, PyTorch.

    >>> import hybridml as hm
    >>> hm.fft.hfftn(hm.ones((2, 2))).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _to_real("hfftn", ops.conj(asarray(x)), s, axes, _swapped("hfftn", norm))


@compiled_when_repeated
def ihfftn(
    x: Tensor, /, *, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    """The inverse of `hfftn`.

    >>> import hybridml as hm
    >>> hm.fft.ihfftn(hm.tensor([[4.0, 0.0], [0.0, 0.0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return ops.conj(_of_real("ihfftn", x, s, axes, _swapped("ihfftn", norm)))


@compiled_when_repeated
def hfft2(x: Tensor, /, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`hfftn` over the last two axes.

    >>> import hybridml as hm
    >>> hm.fft.hfft2(hm.ones((2, 2))).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _to_real("hfft2", ops.conj(asarray(x)), s, axes, _swapped("hfft2", norm))


@compiled_when_repeated
def ihfft2(x: Tensor, /, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward") -> Tensor:
    """The inverse of `hfft2`.

    >>> import hybridml as hm
    >>> hm.fft.ihfft2(hm.tensor([[4.0, 0.0], [0.0, 0.0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return ops.conj(_of_real("ihfft2", x, s, axes, _swapped("ihfft2", norm)))


def _swapped(name: str, norm: str | None) -> str:
    found = SWAPPED.get(norm or "backward")
    if found is None:
        raise ArgumentError(f'{name}: norm must be "backward", "ortho" or "forward", got {norm!r}')
    return found


def fftfreq(n: int, /, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft` of n points `d` apart, in cycles a unit of d (default float): 0 and up, then from -n/2.

    >>> import hybridml as hm
    >>> hm.fft.fftfreq(4, d=0.5).tolist()
    [0.0, 0.5, -1.0, -0.5]
    """
    n = _points("fftfreq", n)
    k = arange(n)
    return _scaled("fftfreq", ops.where(k < (n + 1) // 2, k, k - n), n, d, dtype, device)


def rfftfreq(n: int, /, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft` of n points `d` apart, from 0 to n // 2.

    >>> import hybridml as hm
    >>> hm.fft.rfftfreq(4, d=0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    n = _points("rfftfreq", n)
    return _scaled("rfftfreq", arange(n // 2 + 1), n, d, dtype, device)


def _scaled(name: str, k: Tensor, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    """Frequencies computed in float64, and rounded once."""
    if device is not None:
        k = k.to(device=device)
    wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_float(wanted):
        raise DTypeError(f"{name}: frequencies are floats, got dtype {wanted.name}")
    return ops.astype(ops.astype(k, dtypes.float64) * (1.0 / (n * d)), wanted)


def fftshift(x: Tensor, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Frequency 0 moved to the middle of `axes` (all).

    >>> import hybridml as hm
    >>> hm.fft.fftshift(hm.tensor([0, 1, -2, -1])).tolist()
    [-2, -1, 0, 1]
    """
    return _shifted("fftshift", x, axes, 0)


def ifftshift(x: Tensor, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> import hybridml as hm
    >>> hm.fft.ifftshift(hm.fft.fftshift(hm.arange(5))).tolist()
    [0, 1, 2, 3, 4]
    """
    return _shifted("ifftshift", x, axes, 1)


def _shifted(name: str, x: Any, axes: int | Sequence[int] | None, more: int) -> Tensor:
    x = asarray(x)
    wanted = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    found = [axis_index(name, k, x.shape) for k in wanted]
    return roll(x, [(x.shape[k] + more) // 2 for k in found], axis=found)


accept(globals(), __all__)
