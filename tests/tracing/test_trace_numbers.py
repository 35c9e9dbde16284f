"""Floats around a traced function are inputs of its program: another value is no other program."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

import hybridml as hm

SCALE = 2.0
POWER = 2.0
BOUND = 1.0
COUNT = 3


@pytest.fixture(autouse=True)
def as_they_were() -> Any:
    before = (SCALE, POWER, BOUND, COUNT)
    yield
    globals().update(zip(("SCALE", "POWER", "BOUND", "COUNT"), before, strict=True))


def put(name: str, value: Any) -> None:
    globals()[name] = value


def test_a_global_float_rebound(trace: Any) -> None:
    f, x = trace(lambda x: x * SCALE + SCALE / 3), hm.tensor([1.0, 2.0])
    for value in (2.0, 5.0, -0.0, 1e-30, 7.0, 7.0, 8.0):
        for _ in range(3):
            put("SCALE", value)
            assert f(x).tolist() == (x * value + value / 3).tolist()
    assert f.cache_info().compiles == 1
    put("SCALE", 3)  # another type is another program
    assert f(x).tolist() == (x * 3 + 3 / 3).tolist() and f.cache_info().compiles == 2
    put("SCALE", 4.0)
    assert f(x).tolist() == (x * 4.0 + 4.0 / 3).tolist() and f.cache_info().compiles == 2


def test_a_float_in_a_closure(trace: Any) -> None:
    rate = 0.5

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        return sum([x * rate * k for k in range(3)], x)

    x = hm.tensor([1.0, 2.0])
    for rate in (0.5, 0.25, 2.0, 3.0, 4.0):
        assert f(x).tolist() == (x * (1 + 3 * rate)).tolist()
    assert f.cache_info().compiles == 1


def test_gradients_see_the_number_of_their_call(trace: Any) -> None:
    w = hm.tensor([1.0], requires_grad=True)
    f = trace(lambda x: (w * x * SCALE).sum())
    for _ in range(3):
        put("SCALE", 3.0)
        first = f(hm.tensor([1.0]))
        put("SCALE", 5.0)
        second = f(hm.tensor([1.0]))
        for y, expected in ((first, 3.0), (second, 5.0)):
            w.grad = None
            y.backward()
            assert w.grad.item() == expected
    assert f.cache_info().compiles == 1


def test_numbers_that_steer_are_guarded(trace: Any) -> None:
    f = trace(lambda x: x * BOUND if BOUND > 0.5 else x**POWER)
    x = hm.tensor([3.0])
    for bound, power, expected in [(1.0, 2.0, 3), (0.0, 2.0, 9), (1.0, 3.0, 3), (0.0, 3.0, 27), (2.0, 3.0, 6)]:
        put("BOUND", bound)
        put("POWER", power)
        assert f(x).item() == expected
    f = trace(lambda x: [x] * int(BOUND))
    for bound in (1.0, 2.0, 1.0):
        put("BOUND", bound)
        assert len(f(x)) == bound
    assert f.cache_info().compiles == 2


def helper(x: hm.Tensor) -> hm.Tensor:
    return x * SCALE


def test_numbers_that_helpers_read(trace: Any) -> None:
    f, x = trace(lambda x: helper(x) + SCALE), hm.tensor([1.0])
    through = trace(lambda x: twice(x))
    for value in (2.0, 3.0, 2.0, 4.0):
        put("SCALE", value)
        assert f(x).item() == 2 * value and through(x).item() == value**2
    assert f.cache_info().compiles == 1 and through.cache_info().compiles == 1
    assert helper(x).item() == 4.0


def twice(x: hm.Tensor) -> hm.Tensor:
    return helper(helper(x))


class Registry:
    functions = (helper,)

    def __call__(self, x: hm.Tensor) -> hm.Tensor:
        return helper(x)


registry = Registry()


@pytest.mark.parametrize("style", ["container", "method", "default", "partial", "identity"])
def test_numbers_whose_readers_are_reached_in_other_ways_are_guarded(trace: Any, style: str) -> None:
    partial = functools.partial(helper)

    def default(x: hm.Tensor, act: Any = helper) -> hm.Tensor:
        return act(x) + helper(x) * 0

    programs: dict[str, Any] = {
        "container": lambda x: Registry.functions[0](x) + helper(x) * 0,
        "method": lambda x: registry(x),
        "default": lambda x: default(x),
        "partial": lambda x: partial(x) + helper(x) * 0,
        "identity": lambda x: helper(x) if Registry.functions[0] is helper else x,
    }
    f, x = trace(programs[style]), hm.tensor([1.0])
    for value in (2.0, 3.0, 2.0, 4.0):
        put("SCALE", value)
        assert f(x).item() == value


def test_a_function_that_assigns_variables_is_not_copied(trace: Any) -> None:
    def program(x: hm.Tensor) -> hm.Tensor:
        global COUNT
        COUNT = 7
        return x * SCALE

    f, x = trace(program), hm.tensor([1.0])
    for value in (2.0, 3.0, 2.0):
        put("SCALE", value)
        put("COUNT", 0)
        assert f(x).item() == value and COUNT == 7


@hm.trace
def power(x: hm.Tensor, n: int) -> hm.Tensor:
    return x if n == 0 else power(x, n - 1) * SCALE


def test_recursion() -> None:
    for value in (2.0, 3.0, 0.5):
        put("SCALE", value)
        assert power(hm.tensor([1.0]), 4).item() == value**4
    assert power.cache_info().compiles == 1


def test_functions_that_assign_what_they_read(trace: Any) -> None:
    def bump() -> None:
        put("SCALE", SCALE + 1)

    def program(x: hm.Tensor) -> Any:
        global BOUND
        before = x * BOUND
        BOUND = BOUND + 1.0
        return before, x * BOUND

    def results(style: Any) -> Any:
        put("BOUND", 1.0)
        f = style(program)
        return [[t.item() for t in f(hm.tensor([1.0]))] for _ in range(4)]

    assert results(trace) == results(lambda fn: fn)
    bump()
    assert SCALE == 3.0


def test_other_threads_see_the_number_itself(trace: Any) -> None:
    entered, left, seen = threading.Event(), threading.Event(), []

    def program(x: hm.Tensor) -> hm.Tensor:
        y = x * SCALE
        entered.set()
        left.wait(10)
        return y

    def look() -> None:
        entered.wait(10)
        seen.append(SCALE)
        left.set()

    thread = threading.Thread(target=look)
    thread.start()
    assert trace(program)(hm.tensor([1.0])).item() == 2.0
    thread.join()
    assert seen == [2.0] and type(seen[0]) is float


@pytest.mark.parametrize("number", [np.float32(0.1), np.uint8(200), np.int32(2**31 - 1), np.int64(7), np.float64(0.1)])
def test_numbers_of_numpy_compute_as_they_do(number: Any, trace: Any) -> None:
    def program(x: hm.Tensor, n: Any) -> Any:
        return x * (n * 3 + n), n + n

    x = hm.tensor([1.0, 0.3])
    with np.errstate(over="ignore"):
        expected, given = program(x, number)
        f = trace(program)
        for _ in range(3):
            found, own = f(x, number)
            assert found.tolist() == expected.tolist() and own == given
    assert f.cache_info().compiles == 1


def test_another_number_of_numpy_is_named(trace: Any) -> None:
    f = trace(lambda x, n: x * n)
    assert f(hm.tensor([1.0]), np.float32(2)).item() == 2 and f(hm.tensor([1.0]), np.float32(3)).item() == 3
    assert "argument n np.float32(2.0) -> np.float32(3.0)" in f.retraces[0]


def test_a_tensor_of_numpys_float64_is_float64(trace: Any) -> None:
    def made(x: hm.Tensor, s: float) -> Any:
        return x * s, hm.asarray(s), hm.asarray(s * 2)

    f, x = trace(made), hm.tensor([1.0])
    for s in (np.float64(2.0), np.float64(3.0), 2.0, np.float64(0.5), 0.5, 0.5):
        assert [(t.dtype, t.tolist()) for t in f(x, s)] == [(t.dtype, t.tolist()) for t in made(x, s)]
    assert f.cache_info().compiles == 2
