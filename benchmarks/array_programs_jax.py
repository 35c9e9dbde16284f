"""The programs of `array_programs.py` as JAX's users write them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.array_programs import EAST, NORTH, OPPOSITE, WEIGHTS


@partial(jax.jit, static_argnames="steps")
def nbody(position, velocity, mass, steps, dt):
    def step(state, _):
        position, velocity = state
        offset = position[None, :, :] - position[:, None, :]
        weight = mass[None, :] * (jnp.sum(offset**2, axis=2) + 0.01) ** -1.5
        velocity = velocity + dt * jnp.sum(offset * weight[:, :, None], axis=1)
        return (position + dt * velocity, velocity), 0.5 * jnp.sum(mass * jnp.sum(velocity**2, axis=1))

    (position, velocity), energy = lax.scan(step, (position, velocity), length=steps)
    return energy, position, velocity


@partial(jax.jit, static_argnames="bins")
def radial_profile(x, y, image, bins):
    radius = jnp.sqrt((x - x.mean()) ** 2 + (y - y.mean()) ** 2)
    edges = jnp.linspace(0.0, 0.7 * radius.max(), bins + 1)
    ring = jnp.searchsorted(edges, radius, side="right") - 1
    return jnp.bincount(ring, image, length=bins + 1)[:bins] / jnp.bincount(ring, length=bins + 1)[:bins]


@jax.jit
def vertical_sweep(below, diagonal, above, right):
    def down(state, level):
        (c, d), (below, diagonal, above, right) = state, level
        pivot = diagonal - below * c
        state = above / pivot, (right - below * d) / pivot
        return state, state

    def up(last, level):
        c, d = level
        return (d - c * last,) * 2

    zero = jnp.zeros_like(right[0])
    _, swept = lax.scan(down, (zero, zero), (below, diagonal, above, right))
    return lax.scan(up, zero, swept, reverse=True)[1]


@partial(jax.jit, static_argnames=("steps", "sweeps"))
def lid_cavity(psi, omega, steps, sweeps, viscosity, dt):
    h = 1.0 / (psi.shape[0] - 1)

    def sweep(_, psi, omega):
        around = psi[2:, 1:-1] + psi[:-2, 1:-1] + psi[1:-1, 2:] + psi[1:-1, :-2]
        return psi.at[1:-1, 1:-1].set(0.25 * (around + h * h * omega[1:-1, 1:-1]))

    def step(_, state):
        psi, omega = state
        psi = lax.fori_loop(0, sweeps, partial(sweep, omega=omega), psi)
        omega = omega.at[0, :].set(-2.0 * psi[1, :] / h**2)
        omega = omega.at[-1, :].set(-2.0 * psi[-2, :] / h**2 - 2.0 / h)
        omega = omega.at[:, 0].set(-2.0 * psi[:, 1] / h**2)
        omega = omega.at[:, -1].set(-2.0 * psi[:, -2] / h**2)
        u = (psi[2:, 1:-1] - psi[:-2, 1:-1]) / (2 * h)
        v = (psi[1:-1, :-2] - psi[1:-1, 2:]) / (2 * h)
        along = u * (omega[1:-1, 2:] - omega[1:-1, :-2]) + v * (omega[2:, 1:-1] - omega[:-2, 1:-1])
        around = omega[2:, 1:-1] + omega[:-2, 1:-1] + omega[1:-1, 2:] + omega[1:-1, :-2]
        spread = viscosity * (around - 4.0 * omega[1:-1, 1:-1]) / h**2
        return psi, omega.at[1:-1, 1:-1].add(dt * (spread - along / (2 * h)))

    return lax.fori_loop(0, steps, step, (psi, omega))


@partial(jax.jit, static_argnames="limit")
def escape_times(x, y, limit):
    c = x[None, :] + 1j * y[:, None]

    def step(state):
        k, z, alive, times = state
        z = jnp.where(alive, z**2 + c, z)
        alive &= jnp.abs(z) < 2.0
        return k + 1, z, alive, times + alive

    def going(state):
        return (state[0] < limit) & state[2].any()

    start = 0, jnp.zeros_like(c), jnp.ones(c.shape, bool), jnp.zeros(c.shape, int)
    return lax.while_loop(going, step, start)[3]


@partial(jax.jit, static_argnames="width")
def despiked(signal, width):
    ones = jnp.ones(2 * width + 1, signal.dtype)
    count = jnp.convolve(jnp.ones_like(signal), ones, mode="same")
    away = signal - jnp.convolve(signal, ones, mode="same") / count
    return jnp.where(jnp.abs(away) > 3.0 * jnp.std(away), signal - away, signal)


@partial(jax.jit, static_argnames="steps")
def lattice_boltzmann(f, wall, steps, rate):
    east, north, weights = (jnp.array(of, f.dtype)[:, None, None] for of in (EAST, NORTH, WEIGHTS))

    def step(_, state):
        f = jnp.stack([jnp.roll(state[0][k], (NORTH[k], EAST[k]), axis=(0, 1)) for k in range(9)])
        density = jnp.sum(f, axis=0)
        u, v = jnp.sum(east * f, axis=0) / density, jnp.sum(north * f, axis=0) / density
        along = 3.0 * (east * u + north * v)
        still = weights * density * (1.0 + along + 0.5 * along**2 - 1.5 * (u**2 + v**2))
        return jnp.where(wall, f[jnp.array(OPPOSITE)], f + rate * (still - f)), u * density, v * density

    return lax.fori_loop(0, steps, step, (f, f[0], f[0]))


@partial(jax.jit, static_argnames=("same", "different", "gap"))
def smith_waterman(first, second, same, different, gap):
    def row(above, letter):
        match = above[:-1] + jnp.where(second == letter, same, different)
        best = jnp.maximum(0, jnp.maximum(match, above[1:] - gap))
        slope = gap * jnp.arange(len(second))
        found = jnp.concatenate([jnp.zeros(1, best.dtype), lax.cummax(best + slope) - slope])
        return found, found

    start = jnp.zeros(len(second) + 1, int)
    return jnp.concatenate([start[None], lax.scan(row, start, first)[1]])


@partial(jax.jit, static_argnames="steps")
def ocean_mixing(temperature, salinity, thickness, steps, dt):
    def step(_, state):
        t, s, _ = state
        density = 999.84 + t * (0.0679 - t * (0.0091 - t * 1.0e-4)) + s * (0.8245 - t * (4.09e-3 - t * 7.6e-5))
        density = density + 4.8e-4 * s**2 - 5.7e-3 * jnp.abs(s) ** 1.5
        stable = density[1:] - density[:-1]
        mixing = jnp.where(stable < 0.0, 1.0e-1, 1.0e-5 + 1.0e-4 / (1.0 + 5.0 * jnp.abs(stable)) ** 2)

        def mixed(field):
            flux = mixing * (field[1:] - field[:-1]) / (0.5 * (thickness[1:] + thickness[:-1]))
            field = field.at[:-1].add(dt * flux / thickness[:-1])
            return field.at[1:].add(-dt * flux / thickness[1:])

        return mixed(t), mixed(s), density

    return lax.fori_loop(0, steps, step, (temperature, salinity, temperature))


@jax.jit
def pagerank(links, damping, tolerance):
    n = links.shape[0]
    out = jnp.sum(links, axis=0)
    walk = links / jnp.where(out > 0, out, 1.0)

    def step(state):
        rank, _ = state
        new = damping * (walk @ rank)
        new += (1.0 - jnp.sum(new)) / n
        return new, jnp.abs(new - rank).sum()

    return lax.while_loop(lambda state: state[1] > tolerance, step, (jnp.full(n, 1.0 / n, links.dtype), 1.0))[0]


@jax.jit
def row_sums(matrix):
    return jnp.sum(matrix, axis=1)
