"""Loops that data ends, over arrays, and with lists that grow: captured by one step, they compute what Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both, data, is_loop, number

# -- ends that are data


def converged(x: hm.Tensor, tol: float) -> Any:
    err, n = 1.0, 0
    while err > tol:
        y = x * 0.5
        err = abs(y - x).max()
        x = y
        n += 1
    return x, n


def relaxed(u: hm.Tensor, tol: float, most: int) -> Any:
    err, n = 1.0, 0
    while err > tol and n < most:
        v = u.copy()
        u[1:-1] = 0.5 * (v[:-2] + v[2:])
        err = abs(u - v).max()
        n += 1
    return n, n * 2 + 1, n == most, n / 4, err


def in_the_middle(x: hm.Tensor, tol: float) -> Any:
    k = 0
    while True:
        x = x * 0.5
        if x.max() < tol:
            break
        x = x + 0.01 * tol
        k += 2
    return x, k


def not_yet(x: hm.Tensor, tol: float) -> Any:
    while not x.max() < tol:
        x = x * 0.75
    return x


def either(x: hm.Tensor, tol: float) -> Any:
    while x.max() > tol:
        x = x * 0.75
        if x.min() < 0.5 * tol:
            break
        if x.sum() > 1e6:
            break
        x = x - 1e-4
    return x


def left(x: hm.Tensor, tol: float) -> Any:
    last = 0.0
    for k in range(60):  # noqa: B007  # it is read after
        now = x.sum()
        if abs(now - last) < tol:
            break
        last = now
        x = x * 0.5
    return x, last, k, k + 1


def masked(x: hm.Tensor, tol: float) -> Any:
    x, times, active = x.copy(), np.zeros(x.shape, dtype=int), x > -1.0
    for _ in range(40):
        chosen = x[active]
        x[active] = chosen - 0.5 * chosen
        times[active] += 1
        active = x > tol
        if not active.any():
            break
    return x, times


def left_after_an_update(u: hm.Tensor, tol: float) -> Any:
    for k in range(50):  # noqa: B007
        u[1:] = u[1:] * 0.5
        if u[-1] < tol:
            break
        u[0] = u[0] + u[1]
    return k


def goes_on(x: hm.Tensor, tol: float) -> Any:
    s = 0.0 * x.sum()
    while x.max() > tol:
        x = x * 0.9
        if x[0] > x[1]:
            continue
        s = s + x[1]
    return x, s


def collatz(x: hm.Tensor, n: int) -> Any:
    steps = 0
    c = hm.tensor(n)
    while c != 1:
        c = hm.where(c % 2 == 0, c // 2, 3 * c + 1)
        steps += 1
    return x * steps, c


def nested(x: hm.Tensor, tol: float) -> Any:
    total = hm.zeros((), dtype="float64")
    for i in range(20):
        y = x * (i + 1.0)
        while y.max() > tol:
            y = y * 0.5
        total = total + y.sum()
    return total


def nested_break(a: hm.Tensor, tol: float) -> Any:
    n = 0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if a[i, j] > tol:
                break
            a[i, j] = 2.0
            n += 1
    return n


def chained(x: hm.Tensor, tol: float) -> Any:
    while x.max() > tol:
        while x.sum() > 3 * tol:
            x = x * 0.5
        x = x * 0.9
    return x


def held_outside(x: hm.Tensor, tol: float) -> Any:
    total = hm.zeros(3, dtype="float64")
    view = total[1:]
    while x.max() > tol:
        view += x[1:]
        x = x * 0.5
    return total, x


ENDS = [
    masked, converged, in_the_middle, not_yet, either, left, left_after_an_update, goes_on, nested, nested_break,
    chained,
    held_outside,
]  # fmt: skip


WITH_TOLERANCES = [(fn, tol) for fn in ENDS for tol in (1e-3, 0.4, 100.0)]
WITH_TOLERANCES += [(fn, 1e-30) for fn in ENDS if fn not in (either, in_the_middle, chained)]  # which would not end


@pytest.mark.parametrize(("fn", "tol"), WITH_TOLERANCES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_data_ends_a_loop(fn: Callable[..., Any], tol: float) -> None:
    make = data(20, 6) if fn is nested_break else data(3)
    both(fn, make, number(tol))


@pytest.mark.parametrize("fn", ENDS, ids=lambda f: f.__name__)
def test_it_is_a_loop_of_the_graph(fn: Callable[..., Any]) -> None:
    traced = both(fn, data(20, 6) if fn is nested_break else data(3), number(1e-3))
    programs = 1 + (fn is left)  # whose first step is by itself, and may be the last
    assert " loop(" in traced.ir and traced.cache_info().compiles <= programs
    for tol in (0.3, 1e-2, 50.0):  # however many steps there are
        make = data(20, 6) if fn is nested_break else data(3)
        x, y = make(), make()
        assert_same((fn(x, tol), x), (traced(y, tol), y))
    assert traced.cache_info().compiles == programs


@pytest.mark.parametrize("most", [0, 1, 7, 10_000])
def test_a_condition_in_two_parts(most: int) -> None:
    both(relaxed, data(9), number(1e-6), lambda: most)


@pytest.mark.parametrize("n", [1, 6, 27])
def test_integers_end_a_loop(n: int) -> None:
    both(collatz, data(3), lambda: n)


def test_an_update_that_is_not_taken_writes_nothing() -> None:
    """Two updates of one array, of which one is for a question alone: the memory is the other's."""

    def fn(a: hm.Tensor, v: hm.Tensor) -> Any:
        n = 0
        for i in range(1, 19):
            v[i] = 0.125 * i - v[i]
            if a[i, 3] > v[i - 1] + 0.25:
                continue
            v[:i] = 0.5 * v[:i] - a[i, 2]
            if v[0] > 0.125 * i + 0.25:
                break
            n = n + 1
        return n

    assert is_loop(both(fn, data(20, 4), data(20)))


