"""Updates of slices in place: where the memory of the array itself is written, and that results are those of copies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

N, M = 40, 60


def arrays() -> list[hm.Tensor]:
    r = np.random.default_rng(0)
    return [hm.asarray(r.random((N, M))), hm.asarray(r.random((N, M)))]


def check(fn: Callable[..., Any]) -> list[Any]:
    """Compares a program with eager code, and returns its kernels."""
    traced, given, same = hm.trace(fn), arrays(), arrays()
    for _ in range(2):
        expected, found = fn(*given), traced(*same)
        for a, b in zip([*(expected or ()), *given], [*(found or ()), *same], strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return list(hm.explain(traced, *same).kernels)


def stencil(a: hm.Tensor, b: hm.Tensor) -> None:
    b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
    a[1:-1, 1:-1] = 0.25 * (b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:])


def rows(a: hm.Tensor, b: hm.Tensor) -> None:
    a[3, 1:-1] += a[2, 1:-1]
    a[4] = a[3] * b[3, 3]
    b[0] -= a[4]


def shifted(a: hm.Tensor, b: hm.Tensor) -> None:
    a[5, 1:] = a[5, :-1] * b[0, 0]


def by_a_number_of_itself(a: hm.Tensor, b: hm.Tensor) -> None:
    a[5] = a[5] * a[5, 3]


def of_a_new_array(a: hm.Tensor, b: hm.Tensor) -> Any:
    c = a * 2.0
    for k in range(5):
        c[k] = hm.concat([c[k, 1:], c[k, :1]]) + b[k]
    return (c,)


def read_later(a: hm.Tensor, b: hm.Tensor) -> Any:
    old = a[2].clone()
    a[2] = a.max()
    c = a + old
    a[3] = c[0]
    return c, a * 2


@pytest.mark.parametrize(
    ("fn", "kernels"),
    [(stencil, 2), (rows, 3), (shifted, 2), (by_a_number_of_itself, 2)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_slices_are_written_where_they_are(fn: Callable[..., Any], kernels: int) -> None:
    found = check(fn)
    assert len(found) == kernels and all(k.kind != "copy" for k in found)


def test_a_new_array_is_written_as_a_whole_once() -> None:
    sizes = [k.bytes for k in check(of_a_new_array)]
    assert sum(n >= N * M * 8 for n in sizes) == 1


def test_what_is_read_later_is_what_it_was() -> None:
    check(read_later)


# -- rows at computed indices


K = hm.tensor([3, 39, 3, -2])


def set_rows(a: hm.Tensor, b: hm.Tensor) -> None:
    a[K] = b[:4]
    a[K[1:], 2:5] += 1.5
    b[:, K] = a[:, :4]


def of_itself(a: hm.Tensor, b: hm.Tensor) -> Any:
    a[K] = a[K + 0 * K.max()] * 2 + a[7]
    b[K] = b[:4] + b[K]
    return (a[3],)


def of_what_was(a: hm.Tensor, b: hm.Tensor) -> Any:
    old = a[3] * 2
    a[K] = b[:4]
    return old, a[3], a.sum()


def in_a_loop(a: hm.Tensor, b: hm.Tensor) -> None:
    for i in range(20):
        a[(K + i) % N] = b[i] + a[i]


@pytest.mark.parametrize(
    ("fn", "copies"),
    [(set_rows, 0), (of_itself, 0), (of_what_was, 0), (in_a_loop, 1)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_rows_are_written_where_they_are(fn: Callable[..., Any], copies: int) -> None:
    assert sum(k.kind == "copy" for k in check(fn)) == copies


def test_an_index_out_of_range_leaves_all_as_it_was() -> None:
    def fn(a: hm.Tensor, k: hm.Tensor) -> None:
        a[0] = 5.0
        a[k] = 7.0

    traced, a = hm.trace(fn), hm.zeros((N, M))
    traced(a, hm.tensor([1, 2]))
    assert a[0, 0] == 5 and a[2, 0] == 7
    b = hm.zeros((N, M))
    with pytest.raises(IndexError, match="index 40 is out of range"):
        traced(b, hm.tensor([1, 40]))
    assert (b[0] == 5).all() and not b[1:].any()  # as eager code leaves it


def _statement(pick: random.Random) -> str:
    x, y = pick.choice("ab"), pick.choice("ab")
    i, j = pick.randrange(1, N - 1), pick.randrange(1, N - 1)
    op = pick.choice(("=", "=", "+=", "*="))
    return pick.choice((
        f"{x}[{i}] {op} {y}[{j}] * 0.5",
        f"{x}[{i}, 1:] {op} {y}[{j}, :-1]",
        f"{x}[1:-1, 2:] {op} {y}[2:, :-2] - {x}[:-2, 1:-1]",
        f"{x}[:, {i}] {op} {y}[:, {j}] + {x}[0, 0]",
        f"{x}[::2] {op} {y}[1::2]",
        f"{x}[{i}, {j}] {op} {y}[{i}].max()",
        f"{x}[{i}:] {op} {y}[{i}:] * {x}[{j}, 0]",
        f"c = {x} * 2 + {y}[{i}]",
        f"{x}[{i}] {op} c[{j}]",
        f"{x}[::-1, 3] {op} {y}[:, {i}]",
        f"{x} {op} {y} * 0.25",
    ))  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_random_updates(seed: int) -> None:
    pick = random.Random(seed)
    lines = ["def program(a, b):", "    c = b * 1.0", *(f"    {_statement(pick)}" for _ in range(pick.randint(3, 12)))]
    space: dict[str, Any] = {}
    exec("\n".join([*lines, "    return a + b, c"]), space)
    check(space["program"])


def by_row(a: hm.Tensor, b: hm.Tensor) -> Any:
    c = hm.zeros_like(a)
    rows = list(range(N - 1))
    while rows:
        i = rows.pop()
        c[i] = c[i + 1] * 0.5 + a[i]
    return [c]


def of_an_argument(a: hm.Tensor, b: hm.Tensor) -> Any:
    c = a.copy()
    rows = list(range(N - 1))
    while rows:
        i = rows.pop()
        c[i] = c[i + 1] * b[i]
    return c, a + 1


def test_a_result_leaves_an_updated_array_to_those_that_read_it() -> None:
    """An array that steps carry on is not overwritten while what was made of it before is read."""

    def steps(u: hm.Tensor, v: hm.Tensor) -> None:
        for _ in range(35):
            v[1:-2] = 0.25 * (v[:-3] + v[2:-1])
            kept = v.copy()
            v[2:-2] = 0.1 * v[3:-1]
            u[1:-2] = 0.3 * (kept[2:-1] - v[1:-2])
            u[0] = kept[3]

    def copies(u: hm.Tensor, v: hm.Tensor) -> Any:
        for _ in range(35):
            v[1:-2] = 0.25 * (v[:-3] + v[2:-1])
            u = v.copy()
            v[2:-2] = 0.1 * v[3:-1]
            u[1:-2] = 0.3 * (u[2:-1] - v[1:-2])
        return (u,)

    for fn in (steps, copies):
        check(fn)


@pytest.mark.parametrize("fn", [by_row, of_an_argument])
def test_many_updates_of_an_array_write_it_once(fn: Callable[..., Any]) -> None:
    whole = [kernel for kernel in check(fn) if kernel.bytes >= N * M * 8]
    assert len(whole) <= 2  # the array of the first update, and what `a + 1` gives


@pytest.mark.parametrize("n", [0, 3])
def test_an_update_of_no_elements_leaves_an_array_to_the_loop_after_it(n: int) -> None:
    def before(a: hm.Tensor, b: hm.Tensor) -> Any:
        a[:n] = 0.0
        for i in range(20):
            a[i] += 1.0
        return (a,)

    def in_steps(a: hm.Tensor, b: hm.Tensor) -> Any:
        for i in range(20):
            a[i - n : i + n] += 1.0
        return (a,)

    check(before)
    check(in_steps)
