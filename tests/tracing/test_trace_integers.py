"""Ints are inputs of a traced program from their second value on; what Python looks at is compiled for each value."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hybridml as hm

COUNT = 2


@pytest.fixture(autouse=True)
def as_it_was() -> Any:
    global COUNT
    before = COUNT
    yield
    COUNT = before


VALUES = (2, 3, 5, -4, 0, 1, 3, 1 << 20, 7, 7, 7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "int32", "int8", "bool"])
def test_arithmetic_is_that_of_a_python_int(trace: Any, dtype: str) -> None:
    def program(x: hm.Tensor, n: int) -> Any:
        return x * n + n, n * 2 - 1 + x, x + n * n, hm.where(x > 1, x, n), (x + n).dtype == x.dtype, -n * 0.5, n

    f, x = trace(program), hm.tensor([1.0, 2.0, 0.0]).astype(dtype)
    for n in VALUES:
        try:
            expected = program(x, n)
        except hm.errors.ArgumentError:  # does not fit
            with pytest.raises(hm.errors.ArgumentError):
                f(x, n)
            continue
        found = f(x, n)
        assert [type(v) for v in found] == [type(v) for v in expected]
        for a, b in zip(found, expected, strict=True):
            assert (str(a.dtype), a.tolist()) == (str(b.dtype), b.tolist()) if isinstance(a, hm.Tensor) else a == b


def test_two_programs_for_all_values(trace: Any) -> None:
    f, x = trace(lambda x, n: x * n + n / 4), hm.tensor([1.0, 2.0])
    for n in VALUES:
        assert f(x, n).tolist() == (x * n + n / 4).tolist()
    assert f.cache_info().compiles == 2 and f.retraces == ("<lambda> retraced: argument n 2 -> 3: now for any n",)
    assert f(x, 10**15).tolist() == (x * 10**15 + 10**15 / 4).tolist()


def test_variables_around_the_function(trace: Any) -> None:
    global COUNT
    width = 1
    f, x = trace(lambda x: x * COUNT + width), hm.tensor([1.0, 2.0])
    for k in range(8):
        COUNT, width = k, 3 * k
        assert f(x).tolist() == (x * COUNT + width).tolist()
    assert f.cache_info().compiles == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: sum([x] * n, x * n),
        lambda x, n: x[n] * n,
        lambda x, n: x[:n] * n,
        lambda x, n: hm.zeros((n + 1,)) + n,
        lambda x, n: x**n,
        lambda x, n: x * (n % 2) + n // 2,
        lambda x, n: x if n > 1 else -x,
        lambda x, n: x * {0: 1, 1: 5, 2: 7}[n],
        lambda x, n: x * len(f"{n:>{n + 1}}"),
        lambda x, n: x * float(json.dumps([n])[1:-1]),
        lambda x, n: x * np.arange(3)[n],
        lambda x, n: x * np.full(3, n),
        lambda x, n: np.ones(3, np.float32) * n * x,
        lambda x, n: x.reshape(n + 1, -1) if n != 1 else x,
        lambda x, n: x * (1 << n) - (n == 2) + max(n, 1) + abs(-n) + round(n),
        lambda x, n: x * n.bit_length() if isinstance(n, int) else None,
        lambda x, n: hm.random.uniform((n + 1,)).shape[0] * x,
    ],
)
def test_values_that_python_looks_at(trace: Any, program: Any) -> None:
    f, x = trace(program), hm.tensor([1.0, 2.0, 3.0])
    for _ in range(2):
        for n in (0, 1, 2, 1, 1, 1):
            try:
                expected = program(x, n)
            except Exception as error:
                with pytest.raises(type(error)):
                    f(x, n)
                continue
            assert f(x, n).tolist() == expected.tolist(), n


def test_division_by_zero_is_an_error(trace: Any) -> None:
    for program in (
        lambda x, n: x * (1 / n),
        lambda x, n: x + n / n,
        lambda x, n: x * (2.0 // n),
        lambda x, n: 2.5 % n,
    ):
        f, x = trace(program), hm.tensor([1.0, 2.0])
        for kind in (int, float):
            for n in map(kind, (2, 4, 0, 5, 0, 8)):
                try:
                    expected = program(x, n)
                except ZeroDivisionError as error:
                    with pytest.raises(ZeroDivisionError, match=str(error)):
                        f(x, n)
                    continue
                found = f(x, n)
                assert found == expected if isinstance(found, float) else found.tolist() == expected.tolist()
    f = trace(lambda x, v: x * (1 / (v - 1)))
    for v in (2.0, 3.0, 5.0):
        assert f(hm.tensor([4.0]), v).tolist() == [4.0 * (1 / (v - 1))]
    with pytest.raises(ZeroDivisionError):
        f(hm.tensor([4.0]), 1.0)
    assert f(hm.tensor([4.0]), 2.0).tolist() == [4.0]
    f = trace(lambda x, v: x / v)  # a tensor is divided by anything
    assert [f(hm.tensor([1.0]), v).item() for v in (2.0, 0.0)] == [0.5, float("inf")]
    assert f.cache_info().compiles == 1


def test_gradients(trace: Any) -> None:
    f, w = trace(lambda w, n: (w * w * n).sum()), hm.tensor([3.0], requires_grad=True)
    for n in (1, 2, 5, 6):
        w.grad = None
        f(w, n).backward()
        assert w.grad is not None and w.grad.tolist() == [6.0 * n]
    assert f.cache_info().compiles == 2


def test_errors_are_those_of_the_function(trace: Any) -> None:
    @trace
    def f(x: hm.Tensor, n: int) -> hm.Tensor:
        x += n
        if x.sum() > 10:
            raise ValueError("too large")
        return x * n

    for n in (1, 2, 3, 9, 4, 20, 1):
        x = hm.tensor([1.0])
        if n > 9:
            with pytest.raises(ValueError, match="too large"):
                f(x, n)
        elif n < 9:
            assert f(x, n).item() == (1 + n) * n
        assert x.item() == 1.0 + (n if n != 9 else 0)


def test_ints_in_containers_and_effects(trace: Any) -> None:
    seen: list[Any] = []

    @trace
    def f(x: hm.Tensor, options: dict[str, int]) -> hm.Tensor:
        seen.append(options["n"])
        return x * options["n"] + options["m"]

    for n in (1, 2, 3, 4):
        assert f(hm.tensor([2.0]), {"n": n, "m": 5}).item() == 2.0 * n + 5
    assert seen == [1, 2, 3, 4] and all(type(n) is int for n in seen)