def updated_variable(x: hm.Tensor, tol: float) -> Any:
    while x.max() > tol:
        y = x * 0.5
        y -= 0.01 * tol
        y[0] *= 0.5
        x = y
    for _ in range(20):
        y = x * 0.5
        y += 1
        x = y
    return x


@pytest.mark.parametrize("tol", [1e-3, 0.4, 100.0])
def test_what_a_step_makes_and_updates_is_updated(tol: float) -> None:
    assert is_loop(both(updated_variable, data(3), number(tol)))


# -- counts


def test_a_count_is_an_int() -> None:
    def uses(x: hm.Tensor, tol: float) -> Any:
        n = 0
        while x.max() > tol:
            x, n = x * 0.5, n + 1
        rest = [k for k in range(n)]
        return x[: n + 1], hm.zeros(n), rest, f"{n}", n % 3, n // 2, -n, abs(n), n > 2, {"n": n}[("n")], float(n), 2**n

    for tol in (0.3, 0.01):
        both(uses, data(30), number(tol))


def test_a_count_is_divided_by() -> None:
    def mean(x: hm.Tensor, tol: float) -> Any:
        n, total = 0, 0.0
        while x.max() > tol:
            total = total + x.sum()
            x, n = x * 0.5, n + 1
        return total / n, 1 / n

    both(mean, data(3), number(0.01))
    traced, x = hm.trace(mean), data(3)()
    with pytest.raises(ZeroDivisionError):
        mean(x, 10.0)
    with pytest.raises(ZeroDivisionError):
        traced(x, 10.0)


# -- what is not captured


def returned(x: hm.Tensor, tol: float) -> Any:
    for _ in range(20):
        x = x * 0.5
        if x.max() < tol:
            return x, "small"
    return x, "large"


def otherwise(x: hm.Tensor, tol: float) -> Any:
    for _ in range(20):
        x = x * 0.5
        if x.max() < tol:
            break
    else:
        x = x * 100
    return x


def said_before(x: hm.Tensor, tol: float) -> Any:
    done = False
    for k in range(20):  # noqa: B007
        x = x * 0.5
        if x.max() < tol:
            done = True
            break
    return x, done, k


def tried(x: hm.Tensor, tol: float) -> Any:
    while x.max() > tol:
        try:
            x = x * 0.5
        finally:
            x = x - 1e-3
    return x


def ended_by_a_number(x: hm.Tensor, tol: float) -> Any:
    n = 5
    while n:
        x, n = x * tol, n - 1
    return x


def powers(x: hm.Tensor, tol: float) -> Any:
    n = 1
    while x.max() > tol:
        x, n = x * 0.5, n * 2
    return x, n


def asked(x: hm.Tensor, tol: float) -> Any:
    seen = []
    while x.max() > tol:
        x = x * 0.5
        seen.append(round(float(x[0]), 3))
    return x, seen


OTHERS = [returned, otherwise, said_before, tried, ended_by_a_number, powers, asked]


@pytest.mark.parametrize("tol", [1e-2, 0.4, 10.0])
@pytest.mark.parametrize("fn", OTHERS, ids=lambda f: f.__name__)
def test_what_is_not_one_loop_is_what_it_is(fn: Callable[..., Any], tol: float) -> None:
    both(fn, data(3), number(tol))


