"""Variables that are numbers of Python's before a loop and tensors, or scalars of NumPy's, after some steps: the types,
the dtypes and the values are those of eager code."""

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
from tests.support.loops import assert_same, flat
from tests.support.random_numbers import program_of

N = 20
Program = Callable[[hm.Tensor], Any]


def inputs() -> list[np.ndarray]:
    """No step assigns, some do, the last or the first one does."""
    few = np.random.default_rng(3).random(N) * 0.3
    last, first = few.copy(), few.copy()
    last[-1] = first[0] = 0.97
    return [np.random.default_rng(0).random(N), -few, last, first, np.random.default_rng(1).random(N)]


def outcome(fn: Program, values: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        try:
            return fn(hm.asarray(values.copy()))
        except (ZeroDivisionError, OverflowError) as error:
            return str(error)


def alike(fn: Program) -> Any:
    """The traced function, after calls that gave what eager ones give."""
    traced = hm.trace(fn)
    for values in inputs():
        assert_same(outcome(fn, values), outcome(traced, values))
    return traced


def largest(x: hm.Tensor) -> Any:
    best = 0.0
    for i in range(N):
        if x[i] > best:
            best = x[i]
    return best, x * best, best / 2


def largest_of_pairs(x: hm.Tensor) -> Any:
    best, bi, bj = 0.0, 0, 0
    for i in range(N):
        for j in range(N):
            if x[i] - x[j] > best:
                best, bi, bj = x[i] - x[j], i, j
    return best, bi, bj


def largest_of_a_table(x: hm.Tensor) -> Any:
    table = np.zeros((2 * N, N))
    best, bi, bj = 0.0, 0, 0
    for i in range(1, 2 * N):
        for j in range(1, N):
            table[i, j] = max(0.0, table[i - 1, j - 1] + x[i // 2] * x[j] - 0.25)
            if table[i, j] > best:
                best, bi, bj = table[i, j], i, j
    return best, bi, bj


def from_infinity(x: hm.Tensor) -> Any:
    low, high = np.inf, -np.inf
    for i in range(N):
        if x[i] > high:
            high = x[i]
        if x[i] < low:
            low = x[i]
    return high - low, low, high


def from_an_int(x: hm.Tensor) -> Any:
    s = 0
    for i in range(N):
        if x[i] > 0.5:
            s = s + x[i]
    return s, s * 2


def from_a_float_of_numpys(x: hm.Tensor) -> Any:
    best = np.float64(0.25)
    for i in range(N):
        if x[i] > best:
            best = x[i]
    return best


def from_an_element(x: hm.Tensor) -> Any:
    best = float(x[0])
    for i in range(N):
        if x[i] > best:
            best = x[i]
    return best


def of_the_two_largest(x: hm.Tensor) -> Any:
    first, second = 0.0, 0.0
    for i in range(N):
        if x[i] > first:
            first, second = x[i], first
        elif x[i] > second:
            second = x[i]
    return first, second


def a_number_again(x: hm.Tensor) -> Any:
    s = 0.0
    for i in range(N):
        s = x[i] if x[i] > 0.5 else 0.0
    return s


def number_that_changes(x: hm.Tensor) -> Any:
    s = 0.25
    for i in range(N):
        s = s + x[i] if x[i] > 0.5 else s * 1.5
    return s


def some_added(x: hm.Tensor) -> Any:
    total, n = 0.0, 0
    for i in range(N):
        if x[i] > 0.5:
            total += x[i]
            n += 1
    return total, n, total / max(n, 1)


def in_a_row(x: hm.Tensor) -> Any:
    out = hm.zeros(N, dtype="float64")
    for i in range(N):
        e = 0.0
        for j in range(N):
            if x[j] > x[i]:
                e = max(e, abs(x[i] - x[j]))
        out[i] = e
    return out


def of_the_last_row(x: hm.Tensor) -> Any:
    e = 1.5
    for i in range(N):
        e = 0.0
        for j in range(N):
            if x[j] > x[i]:
                e = max(e, x[j] - x[i])
    return e


def of_rows(x: hm.Tensor) -> Any:
    best = 0.0
    for i in range(N):
        row = 0.0
        for j in range(i):
            if x[j] > 0.3:
                row += x[j]
        if row > best:
            best = row
    return best


def of_as_many_as_data_says(x: hm.Tensor) -> Any:
    e = 0.0
    for i in range((x > 0.5).sum()):
        e = e + x[i]
    return e


def while_data_says(x: hm.Tensor) -> Any:
    e, i = 1.0, 0
    while e > 1e-3 and i < N:
        if x[i] > 0.5:
            e = e * x[i]
        i = i + 1
    return e, i


def left_early(x: hm.Tensor) -> Any:
    s = 1.5
    for i in range(N):
        if x[i] > 0.9:
            break
        if x[i] > 0.4:
            s = s * x[i]
    return s


def comparison(x: hm.Tensor) -> Any:
    e, n, above = 0.0, 0, False
    for i in range(N):
        if x[i] > 0.5:
            e = x[i]
        above = e > 0.7
        if above:
            n += 1
    return e, n, above


def of_numpys_array(x: hm.Tensor) -> Any:
    h, best, where = np.zeros(N), 0.0, -1
    for i in range(N):
        h[i] = x[i] * 2
        if h[i] > best:
            best, where = h[i] * 0.5, i
    return best, where, h


def of_numpys_array_by_max(x: hm.Tensor) -> Any:
    h, best = np.zeros(N), 0.0
    for i in range(N):
        h[i] = x[i] * 2 - 1
        best = max(best, h[i])
    return best


def of_numpys_ints(x: hm.Tensor) -> Any:
    q, m = np.zeros(N, dtype=int), 0
    for i in range(N):
        q[i] = (i * 7) % N
    q[3] = x[0] > 0.3
    for i in range(N):
        if x[i] > 0.5:
            m = q[m]
    return m


def tensor_or_numpys(x: hm.Tensor) -> Any:
    h, m = np.zeros(N), x[0]
    for i in range(N):
        h[i] = x[i] * 2
        if x[i] > 0.5:
            m = h[i]
    return m


def representatives(x: hm.Tensor) -> Any:
    parent = np.arange(N)
    first, second = (x * 0 + 7).astype("int64"), (abs(x) * 19).astype("int64")
    for k in range(N):
        i, j = first[k], second[k]
        while parent[i] != i:
            i = parent[i]
        while parent[j] != j:
            j = parent[j]
        parent[i] = j
    return parent


def divided_by(x: hm.Tensor) -> Any:
    out = hm.zeros(N, dtype="float64")
    for i in range(N):
        e = 1.0
        for j in range((x[:i] > 0.5).sum()):
            e = e + x[j]
        out[i] = 1.0 / e + x[i] / e + (e - 1.0) * 3
    return out


def added_in_place(x: hm.Tensor) -> Any:
    total = 0.25
    for i in range(N):
        for j in range(N):
            if x[j] > 0.3:
                total += x[j] * 0.5
        if x[i] > 0.9:
            break
    return total


LOOPS: list[Program] = [
    added_in_place,
    largest, largest_of_pairs, from_infinity, from_an_int, from_a_float_of_numpys,
    from_an_element, of_the_two_largest, a_number_again,
    number_that_changes, some_added, in_a_row, of_the_last_row, of_rows, of_as_many_as_data_says,
    while_data_says, left_early, comparison, of_numpys_array, of_numpys_array_by_max, of_numpys_ints, tensor_or_numpys,
    representatives, divided_by,
]  # fmt: skip


@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_a_loop_carries_what_it_is(fn: Program) -> None:
    traced = alike(fn)
    assert " loop(" in traced.ir and traced.cache_info().compiles <= 4


def test_the_first_step_of_loops_in_loops_is_no_other_one() -> None:
    assert alike(largest_of_a_table).ir.count(" loop(") <= 10  # 12 with a first step by itself


def test_where_each_step_makes_it_a_tensor_nothing_is_asked() -> None:
    def fn(x: hm.Tensor) -> Any:
        e = 0.5
        for i in range(N):
            e = e * 0.5 + x[i] if x[i] > 0.5 else e - x[i]
        return e

    traced = hm.trace(fn, strict=True)
    for values in inputs():
        assert_same(fn(hm.asarray(values)), traced(hm.asarray(values)))


# -- what is another value for a number than for a tensor


def with_float32(x: hm.Tensor) -> Any:
    y, e = x.astype("float32"), 0.1
    s = y * 0
    for i in range(N):
        if x[i] > 0.5:
            e = x[i]
        s = y * e
    return s, e


def by_a_function_of_numpys(x: hm.Tensor) -> Any:
    e = 0.1
    for i in range(N):
        if x[i] > 0.5:
            e = np.sin(e) + x[i]
    return e


def by_a_function(x: hm.Tensor) -> Any:
    out = hm.zeros(N, dtype="float64")
    for i in range(N):
        e = 0.0
        for j in range((x[:i] > 0.5).sum()):
            e = e + x[j]
        out[i] = hm.sqrt(e + 0.1) + x[i]
    return out


def by_a_power(x: hm.Tensor) -> Any:
    e = 0.1
    for i in range(N):
        if x[i] > 0.5:
            e = e**3 + x[i]
    return e


def counted(x: hm.Tensor) -> Any:
    e, n = 0.0, 0
    for i in range(N):
        if x[i] > 0.5:
            e = x[i]
        n = n + (e > 0.7)
    return e, n


def divides(x: hm.Tensor) -> Any:
    s = 0.0
    for i in range(N):
        if x[i] > 0.5:
            s = 1.0 / s + x[i]
    return s


def divides_what_has_no_step(x: hm.Tensor) -> Any:
    out = hm.zeros(N, dtype="float64")
    for i in range(N):
        e = 0.0
        for j in range((x[: i + 1] > 0.5).sum()):
            e = e + x[j]
        out[i] = 1.0 / e
    return out


def of_three_types(x: hm.Tensor) -> Any:
    h, m = np.zeros(N), 2.0
    for i in range(N):
        h[i] = x[i] * 2
        m = h[i] if x[i] > 0.7 else x[i] if x[i] > 0.4 else m
    return m


def view_of_what_is_written_after(x: hm.Tensor) -> Any:
    best = 0.0
    for i in range(N):
        if x[i] > best:
            best = x[i]
    x[:] = 0.25
    return best


def view_of_what_is_written(x: hm.Tensor) -> Any:
    best = 0.0
    for i in range(N):
        if x[i] > best:
            best = x[i]
        x[i] = 0.25
    return best


def updated_in_place(x: hm.Tensor) -> Any:
    s = 0.0
    for i in range(N):
        if x[i] > 0.3:
            s = x[i]
        s += 1.0
    return s, x


def view_at_a_number(x: hm.Tensor) -> Any:
    p = (abs(x) * 19).astype("int64")
    m = 0
    for i in range(N):
        if x[i] > 0.5:
            m = p[m]
    p[0] = 77
    return m


def of_a_slice_of_numpys(x: hm.Tensor) -> Any:
    h, m = np.zeros((N, N)), 0.0
    for i in range(N):
        h[i] = x * i
        if x[i] > 0.5:
            m = h[i].max()
    return m


OTHERS: list[Program] = [
    with_float32, by_a_function_of_numpys, by_a_function, by_a_power, counted, divides, divides_what_has_no_step,
    of_three_types, view_of_what_is_written_after, view_of_what_is_written, updated_in_place, view_at_a_number,
    of_a_slice_of_numpys,
]  # fmt: skip


@pytest.mark.parametrize("fn", OTHERS, ids=lambda fn: fn.__name__)
def test_where_it_computes_otherwise_python_does(fn: Program) -> None:
    alike(fn)


def in_float32(x: hm.Tensor) -> Any:
    h, y = np.zeros(N), x.astype("float32")
    for i in range(N):
        h[i] = x[i] * 0.1
        y[i] = y[i] * h[i] + h[i] * 3
    return y


def total_of_elements(x: hm.Tensor) -> Any:
    h = np.zeros(N)
    h[0] = x[0]
    m = h[0]
    for i in range(N):
        h[i] = x[i] * 2
        m = m * 0.5 + h[i]
        last = h[i] * 0.5
    return m, m * x, last


def total_of_the_least(x: hm.Tensor) -> Any:
    h, m = np.zeros(N), 0.0
    h[:] = x
    for i in range(N):
        m = m * 0.5 + min(x[i] * 2, h[i])
    return m


@pytest.mark.parametrize("fn", [in_float32, total_of_elements, total_of_the_least], ids=lambda fn: fn.__name__)
def test_elements_of_numpys_arrays_are_its_scalars(fn: Program) -> None:
    assert " loop(" in alike(fn).ir


def test_a_number_beside_elements_may_be_one_after_the_loop() -> None:
    def program(x: hm.Tensor) -> Any:
        h, m = np.ones(N), 0.0
        for i in range(N):
            m = x[i] if x[i] > 0.95 else m * 0.5 + h[i]
        return m

    alike(program)


def test_its_gradient_is_that_of_the_way_it_went() -> None:
    def loss(x: hm.Tensor) -> Any:
        s = 0.0
        for i in range(N):
            if x[i] > 0.3:
                s = s + x[i] * x[i]
        return s * x.sum()

    traced = hm.trace(hm.grad(loss))
    for values in inputs():
        x = hm.asarray(values)
        np.testing.assert_allclose(traced(x).numpy(), hm.grad(loss)(x).numpy(), rtol=1e-13)
    assert " loop(" in traced.ir


@examples(4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000))
def test_random_programs_of_numbers(seed: int) -> None:
    source, program = program_of(seed)
    traced = hm.trace(program)
    for values in inputs():
        with np.errstate(all="ignore"):
            expected, found = outcome(program, values[:18]), outcome(traced, values[:18])
        for a, b in zip(flat(expected), flat(found), strict=True):
            assert type(a) is type(b), source
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=source)


def wrapped(x: hm.Tensor) -> Any:
    phase, out = 0.0, np.zeros(N)
    for k in range(N):
        phase += 1.0 - 0.05 * x[k] * np.sin(phase)
        if phase > np.pi:
            phase -= 2 * np.pi
        out[k] = phase
    return phase, out


def wrapped_where_data_decides(x: hm.Tensor) -> Any:
    phase = 0.0
    for k in range(N):
        if x[k] > 0.5:
            phase = x[k] + np.sin(phase)
    return phase


def test_the_first_step_has_a_number_and_the_others_take_functions_of_tensors() -> None:
    assert " loop(" in alike(wrapped).ir
    alike(wrapped_where_data_decides)
