"""Functions that rebind tensors are compiled: each call finds, and leaves, what Python would."""

from __future__ import annotations

import math
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.tracing.function import TracedFunction

State = types.SimpleNamespace
Program = tuple[Callable[[hm.Tensor], Any], Callable[[], Any]]  # a step, and what gives its state


@pytest.fixture(autouse=True)
def nothing_runs_eagerly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def average() -> Program:
    state = State(mean=hm.zeros(()))

    def step(x: hm.Tensor) -> hm.Tensor:
        loss = (x * x).sum()
        state.mean = 0.9 * state.mean + 0.1 * loss
        return loss - state.mean

    return step, lambda: state.mean


def made_in_the_first_call() -> Program:
    state = State(h=None)

    def step(x: hm.Tensor) -> hm.Tensor:
        state.h = x if state.h is None else hm.tanh(state.h + x)
        return state.h * 2

    return step, lambda: state.h


def items() -> Program:
    shadow: dict[str, hm.Tensor] = {}
    weights = {"w": hm.ones(4), "b": hm.ones(())}

    def step(x: hm.Tensor) -> hm.Tensor:
        for name, w in weights.items():
            w += x.sum()
            if name not in shadow:
                shadow[name] = w.clone()
            else:
                shadow[name] = 0.5 * shadow[name] + 0.5 * w
        return x

    return step, lambda: (shadow, weights)


def in_a_list() -> Program:
    shadow: list[hm.Tensor] | None = None
    weights = [hm.ones(4), hm.ones(())]

    def step(x: hm.Tensor) -> Any:
        nonlocal shadow
        shadow = (
            list(weights) if shadow is None else [0.5 * s + x.mean() * w for s, w in zip(shadow, weights, strict=True)]
        )
        return sum(s.sum() for s in shadow)

    return step, lambda: shadow


def exchanged() -> Program:
    old, new = hm.ones(4), hm.zeros(4)

    def step(x: hm.Tensor) -> hm.Tensor:
        nonlocal old, new
        old, new = new, old + x
        return old * 2

    return step, lambda: (old, new)


def of_a_module() -> Program:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.h = hm.zeros(4)
            self.calls = 0

        def forward(self, x: hm.Tensor) -> hm.Tensor:
            self.h = hm.tanh(self.linear(hm.concat([x, self.h]))).detach()
            self.calls += 1
            return self.h

    cell = Cell()
    return cell, lambda: (cell.h, cell.calls)


def through_time() -> Program:
    state = State(h=hm.zeros(4))
    w = hm.ones(4, requires_grad=True)

    def step(x: hm.Tensor) -> hm.Tensor:
        state.h = hm.tanh(state.h * w + x)
        return state.h.sum()

    def end() -> Any:
        (grad,) = hm.autograd.grad(state.h.sum(), [w], retain_graph=True)
        return state.h, grad

    return step, end


def in_a_branch() -> Program:
    state = State(best=hm.full((), math.inf), kept=hm.zeros(4))

    def step(x: hm.Tensor) -> hm.Tensor:
        loss = x.sum()
        if loss < state.best:
            state.best, state.kept = loss, x
        return loss

    return step, lambda: (state.best, state.kept)


def updated_in_place_too() -> Program:
    state = State(v=hm.zeros(4), other=hm.zeros(4))

    def step(x: hm.Tensor) -> hm.Tensor:
        state.v.mul_(0.5)
        state.v = state.v + x
        state.other.add_(state.v)
        return state.other.sum()

    return step, lambda: (state.v, state.other)


def one_object_twice() -> Program:
    state = State(a=hm.ones(4))
    state.b = state.a

    def step(x: hm.Tensor) -> hm.Tensor:
        same = state.a is state.b
        state.a = state.a + x
        if same:
            state.b = state.a
        return state.b * 2

    return step, lambda: (state.a, state.b, state.a is state.b)


def by_a_property() -> Program:
    class Mean:
        def __init__(self) -> None:
            self.value, self.sets = hm.zeros(4), 0

        @property
        def mean(self) -> hm.Tensor:
            return self.value

        @mean.setter
        def mean(self, value: hm.Tensor) -> None:
            self.sets += 1
            self.value = value * 2

    state = Mean()

    def step(x: hm.Tensor) -> hm.Tensor:
        state.mean = state.mean * 0.25 + x
        return state.mean

    return step, lambda: (state.value, state.sets)


PROGRAMS = (
    average, made_in_the_first_call, items, in_a_list, exchanged, of_a_module, through_time, in_a_branch,
    updated_in_place_too, one_object_twice, by_a_property,
)  # fmt: skip


