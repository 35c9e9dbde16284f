"""Steps of small loops that do not need each other are one operation on arrays, with the values of the loop."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from tests.support.examples import examples

N, M = 41, 37  # shorter loops are unrolled


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, N)), rng.standard_normal((N, M))


Program = Callable[[Any, Any], Any]


def products_of_columns(a: Any, b: Any) -> None:
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])


def both_triangles(a: Any, b: Any) -> Any:
    c = hm.zeros((N, M), dtype="float64")
    for i in range(N):
        for j in range(M):
            c[:i, j] += b[i, j] * a[i, :i]
            b[i, j] = b[:i, j] @ a[i, :i] * 0.5
    return c


def rows(a: Any, b: Any) -> Any:
    out = hm.zeros((N, M), dtype="float64")
    for i in range(N):
        out[i] = hm.tanh(b[i]) * a[i, 3] + b[2] - b[i].sum()
    return out


def columns(a: Any, b: Any) -> None:
    for j in range(M):
        b[:, j] = a[:, j] * b[0, j] - hm.max(b[:, j])


def later_rows(a: Any, b: Any) -> None:
    for i in range(3):
        for j in range(2, M):
            b[i, j] = b[i + 3, j - 2] + a[0, j]


def backwards(a: Any, b: Any) -> None:
    for i in range(N - 1):
        a[i] = a[i] * 0.5 + b[N - 1 - i, 0]


def the_row_before(a: Any, b: Any) -> None:
    for i in range(1, N):
        a[i] += a[i - 1]


def one_place(a: Any, b: Any) -> None:
    for i in range(N):
        a[0] = a[0] * 0.5 + b[i, 0]


def growing(a: Any, b: Any) -> None:
    for i in range(1, N):
        a[i, :i] = a[i, :i] * 2.0


def shared(a: Any, b: Any) -> None:
    for i in hm.prange(N):
        a[i] = a[i] * 2.0


def of_the_next_version(a: Any, b: Any) -> None:
    for i in range(N):
        a[i] = a[i] * 2.0
        b[i] = a[i, :M] + a[0, 0]


def in_turns(a: Any, b: Any) -> None:
    for i in range(N):
        b[i] += a[i % 6, :M] + b[i, 0]


def of_turns(a: Any, b: Any) -> Any:
    total = hm.zeros(N, dtype="float64")
    for i in range(N - 1):
        total[i] = a[i + i % 2].sum() * b[(i * 5) % 7, 0]
        a[i % 3] = b[i, 0] * 0.1
    return total


GONE = [products_of_columns, rows, columns, later_rows]
KEPT = [backwards, the_row_before, one_place, growing, shared, of_the_next_version, in_turns, of_turns]


def check(program: Program) -> Any:
    given, traced = _data(), hm.trace(program)
    for _ in range(2):
        results = []
        for fn in (program, traced):
            arrays = [hm.asarray(x.copy()) for x in given]
            results.append([fn(*arrays), *arrays])
        for one, other in zip(*results, strict=True):
            assert (one is None) is (other is None)
            if one is not None:
                assert one.dtype == other.dtype
                np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-12, atol=1e-12)
    return traced


@pytest.mark.parametrize("program", [*GONE, *KEPT, both_triangles])
def test_loops_of_small_steps(program: Program) -> None:
    traced = check(program)
    text = traced._shown().program.executable.ir
    if program in (products_of_columns, both_triangles):
        assert text.count("\ngraph ") == 1 and " = loop(" in text, text  # the rows need each other
    else:
        assert (" = loop(" in text) is (program in KEPT), text


def test_large_steps_stay_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridml_compiler.passes.steps_as_axis._STEP_ELEMENTS", M - 1)
    text = check(lambda a, b: rows(a, b * 2.0))._shown().program.executable.ir
    assert " = loop(" in text


@examples(30)
@given(st.integers(0, 1 << 30))
def test_random_loops(seed: int) -> None:
    """Reads and writes of rows, columns and parts of them at moving and at fixed places, in one loop or in two."""
    random = Random(seed)
    inner, axis = random.random() < 0.5, random.randrange(2)
    reads = [(random.randrange(2), random.randint(-1, 1), random.randrange(3)) for _ in range(random.randint(1, 3))]
    to, shift, fold = random.randrange(2), random.randint(0, 1), random.random() < 0.4
    high, start = random.choice([36, "i"]), random.randint(1, 2)

    def part(x: Any, at: Any, i: Any, form: int) -> Any:
        if form == 0:
            return x[at, i] if axis == 0 else x[i, at]
        if form == 1:
            return x[at, 1:5] if axis == 0 else x[1:5, at]
        return x[0, 1:5]

    def program(a: Any, b: Any) -> None:
        for i in range(2, 36):
            for j in range(start, 36 if high == 36 else i) if inner else range(1):
                at = j if inner else i
                total = 0.5
                for which, move, form in reads:
                    value = part((a, b)[which], at + move, i, form)
                    total = total + (value.sum() if fold and form else value)
                target = (a, b)[to]
                if axis == 0:
                    target[at + shift, 1:5] = total
                else:
                    target[1:5, at + shift] = total

    check(program)
