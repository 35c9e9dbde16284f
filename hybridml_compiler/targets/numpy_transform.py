"""Passes of Fourier transforms by NumPy, for the walk over a plan.

Memory between the passes of a long row is the walk's own: its columns are transformed as a whole row, which its squares
copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schedule.kernels.roots import chirp, chirp_spectrum
from ..schedule.kernels.transform import Transform


def run_transform(spec: Transform, source: np.ndarray, target: np.ndarray) -> None:
    """Runs a pass on the bytes of its operands."""
    real = np.dtype(spec.dtype)
    kind = np.dtype(f"c{2 * real.itemsize}")
    count, n, inner = int(spec.count), spec.points, spec.inner
    whole, half = (count, n, inner), (count, n // 2 + 1, inner)
    padded, spectrum = (count, spec.padded, inner), (count, n + 1, inner)
    transform = np.fft.ifft if spec.inverse else np.fft.fft
    made: Any  # of real or complex numbers
    norm: Any = "forward" if spec.inverse else "backward"

    def taken(shape: tuple[int, ...], dtype: np.dtype = kind) -> np.ndarray:
        return _array(source, dtype, shape)

    match spec.stage, spec.kind:
        case (("rows" | "strided"), "r2c"):
            made = np.fft.rfft(taken((count, 2 * n, inner), real), axis=1) * spec.scale
        case (("rows" | "strided"), "c2r"):
            made = np.fft.irfft(taken(spectrum), 2 * n, axis=1, norm="forward") * spec.scale
        case (("rows" | "strided" | "columns"), _):
            made = transform(taken(whole, real if spec.real else kind), axis=1, norm=norm) * spec.scale
        case "squares", _:
            made = taken(whole) * spec.scale
        case "pairs", "r2c":
            parts = np.fft.ifft(taken(whole), axis=1).astype(kind)
            made = np.fft.rfft(parts.view(real).reshape(count, 2 * n, 1), axis=1)
        case "pairs", _:
            numbers = np.fft.irfft(taken(spectrum), 2 * n, axis=1, norm="forward").astype(real)
            made = np.fft.fft(numbers.reshape(count, n, 2).copy().view(kind), axis=1, norm="forward")
        case "chirp", _:
            made = np.zeros(padded, kind)
            made[:, :n] = taken(whole, real if spec.real else kind) * chirp(n, spec.inverse)[:, None]
        case "product", _:
            made = (taken(padded) * chirp_spectrum(n, spec.padded, spec.inverse)[:, None]).conj()
        case "unchirp", _:
            made = taken(padded)[:, :n].conj() * (chirp(n, spec.inverse) * spec.scale)[:, None]
        case "half", _:
            made = taken(whole)[:, : n // 2 + 1]
        case "mirror", _:
            given = taken(half).copy()
            given[:, 0] = given[:, 0].real
            made = np.concatenate([given, given[:, :0:-1].conj()], 1)
        case _:
            made = taken(whole).real
    result = made.astype(real if made.dtype.kind == "f" else kind)
    target[: result.nbytes] = result.reshape(-1).view(np.uint8)


def _array(memory: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape)) * dtype.itemsize
    return memory[:size].view(dtype).reshape(shape)
