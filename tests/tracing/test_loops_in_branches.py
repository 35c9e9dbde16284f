"""Loops that data ends, in branches of a step: the arrays that they update are updated in place, and are chosen for no
answer, as such a loop has no step where the branch is not taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm

N = 30


def unions(x: Any, y: Any) -> Any:
    parent = np.arange(N)

    def root(i: Any) -> Any:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for k in range(1, N):
        if x[k] > 0:
            if x[k - 1] > 0:
                a, b = root(k), root(k - 1)
                parent[max(a, b)] = min(a, b)
            if y[k] > 0 and k > 6:
                a, b = root(k), root(k - 7)
                parent[max(a, b)] = min(a, b)
    return parent


def runs(x: Any, y: Any) -> Any:
    label, count = np.zeros(N, dtype=int), 0
    for i in range(N):
        if x[i] > 0 and label[i] == 0:
            count += 1
            j = i
            while j < N and x[j] > 0:
                label[j] = count
                j += 1
        elif y[i] > 0:
            label[i] = -1
    return label, count


def carried_down(x: Any, y: Any) -> Any:
    a = x.clone()
    for i in range(1, N):
        if y[i] > 0:
            v, j = a[i].clone(), i - 1
            while j >= 0 and a[j] > v:
                a[j + 1] = a[j].clone()
                j -= 1
            a[j + 1] = v
    return a


def _same(program: Callable[..., Any], traced: Callable[..., Any], seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    arrays = [hm.tensor(rng.integers(-4, 9, N) * 1.0), hm.tensor(np.where(rng.random(N) < share, 1.0, -1.0))]
    results = traced(*[t.clone() for t in arrays]), program(*arrays)
    for found, expected in zip(*map(hm.tree_leaves, results), strict=True):
        assert type(found) is type(expected)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("program", [unions, runs, carried_down])
def test_no_array_is_chosen_as_a_whole(program: Callable[..., Any]) -> None:
    traced = hm.trace(program, strict=True)
    for seed, share in enumerate((0.5, 0.1, 0.9, 0.0, 1.0)):
        _same(program, traced, seed, share)
    assert traced.ir.count(" loop(") > 1 and not re.search(rf"where\(.*\[{N}\]$", traced.ir, re.MULTILINE)


# Statements of a step, whose branches hold loops and updates in any order.
_LINES = """a[k] = x[k]
a[int(y[k]) + k % 9] += 1.0
n += 1
while n > 0 and a[n] < 3.0:|    a[n] += 1.0|    n -= 1
while a[0] < x[k]:|    a[0] += 1.0|    b[k] = a[0]
b[k] = a[n] + b[0]
n = 0
a, b = b * 1.0, a * 1.0
v = a[k]|a[k] = 7.0|b[0] = v"""


def _program(lines: list[tuple[int, str]]) -> Callable[..., Any]:
    """A loop of these statements, each in so many `if`s."""
    body, depth = list[str](), 0
    for wanted, line in lines:
        for level in range(depth, wanted):
            body.append("    " * (level + 2) + ("if x[k] > 2:", "if y[k] > 0 and b[k] < 5:")[level % 2])
        depth = wanted
        body += ["    " * (depth + 2) + part for part in line.split("|")]
    source = "def program(x, y):\n    a, b, n = x * 0, x * 0 + 1, 0\n    for k in range(20):\n"
    space: dict[str, Any] = {}
    exec(compile(source + "\n".join(body) + "\n    return a, b, n\n", "<program>", "exec"), space)
    found: Callable[..., Any] = space["program"]
    return found


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(_LINES.splitlines())), min_size=2, max_size=4))
def test_random_branches(lines: list[tuple[int, str]]) -> None:
    program = _program(lines)
    traced = hm.trace(program)
    for seed in range(3):
        _same(program, traced, seed, 0.5)
