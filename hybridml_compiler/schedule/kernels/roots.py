"""Roots of unity, rounded once, and the chirp of a convolution."""

from __future__ import annotations

import math

import numpy as np

EIGHTH = 8


def roots(power: np.ndarray, points: int) -> np.ndarray:
    """exp(-2 pi i power / points) for whole powers, complex128: from angles of at most an eighth of a turn.

    >>> roots(np.array([0, 1, 2, 3]), 4).tolist()
    [(1+0j), -1j, (-1+0j), 1j]
    """
    eighth, rest = np.divmod(power.astype(np.int64) % points * EIGHTH, points)
    flipped = eighth % 2 == 1  # the angle from the next multiple of a quarter
    angle = np.where(flipped, points - rest, rest) * (2 * math.pi / (EIGHTH * points))
    cosine, sine = np.cos(angle), np.where(flipped, -1, 1) * np.sin(angle)
    quarter = (eighth + 1) // 2 % 4
    real = np.choose(quarter, [cosine, -sine, -cosine, sine])
    imag = np.choose(quarter, [sine, cosine, -sine, -cosine])
    return np.asarray(real + 0.0 - 1j * (imag + 0.0))


def chirp(points: int, inverse: bool) -> np.ndarray:
    """exp(-i pi k^2 / points) for each point k; its conjugate for an inverse transform."""
    k = np.arange(points, dtype=np.int64)
    found = roots(k * k % (2 * points), 2 * points)
    return found.conj() if inverse else found


def chirp_spectrum(points: int, padded: int, inverse: bool) -> np.ndarray:
    """The transform of the chirp's conjugate on a circle of padded points, divided by their number."""
    back = chirp(points, inverse).conj()
    circle = np.zeros(padded, back.dtype)
    circle[:points] = back
    circle[padded - points + 1 :] = back[:0:-1]
    return np.fft.fft(circle) / padded
