"""Loops over ranges whose ends data decides, and places that it decides, are loops of the program that do what Python
does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.examples import examples
from tests.support.loops import assert_same, both
from tests.support.random_loops import M, N, program_of

ROWS = 30


def sparse(seed: int = 0, dtype: str = "f8") -> tuple[np.ndarray, ...]:
    """A sparse matrix by rows, with some that are empty: where rows begin, columns, values."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, ROWS)
    counts[[3, -1]] = 0
    ends = np.concatenate([[0], np.cumsum(counts)])
    return ends, rng.integers(0, ROWS, ends[-1]), rng.random(ends[-1]).astype(dtype)


def of(*arrays: Any) -> list[Callable[[], hm.Tensor]]:
    return [lambda a=a: hm.tensor(np.array(a)) for a in arrays]


def vector(seed: int = 1, dtype: str = "f8") -> np.ndarray:
    return np.random.default_rng(seed).random(ROWS).astype(dtype)


def places(most: int, count: int = ROWS, least: int = 0) -> np.ndarray:
    return np.random.default_rng(2).integers(least, most, count)


# -- ranges of data


def by_vector(ends: Any, columns: Any, values: Any, x: Any, y: Any) -> Any:
    for i in range(len(y)):
        s = 0.0
        for k in range(ends[i], ends[i + 1]):
            s += values[k] * x[columns[k]]
        y[i] = s
    return y


def by_matrix(ends: Any, columns: Any, values: Any, b: Any, y: Any) -> Any:
    for i in range(len(y)):
        for k in range(ends[i], ends[i + 1]):
            y[i] += values[k] * b[columns[k]]
    return y


def turned(ends: Any, columns: Any, values: Any, x: Any, y: Any) -> Any:
    for i in range(len(x)):
        for k in range(ends[i + 1] - 1, ends[i] - 1, -1):
            y[columns[k]] += values[k] * x[i]
    return y


def of_branches(ends: Any, columns: Any, values: Any, x: Any) -> Any:
    for _ in range(3):
        for i in range(len(x)):
            s = 1.0
            for k in range(ends[i], ends[i + 1]):
                if columns[k] != i:
                    s -= 0.1 * values[k] * x[columns[k]]
            x[i] = s
    return x


def left(ends: Any, columns: Any, values: Any, x: Any) -> Any:
    for i in range(len(x)):
        for k in range(ends[i], ends[i + 1]):
            x[i] += values[k]
            if values[k] > 0.7:
                break
    return x


def levels(ends: Any, columns: Any, values: Any, far: Any) -> Any:
    far[0] = 0
    for level in range(20):
        for i in range(len(far)):
            if far[i] == level:
                for k in range(ends[i], ends[i + 1]):
                    j = columns[k]
                    if far[j] < 0:
                        far[j] = level + 1
    return far


def queued(ends: Any, columns: Any, values: Any, seen: Any, queue: Any) -> Any:
    head, tail = 0, 1
    seen[0] = 1
    while head < tail:
        i = queue[head] + 0
        head += 1
        for k in range(ends[i], ends[i + 1]):
            j = columns[k]
            if seen[j] == 0:
                seen[j] = 1
                queue[tail] = j
                tail += 1
    return queue, tail


def greatest(ends: Any, columns: Any, values: Any, y: Any) -> Any:
    n = 0
    for i in range(len(y)):
        m = -1.0
        for k in range(ends[i], ends[i + 1]):
            m = max(m, values[k])
            n += 1
        y[i] = m
    return n


def neighbours(ends: Any, columns: Any, values: Any) -> Any:
    tail = values[1:]
    for i in range(len(ends) - 1):
        for k in range(ends[i], ends[i + 1] - 1):
            tail[k] = tail[k - 1] + values[k + 1] if k > 0 else tail[k]
    return tail


def packed(weights: Any, worth: Any, best: Any) -> Any:
    for i in range(len(weights)):
        for room in range(len(best) - 1, weights[i] - 1, -1):
            best[room] = max(best[room], best[room - weights[i]] + worth[i])
    return best


def changed(coins: Any, fewest: Any) -> Any:
    fewest[0] = 0
    for coin in coins:
        for amount in range(coin, len(fewest)):
            fewest[amount] = min(fewest[amount], fewest[amount - coin] + 1)
    return fewest


