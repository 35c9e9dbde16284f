"""Lengths of what masks choose, lists of numbers as keys, parts of complex numbers, and updates at equal places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import both, data, is_loop

N = 20


def means(x: Any) -> Any:
    labels, centers = np.zeros(N, dtype=int), x[:3].clone()
    for _ in range(16):
        labels = ((x[:, None] - centers) ** 2).sum(-1).argmin(1)
        for k in range(3):
            members = x[labels == k]
            if len(members) > 0:
                centers[k] = members.mean(axis=0)
    return centers, labels


def by_length(x: Any) -> Any:
    v, out = np.zeros(N), np.zeros(N)
    v[:] = x[:, 0]
    for k in range(N):
        chosen, others = v[v > 0.05 * k], x[x[:, 1] < 0.03 * k]
        out[k] = len(chosen) / max(len(others), 1) if len(others) else -1.0
    return out


def counts_in_list(x: Any) -> Any:
    found = []
    for k in range(N):
        found.append(len(x[x[:, 0] > 0.05 * k]))
    return found


def rows_swapped(x: Any) -> Any:
    order, a = np.arange(N), x.clone()
    for k in range(N):
        p: Any = k + np.argmax(a[k:, 0])
        order[[k, p]] = order[[p, k]]
        a[[k, p]] = a[[p, k]]
        order[[-1, k]] += 1
    return order, a[[2, 0]]


def rows_of_steps(x: Any) -> Any:
    out = np.zeros((N, 2))
    for k in range(N - 1):
        out[[k, k + 1], [1, 0]] += x[[k, k + 1], 0]
    return out


def spectrum(x: Any) -> Any:
    y, k = np.zeros(N), np.arange(N)
    y[:] = x[:, 0]
    for _ in range(16):
        z = np.fft.ifft(-1j * k * np.fft.fft(y))
        y = 0.5 * y + 0.01 * z.real
        y += 0.001 * np.imag(val=z)
    return y


def parts_written(x: Any) -> Any:
    z, out = np.zeros((3, 4), complex), np.zeros(N)
    for k in range(N):
        z += x[k, 0] * (1 + 2j)
        z.real[1] = x[k, 1]
        z.imag[:, 1] += 1
        z.imag *= 0.5
        out[k] = z.T.real[2, 1] + z.real.sum()
    return z, out


def histogram(x: Any) -> Any:
    counts, weights, largest = np.zeros(4, dtype=int), np.zeros((N, 4)), np.zeros(4)
    for k in range(N):
        at = (x * 4).astype("int64")[:, 0]
        np.add.at(counts, at, 1)
        np.add.at(weights[k], at, x[:, 1] * k)
        places: Any = k, np.array([0, 0])
        np.subtract.at(weights, places, weights[k, :2])
        np.maximum.at(largest, at, x[:, 1])
    return counts, weights, largest


def extremes(x: Any) -> Any:
    v, out = np.zeros(N), np.zeros((N, 2))
    v[:] = x[:, 0]
    for k in range(N):
        members, chosen = x[x[:, 0] > 0.06 * k], v[v > 0.06 * k]
        if len(members) > 0:
            out[k] = members.max(axis=0) - members.min()
        if len(chosen):
            out[k, 1] += chosen.max()
    return out


def inverses(x: Any) -> Any:
    p, skipped = hm.eye(2, dtype="float64"), 0
    for row in x:
        p = p + 0.5
        if row[0] < 0.25:
            skipped += 1
        else:
            p = hm.linalg.inv(p * row[0]) + hm.linalg.solve(p, row)
            p[0, 0] += 2
    return p, skipped


LOOPS = [
    means,
    by_length,
    counts_in_list,
    rows_swapped,
    rows_of_steps,
    spectrum,
    parts_written,
    histogram,
    extremes,
    inverses,
]


@pytest.mark.parametrize("program", LOOPS)
def test_they_are_one_loop(program: Callable[[Any], Any]) -> None:
    seeds = iter(range(100))

    def make() -> hm.Tensor:  # of numbers whose sums are exact in any order
        return hm.asarray(np.random.default_rng(next(seeds) // 2).integers(0, 64, (N, 2)) / 64)

    assert is_loop(both(program, make))


def view_of_part(x: Any) -> Any:
    z = np.zeros((4, 5), complex)
    z[1] = x[:5, 0] * 1j
    r, i = z.T.real, z[1:, ::2].imag
    r[0, 1] = 7
    i[...] = i * 2
    z[2] += 1 + 1j
    return z, r, i, z.real.sum(), np.imag(z)[::-1], z[1:2, 1:2].real


def part_in_place(x: Any) -> Any:
    z = np.zeros(N, complex)
    z[:] = x[:, 0]
    for k in range(N - 1):
        z.real[k] = x[k, 1]
        z.imag[k + 1] += z.real[k]
    return z


def length_outside(x: Any) -> Any:
    chosen = x[x[:, 0] > 0.5]
    return chosen.sum(axis=0) / len(chosen) if len(chosen) else x[0], np.zeros(len(chosen))


def steps_over_chosen(x: Any) -> Any:
    total = 0.0
    for k in range(N):
        chosen = x[x[:, 0] > 0.05 * k]
        for j in range(len(chosen)):
            total += chosen[j, 1]
    return total


def kept_choice(x: Any) -> Any:
    v, out = np.zeros(N), np.zeros(N)
    v[:] = x[:, 0]
    for k in range(N):
        chosen = v[v > 0.05 * k]
        if (v > 0.05 * k).sum():
            out[k] = chosen.sum() > 1
        else:
            out[k] = -1.0
    return out, chosen


@pytest.mark.parametrize("program", [view_of_part, part_in_place, length_outside, steps_over_chosen, kept_choice])
def test_they_are_those_of_numpy(program: Callable[[Any], Any]) -> None:
    both(program, data(N, 2))


def test_what_a_branch_checks_is_checked_where_it_is_taken() -> None:
    def scaled(x: Any) -> Any:
        p = hm.eye(2, dtype="float64")
        for row in x:
            if row[0] > 0.5:
                p = hm.linalg.inv(p * row[1])
        return p

    assert is_loop(both(scaled, lambda: hm.zeros((N, 2), dtype="float64")))
    for call in (scaled, hm.trace(scaled)):
        with pytest.raises(np.linalg.LinAlgError, match="inv: f64"):
            call(hm.tensor([[0.0, 0.0]] * N + [[1.0, 0.0]], dtype="float64"))


def test_an_update_of_an_array_is_numpys() -> None:
    def floats_to_ints(x: Any) -> Any:  # NumPy adds, and casts what it has added
        counts = np.zeros(3, dtype=int)
        np.add.at(counts, np.array([0, 0, 2]), x)
        np.add.at(counts, (np.array([1]),), x[0])
        np.hypot.at(counts, np.array([2]), x[:1])
        return counts

    both(floats_to_ints, lambda: hm.tensor([1.5, 2.0, 3.0]))
    y = np.zeros(3)
    with pytest.raises(hm.GradientError, match=r"np\.add\.at: NumPy's arrays keep no gradients"):
        np.add.at(y, hm.tensor([0, 1]), hm.tensor([1.0, 2.0], requires_grad=True))
    with pytest.raises(IndexError):
        np.add.at(y, hm.tensor([5]), 1.0)


def test_powers_that_no_step_changes_are_computed_once() -> None:
    def paths(noise: Any, width: float) -> Any:
        ends = np.zeros(N)
        for i in range(N):
            s = 1.0
            for k in range(N):
                s = s * np.exp(-(width**2) + noise[i, k])
                if s < 0.5:
                    break
            ends[i] = s
        return ends

    traced = hm.trace(paths)
    noise = np.random.default_rng(0).standard_normal((N, N))
    for width in (0.25, 0.5, 0.1):
        np.testing.assert_allclose(traced(hm.tensor(noise), width), paths(noise, width), rtol=1e-13)
    program = traced._shown().program.executable.ir
    bodies, _, whole = program.rpartition("\ngraph paths(")
    assert "python_power" not in bodies and "python_power" in whole and bodies.count(" loop(")
    with pytest.raises(OverflowError):
        traced(hm.tensor(noise), 1e200)
