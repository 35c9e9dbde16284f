"""Loops in which a step in so many is unlike the others: a loop over blocks, which computes what Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import both, data, is_loop


def kept(x: hm.Tensor, n: int = 100) -> Any:
    found = []
    for k in range(n):
        x[1:-1] = x[1:-1] + 0.1 * (x[2:] - 2.0 * x[1:-1] + x[:-2])
        if k % 20 == 0:
            found.append(x.copy())
    return x, found


def kept_with_the_last(x: hm.Tensor) -> Any:
    found, n = [], 90
    for k in range(n):
        x = x * 0.9 + k
        if k == n - 1 or (k + 1) % 25 == 0:
            found.append(x.max())
    return found, x, k


def numbers_of_steps(x: hm.Tensor) -> Any:
    found, count, t = [1], 0, 0.0
    for k in range(5, 75):
        x, count, t = x * 0.5 + count, count + 2, t + 0.25
        if k % 10 == 7:
            found.append(k)
            found.append(x[0] * t)
            count += 1
    return found, count, t, x


def downwards(x: hm.Tensor) -> Any:
    for k in range(99, 2, -2):
        x = x * 0.9
        if k % 12 == 5:
            x = hm.sin(x) + k
    return x


def of_rows(x: hm.Tensor) -> Any:
    rows, s = x.reshape(-1, 1) * hm.arange(60.0, dtype="float64").reshape(-1, 1).T, 0 * x[0]
    for k, row in enumerate(rows.T):
        s = s + row.sum() * 0.5
        if k % 8 == 3:
            s = s * 0.25
    return s


def not_the_others(x: hm.Tensor) -> Any:
    for k in range(60):
        if k % 6 != 2:
            x = x * 0.9
            continue
        x = x + k
    return x


def of_another_type_at_first(x: hm.Tensor) -> Any:
    y = 1
    for k in range(60):
        y = y * 0.5 + x
        if k % 10 == 0:
            y = y + 1
    return y


def of_two_periods(x: hm.Tensor) -> Any:
    for k in range(80):
        if k % 20 == 0:
            x = x + 1
        if k % 5 == 0:
            x = x * 0.5
        x = x * 0.99
    return x


def in_a_loop(x: hm.Tensor) -> Any:
    found = []
    for i in range(20):
        for k in range(40):
            x = x * 0.99
            if k % 10 == 0:
                x = x + i
        found.append(x)
    return found


def around_a_loop(x: hm.Tensor) -> Any:
    for i in range(40):
        for k in range(i):
            x[k % 3] = x[k % 3] * 0.5 + i
        if i % 10 == 9:
            x = x - x.min()
    return x


def by_data(x: hm.Tensor) -> Any:
    for k in range(60):
        if k % 10 == 0 and x[0] > 0.1:
            x = x * 0.5
        x = x + 0.01 if x[1] < 2.0 else x - 1.0
    return x


BLOCKS = [
    kept, kept_with_the_last, numbers_of_steps, downwards, of_rows, not_the_others, of_another_type_at_first,
    of_two_periods, in_a_loop, by_data,
]  # fmt: skip


@pytest.mark.parametrize("fn", BLOCKS, ids=lambda f: f.__name__)
def test_a_loop_in_blocks_is_loops_of_the_graph(fn: Callable[..., Any]) -> None:
    traced = both(fn, data(7))
    assert is_loop(traced) and len(traced.ir.splitlines()) < 250


def test_a_step_does_nothing_in_vain() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        for k in range(60):
            if k % 20 == 0:
                x = hm.tanh(x)
            x = x * 0.5
        return x

    bodies = both(fn, data(7)).ir.split("graph ")
    assert sorted(body.count("tanh(") for body in bodies if "multiply(" in body) == [0, 1]


@pytest.mark.parametrize("n", [5, 19, 40, 41, 57, 61])
def test_any_number_of_steps(n: int) -> None:
    both(kept, data(7), lambda: n)


def until(x: hm.Tensor) -> Any:
    found = []
    for k in range(60):
        x = x * 0.9
        if x.max() < 0.01:
            break
        if k % 10 == 0:
            found.append(x)
    return found, x


def of_three(x: hm.Tensor) -> Any:
    found = []
    for k in range(30):
        x = x * 0.9
        if k % 3 == 0:
            found.append(x)
    return found


def of_numbers_of_its_own(x: hm.Tensor) -> Any:
    found, n, t = [], 0, 0.0
    while t < 1.0:
        if n % 20 == 0:
            found.append(x)
        x, n, t = x * 0.9, n + 1, t + 0.01
    return found, n, t


@pytest.mark.parametrize("fn", [until, of_three, of_numbers_of_its_own, around_a_loop], ids=lambda f: f.__name__)
def test_other_loops_do_what_python_does(fn: Callable[..., Any]) -> None:
    both(fn, data(7))


def test_gradients() -> None:
    def loss(x: hm.Tensor) -> hm.Tensor:
        s = 0.0 * x.sum()
        for k in range(60):
            x = hm.sin(x) * 1.1
            if k % 15 == 4:
                s = s + (x * x).sum() * k
        return s

    x = data(5)()
    traced = hm.trace(hm.grad(loss))
    np.testing.assert_allclose(np.asarray(traced(x)), np.asarray(hm.grad(loss)(x)), rtol=1e-12)
    assert " loop(" in traced.ir


@pytest.mark.parametrize("seed", range(8))
def test_random_blocks(seed: int) -> None:
    check(*program_of(seed))


def program_of(seed: int) -> tuple[str, Callable[..., Any]]:
    r = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(r.integers(len(choices)))]

    k, n = int(r.integers(2, 16)), int(r.integers(16, 90))
    start, by = int(r.integers(0, 9)), pick(1, 1, 1, 2, 3)
    condition = pick(f"i % {k} == {r.integers(0, k)}", f"(i + {r.integers(0, 5)}) % {k} == 0", f"i % {k} != 0")
    act = pick("found.append(x)", "x = x * 0.5", "count += i", "found.append(i)", "x[1:] = x[:-1]", "y = x * 1")
    body = [
        f"if {condition}:\n            {act}",
        pick("x = x * 0.9", "x[0] = x[1] + i", "x = x + count"),
        "count += 1",
    ]
    body += [pick("y = y + x", "y = y * 0.5 + i", "if i == 20 or i == 60:\n            y = y + 1")]
    r.shuffle(body)
    lines = ["def fn(x):", "    found, count, y = [], 0, x * 0", f"    for i in range({start}, {n}, {by}):"]
    source = "\n".join([*lines, *(f"        {line}" for line in body), "    return x, found, count, y, i"])
    space: dict[str, Any] = {}
    exec(compile(source, f"<blocks {seed}>", "exec"), space)
    return source, space["fn"]


def check(source: str, fn: Callable[..., Any]) -> None:
    try:
        both(fn, data(5), calls=2)
    except AssertionError as error:
        raise AssertionError(f"{source}\n{error}") from None
