"""Roots of unity, rounded once."""

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
