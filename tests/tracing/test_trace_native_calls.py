"""Calls that are native as a whole: their results, and arguments that they update, with the stamps of the writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.run.native_call import TIMED_CALLS

CALLS = TIMED_CALLS + 4  # from then on they are native


def damped(x: Any, y: Any) -> None:
    x *= 0.5
    y += x


def counted(x: Any, t: float) -> Any:
    n, found = 0, False
    for i in range(x.shape[0]):
        if x[i] > t:
            n += 1
            found = True
            x[i] = t
    return x, n, found, None, "text"


def _native(fn: Callable[..., Any], *given: Any) -> Any:
    traced = hm.trace(fn)
    for _ in range(CALLS):
        traced(*[hm.tensor(a.copy()) if isinstance(a, np.ndarray) else a for a in given])
    assert type(traced._direct).__name__ == "builtin_function_or_method"
    return traced


def test_updates_are_those_of_eager_calls() -> None:
    traced = _native(damped, np.ones(20), np.ones(20))
    expected, found = ([hm.tensor(np.arange(20.0)), hm.tensor(np.ones(20))] for _ in range(2))
    for _ in range(3):
        assert damped(*expected) is None and traced(*found) is None
    for a, b in zip(expected, found, strict=True):
        assert a.tolist() == b.tolist() and b._version > 0


def test_results_have_their_types() -> None:
    traced = _native(counted, np.arange(30.0), 3.5)
    for t in (3.5, 40.0, -1.0):
        x = hm.tensor(np.arange(30.0))
        result = traced(x, t)
        assert result[0] is x
        expected = counted(hm.tensor(np.arange(30.0)), t)
        assert [*map(type, result)] == [*map(type, expected)] and result[1:] == expected[1:]
        assert x.tolist() == expected[0].tolist()


@pytest.mark.filterwarnings("ignore:.*shares memory")
@pytest.mark.parametrize("slices", [(slice(0, 20), slice(20, 40)), (slice(0, 20), slice(10, 30)), (slice(0, 20),) * 2])
def test_arguments_that_share_memory(slices: tuple[slice, slice]) -> None:
    traced = _native(damped, np.ones(20), np.ones(20))
    both = []
    for fn in (damped, traced):
        base = hm.tensor(np.arange(40.0))
        for _ in range(2):
            fn(base[slices[0]], base[slices[1]])
        both.append(base.tolist())
    assert both[0] == both[1]


@pytest.mark.filterwarnings("ignore:.*eagerly")
def test_the_same_tensor_twice_and_memory_that_is_read_only() -> None:
    traced = _native(damped, np.ones(20), np.ones(20))
    x, y = (hm.tensor(np.arange(20.0)) for _ in range(2))
    traced(x, x)
    damped(y, y)
    assert x.tolist() == y.tolist()
    array = np.arange(20.0)
    array.flags.writeable = False
    for fn in (damped, traced):
        with pytest.raises(ValueError):
            fn(hm.from_numpy(array), hm.ones(20, dtype="float64"))
    assert array.tolist() == [*map(float, range(20))]


def test_a_view_and_what_it_is_of_know_of_the_write() -> None:
    traced = _native(damped, np.ones(20), np.ones(20))
    base, y = hm.tensor(np.ones((2, 20)), requires_grad=False), hm.ones(20, dtype="float64")
    view = base[0]
    w = hm.ones((2, 20), dtype="float64", requires_grad=True)
    loss = (w * base).sum()
    traced(view, y)
    assert base[0].tolist() == [0.5] * 20
    with pytest.raises(hm.GradientError, match="overwritten in place after it was kept"):
        loss.backward()


@pytest.mark.parametrize("again", [False, True])
def test_the_line_of_the_write_is_the_callers(again: bool) -> None:
    traced = _native(damped, np.ones(20), np.ones(20))
    x, y = hm.ones(20, dtype="float64"), hm.ones(20, dtype="float64")
    if again:  # the code is known by then
        traced(hm.ones(20, dtype="float64"), y)
    w = hm.ones(20, dtype="float64", requires_grad=True)
    loss = (w * x).sum()
    traced(x, y)  # the line
    with pytest.raises(hm.GradientError) as caught:
        loss.backward()
    lines = str(caught.value).splitlines()
    assert "test_trace_native_calls.py" in lines[2] and lines[2].endswith("# the line")


def test_calls_keep_no_references() -> None:
    traced = _native(counted, np.arange(30.0), 3.5)
    updates = _native(damped, np.ones(20), np.ones(20))
    x, y = hm.tensor(np.arange(30.0)), hm.tensor(np.ones(20))
    z, text = hm.tensor(np.ones(20)), "text"
    things = (x, x._array, y, y._array, z, text)
    before = [sys.getrefcount(o) for o in things]
    for _ in range(200):
        traced(x, 3.5)
        updates(y, z)
    assert [sys.getrefcount(o) for o in things] == before
    for _ in range(200):  # stamps that are replaced
        updates(y, z)
    assert sys.getrefcount(y._version) <= 4


def test_a_function_that_another_thread_of_code_calls() -> None:
    """Each code that calls is the user's in turn."""
    traced = _native(damped, np.ones(20), np.ones(20))
    x, y = hm.ones(20, dtype="float64"), hm.ones(20, dtype="float64")

    def one() -> None:
        traced(x, y)

    def other() -> None:
        traced(x, y)

    stamps = []
    for _ in range(5):
        for call in (one, other):
            call()
            stamps.append(x._version)
    assert stamps == sorted(set(stamps))
    assert x.tolist() == [0.5**10] * 20


