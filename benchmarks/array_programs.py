"""Ten programs of arrays and loops, as scientists write them with NumPy, and their inputs.

None of them knows of another library: a candidate gives them its arrays, or its namespace as `np`. Each takes its
inputs and the numbers of a preset by the names of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

EAST, NORTH = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)  # of nine directions
WEIGHTS = (4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36)
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


def nbody(position, velocity, mass, steps, dt):
    """Bodies that attract each other; their kinetic energy after each step."""
    energy = np.zeros(steps, dtype=mass.dtype)
    for step in range(steps):
        offset = position[None, :, :] - position[:, None, :]
        weight = mass[None, :] * (np.sum(offset**2, axis=2) + 0.01) ** -1.5
        velocity += dt * np.sum(offset * weight[:, :, None], axis=1)
        position += dt * velocity
        energy[step] = 0.5 * np.sum(mass * np.sum(velocity**2, axis=1))
    return energy


def radial_profile(x, y, image, bins):
    """Mean brightness of rings around the centre."""
    radius = np.sqrt((x - x.mean()) ** 2 + (y - y.mean()) ** 2)
    edges = np.linspace(0.0, 0.7 * radius.max(), bins + 1)
    profile = np.zeros(bins, dtype=image.dtype)
    for k in range(bins):
        inside = (radius >= edges[k]) & (radius < edges[k + 1])
        profile[k] = image[inside].mean()
    return profile


def vertical_sweep(below, diagonal, above, right):
    """Tridiagonal systems, one in each column, down and up the levels."""
    c, d = np.zeros_like(above), np.zeros_like(right)
    c[0] = above[0] / diagonal[0]
    d[0] = right[0] / diagonal[0]
    for k in range(1, len(diagonal)):
        pivot = diagonal[k] - below[k] * c[k - 1]
        c[k] = above[k] / pivot
        d[k] = (right[k] - below[k] * d[k - 1]) / pivot
    for k in range(len(diagonal) - 2, -1, -1):
        d[k] -= c[k] * d[k + 1]
    return d


def lid_cavity(psi, omega, steps, sweeps, viscosity, dt):
    """Flow in a box under a moving lid: stream function by Jacobi sweeps, vorticity by explicit steps."""
    h = 1.0 / (psi.shape[0] - 1)
    for _ in range(steps):
        for _ in range(sweeps):
            around = psi[2:, 1:-1] + psi[:-2, 1:-1] + psi[1:-1, 2:] + psi[1:-1, :-2]
            psi[1:-1, 1:-1] = 0.25 * (around + h * h * omega[1:-1, 1:-1])
        omega[0, :] = -2.0 * psi[1, :] / h**2
        omega[-1, :] = -2.0 * psi[-2, :] / h**2 - 2.0 / h
        omega[:, 0] = -2.0 * psi[:, 1] / h**2
        omega[:, -1] = -2.0 * psi[:, -2] / h**2
        u = (psi[2:, 1:-1] - psi[:-2, 1:-1]) / (2 * h)
        v = (psi[1:-1, :-2] - psi[1:-1, 2:]) / (2 * h)
        along = u * (omega[1:-1, 2:] - omega[1:-1, :-2]) + v * (omega[2:, 1:-1] - omega[:-2, 1:-1])
        around = omega[2:, 1:-1] + omega[:-2, 1:-1] + omega[1:-1, 2:] + omega[1:-1, :-2]
        spread = viscosity * (around - 4.0 * omega[1:-1, 1:-1]) / h**2
        omega[1:-1, 1:-1] += dt * (spread - along / (2 * h))
    return psi


def escape_times(x, y, limit):
    """Steps until z**2 + c leaves the disk, as long as any point is in it."""
    c = x[None, :] + 1j * y[:, None]
    z = np.zeros_like(c)
    times = np.zeros(c.shape, dtype=np.int64)
    alive = np.ones(c.shape, dtype=bool)
    for step in range(limit):
        z[alive] = z[alive] ** 2 + c[alive]
        alive &= np.abs(z) < 2.0
        times[alive] = step + 1
        if not alive.any():
            break
    return times


def despiked(signal, width):
    """Moving averages, shorter at both ends, in place of what is far from them."""
    smooth = np.zeros_like(signal)
    for i in range(len(signal)):
        smooth[i] = signal[max(0, i - width) : i + width + 1].mean()
    away = signal - smooth
    return np.where(np.abs(away) > 3.0 * np.std(away), smooth, signal)


def lattice_boltzmann(f, wall, steps, rate):
    """Flow around an obstacle on a periodic lattice of nine directions; its momentum."""
    for _ in range(steps):
        for k in range(9):
            f[k] = np.roll(f[k], (NORTH[k], EAST[k]), axis=(0, 1))
        bounced = f[OPPOSITE][:, wall]
        density = np.sum(f, axis=0)
        u = (f[1] + f[5] + f[8] - f[3] - f[6] - f[7]) / density
        v = (f[2] + f[5] + f[6] - f[4] - f[7] - f[8]) / density
        square = 1.5 * (u**2 + v**2)
        for k in range(9):
            along = 3.0 * (EAST[k] * u + NORTH[k] * v)
            f[k] += rate * (WEIGHTS[k] * density * (1.0 + along + 0.5 * along**2 - square) - f[k])
        f[:, wall] = bounced
    return u * density, v * density


def smith_waterman(first, second, same, different, gap):
    """Scores of local alignments of two sequences."""
    score = np.zeros((len(first) + 1, len(second) + 1), dtype=np.int64)
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            step = same if first[i - 1] == second[j - 1] else different
            score[i, j] = max(0, score[i - 1, j - 1] + step, score[i - 1, j] - gap, score[i, j - 1] - gap)
    return score


def ocean_mixing(temperature, salinity, thickness, steps, dt):
    """Diffusion between levels, strong where heavy water lies over light water."""
    for _ in range(steps):
        t, s = temperature, salinity
        density = 999.84 + t * (0.0679 - t * (0.0091 - t * 1.0e-4)) + s * (0.8245 - t * (4.09e-3 - t * 7.6e-5))
        density = density + 4.8e-4 * s**2 - 5.7e-3 * np.abs(s) ** 1.5
        stable = density[1:] - density[:-1]
        mixing = np.where(stable < 0.0, 1.0e-1, 1.0e-5 + 1.0e-4 / (1.0 + 5.0 * np.abs(stable)) ** 2)
        for field in (temperature, salinity):
            flux = mixing * (field[1:] - field[:-1]) / (0.5 * (thickness[1:] + thickness[:-1]))
            field[:-1] += dt * flux / thickness[:-1]
            field[1:] -= dt * flux / thickness[1:]
    return density


def pagerank(links, damping, tolerance):
    """Stationary distribution of a walk on links, by the power method."""
    n = links.shape[0]
    out = np.sum(links, axis=0)
    walk = links / np.where(out > 0, out, 1.0)
    rank = np.full(n, 1.0 / n, dtype=links.dtype)
    error = 1.0
    while error > tolerance:
        new = damping * (walk @ rank)
        new += (1.0 - np.sum(new)) / n
        error = np.abs(new - rank).sum()
        rank = new
    return rank


# ---- their inputs, of a generator and sizes, and the presets


# fmt: off
def photons(rng, n):
    x, y = 2.0 * rng.random((2, n)) - 1.0
    return {"x": x, "y": y, "image": np.exp(-(x**2) - y**2) + 0.1 * rng.random(n)}


def stream(rng, n):
    moving = np.array(WEIGHTS) * (1.0 + 0.3 * np.array(EAST))
    return {"f": moving[:, None, None] * (1.0 + 0.01 * rng.random((9, n, 2 * n))),
            "wall": np.hypot(*np.mgrid[:n, : 2 * n] - n / 2.0) < n / 6.0}


def columns(rng, n, levels):
    depth = np.linspace(0.0, 1.0, levels)[:, None] + np.zeros(n)
    return {"temperature": 20.0 - 15.0 * depth + rng.random((levels, n)), "thickness": 5.0 + 95.0 * depth,
            "salinity": 34.0 + depth + 0.2 * rng.random((levels, n))}


Inputs = Callable[..., dict[str, np.ndarray]]
PROGRAMS: dict[Callable[..., Any], tuple[Inputs, dict[str, dict[str, Any]]]] = {
    nbody: (lambda rng, n: {"position": rng.standard_normal((n, 3)), "velocity": rng.standard_normal((n, 3)),
                            "mass": rng.random(n) / n},
            {"S": {"n": 64, "steps": 20, "dt": 0.01}, "M": {"n": 256, "steps": 40, "dt": 0.01}}),
    radial_profile: (photons, {"S": {"n": 40_000, "bins": 50}, "M": {"n": 400_000, "bins": 200}}),
    vertical_sweep: (lambda rng, n, levels: {"below": rng.random((levels, n)), "above": rng.random((levels, n)),
                                             "diagonal": 2.5 + rng.random((levels, n)),
                                             "right": rng.random((levels, n))},
                     {"S": {"n": 2_000, "levels": 80}, "M": {"n": 16_000, "levels": 120}}),
    lid_cavity: (lambda rng, n: {"psi": np.zeros((n, n)), "omega": np.zeros((n, n))},
                 {"S": {"n": 41, "steps": 10, "sweeps": 20, "viscosity": 0.05, "dt": 0.001},
                  "M": {"n": 129, "steps": 40, "sweeps": 50, "viscosity": 0.05, "dt": 0.0002}}),
    escape_times: (lambda rng, n: {"x": np.linspace(0.5, 1.2, n), "y": np.linspace(0.3, 1.2, n)},  # all escape
                   {"S": {"n": 100, "limit": 200}, "M": {"n": 600, "limit": 200}}),
    despiked: (lambda rng, n: {"signal": np.sin(np.linspace(0.0, 20.0, n)) + (rng.random(n) < 0.01) * 5.0},
               {"S": {"n": 2_000, "width": 20}, "M": {"n": 20_000, "width": 50}}),
    lattice_boltzmann: (stream, {"S": {"n": 40, "steps": 20, "rate": 1.2}, "M": {"n": 160, "steps": 40, "rate": 1.2}}),
    smith_waterman: (lambda rng, n: {"first": rng.integers(0, 4, n), "second": rng.integers(0, 4, n + n // 4)},
                     {"S": {"n": 50, "same": 3, "different": -2, "gap": 2},
                      "M": {"n": 300, "same": 3, "different": -2, "gap": 2}}),
    ocean_mixing: (columns, {"S": {"n": 500, "levels": 40, "steps": 10, "dt": 10.0},
                             "M": {"n": 4_000, "levels": 60, "steps": 40, "dt": 10.0}}),
    pagerank: (lambda rng, n: {"links": (rng.random((n, n)) < 8.0 / n) * 1.0},
               {"S": {"n": 500, "damping": 0.85, "tolerance": 1e-6},
                "M": {"n": 3_000, "damping": 0.85, "tolerance": 1e-6}}),
}

def row_sums(matrix):
    """Next to no data: what its first call takes is the compiler's."""
    return np.sum(matrix, axis=1)


FLOOR: dict[Callable[..., Any], tuple[Inputs, dict[str, dict[str, Any]]]] = {
    row_sums: (lambda rng, n: {"matrix": rng.random((n, n))}, {size: {"n": 8} for size in ("S", "M", "L", "paper")}),
}
