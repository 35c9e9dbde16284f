"""Numbers that become tensors in the steps of a loop, as places of elements: `c = room`, then `best[i, c]` and
`c -= weights[i]`."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.rolling.code_loops import flow_of
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same

N = 20


def alike(fn: Callable[..., Any]) -> Any:
    traced = hm.trace(fn)
    for seed in range(5):
        given = [hm.tensor(np.random.default_rng(seed).integers(0, 4, N)) for _ in range(2)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            expected, found = fn(given[0]), traced(given[1])
        assert_same((expected, given[0]), (found, given[1]))
    return traced


def knapsack(w: Any) -> Any:
    best = np.zeros((N + 1, 5 * N), dtype=np.int64)
    for i in range(N):
        best[i + 1] = best[i]
        best[i + 1, w[i] :] = np.maximum(best[i, w[i] :], best[i, : 5 * N - w[i]] + i)
    chosen, c = [], 4 * N
    for i in range(N - 1, -1, -1):
        if best[i + 1, c] != best[i, c]:
            chosen.append(i)
            c -= w[i]
    return best[N, 4 * N], chosen[::-1]


def visits(w: Any) -> Any:
    counts, last, c = np.zeros(4 * N), np.zeros(N), 0
    for i in range(N):
        last[i] = counts[c]
        counts[c] += 1
        if w[i] > 1:
            c += w[i]
    return counts, last


def elements_of_rows(w: Any) -> Any:
    rows, c, kept = np.zeros((4, N)) + w, 0, 0.0
    for i in range(N):
        if w[i] > 2:
            c = w[i]
            kept = rows[c, i]
        rows[c, i] = kept + i
    return rows, kept


@pytest.mark.parametrize("program", [knapsack, visits, elements_of_rows], ids=lambda f: f.__name__)
def test_one_program(program: Callable[..., Any]) -> None:
    traced = alike(program)
    assert traced.cache_info().compiles <= 2 and " loop(" in traced.ir


def _drawn(seed: int) -> str:
    draw, lines = random.Random(seed), ["c, d, s = 3, 2, w[0] * 0", "for i in range(1, N):"]
    where = ["c", "d", "c - d + 8", "i", "w[i]"]
    statements = [
        "c += w[i]", "c -= w[i]", "c = w[i]", "d = c", "d = w[i - 1] + 1", "c += 1", "s += q[{0}, {1}]",
        "q[{0}, {1}] += 1",
        "q[{0}, {1}] = i", "s = s + q[{0}, :{1}].sum()", "s = s + p[{0}]", "p[{1}] = s", "p[{0}] += c",
    ]  # fmt: skip
    for _ in range(draw.randint(2, 5)):
        indent = "    "
        if draw.random() < 0.5:
            lines.append(f"    if {draw.choice(['w[i] > 1', 'q[c, d] > 1', 'c < 12', 'w[i] == w[i - 1]'])}:")
            indent *= 2
        for _ in range(draw.randint(1, 2)):
            lines.append(indent + draw.choice(statements).format(draw.choice(where), draw.choice(where)))
    arrays = "np.zeros((16, 16)), np.zeros(16, dtype=int)"
    arrays = draw.choice(
        [arrays, f"np.zeros((16, 16), dtype=int), {arrays[-23:]}", "w[:16, None] + w[:16], w[:16] + 1"]
    )
    return "\n    ".join(["def f(w):", f"q, p = {arrays}", *lines, "return q, p, s, c, d"])


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (IndexError, hm.ShapeError, hm.DTypeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed: int) -> None:
    space: dict[str, Any] = {"N": N, "np": np}
    source = _drawn(seed)
    exec(source, space)
    traced = hm.trace(space["f"])
    for k in range(4):
        given = [hm.tensor(np.random.default_rng(k).integers(0, 4, N)) for _ in range(2)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            assert_same((outcome(space["f"], given[0]), given[0]), (outcome(traced, given[1]), given[1]))


def test_which_variables_are_places() -> None:
    def program(x: Any, d: Any) -> Any:
        a = b = c = e = f = g = 0
        for i in range(N):
            x[a] += x[b, c] + x[:e].sum()
            x[i] = d[f] if g else f
            a, b, c, e, f, g = a + 1, b + 1, c + 1, e + 1, [f], g + 1
        return a, b, c, e, f, g

    flow = flow_of(program.__code__)
    (head,) = flow.loops
    loop = flow.loop(head, head + 1, head + 1)
    assert loop is not None and {"a", "b", "c", "e"} <= loop.numbers and not {"f", "x"} & loop.numbers
