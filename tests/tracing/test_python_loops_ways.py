"""Steps of captured loops that may go many ways: several questions about data, `max` and `min` among numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same


def four_that_update(x: Any) -> Any:
    out = np.zeros(len(x))
    for i in range(1, len(x)):
        if x[i] > 0.0:
            out[i] += 1.5
        if x[i - 1] > 0.5:
            out[i] *= 3.0
        if x[i] * x[i - 1] > 0.1:
            out[i - 1] += out[i] * 0.1
        if x[i] < -0.5:
            out[i] -= 7.0
    return out


def six_that_assign(x: Any) -> Any:
    s = t = 0.0
    n = m = 0
    for i in range(len(x)):
        v = float(x[i])
        if v > 1.0:
            s += v
        if v > 0.5:
            n += 1
        if v > 0.0:
            t = s * 0.5
        else:
            t -= v
        if v < 0.2:
            m += 2
        if v < -0.5:
            s -= t
        if v < -1.0:
            n += 3
    return s, t, n, m


def a_chain(x: Any) -> Any:
    out = hm.zeros((len(x),), dtype="int64")
    for i in range(len(x)):
        v = x[i]
        if v < -1.5:
            out[i] = 1
        elif v < -1.0:
            out[i] = 2
        elif v < -0.5:
            out[i] = 3
        elif v < 0.0:
            out[i] = 4
        elif v < 0.3:
            out[i] = 5
        elif v < 0.6:
            out[i] = 6
        elif v < 0.9:
            out[i] = 7
        elif v < 1.2:
            out[i] = 8
        else:
            out[i] = 9
    return out


def alignment(x: Any) -> Any:
    h = np.zeros((len(x) + 1, len(x) + 1))
    for i in range(1, len(x) + 1):
        for j in range(1, len(x) + 1):
            s = 2.0 if x[i - 1] > x[j - 1] else -1.0
            h[i, j] = max(0.0, h[i - 1, j - 1] + s, h[i - 1, j] - 1.5, h[i, j - 1] - 1.5)
    return h


def alignment_of_a_tensor(x: Any) -> Any:
    h = hm.zeros((len(x) + 1, len(x) + 1), dtype="float64")
    for i in range(1, len(x) + 1):
        for j in range(1, len(x) + 1):
            h[i, j] = max(h[i - 1, j - 1] + x[i - 1] * x[j - 1], 0.0, h[i - 1, j] - 1.5, h[i, j - 1] - 1.5)
    return h


def floats_that_are_divided(x: Any) -> Any:
    out = np.ones(len(x))
    for i in range(1, len(x)):
        m = max(0.5, out[i - 1] - 1, out[i] * 0.7)
        out[i] = 1 / m + min(2.5, out[i - 1]) * 0.1
    return out


def floats_that_are_added(x: Any) -> Any:
    out = hm.zeros((len(x),), dtype="float64")
    for i in range(1, len(x)):
        m = min(0.5, x[i], out[i - 1])
        out[i] = m * x[i - 1] + x[i]
    return out


def place_of_the_largest(x: Any) -> Any:
    h = x.reshape(20, 20)
    best, bi, bj = 0.0, 0, 0
    for i in range(h.shape[0]):
        for j in range(h.shape[1]):
            if h[i, j] > best:
                best, bi, bj = float(h[i, j]), i, j
    return best, bi, bj


def place_of_the_largest_product(x: Any) -> Any:
    bi, bj, best = -1, -1, x[0] * x[0] - 10.0
    for i in range(len(x)):
        for j in range(i, len(x)):
            if x[i] * x[j] > best:
                best, bi, bj = x[i] * x[j], i, j
    return best, bi, bj


def of_normal(n: int) -> Callable[[int], hm.Tensor]:
    return lambda seed: hm.asarray(np.random.default_rng(seed).standard_normal(n))


PROGRAMS = [
    (four_that_update, 40), (six_that_assign, 60), (a_chain, 90), (alignment, 20), (alignment_of_a_tensor, 20),
    (floats_that_are_divided, 30), (floats_that_are_added, 30), (place_of_the_largest, 400),
    (place_of_the_largest_product, 20),
]  # fmt: skip


@pytest.mark.parametrize(("program", "n"), PROGRAMS, ids=lambda p: getattr(p, "__name__", str(p)))
def test_they_are_one_loop(program: Callable[[Any], Any], n: int) -> None:
    traced, make = hm.trace(program), of_normal(n)
    for seed in range(4):
        assert_same(program(make(seed)), traced(make(seed)))
    assert " loop(" in traced.ir and traced.cache_info().compiles == 1
    assert len(traced.ir.splitlines()) < 160  # no step by itself


def test_largest_of_floats_and_elements_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any) -> Any:
        h = np.zeros((len(x), 3))
        for i in range(1, len(x)):
            h[i, 2] = x[i]
            h[i, 0] = max(0.0, h[i - 1, 0] + 1.0, h[i - 1, 1] - 1.5, h[i, 2] * 2.0)
            h[i, 1] = min(h[i, 0], h[i - 1, 1] - 0.5, 2.0)
        return h

    asked, answer = [], hm.Tensor.__bool__
    traced, x = hm.trace(program), of_normal(20)(0)
    with monkeypatch.context() as patch:
        patch.setattr(hm.Tensor, "__bool__", lambda t: asked.append(t) or answer(t))
        found = traced(x)
    assert_same(program(x), found)
    assert not asked and " loop(" in traced.ir


def test_updates_of_one_element_are_one_after_the_other() -> None:
    traced = hm.trace(four_that_update)
    traced(of_normal(40)(0))
    body = traced.ir.split("graph four_that_update")[0]
    assert body.count("slice_update(") == 4  # not one for each of 16 ways


def of_ints(x: Any) -> Any:
    m = 1
    for i in range(len(x)):
        m = max(0, x[i])
    return m


def of_floats(x: Any) -> Any:
    m, found = 1.0, hm.zeros(len(x), dtype="float64")
    for i in range(len(x)):
        m = max(0.0, x[i])
        found[i] = m
    return m, found


def in_lists(x: Any) -> Any:
    found = []
    for i in range(len(x)):
        m = min(0.5, x[i])
        found.append(m)
    return found


@pytest.mark.parametrize("program", [of_ints, of_floats, in_lists], ids=lambda f: f.__name__)
def test_what_is_a_number_or_a_tensor_is_what_it_is_eagerly(program: Callable[[Any], Any]) -> None:
    traced = hm.trace(program)
    for x in (-hm.ones(20, dtype="float64"), hm.ones(20, dtype="float64"), of_normal(20)(0)):
        assert_same(program(x), traced(x))


def test_floats_that_no_float32_is() -> None:
    def program(x: Any) -> Any:
        found = hm.zeros(len(x), dtype="float64")
        for i in range(len(x)):
            found[i] = max(0.1, x[i])
        return found

    traced = hm.trace(program)
    for x in (of_normal(20)(0).astype("float32"), -hm.ones(20)):
        assert_same(program(x), traced(x))


def test_zero_that_divides() -> None:
    def program(x: Any) -> Any:
        found = np.zeros(len(x))
        for i in range(1, len(x)):
            found[i] = 1.0 / max(0.0, found[i - 1] - 1.0)
        return found

    for call in (program, hm.trace(program)):
        with pytest.raises(ZeroDivisionError):
            call(hm.ones(20))


def many(x: Any) -> Any:
    out = hm.zeros(len(x))
    for i in range(len(x)):
        for limit in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
            kind = "above" if x[i] > limit else "below"
            if kind == "above":
                out[i] += limit
    return out


def test_more_ways_than_a_step_may_go() -> None:
    x = of_normal(300)(0)
    with pytest.warns(TraceWarning, match=r"more than 64 ways .* 2\*\*n .*hm\.where.*hm\.maximum"):
        assert_same(many(x), hm.trace(many)(x))
