"""Small programs as people write them for NumPy, which know nothing of tensors, on tensors: eagerly and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((20, 3))
SIGNAL = RNG.standard_normal(20)
IMAGE = RNG.uniform(0, 255, (8, 8))
CELLS = (IMAGE > 128).astype(int)
PLANE = RNG.uniform(-2, 1, (4, 5)) + 1j * RNG.uniform(-1, 1, (4, 5))


def k_means(x: Any) -> Any:
    centres = x[:3]
    for _ in range(2):
        nearest = np.argmin(np.linalg.norm(x[:, None, :] - centres[None], axis=2), axis=1)
        centres = np.stack([np.mean(x[nearest == k], axis=0) for k in range(3)])
    return centres


def principal_components(x: Any) -> Any:
    centred = x - x.mean(axis=0)
    _, spread, turned = np.linalg.svd(centred, full_matrices=False)
    return np.abs(centred @ turned.T[:, :2]).sum(axis=0) * spread[:2]


def heat(u: Any) -> Any:
    u = u.copy()
    for _ in range(5):
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def life(cells: Any) -> Any:
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    n = sum(np.roll(np.roll(cells, i, 0), j, 1) for i, j in around)
    return np.where((n == 3) | ((cells == 1) & (n == 2)), 1, 0)


def mandelbrot(c: Any) -> Any:
    z, count = np.zeros_like(c), np.zeros_like(c, dtype=int)
    for _ in range(8):
        inside = np.abs(z) <= 2
        z, count = np.where(inside, z * z + c, z), count + inside
    return count


def equalised(image: Any) -> Any:
    counts, _ = np.histogram(image.ravel(), bins=16, range=(0, 256))
    share = np.cumsum(counts) / counts.sum()
    return np.interp(image.ravel(), np.linspace(0, 256, 16), share).reshape(image.shape)


def low_pass(y: Any) -> Any:
    spectrum = np.fft.rfft(y)
    return np.fft.irfft(np.where(np.fft.rfftfreq(len(y)) > 0.2, 0, spectrum), n=len(y))


def cholesky_by_hand(x: Any) -> Any:
    a = x[:3].T @ x[:3] + np.eye(3)
    lower = np.zeros_like(a)
    for i in range(3):
        for j in range(i + 1):
            rest = a[i, j] - np.dot(lower[i, :j], lower[j, :j])
            lower[i, j] = np.sqrt(rest) if i == j else rest / lower[j, j]
    return lower


def gram_schmidt(x: Any) -> Any:
    basis: list[Any] = []
    for v in x.T:
        for u in basis:
            v = v - np.dot(u, v) * u
        basis.append(v / np.linalg.norm(v))
    return np.stack(basis)


def without_outliers(y: Any) -> Any:
    low, high = np.percentile(y, [25, 75])
    return y[(y > low - (high - low)) & (y < high + (high - low))]


def moving_average(y: Any) -> Any:
    total = np.cumsum(np.insert(y, 0, 0.0))
    return (total[4:] - total[:-4]) / 4


def gravity(x: Any) -> Any:
    apart = x[:, None] - x[None]
    distance = np.sqrt((apart**2).sum(-1) + 1e-3)
    return -(apart / distance[..., None] ** 3).sum(axis=1)


def box_blur(image: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    return np.einsum("ijkl,kl->ij", windows, np.ones((3, 3)) / 9)


def tidied(x: Any) -> Any:
    y = x.copy()
    y[y < 0] = 0
    y[:, 1] *= 2
    y += 1
    np.clip(y, 0, 2, out=y)
    return np.vstack([y, x])[::2].ravel()


def crossings(y: Any) -> Any:
    return np.flatnonzero(np.diff(np.sign(y)))


def most_frequent(y: Any) -> Any:
    values, counts = np.unique(np.round(y), return_counts=True)
    return values[np.argmax(counts)]


def trend(y: Any) -> Any:
    return np.polyval(np.polyfit(np.linspace(0, 1, len(y)), y, 2), np.array([0.1, 0.5]))


PROGRAMS: list[tuple[Callable[[Any], Any], np.ndarray]] = [
    (k_means, POINTS), (principal_components, POINTS), (heat, SIGNAL), (life, CELLS), (mandelbrot, PLANE),
    (equalised, IMAGE), (low_pass, SIGNAL), (cholesky_by_hand, POINTS), (gram_schmidt, POINTS),
    (without_outliers, SIGNAL), (moving_average, SIGNAL), (gravity, POINTS), (box_blur, IMAGE), (tidied, POINTS),
    (crossings, SIGNAL), (most_frequent, SIGNAL), (trend, SIGNAL),
]  # fmt: skip


@pytest.mark.parametrize(("program", "x"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_program_gives_for_tensors_what_it_gives_for_arrays(program: Callable[[Any], Any], x: np.ndarray) -> None:
    expected = program(x.copy())
    for run in (program, hm.trace(program)):
        found = run(hm.tensor(x))
        assert isinstance(found, hm.Tensor) and found.shape == np.shape(expected)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


OVERWRITING = (cholesky_by_hand, tidied)  # what a gradient needs
SMOOTH = [
    p for p in PROGRAMS if p[1].dtype == float and p[0] not in (crossings, most_frequent, equalised, *OVERWRITING)
]


@pytest.mark.parametrize(("program", "x"), SMOOTH, ids=lambda value: getattr(value, "__name__", ""))
def test_it_differentiates(program: Callable[[Any], Any], x: np.ndarray) -> None:
    way = np.random.default_rng(1).standard_normal(x.shape)
    ends = [(program(x + step * way) ** 2).sum() for step in (1e-6, -1e-6)]
    for run in (program, hm.trace(program)):
        gradient = hm.grad(lambda t, run=run: (run(t) ** 2).sum())(hm.tensor(x)).numpy()
        assert (gradient * way).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("program", OVERWRITING)
def test_what_overwrites_a_value_that_the_gradient_needs_says_so(program: Callable[[Any], Any]) -> None:
    with pytest.raises(hm.GradientError, match="overwritten in place"):
        hm.grad(lambda t: (program(t) ** 2).sum())(hm.tensor(POINTS))
