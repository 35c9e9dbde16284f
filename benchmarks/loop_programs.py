"""Loops over elements and steps, as they are written for NumPy without a thought of compilers, and their inputs: what a
step finds, chooses, counts or keeps is decided by data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def first_above(values, threshold):
    """The place of the first value above a threshold, or -1."""
    where = -1
    for i in range(len(values)):
        if values[i] > threshold:
            where = i
            break
    return where


def root(coefficients, low, high):
    """A root of a polynomial, by bisection of an interval."""
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        value = 0.0
        for c in coefficients:
            value = value * middle + c
        if value > 0.0:
            high = middle
        else:
            low = middle
    return low


def knapsack(weights, values, room):
    """Worth of the best that fits, for all sizes of a knapsack."""
    best = np.zeros(room + 1)
    for i in range(len(weights)):
        w = int(weights[i])
        best[w:] = np.maximum(best[w:], best[:-w] + values[i])
    return best


def segment_sums(ends, values):
    """Sums of values between ends."""
    sums = np.zeros(len(ends) - 1)
    for i in range(len(sums)):
        sums[i] = values[ends[i] : ends[i + 1]].sum()
    return sums


def pairs_counted(first, second, kinds):
    """How often each kind is beside each other one."""
    counts = np.zeros((kinds, kinds))
    for i in range(len(first)):
        counts[first[i], second[i]] += 1.0
    return counts


def packed(values, threshold):
    """The values above a threshold, and their number."""
    found, count = np.zeros(len(values)), 0
    for i in range(len(values)):
        if values[i] > threshold:
            found[count] = values[i]
            count += 1
    return found, count


def run_lengths(values):
    """The values of runs of equal ones, their lengths, and their number."""
    value, length, runs = np.zeros(len(values)), np.zeros(len(values), dtype=np.int64), 0
    value[0], length[0] = values[0], 1
    for i in range(1, len(values)):
        if values[i] != values[i - 1]:
            runs += 1
            value[runs] = values[i]
        length[runs] += 1
    return value, length, runs + 1


def clipped(image, low, high, dark, bright):
    """An image with limits, and the numbers of dark, of bright and of clipped elements."""
    darks, brights, clips = 0, 0, 0
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            if image[i, j] < dark:
                darks += 1
            if image[i, j] > bright:
                brights += 1
            if image[i, j] < low:
                image[i, j] = low
                clips += 1
            if image[i, j] > high:
                image[i, j] = high
                clips += 1
    return image, darks, brights, clips


def few_bodies(position, velocity, mass, steps, dt):
    """Bodies that attract each other, pair by pair."""
    for _ in range(steps):
        for i in range(len(mass)):
            pull = np.zeros(3)
            for j in range(len(mass)):
                if i != j:
                    offset = position[j] - position[i]
                    pull += mass[j] * offset / (np.sum(offset**2) + 0.01) ** 1.5
            velocity[i] += dt * pull
        position += dt * velocity
    return position, velocity


def fourier(signal):
    """The Fourier transform by its definition."""
    n = len(signal)
    found = np.zeros(n, dtype=np.complex128)
    for k in range(n):
        found[k] = np.sum(signal * np.exp(-2j * np.pi * k * np.arange(n) / n))
    return found


def snapshots(u, steps, every):
    """A wave that wears off, and what it was at every so many steps."""
    saved = []
    for n in range(steps):
        if n % every == 0:
            saved.append(u.copy())
        u[1:-1] += 0.2 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return saved


def corners(a):
    """Two elements of a field after ten steps of a stencil."""
    for _ in range(10):
        a[1:-1, 1:] *= 0.5 * a[2:, :-1] - a[:-2, 1:]
    return a[0, 3] + 0.0, a[-2, -2] + 0.0


def events(signal, high, low):
    """Where a signal is high until it is low: first and last places."""
    found, inside, start = [], False, 0
    for i in range(len(signal)):
        if not inside and signal[i] > high:
            inside, start = True, i
        elif inside and signal[i] < low:
            inside = False
            found.append((start, i))
    return found


def components(first, second, n):
    """The representative of each node of a graph, by union and find."""
    parent = np.arange(n)
    for k in range(len(first)):
        i, j = first[k], second[k]
        while parent[i] != i:
            i = parent[i]
        while parent[j] != j:
            j = parent[j]
        parent[i] = j
    return parent


def adaptive(u, end, tolerance):
    """Diffusion with steps as large as an error allows, and their number."""
    t, dt, steps = 0.0, 1e-5, 0
    while t < end:
        change = np.zeros_like(u)
        change[1:-1] = u[2:] - 2.0 * u[1:-1] + u[:-2]
        error = float(np.max(np.abs(change))) * dt
        if error < tolerance:
            u = u + dt * change
            t += dt
            steps += 1
        dt *= min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-15))))
        dt = min(dt, 0.4)
    return u, steps


# ---- inputs


def votes(rows, kinds, bins):
    counts = np.zeros((bins, kinds), dtype=np.int64)
    for i in range(len(rows)):
        for k in range(kinds):
            counts[(rows[i] * (k + 1)) % bins, k] += 1
    return counts


def relaxed(u):
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return u


def products(a, b):
    c = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(b.shape[0]):
                c[i, j] += a[i, k] * b[k, j]
    return c


def segments(rng, n, m):
    return {"ends": np.sort(np.append(rng.integers(0, m, n - 1), [0, m])), "values": rng.random(m)}


def bodies(rng, n):
    return {"position": rng.standard_normal((n, 3)), "velocity": rng.standard_normal((n, 3)), "mass": rng.random(n)}


def edges(rng, n, m):
    return {"first": rng.integers(0, n, m), "second": rng.integers(0, n, m)}


Inputs = Callable[..., dict[str, np.ndarray]]
LOOPS: dict[Callable[..., Any], tuple[Inputs, dict[str, dict[str, Any]]]] = {
    first_above: (lambda rng, n: {"values": np.linspace(0.0, 1.0, n)}, {"S": {"n": 200, "threshold": 0.9}}),
    root: (lambda rng: {"coefficients": np.array([1.0, 0.5, -2.0, -1.5])}, {"S": {"low": 0.0, "high": 4.0}}),
    knapsack: (lambda rng, n: {"weights": rng.integers(1, 30, n), "values": rng.random(n)},
               {"S": {"n": 60, "room": 1_000}}),
    segment_sums: (segments, {"S": {"n": 200, "m": 4_000}}),
    pairs_counted: (lambda rng, n, kinds: {"first": rng.integers(0, kinds, n), "second": rng.integers(0, kinds, n)},
                    {"S": {"n": 5_000, "kinds": 64}}),
    packed: (lambda rng, n: {"values": rng.random(n)}, {"S": {"n": 2_000, "threshold": 0.3}}),
    run_lengths: (lambda rng, n: {"values": rng.integers(0, 3, n).astype(float)}, {"S": {"n": 3_000}}),
    clipped: (lambda rng, n: {"image": rng.random((n, n))},
              {"S": {"n": 60, "low": 0.1, "high": 0.9, "dark": 0.2, "bright": 0.8}}),
    votes: (lambda rng, n: {"rows": rng.integers(0, 50, n)}, {"S": {"n": 500, "kinds": 16, "bins": 50}}),
    relaxed: (lambda rng, n: {"u": rng.random((n, n))}, {"S": {"n": 200}}),
    products: (lambda rng, n: {"a": rng.random((n, n)), "b": rng.random((n, n))}, {"S": {"n": 60}}),
    few_bodies: (bodies, {"S": {"n": 8, "steps": 200, "dt": 0.01}}),
    fourier: (lambda rng, n: {"signal": rng.random(n)}, {"S": {"n": 64}}),
    snapshots: (lambda rng, n: {"u": rng.random(n)}, {"S": {"n": 2_000, "steps": 2_000, "every": 50}}),
    corners: (lambda rng, n: {"a": rng.random((n, n))}, {"S": {"n": 20}}),
    events: (lambda rng, n: {"signal": np.cumsum(rng.standard_normal(n))},
             {"S": {"n": 2_000, "high": 5.0, "low": 2.0}}),
    components: (edges, {"S": {"n": 100, "m": 120}}),
    adaptive: (lambda rng, n: {"u": np.sin(np.linspace(0.0, 3.0, n)) + 0.1 * rng.random(n)},
               {"S": {"n": 200, "end": 20.0, "tolerance": 1e-3}}),
}  # fmt: skip
