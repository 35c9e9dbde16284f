"""Spectra over time: `stft` and `istft` with PyTorch's arguments, and the windows that go with them."""

from __future__ import annotations

from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.shapes import integer

from ..core import ops
from ..core.context import placed
from ..core.tensor import Tensor
from .creation import asarray, full
from .shaping import windows
from .shaping.manipulation import swapaxes

__all__ = [
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "kaiser_window", "stft",
]  # fmt: skip

# Below this sum of squared windows a number is one that no window has reached, as in PyTorch.
_UNREACHED = 1e-11


def hann_window(n: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Hann's window, sin(pi j / n) ** 2; not `periodic`: symmetric, over n - 1.

    >>> import hybridml as hm
    >>> hm.hann_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return windows.hann(n, sym=not periodic, dtype=dtype, device=device)


def hamming_window(
    n: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Hamming's window, alpha - beta cos(2 pi j / n).

    >>> import hybridml as hm
    >>> hm.hamming_window(4)
    Tensor([0.08, 0.54, 1.00, 0.54])
    """
    return windows.general_cosine(n, a=(alpha, beta), sym=not periodic, dtype=dtype, device=device)


def blackman_window(n: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Blackman's window, 0.42 - 0.5 cos(2 pi j / n) + 0.08 cos(4 pi j / n).

    >>> import hybridml as hm
    >>> hm.blackman_window(4)[1:]
    Tensor([0.34, 1.00, 0.34])
    """
    return windows.blackman(n, sym=not periodic, dtype=dtype, device=device)


def bartlett_window(n: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Bartlett's window, the triangle 1 - |2 j / n - 1|.

    >>> import hybridml as hm
    >>> hm.bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return windows.bartlett(n, sym=not periodic, dtype=dtype, device=device)


def kaiser_window(
    n: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Kaiser's window, i0(beta sqrt(1 - (2 j / n - 1) ** 2)) / i0(beta).

    >>> import hybridml as hm
    >>> hm.kaiser_window(5, periodic=False, beta=8.0)
    Tensor([0.0023, 0.3690, 1.0000, 0.3690, 0.0023])
    """
    return windows.kaiser(n, beta=beta, sym=not periodic, dtype=dtype, device=device)


class _Frames:
    """Framing of a signal: checked sizes, and the window, as long as a frame."""

    def __init__(self, name: str, size: Any, hop: Any, length: Any, window: Any, dtype: Any) -> None:
        self.size = integer(name, "n_fft", size)
        self.hop = self.size // 4 if hop is None else integer(name, "hop_length", hop)
        length = self.size if length is None else integer(name, "win_length", length)
        if self.size < 1 or self.hop < 1 or not 0 < length <= self.size:
            raise ArgumentError(
                f"{name}: needs n_fft and hop_length of 1 or more and win_length up to n_fft, got n_fft={self.size}, "
                f"hop_length={self.hop}, win_length={length}"
            )
        found = full((length,), 1.0, dtype=dtypes.real_of(dtype)) if window is None else asarray(window)
        if found.shape != (length,):
            raise ShapeError(f"{name}: the window must have win_length numbers, ({length},), got shape {found.shape}")
        left = (self.size - length) // 2
        self.window = found if length == self.size else ops.pad(found, [(left, self.size - length - left)])


def _around(x: Tensor, n: int, mode: str) -> Tensor:
    """x with n numbers more at either end of its last axis."""
    have = x.shape[-1]
    if mode == "constant":
        return ops.pad(x, [(0, 0)] * (x.ndim - 1) + [(n, n)])
    if mode == "replicate":
        ends = x[..., :1], x[..., -1:]
        left, right = (ops.broadcast_to(end, (*x.shape[:-1], n)) for end in ends)
    elif mode == "reflect":
        if n >= have:
            raise ShapeError(f'stft: pad_mode "reflect" needs more than n_fft // 2 = {n} numbers, got {have}')
        left, right = ops.flip(x[..., 1 : n + 1], axis=-1), ops.flip(x[..., have - n - 1 : have - 1], axis=-1)
    elif mode == "circular":
        if n > have:
            raise ShapeError(f'stft: pad_mode "circular" needs n_fft // 2 = {n} numbers or more, got {have}')
        left, right = x[..., have - n :], x[..., :n]
    else:
        raise ArgumentError(f'stft: pad_mode must be "reflect", "constant", "replicate" or "circular", got {mode!r}')
    return ops.concat([left, x, right], axis=-1)


@placed
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """Spectra of frames of `n_fft` numbers, `hop_length` (n_fft // 4) apart: (..., L) to (..., frequencies, frames).

    window: `win_length` numbers (default ones, n_fft), which stand in the middle of a frame. center: frame k is about
    number k * hop_length, the ends continued by `pad_mode`. normalized: divided by the root of n_fft. onesided: the
    n_fft // 2 + 1 frequencies from 0 up (the default where the numbers are real). The result is complex
    (`return_complex=False`, PyTorch's old form, is an ArgumentError).

    >>> import hybridml as hm
    >>> hm.stft(hm.ones(100), 16, 4, window=hm.hann_window(16)).shape
    (9, 26)
    """
    if return_complex is False:
        raise ArgumentError("stft: results are complex; take .real and .imag instead of return_complex=False")
    x = asarray(input)
    if not x.ndim:
        raise ShapeError("stft: needs a signal, got a number; its last axis is time")
    frames = _Frames("stft", n_fft, hop_length, win_length, window, x.dtype)
    n = frames.size
    x = _around(x, n // 2, pad_mode) if center else x
    if x.shape[-1] < n:
        raise ShapeError(f"stft: no frame of n_fft={n} in {Aval(x.shape, x.dtype)}; use a longer signal or center=True")
    cut = ops.windows(x, (n,), (frames.hop,)) * frames.window
    real = cut.dtype.kind != "c"
    if onesided and not real:
        raise ArgumentError("stft: complex numbers have no half spectrum; leave onesided out")
    norm = "ortho" if normalized else "backward"
    half = real if onesided is None else onesided
    spectra = ops.fft_r2c(cut, (-1,), norm) if half else ops.fft_c2c(cut, (-1,), False, norm)
    return swapaxes(spectra, -1, -2)


@placed
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` with the same arguments is nearest to `input` (..., frequencies, frames).

    Frames are added up under their windows and divided by the windows' squares (Griffin, Lim 1984). length: of the
    result, which is cut or continued with zeros. Without `onesided`, n_fft frequencies are those of a whole spectrum.
    Numbers that no window reaches are 0 (PyTorch's is an error).

    >>> import hybridml as hm
    >>> x, w = hm.arange(40) * 1.0, hm.hann_window(8)
    >>> y = hm.istft(hm.stft(x, 8, 2, window=w), 8, 2, window=w)
    >>> bool((hm.abs(y - x) < 1e-4).all())
    True
    """
    x = asarray(input)
    if x.ndim < 2:
        raise ShapeError(f"istft: needs spectra (..., frequencies, frames), got {Aval(x.shape, x.dtype)}")
    frames = _Frames("istft", n_fft, hop_length, win_length, window, dtypes.real_of(x.dtype))
    n = frames.size
    half = (not return_complex and x.shape[-2] != n) if onesided is None else onesided
    if half and return_complex:
        raise ArgumentError("istft: half a spectrum is that of real numbers; leave return_complex or onesided out")
    if x.shape[-2] != (n // 2 + 1 if half else n):
        raise ShapeError(f"istft: n_fft={n} has {n // 2 + 1 if half else n} frequencies, got {Aval(x.shape, x.dtype)}")
    norm = "ortho" if normalized else "backward"
    spectra = swapaxes(x, -1, -2)
    cut = ops.fft_c2r(spectra, (-1,), n, norm) if half else ops.fft_c2c(spectra, (-1,), True, norm)
    cut = (cut if return_complex else ops.real(cut)) * frames.window
    count = x.shape[-1]
    total = (count - 1) * frames.hop + n
    signal = ops.fold_windows(cut, (total,), (frames.hop,))
    squares = ops.broadcast_to(frames.window * frames.window, (count, n))
    weight = ops.fold_windows(squares, (total,), (frames.hop,))
    signal = ops.where(weight > _UNREACHED, signal / ops.where(weight > _UNREACHED, weight, 1.0), 0.0)
    first = n // 2 if center else 0
    last = total - first if length is None else first + integer("istft", "length", length)
    signal = signal[..., first : min(last, total)]
    return signal if last <= total else ops.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(0, last - total)])