def run(program: Program, style: Callable[..., Any], calls: int = 7) -> list[Any]:
    step, state = program
    wrapped, found = style(step), []
    for k in range(calls):
        x = hm.tensor(np.random.default_rng(k).normal(size=4).astype("f4"))
        found.append((wrapped(x), state()))
    with hm.no_grad():
        return [np.array(leaf) for leaf in hm.tree_leaves(found)]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_state_is_that_of_python(make: Callable[[], Program]) -> None:
    traced: list[Any] = []

    def style(fn: Callable[..., Any]) -> Any:
        traced.append(hm.trace(fn))
        return traced[0]

    hm.manual_seed(0)
    wanted = run(make(), lambda fn: fn)
    hm.manual_seed(0)
    for mine, theirs in zip(run(make(), style), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
    info = traced[0].cache_info()
    assert info.hits >= 2 and info.compiles <= 5, info


def test_other_values_from_outside() -> None:
    """Calls take the value that is in the place, whoever has put it there, also one of another size, or None."""
    state = State(h=hm.zeros(4))

    @hm.trace
    def step(x: hm.Tensor) -> Any:
        state.h = x if state.h is None else state.h + x
        return state.h

    x = hm.ones(4)
    assert [step(x)[0].item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    state.h = hm.full((4,), 10.0)
    assert step(x).tolist() == [11.0] * 4
    state.h = None
    assert [step(x)[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    state.h = hm.ones((2, 1))
    assert step(x).shape == (2, 4)
    del state.h
    with pytest.raises(AttributeError, match="h"):
        step(x)


def test_an_error_leaves_what_was_there() -> None:
    state = State(h=hm.zeros(4))

    @hm.trace
    def step(x: hm.Tensor, i: hm.Tensor) -> hm.Tensor:
        state.h = state.h + x
        return x[i]

    x, there = hm.ones(4), hm.tensor(1)
    for _ in range(4):
        step(x, there)
    with pytest.raises(IndexError):
        step(x, hm.tensor(9))
    assert state.h.tolist() == [5.0] * 4  # as eager code leaves it: the assignment comes first
    step(x, there)
    assert state.h.tolist() == [6.0] * 4


def two_names(style: Callable[..., Any]) -> list[Any]:
    state = State(a=[hm.zeros(4)])
    state.b, state.grows = state.a, False

    def step(x: hm.Tensor) -> Any:
        if state.grows:
            state.b.append(x)
        total = sum(state.a)
        state.a = [t + x for t in state.a]
        return total

    wrapped, found = style(step), []
    for k in range(12):
        state.grows = k not in (0, 1, 2, 8)
        if k in (5, 6, 10):
            state.b = state.a
        if k == 11:
            state.a = state.b
        total = wrapped(hm.ones(4))
        found.append((total.tolist(), len(state.a), len(state.b)))
    return found


def test_a_list_with_two_names() -> None:
    """An item that is appended by one name of a list is seen by the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert two_names(hm.trace) == two_names(lambda fn: fn)


class Running:
    def __init__(self) -> None:
        self.mean = hm.zeros(4)

    def step(self, x: hm.Tensor) -> hm.Tensor:
        self.mean = self.mean * 0.5 + x
        return self.mean


def test_a_call_has_the_places_of_its_own_instance() -> None:
    """The tensors of other instances are no arguments of a call, and make no program of it obsolete."""
    step, x = hm.trace(Running.step), hm.ones(4)
    first, *others = [Running() for _ in range(6)]
    for each in (first, *others):
        for _ in range(3):
            step(each, x)
    compiles = step.cache_info().compiles
    for other in others:
        other.mean = hm.ones((2, 1))
        step(first, x)
    assert first.mean.tolist() == [2 - 2.0**-7] * 4
    assert step.cache_info().compiles == compiles == 2 * 6


def test_objects_that_are_others_in_each_call_are_not_traced_for_ever() -> None:
    step = TracedFunction(lambda each, _: Running.step(each, hm.ones(4)), most=4)
    one = Running()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            step(one, object())
    assert step.cache_info().compiles <= 8
    np.testing.assert_allclose(one.mean, 2 - 2.0**-19)


def test_calls_from_threads_find_no_stand_ins() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            one, step = Running(), hm.trace(Running.step)
            with ThreadPoolExecutor(3) as pool:
                for call in [pool.submit(step, one, hm.ones(4)) for _ in range(18)]:
                    call.result()
            assert type(one.mean) is hm.Tensor
    finally:
        sys.setswitchinterval(interval)


def test_it_is_said_in_the_retraces() -> None:
    step, _ = average()
    traced = hm.trace(step)
    for _ in range(3):
        traced(hm.ones(4))
    assert traced.retraces == ("step retraced: it rebinds mean: arguments from now on",)
    assert "mean" in traced.ir


def test_a_list_that_is_changed_runs_eagerly() -> None:
    """It is one object before and after; the eager call is right."""
    rows = [hm.zeros(4)]

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        rows[0] = rows[0] + x
        return rows[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [step(hm.ones(4))[0].item() for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_numbers_of_losses_stay_numbers() -> None:
    """`float(loss)`, and checks of it, by NumPy and by `math`."""
    losses: list[float] = []

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        loss = (x * x).sum()
        if np.isnan(loss.item()) or not math.isfinite(float(loss)):
            raise FloatingPointError("the loss is no number")
        losses.append(float(loss))
        return loss

    for k in range(12):
        step(hm.full((4,), float(k)))
    assert losses == [4.0 * k * k for k in range(12)] and all(type(loss) is float for loss in losses)
    assert step.cache_info().compiles == 1
    with pytest.raises(FloatingPointError):
        step(hm.full((4,), hm.nan))


def test_float_that_is_more_than_called_is_pythons() -> None:
    @hm.trace
    def step(x: hm.Tensor) -> Any:
        kind = float
        return kind(1), isinstance(float("2.5"), float), x * 2

    one, is_one, _ = step(hm.ones(2))
    assert one == 1.0 and is_one