def factorized(n: Any, a: Any) -> Any:
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return a


def every_second(n: Any, a: Any) -> Any:
    for k in range(n):
        a[2 * k] += a[2 * k + 1] - a[k]
    return a


CSR = sparse()
SPD = np.random.default_rng(0).random((8, 8)) + 8 * np.eye(8)


@pytest.mark.parametrize(
    ("program", "makes", "loops"),
    [
        (by_vector, of(*CSR, vector(), np.zeros(ROWS)), 2),
        (by_vector, of(*sparse(dtype="f4"), vector(dtype="f4"), np.zeros(ROWS, "f4")), 2),
        (by_vector, of(CSR[0].astype("i4"), CSR[1].astype("u1"), CSR[2], vector(), np.zeros(ROWS)), 2),
        (by_matrix, of(*CSR, np.random.default_rng(3).random((ROWS, 4)), np.zeros((ROWS, 4))), 2),
        (turned, of(*CSR, vector(), np.zeros(ROWS)), 2),
        (of_branches, of(*CSR, vector()), 2),
        (left, of(*CSR, vector()), 2),
        (levels, of(*CSR, np.full(ROWS, -1)), 3),
        (queued, of(*CSR, np.zeros(ROWS, "i8"), np.zeros(ROWS, "i8")), 2),
        (greatest, of(*CSR, np.zeros(ROWS)), 2),
        (neighbours, of(*CSR), 2),
        (packed, of(places(10, 20, 1), vector()[:20], np.zeros(51)), 2),
        (changed, of(np.array([1, 3, 4, 9]), np.full(60, 1 << 20)), 4),
        (factorized, of(np.int64(8), SPD), 3),
        (every_second, of(np.int64(9), vector()), 1),
    ],
)
def test_ranges_of_data_are_loops(program: Callable[..., Any], makes: list[Any], loops: int) -> None:
    traced = both(program, *makes)
    assert len({line.split("body=")[1].split(",")[0] for line in traced.ir.splitlines() if " loop(" in line}) >= loops
    assert len(traced.ir.splitlines()) < 150 and traced.cache_info().compiles <= 2


def test_one_program_serves_all_data() -> None:
    traced = hm.trace(by_vector)
    _, columns, values = sparse()
    for seed in range(4):
        other = np.sort(np.random.default_rng(seed).integers(0, len(values), ROWS + 1))
        if seed == 3:
            other[:] = 5  # rows without an element
        args = [hm.tensor(np.array(a)) for a in (other, columns, values, vector(), np.zeros(ROWS))]
        assert_same(by_vector(*args), traced(*args))
    assert traced.cache_info().compiles == 1


# -- ranges outside of all loops, which may have no step


def summed(x: Any, n: Any) -> Any:
    s = 0.0
    for i in range(n):
        s += x[i]
    return s


def between(x: Any, a: Any, b: Any) -> Any:
    for i in range(a, b):
        x[i] *= 2
    return x


def down(x: Any, a: Any, b: Any) -> Any:
    for i in range(a, b, -1):
        x[i] += x[i - 1]
    return x


def by_threes(x: Any, a: Any, b: Any) -> Any:
    for i in range(1, a, 3):
        x[i] += 1
    for i in range(20, b, -4):
        x[i] += x[i - 1]
    return x


def last(x: Any, n: Any) -> Any:
    for i in range(2, n):
        t = x[i] * 2
        m = i * 3 + 1
    return t, m, i


def counted(x: Any, n: Any) -> Any:
    k = 0
    for i in range(n + 1):
        if x[i] > 0.5:
            k += 2
    return k, k * 0.5


@pytest.mark.parametrize(
    ("program", "ends"),
    [
        (summed, [(17,), (0,), (-4,), (30,), (31,), (1,)]),
        (between, [(3, 20), (20, 3), (0, 30), (-5, 4), (5, 31), (40, 40)]),
        (down, [(25, 3), (29, -1), (30, 5), (3, 25), (-1, -20)]),
        (by_threes, [(17, 1), (2, 5), (1, 20), (0, 30), (16, 17), (31, 0), (40, -2), (18, -4)]),
        (last, [(17,), (3,), (2,), (31,)]),
        (counted, [(17,), (0,), (-2,), (40,)]),
    ],
)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_outermost_ranges(program: Callable[..., Any], ends: list[tuple[int, ...]], dtype: str) -> None:
    traced = hm.trace(program)
    for _ in range(2):
        for numbers in ends:
            given, same = ([hm.tensor(np.array(a)) for a in (vector(dtype=dtype), *numbers)] for _ in range(2))
            assert_same((outcome(program, given), given), (outcome(traced, same), same))
    assert " loop(" in traced.ir


