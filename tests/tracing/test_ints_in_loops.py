"""Ints that data decides in loops, in NumPy arrays and beside numbers of steps; numbers that become tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import TraceError
from tests.support.loops import assert_same, both, data, is_loop

N = 40


def runs(x: Any, dtype: Any) -> Any:
    lengths = np.zeros(N, dtype)
    k, n = 0, 1
    for i in range(1, N):
        if (x[i] > 0.5) == (x[i - 1] > 0.5):
            n += 1
        else:
            lengths[k] = n
            k += 1
            n = 1
    lengths[k] = n
    return lengths, k


def counts_of_ways_out(x: Any, dtype: Any) -> Any:
    when = np.full(N, 1, dtype)
    for i in range(N):
        s = x[i]
        for k in range(N):
            s = s + x[k]
            if s > 3 + x[i] * 4:
                when[i] = k
                break
    return when


def steps_kept(x: Any, dtype: Any) -> Any:
    found, n, last = np.zeros(N, dtype), 0, 0
    for i in range(1, N):
        if x[i] > 0.3 and i - last >= 3:
            found[n] = i - last
            n += 1
            last = i
    return found, n, last


def steps_compared(x: Any, dtype: Any) -> Any:
    found, last = np.zeros(N, dtype), 0
    for i in range(2, N):
        if i > last + 2:
            found[i] = 3
        if i != last + 4:
            found[i] += 1
        if x[i] > 0.6:
            last = i
    return found


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64, np.float32])
@pytest.mark.parametrize("program", [runs, counts_of_ways_out, steps_kept])
def test_ints_of_data_are_written_to_arrays(program: Callable[..., Any], dtype: Any) -> None:
    check(lambda x: program(x, dtype))


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_ints_of_data_are_compared_with_numbers_of_steps(dtype: Any) -> None:
    check(lambda x: steps_compared(x, dtype))


def check(fn: Callable[[Any], Any]) -> None:
    traced = hm.trace(fn)
    for seed in range(3):
        x = hm.asarray(np.random.default_rng(seed).random(N))
        assert_same(fn(x), traced(x))
    assert " loop(" in traced.ir
    assert traced.ir.count("\n  %") < 200


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64, np.int32, np.float16, np.complex64, bool])
def test_ints_of_elements_are_written_to_arrays(dtype: Any) -> None:
    def fn(x: Any) -> Any:
        out = np.zeros(N, dtype)
        for i in range(N):
            out[i] = int(x[i] * 9) + 2
        return out

    check(fn)


def counted_up(x: Any) -> Any:
    out, n = np.zeros(N, np.int32), (1 << 31) - 10
    for i in range(N):
        if x[i] > 0.5:
            n += 1
        out[i] = n
    return out


def scaled(x: Any) -> Any:
    out = np.zeros(N, np.uint8)
    for i in range(N):
        out[i] = int(x[i] * 300)
    return out


def below_zero(x: Any) -> Any:
    out = np.zeros(N, np.uint64)
    for i in range(N):
        out[i] = int(x[i] * -2)
    return out


@pytest.mark.parametrize("fn", [counted_up, scaled, below_zero])
def test_an_int_that_a_dtype_does_not_have_is_numpys_error(fn: Callable[[Any], Any]) -> None:
    traced = hm.trace(fn)
    few, many = hm.asarray(np.zeros(N)), hm.asarray(np.ones(N))
    for _ in range(2):
        assert_same(fn(few), traced(few))
        for call in (fn, traced):
            with pytest.raises(OverflowError):
                call(many)
    assert " loop(" in traced.ir


def largest(x: Any) -> Any:
    out = hm.zeros(N, dtype="float64")
    for i in range(N):
        e = 0.25
        for j in range(N):
            e = max(e, x[i, j] - x[j, i])
        out[i] = e
    return out


def relaxed(x: Any) -> Any:
    changes = hm.zeros(20, dtype="float64")
    for sweep in range(20):
        change = 0.0
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                new = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
                change = max(change, abs(new - x[i, j]))
                x[i, j] = new
        changes[sweep] = change
        if change < 0.02:
            break
    return x, changes, sweep


@pytest.mark.parametrize("fn", [largest, relaxed])
def test_a_number_goes_on_as_the_greatest_of_float64(fn: Callable[[Any], Any]) -> None:
    traced = hm.trace(fn)
    for seed in range(2):
        values = np.random.default_rng(seed).random((N, N)) * (0.3 if seed else 1.0)
        assert_same(fn(hm.asarray(values.copy())), traced(hm.asarray(values)))
    assert " loop(" in traced.ir
    assert traced.ir.count("\n  %") < 400


@pytest.mark.parametrize("steps", ["N", "i"])
@pytest.mark.parametrize("what", ["(y * e).sum()", "(y * (e + 1.0)).sum()", "e < y[1]"])
def test_a_number_that_stays_one_takes_the_dtype_of_others(steps: str, what: str) -> None:
    body = f"        for j in range({steps}):\n            e = max(e, x[i, j])\n        out[i] = {what}\n"
    start = "    out = hm.zeros(N, dtype='float64')\n    for i in range(N):\n        e = 0.1\n"
    space: dict[str, Any] = {"hm": hm, "N": 20}
    exec(f"def fn(x, y):\n{start}{body}    return out", space)
    values = np.random.default_rng(0).random((20, 20)) * 0.11 - 0.005
    values[::2] = 0.0
    given = hm.asarray(values), hm.asarray(np.full(3, 0.1, np.float32))
    np.testing.assert_allclose(
        hm.trace(space["fn"])(*given).numpy(), space["fn"](*given).numpy(), rtol=1e-14, atol=0
    )  # where the number has the other dtype, it differs by 1e-8


def test_the_advice_names_the_dtype_that_goes_on() -> None:
    def fn(x: Any) -> Any:
        e = hm.tensor(0.0)
        for i in range(N):
            e = max(e, x[i])
        return e + 1

    with pytest.raises(TraceError, match=r"e changes its type to that of a float64 tensor.*dtype=\"float64\""):
        hm.trace(fn, strict=True)(hm.asarray(-np.ones(N)))


def shares(x: hm.Tensor) -> Any:
    hits, width, out = 0, 1.0, np.zeros(20)
    for k in range(20):
        if x[k] > 0.5:
            hits += 1
        share = hits / (k + 1)
        out[k] = share + (k + 1) / (hits + 1) + hits // (k + 2) + hits % (k + 3)
        if share < 0.4:
            width *= 0.8
        elif share > 0.6:
            width *= 1.25
    return hits, width, out


def by_none(x: hm.Tensor) -> Any:
    hits, out = 0, np.zeros(20)
    for k in range(20):
        hits += x[k] > 0.5
        out[k] = hits / k if k > 0 else 0.0
        if x[k] > 0.5:
            hits += 1
    return hits, out


def test_quotients_of_counts_and_the_number_of_a_step() -> None:
    assert is_loop(both(shares, data(20)))
    both(by_none, data(20))
