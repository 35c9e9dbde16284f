"""Windows for spectra, by the names of torch.signal.windows (`hm.signal.windows`); `hann_window` and its kin use them.

All are computed in float64 and rounded once. `sym` windows are symmetric, for filters; others leave out the last point
of the symmetric one with a point more, and continue periodically, for spectra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.shapes import integer

from ...core import ops
from ...core.tensor import Tensor
from ..creation import arange, full

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip

_NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)


def _window(name: str, M: Any, sym: bool, dtype: Any, device: Any, formula: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The formula at points 0, 1, ... of a window from 0 to the number that it is given; ones for a single point."""
    count = integer(name, "the number of points", M)
    if count < 0:
        raise ShapeError(f"{name}: {count} points; use 0 or more")
    wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_float(wanted):
        raise DTypeError(f"{name}: windows are floats, got dtype {wanted.name}")
    if count <= 1:
        return full((count,), 1.0, dtype=wanted, device=device)
    points = arange(count, dtype=dtypes.float64, device=device)
    return ops.astype(formula(points, count - 1 if sym else count), wanted)


def _cosines(name: str, M: Any, a: Sequence[float], sym: bool, dtype: Any, device: Any) -> Tensor:
    def formula(x: Tensor, end: int) -> Tensor:
        total = x * 0 + a[0]
        for k, weight in enumerate(a[1:], 1):
            total = total + ops.cos(x * (2 * math.pi * k / end)) * (-weight if k % 2 else weight)
        return total

    if not a:
        raise ArgumentError(f"{name}: needs at least one coefficient")
    return _window(name, M, sym, dtype, device, formula)


def general_cosine(M: int, *, a: Sequence[float], sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """The sum of ``(-1)**k * a[k] * cos(2 pi k j / (M - 1))`` at j = 0, ..., M - 1.

    >>> import hybridml as hm
    >>> hm.signal.windows.general_cosine(3, a=[0.5, 0.5]).tolist()
    [0.0, 1.0, 0.0]
    """
    return _cosines("general_cosine", M, tuple(a), sym, dtype, device)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """``alpha - (1 - alpha) * cos(2 pi j / (M - 1))``.

    >>> import hybridml as hm
    >>> hm.signal.windows.general_hamming(3, alpha=0.5).tolist()
    [0.0, 1.0, 0.0]
    """
    return _cosines("general_hamming", M, (alpha, 1 - alpha), sym, dtype, device)


def hamming(M: int, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Hamming's window, `general_hamming` with ``alpha=0.54``.

    >>> import hybridml as hm
    >>> hm.signal.windows.hamming(3, dtype=hm.float64)[1].item()
    1.0
    """
    return _cosines("hamming", M, (0.54, 0.46), sym, dtype, device)


def hann(M: int, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Hann's window, ``sin(pi j / (M - 1)) ** 2``.

    >>> import hybridml as hm
    >>> hm.signal.windows.hann(4, sym=False).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _cosines("hann", M, (0.5, 0.5), sym, dtype, device)


def blackman(M: int, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Blackman's window, the `general_cosine` of 0.42, 0.5 and 0.08.

    >>> import hybridml as hm
    >>> hm.signal.windows.blackman(3).shape
    (3,)
    """
    return _cosines("blackman", M, (0.42, 0.5, 0.08), sym, dtype, device)


def nuttall(M: int, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """The four-term window of least side lobes. Source: Nuttall, Some windows with very good sidelobe behavior, 1981.

    >>> import hybridml as hm
    >>> hm.signal.windows.nuttall(3)[1].item()
    1.0
    """
    return _cosines("nuttall", M, _NUTTALL, sym, dtype, device)


def bartlett(M: int, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """The triangle ``1 - |2 j / (M - 1) - 1|``.

    >>> import hybridml as hm
    >>> hm.signal.windows.bartlett(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window("bartlett", M, sym, dtype, device, lambda x, end: 1 - ops.abs(x * (2 / end) - 1))


def cosine(M: int, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Half a wave, ``sin(pi (j + 1/2) / M)``.

    >>> import hybridml as hm
    >>> hm.signal.windows.cosine(3)[1].item()
    1.0
    """
    return _window("cosine", M, sym, dtype, device, lambda x, end: ops.sin((x + 0.5) * (math.pi / (end + 1))))


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """``exp(-|j - center| / tau)``; the centre is the middle unless one is given, which a symmetric window has not.

    ArgumentError for a centre with `sym`, and for a `tau` that is not positive.

    >>> import hybridml as hm
    >>> hm.signal.windows.exponential(3)[1].item()
    1.0
    """
    if tau <= 0 or (sym and center is not None):
        raise ArgumentError(f"exponential: needs tau > 0, and sym=False with a center; got tau={tau}, center={center}")
    return _window(
        "exponential", M, sym, dtype, device,
        lambda x, end: ops.exp(-ops.abs(x - (end / 2 if center is None else center)) / tau),
    )  # fmt: skip


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """``exp(-((j - (M - 1) / 2) / std) ** 2 / 2)``. ArgumentError for an `std` that is not positive.

    >>> import hybridml as hm
    >>> hm.signal.windows.gaussian(3)[1].item()
    1.0
    """
    if std <= 0:
        raise ArgumentError(f"gaussian: needs std > 0, got {std}")
    return _window("gaussian", M, sym, dtype, device, lambda x, end: ops.exp(ops.square((x - end / 2) / std) * -0.5))


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """``i0(beta * sqrt(1 - (2 j / (M - 1) - 1) ** 2)) / i0(beta)``. ArgumentError for a negative `beta`.

    >>> import hybridml as hm
    >>> hm.signal.windows.kaiser(3)[1].item()
    1.0
    """
    if beta < 0:
        raise ArgumentError(f"kaiser: needs beta >= 0, got {beta}")

    def formula(x: Tensor, end: int) -> Tensor:
        inside = ops.maximum(1 - ops.square(x * (2 / end) - 1), 0.0)
        return ops.i0(ops.sqrt(inside) * beta) / ops.i0(full((), float(beta), dtype=dtypes.float64))

    return _window("kaiser", M, sym, dtype, device, formula)