def outcome(fn: Callable[..., Any], args: list[Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            return fn(*args)
    except (IndexError, UnboundLocalError) as error:
        return type(error).__name__, str(error).split("\n")[0]


def test_an_index_out_of_range_is_eager_codes_error() -> None:
    ends, columns, values = sparse()
    for where, value in ((ends, len(values) + 3), (ends, -len(values) - 8), (columns, ROWS), (columns, -ROWS - 1)):
        kept = where[5]
        where[5] = value
        arrays = ends, columns, values, vector(), np.zeros(ROWS)
        given, same = ([hm.tensor(np.array(a)) for a in arrays] for _ in range(2))
        assert_same((outcome(by_vector, given), given), (outcome(hm.trace(by_vector), same), same))
        where[5] = kept


def test_gradients_of_ranges_of_data() -> None:
    def loss(x: Any, n: Any) -> Any:
        s = hm.tensor(1.0, dtype="float64")
        for i in range(n):
            s = s * x[i] + x[i] ** 2
        return s

    def sparse_loss(values: Any, ends: Any, columns: Any, x: Any) -> Any:
        return (by_vector(ends, columns, values, x, hm.zeros((ROWS,), dtype="float64")) ** 2).sum()

    ends, columns, values = of(*CSR)
    for fn, makes in ((loss, of(vector(), np.int64(12))), (sparse_loss, [values, ends, columns, *of(vector())])):
        args = [make() for make in makes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            found = hm.trace(hm.grad(fn))(*args)
        np.testing.assert_allclose(found.numpy(), hm.grad(fn)(*args).numpy(), rtol=1e-12)


# -- places that data decides


def tallied(bins: Any, weights: Any, sums: Any) -> Any:
    for i in range(len(bins)):
        if weights[i] > 0.5:
            sums[bins[i]] += weights[i]
    return sums


def both_axes(i: Any, j: Any, table: Any) -> Any:
    for k in range(len(i)):
        table[i[k], j[k]] += 1
        table[k % 3, j[k]] -= table[i[k], 2]
    return table


def chased(following: Any, start: Any) -> Any:
    k = start
    for _ in range(100):
        k = following[k]
    return k


def united(parent: Any, a: Any, b: Any) -> Any:
    for k in range(len(a)):
        i, j = a[k], b[k]
        while parent[i] != i:
            i = parent[i]
        while parent[j] != j:
            j = parent[j]
        parent[i] = j
    return parent


def cycles(p: Any) -> Any:
    seen = hm.zeros((ROWS,), dtype="int64")
    count = 0
    for i in range(ROWS):
        if seen[i] == 0:
            count += 1
            j = i
            while seen[j] == 0:
                seen[j] = 1
                j = p[j]
    return count, seen


def from_the_end(x: Any, p: Any) -> Any:
    s = 0.0
    for i in range(20):
        s += x[p[i]]
        x[p[i]] = 0.0
    return s


def exchanged(x: Any, p: Any) -> Any:
    for i in range(20):
        t = x[p[i]]
        u = x[i]  # a view, where x[p[i]] is a copy
        x[p[i]] = u
        x[i] = t + u
    return x


@pytest.mark.parametrize(
    ("program", "makes"),
    [
        (tallied, of(places(10), vector(), np.zeros(10))),
        (both_axes, of(places(4), places(5), np.zeros((4, 5)))),
        (chased, of(np.random.default_rng(0).permutation(ROWS), np.int64(3))),
        (united, of(np.arange(ROWS), places(ROWS, 40), places(ROWS, 40)[::-1])),
        (cycles, of(np.random.default_rng(0).permutation(ROWS))),
        (from_the_end, of(vector(), places(ROWS, 20, -ROWS))),
        (exchanged, of(vector(), places(ROWS))),
    ],
)
def test_places_of_data(program: Callable[..., Any], makes: list[Any]) -> None:
    traced = both(program, *makes)
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 80


# -- ints of the program as places: an int of Python's, so that there is a view


def merged(a: Any, b: Any, out: Any) -> Any:
    i, j = 0, 0
    for k in range(len(out)):
        if j >= len(b) or (i < len(a) and a[i] < b[j]):
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1
    return out, i, j


def inserted(a: Any) -> Any:
    for i in range(1, len(a)):
        j = i
        while j > 0 and a[j - 1] > a[j]:
            t = a[j].item()
            a[j] = a[j - 1]
            a[j - 1] = t
            j -= 1
    return a


def chosen(a: Any, out: Any) -> Any:
    n = 0
    for i in range(len(a)):
        if a[i] > 0.5:
            out[n] = a[i]
            n += 1
    s = 0.0
    for k in range(n):
        s += out[k]
    return n, s


def rows_shown(a: Any) -> Any:
    i, s = 0, 0.0
    while s < 40.0:
        row = a[i]
        a[i, 1] += 1.0
        row += 0.5
        row[2] = a[i, 1] * 0.5
        s += row[2]
        i = (i + 3) % 7
    return a, i


def stacked(pushed: Any, stack: Any) -> Any:
    top = total = 0
    for i in range(len(pushed)):
        if pushed[i] > 2 or top == 0:
            stack[top] = pushed[i]
            top += 1
        else:
            top -= 1
            total += 1
            stack[top] = -1
    return stack, top, total


@pytest.mark.parametrize(
    ("program", "makes"),
    [
        (merged, of(np.sort(vector(1)), np.sort(vector(2)), np.zeros(2 * ROWS))),
        (inserted, of(vector())),
        (chosen, of(vector(), np.zeros(ROWS))),
        (rows_shown, of(np.random.default_rng(0).random((8, 4)))),
        (stacked, of(places(6), np.zeros(ROWS, "i8"))),
    ],
)
def test_ints_of_the_program_are_places(program: Callable[..., Any], makes: list[Any]) -> None:
    traced = both(program, *makes)
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 150


def test_a_view_that_is_returned_is_one() -> None:
    def first_above(a: Any) -> Any:
        i = 0
        while a[i] < 0.9:
            i += 1
        return a[i]

    for fn in (first_above, hm.trace(first_above)):
        a = hm.tensor(vector())
        found = fn(a)
        before = a.numpy().copy()
        found += 10.0
        assert (a.numpy() != before).sum() == 1


@pytest.mark.parametrize("start", [1, 3])
def test_python_does_not_leave_a_while_by_numbers_of_its_own(start: int) -> None:
    def by_ints(x: Any) -> Any:
        s = 0
        for i in [start, 2, 3]:
            j = i
            while j > 0 and x.sum() < 3000.0:
                x *= 1.5
                j -= 1
                s += 1
        return x, s, j

    def by_floats(x: Any) -> Any:
        for i in [start, 2, 3]:
            t, w = 0.3 * i, 7
            while t > 0.25 and x.sum() < 3000.0:
                x *= 1.5
                t *= 0.7
                w = 7
        return x, t, w

    for fn in (by_ints, by_floats):
        both(fn, *of(np.ones(3)))


@examples(10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1000), st.booleans())
def test_random_programs_with_ints_of_data(seed: int, ends: bool) -> None:
    source, program = program_of(seed, ends, ints=True)

    def make() -> list[hm.Tensor]:
        r = np.random.default_rng(seed)
        floats = [hm.asarray(r.random(shape)) for shape in ((N, M), (N,), (M,))]
        return [*floats, hm.asarray(r.integers(0, N, N)), hm.asarray(np.sort(r.integers(0, N, N + 1)))]

    first, same = make(), make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        try:
            expected = program(*first)
        except (NameError, IndexError) as error:  # of a loop without a step, of a count
            with pytest.raises(type(error)):
                hm.trace(program)(*same)
            return
        found = hm.trace(program)(*same)
    try:
        assert_same((expected, first), (found, same))
    except AssertionError as error:
        raise AssertionError(f"{source}\n{error}") from None
