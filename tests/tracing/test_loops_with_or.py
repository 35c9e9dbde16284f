"""`while a or b` over numbers that data changes, as tracebacks and merges have it: one program for all data."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same

N = 12


def alike(fn: Callable[..., Any], seeds: int = 5) -> Any:
    traced = hm.trace(fn)
    for seed in range(seeds):
        x = np.random.default_rng(seed).random((N, N))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            assert_same(fn(hm.tensor(x)), traced(hm.tensor(x)))
    return traced


def traceback(x: Any) -> Any:
    i = j = N - 1
    moves = []
    while i > 0 or j > 0:
        if i > 0 and j > 0 and x[i - 1, j - 1] > 0.4:
            moves.append(0 if x[i - 1, j - 1] > 0.8 else 1)
            i, j = i - 1, j - 1
        elif i > 0 and (j == 0 or x[i - 1, j] > x[i, j - 1]):
            moves.append(2)
            i -= 1
        else:
            moves.append(3)
            j -= 1
    moves.reverse()
    return np.array(moves)


def merged(x: Any) -> Any:
    a, b = hm.sort(x[0]), hm.sort(x[1])
    out, i, j = np.zeros(2 * N), 0, 0
    while i < len(a) or j < len(b):
        if j == len(b) or (i < len(a) and a[i] < b[j]):
            out[i + j] = a[i]
            i += 1
        else:
            out[i + j] = b[j]
            j += 1
    return out


def until_both(x: Any) -> Any:
    e, n = 1.0, 0
    while e > 0.01 or not n >= 3:
        e = e * x[0, n % N]
        n += 1
    return e, n


def three(x: Any) -> Any:
    i = j = k = 0
    s = x[0, 0] * 0
    while i < 5 or j < 4 or (k < 6 and x[k, k] < 0.9):
        if x[i, j] > 0.5:
            i = min(i + 1, N - 1)
        else:
            j = min(j + 1, N - 1)
        k += 1
        s = s + x[i, j]
    return i, j, k, s


def stack(x: Any) -> Any:
    at, found = [(0, N)], []
    while at:
        a, b = at.pop()
        found.append(a)
        if b - a > 1 and x[a, b - 1] > 0.3:
            at.append((a, (a + b) // 2))
            at.append(((a + b) // 2, b))
    found.reverse()
    found.append(-1)
    return found, len(found)


@pytest.mark.parametrize("program", [traceback, merged, until_both, three, stack], ids=lambda f: f.__name__)
def test_one_program_for_all_data(program: Callable[..., Any]) -> None:
    traced = alike(program)
    assert traced.cache_info().compiles == 1 and " loop(" in traced.ir


def in_the_middle(x: Any) -> Any:
    n, s = 0, x[0, 0] * 0
    while True:
        n += 1
        if x[0, n] < 0.6:
            pass
        elif n > 4 or x[1, n] > 0.8:
            break
        s = s + x[2, n]
        if n == N - 1:
            break
    return n, s


def beyond(x: Any) -> Any:
    i = 0
    while i < 3 or x[0, i] < 0.95:
        i += 1 if x[1, i % N] > 0.1 else 2
        if i >= N - 2:
            return -1
    return i


@pytest.mark.parametrize("program", [in_the_middle, beyond], ids=lambda f: f.__name__)
def test_others_are_as_in_eager_code(program: Callable[..., Any]) -> None:
    alike(program)


def _drawn(seed: int) -> str:
    draw = random.Random(seed)
    parts = ["i > 0", "j > 0", "x[i, j] > 0.6 and i + j > 4", "not (i < 4)", "0 < j", "(i > 1 and x[i, 0] > 0.2)"]
    condition = " or ".join(draw.sample(parts, draw.randint(2, 3)))
    lines = ["i, j, n, s, found = N - 1, N - 1, 0, x[0, 0] * 0, []", f"while ({condition}) and n < 40:"]
    if draw.random() < 0.7:
        lines[-1] = f"while {condition}:"
    for _ in range(draw.randint(1, 3)):
        lines.append(f"    if x[i, j] {draw.choice('<>')} {draw.choice(('0.3', '0.6', 's'))}:")
        what = [
            "i = max(i - 1, 0)",
            "j -= j > 0",
            "s = s + x[i, j]",
            "found.append(i)",
            "found.append(i if i > j else -j)",
        ]
        lines += [f"        {draw.choice(what)}" for _ in range(draw.randint(1, 2))]
    lines += ["    i = max(i - 1, 0)", "    j = max(j - 1, 0)", "    n += 1"]
    if draw.random() < 0.5:
        lines.append("found.reverse()")
    return "\n    ".join(["def f(x):", *lines, "return i, j, n, s, found"])


@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed: int) -> None:
    space: dict[str, Any] = {"N": N}
    exec(_drawn(seed), space)
    alike(space["f"], seeds=3)