def test_a_number_that_is_zero_in_a_step_divides_nothing() -> None:
    def fn(a: float) -> float:
        s = 0.0
        for _ in range(16):
            a = a - 1.0
            s = s + 1.0 / a
        return s

    traced = hm.trace(fn)
    assert traced(3.5) == fn(3.5)
    with pytest.raises(ZeroDivisionError):
        traced(3.0)


def test_gradients() -> None:
    def solved(w: hm.Tensor) -> hm.Tensor:
        x, err = w * 0 + 1.0, 1.0
        while err > 1e-10:
            y = 0.5 * (x + w / x)
            err = abs(y - x).max()
            x = y
        return x.sum()

    w = data(3)()
    np.testing.assert_allclose(np.asarray(hm.trace(hm.grad(solved))(w)), np.asarray(hm.grad(solved)(w)), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(hm.grad(hm.trace(solved))(w)), 0.5 / np.sqrt(np.asarray(w)), rtol=1e-9)


def test_what_both_branches_compute_alike_is_computed_once() -> None:
    def scaled(x: hm.Tensor) -> hm.Tensor:
        table = np.zeros((40, 40))
        for i in range(40):
            weight = 2.0 if x[i] > 0.5 else 3.0
            for j in range(i):
                table[i, j] = max(table[i, j], weight * x[j])
        return hm.asarray(table)

    traced = both(scaled, data(40))
    assert is_loop(traced)
    assert "where" in traced.ir
    assert not [line for line in traced.ir.splitlines() if "where(" in line and "[40,40]" in line]
    assert traced.ir.count(" = loop(") == 2


def test_numbers_of_python_in_both_branches() -> None:
    def damped(x: hm.Tensor) -> Any:
        damping, least = 1.0, x.sum()
        for _ in range(30):
            y = x - 0.3 * damping * x
            if y.sum() < least:
                x, least, damping = y, y.sum(), damping * 0.5
            else:
                damping = damping * 2.0
        return x, damping

    assert is_loop(both(damped, data(7)))


def test_a_branch_has_a_history_of_what_is_around() -> None:
    def loss(w: hm.Tensor, a: hm.Tensor) -> hm.Tensor:
        s = hm.zeros((), dtype="float64")
        for k in range(20):
            if a[k] > 0.5:
                s = s + w.sum() * k
        return s

    w, a = data(3)(), data(20)()
    expected = hm.grad(loss)(w, a)
    np.testing.assert_allclose(np.asarray(hm.trace(hm.grad(loss))(w, a)), np.asarray(expected))
    np.testing.assert_allclose(np.asarray(hm.grad(hm.trace(loss))(w, a)), np.asarray(expected))


def test_a_question_at_the_beginning_of_a_step_before_another_one() -> None:
    """The number of the step in which the loop was left, and questions about it."""

    def two(s: hm.Tensor, w: hm.Tensor) -> Any:
        for i in range(50):  # noqa: B007
            if s.sum() > 9:
                break
            s = s + hm.sin(s) * w
            if s.min() < -5:
                break
        return i, s

    def by_number(s: hm.Tensor, limits: hm.Tensor) -> Any:
        for i in range(50):
            if s.sum() > limits[i]:
                break
            s = s * 1.1
            if s.min() < -5:
                break
        return i, s

    for fn in (two, by_number):
        both(fn, data(3), data(3) if fn is two else lambda: hm.asarray(np.linspace(9, 2, 50)))
        for scale in (10.0, -20.0, 0.1):
            traced = hm.trace(fn)
            given = hm.ones(3, dtype="float64") * scale, hm.asarray(np.linspace(9, 2, 50))
            assert fn is two or traced(*given)[0] == fn(*given)[0]
            assert fn is by_number or traced(given[0], given[0] * 0.1)[0] == fn(given[0], given[0] * 0.1)[0]


def test_random_numbers_until_data_says_stop() -> None:
    def walk(x: hm.Tensor) -> Any:
        n = 0
        while abs(x).max() < 3.0:
            x = x + hm.random.normal(x.shape)
            n += 1
        return x, n

    traced = hm.trace(walk)
    hm.manual_seed(5)
    expected = [walk(hm.zeros(4)) for _ in range(3)]
    hm.manual_seed(5)
    assert_same(expected, [traced(hm.zeros(4)) for _ in range(3)])


def test_an_index_that_data_decides_is_checked() -> None:
    def fn(x: hm.Tensor, k: hm.Tensor) -> Any:
        while x[k] < 5:
            x = x + 1
            k = k + 1
        return x, k

    both(fn, data(30), lambda: hm.tensor(2))
    with pytest.raises(IndexError):
        fn(data(3)(), hm.tensor(1))
    with pytest.raises(IndexError):
        hm.trace(fn)(data(3)(), hm.tensor(1))