def _zeros(*shape: int) -> Any:
    return hm.zeros(shape, dtype="float64")


def _stores() -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function that updates a tensor which it captures, and the names that it finds."""
    space: dict[str, Any] = {"cache": _zeros(6, 4), "seen": _zeros(4)}

    def store(x: Any) -> Any:
        space["cache"][2] = x
        space["seen"] += x
        return space["seen"]

    return store, space


def test_captured_tensors_are_updated() -> None:
    store, space = _stores()
    traced = _native(store, np.ones(4))
    space["seen"].fill_(0.0)
    before = space["cache"]._version
    x = hm.tensor(np.arange(4.0))
    assert traced(x) is space["seen"] and space["cache"]._version > before
    assert space["cache"].tolist()[1:3] == [[0.0] * 4, x.tolist()] and space["seen"].tolist() == x.tolist()


@pytest.mark.filterwarnings("ignore:.*eagerly")
def test_memory_of_captured_tensors_is_looked_at_in_each_call() -> None:
    store, space = _stores()
    traced = _native(store, np.ones(4))
    space["seen"].fill_(1.0)
    assert traced(space["seen"]).tolist() == [2.0] * 4  # the argument is what the call updates
    assert space["cache"].tolist()[2] == [1.0] * 4
    traced(space["cache"][2])
    assert space["seen"].tolist() == [3.0] * 4
    space["seen"] = _zeros(4)
    assert traced(hm.ones((4,), dtype="float64")) is space["seen"] and space["seen"].tolist() == [1.0] * 4


def test_gradients_see_updates_of_captured_tensors() -> None:
    store, space = _stores()
    traced = _native(store, np.ones(4))
    w = hm.ones((6, 4), dtype="float64", requires_grad=True)
    loss = (w * space["cache"]).sum()
    traced(hm.ones((4,), dtype="float64"))
    with pytest.raises(hm.GradientError, match="overwritten in place after it was kept"):
        loss.backward()


def test_functions_without_arguments_update_what_they_capture() -> None:
    count = hm.zeros(())

    def counts() -> None:
        count.add_(1.0)

    traced = _native(counts)
    traced()
    assert count.item() == CALLS + 1
