"""Elements of arrays of several axes, at places of which data decides some: updates in place, as in eager code."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.random_graphs import same_bits

N = 12  # steps; arrays are 5 x 4 and 3 x 4 x 5, and ints below 3
_KEYS = (
    "a[p[i], {c}]", "a[{c}, p[i]]", "a[p[i], q[i]]", "a[{c}, {d}]", "a[i % 3, {c}]", "a[{c}, q[i] - 1]", "a[-1, i % 3]",
    "t[p[i], {c}, q[i]]", "t[{c}, p[i], i % 4]", "t[p[i], q[i], {d}]", "t[{c}, {d}, 1]", "t[i % 3, p[i], -{d}]",
)  # fmt: skip
_ROWS = (
    "a[{c}, :]", "a[{c}, 1:3]", "a[:, {d}]", "t[{c}, {d}]", "t[{c}, :, {d}]", "t[p[i], {c}]", "t[{c}, p[i], 1:3]",
    "a[p[i]]",
)  # fmt: skip


def _program(seed: int) -> str:
    of = random.Random(seed)

    def key(keys: tuple[str, ...]) -> str:
        return of.choice(keys).format(c=of.randrange(3), d=of.randrange(3))

    def value() -> str:
        return of.choice(("x[i]", "x[i] * 0.5 - 1", f"{key(_KEYS)} + x[i]", f"{key(_KEYS)} * {key(_KEYS)}", "i * 0.25"))

    lines = ["def program(x, p, q):", "    a, t = np.zeros((5, 4)), np.ones((3, 4, 5))", f"    for i in range({N}):"]
    for _ in range(of.randint(2, 5)):
        kind = of.random()
        if kind < 0.25:
            lines.append(f"        {key(_ROWS)} {of.choice(('=', '+='))} {value()}")
        elif kind < 0.5:
            lines.append(f"        if {value()} > 0.2:")
            lines.append(f"            {key(_KEYS)} {of.choice(('=', '+=', '*='))} {value()}")
        else:
            lines.append(f"        {key(_KEYS)} {of.choice(('=', '+=', '-='))} {value()}")
    return "\n".join([*lines, "    return a, t"])


@pytest.mark.parametrize("seed", range(14))
def test_random_updates_are_those_of_eager_code(seed: int) -> None:
    source = _program(seed)
    space: dict[str, Any] = {"np": np}
    exec(source, space)
    program, traced = space["program"], hm.trace(space["program"])
    for data in range(2):
        rng = np.random.default_rng(data)
        given = rng.standard_normal(N), rng.integers(0, 3, N), rng.integers(0, 3, N)
        expected, found = (fn(*map(hm.tensor, given)) for fn in (program, traced))
        plain = program(*given)
        for a, b, c in zip(expected, found, plain, strict=True):
            assert same_bits(np.asarray(a), np.asarray(b)), source
            assert np.allclose(np.asarray(a), c), source


def _histogram(x: Any, p: Any) -> Any:
    counts = np.zeros((50, 60), np.int64)
    for i in range(x.shape[0]):
        for t in range(60):
            counts[p[i], t] += 1
        counts[0, 0] = i
    return counts


def test_no_step_copies_the_array() -> None:
    rng = np.random.default_rng(0)
    given = rng.standard_normal(30), rng.integers(0, 50, 30)
    traced = hm.trace(_histogram)
    assert same_bits(np.asarray(traced(*map(hm.tensor, given))), _histogram(*given))
    text: str = traced._shown().program.executable.ir
    loops = [body for body in text.split("graph ") if "scatter_set" in body]
    assert loops
    assert all("i64[50,60]" not in body for body in loops)


@pytest.mark.parametrize("bad", [50, -51])
def test_a_place_out_of_range_raises(bad: int) -> None:
    x, p = np.ones(30), np.arange(30)
    traced = hm.trace(_histogram)
    traced(hm.tensor(x), hm.tensor(p))
    p[7] = bad
    for fn in (_histogram, traced):
        with pytest.raises(IndexError):
            fn(hm.tensor(x), hm.tensor(p))


KEYS = [
    lambda i, j: (i, 2), lambda i, j: (1, i), lambda i, j: (i, 2, j), lambda i, j: (i, j, 2), lambda i, j: (0, i, -1),
    lambda i, j: (slice(None), i, 1), lambda i, j: (i, slice(None), 1), lambda i, j: (slice(None), 1, i),
    lambda i, j: (..., i, 2), lambda i, j: (i, None, 1), lambda i, j: (i, 1, slice(0, 3, 2)),
    lambda i, j: (0, i, slice(None, None, -1)), lambda i, j: (i, 0, ...),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("as_int", [False, True])
def test_keys_of_numbers_and_integers(key: Any, as_int: bool) -> None:
    def at(i: Any, j: Any) -> Any:
        return key(int(i), int(j)) if as_int else key(i, j)

    def read(x: Any, i: Any, j: Any) -> Any:
        return x[at(i, j)]

    def write(x: Any, i: Any, j: Any) -> Any:
        x = x * 1.0
        x[at(i, j)] += 7.0
        return x

    x = np.random.default_rng(0).random((3, 4, 4))
    for fn in (read, write):
        traced = hm.trace(fn)
        for i, j in ((0, 1), (2, -2), (-1, 0)):
            expected = fn(x.copy(), np.int64(i), np.int64(j))
            for program in (fn, traced):
                assert same_bits(np.asarray(program(*map(hm.tensor, (x, i, j)))), np.asarray(expected))


def test_gradients_reach_the_element() -> None:
    def loss(x: Any, i: Any) -> Any:
        return (x[i, 1] * x[1, i] * 3.0).sum()

    x, i = hm.tensor(np.arange(1.0, 10.0).reshape(3, 3)), hm.tensor(2)
    expected = np.zeros((3, 3))
    expected[2, 1], expected[1, 2] = 3 * 6, 3 * 8
    for fn in (hm.grad(loss), hm.trace(hm.grad(loss))):
        assert np.array_equal(np.asarray(fn(x, i)), expected)
