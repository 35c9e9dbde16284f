"""Programs of `array_programs.py` as loops, where Numba's users write these."""

from __future__ import annotations

import numba as nb
import numpy as np

from benchmarks.array_programs import EAST, NORTH, OPPOSITE, WEIGHTS

BACK = tuple(OPPOSITE)


@nb.njit(parallel=True, fastmath=True)
def nbody(position, velocity, mass, steps, dt):
    energy = np.zeros(steps, dtype=mass.dtype)
    for step in range(steps):
        for i in nb.prange(len(mass)):
            for j in range(len(mass)):
                x, y, z = position[j] - position[i]
                weight = dt * mass[j] * (x * x + y * y + z * z + 0.01) ** -1.5
                velocity[i, 0] += weight * x
                velocity[i, 1] += weight * y
                velocity[i, 2] += weight * z
        position += dt * velocity
        for i in range(len(mass)):
            energy[step] += 0.5 * mass[i] * (velocity[i] ** 2).sum()
    return energy


@nb.njit(parallel=True)
def escape_times(x, y, limit):
    times = np.full((len(y), len(x)), limit, dtype=np.int64)
    for i in nb.prange(len(y)):
        for j in range(len(x)):
            c, z = complex(x[j], y[i]), 0j
            for step in range(limit):
                z = z * z + c
                if z.real**2 + z.imag**2 >= 4.0:
                    times[i, j] = step
                    break
    return times


@nb.njit(parallel=True)
def lattice_boltzmann(f, wall, steps, rate):
    _, rows, columns = f.shape
    u, v, moved = np.empty(f.shape[1:]), np.empty(f.shape[1:]), np.empty_like(f)
    for _ in range(steps):
        for i in nb.prange(rows):
            for j in range(columns):
                density = u[i, j] = v[i, j] = 0.0
                for k in range(9):
                    g = moved[k, i, j] = f[k, (i - NORTH[k]) % rows, (j - EAST[k]) % columns]
                    density += g
                    u[i, j] += EAST[k] * g
                    v[i, j] += NORTH[k] * g
                x, y = u[i, j] / density, v[i, j] / density
                square = 1.5 * (x * x + y * y)
                if wall[i, j]:
                    continue
                for k in range(9):
                    along = 3.0 * (EAST[k] * x + NORTH[k] * y)
                    still = WEIGHTS[k] * density * (1.0 + along + 0.5 * along * along - square)
                    moved[k, i, j] += rate * (still - moved[k, i, j])
        for i in nb.prange(rows):
            for j in range(columns):
                for k in range(9):
                    f[k, i, j] = moved[BACK[k] if wall[i, j] else k, i, j]
    return u, v


@nb.njit
def row_sums(matrix):
    sums = np.zeros(matrix.shape[0])
    for i in range(matrix.shape[0]):
        for x in matrix[i]:
            sums[i] += x
    return sums
