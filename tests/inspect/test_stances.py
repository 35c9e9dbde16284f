"""Stances: what traced functions run as, whatever they have compiled."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import hybridml as hm
from hybridml.core import context
from hybridml.tracing.run import native_call


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """A function whose calls have gone to the native entry for a while, and how often Python has run."""
    monkeypatch.setattr(native_call, "TIMED_CALLS", 1)
    runs: list[int] = []

    def f(x: hm.Tensor) -> hm.Tensor:
        runs.append(0)
        return x * 2

    traced = hm.trace(lambda x: count(x) * 2)

    def count(x: hm.Tensor) -> hm.Tensor:
        if not context.current_interpreter():
            runs.append(0)
        return x

    for _ in range(6):
        traced(hm.ones((3,)))
    assert traced._direct is not None and not runs
    return traced, runs


def test_eager_reaches_hot_calls(hot: tuple[Any, list[int]]) -> None:
    f, runs = hot
    x = hm.ones((3,))
    with hm.eager():
        assert f(x).tolist() == [2, 2, 2] and len(runs) == 1
        with hm.stance("default"):
            f(x)
        assert len(runs) == 1
        f(x)
        assert len(runs) == 2
    f(x)
    assert len(runs) == 2
    hm.eager()(f)(x)
    assert len(runs) == 3
    hm.stance("eager")(lambda: f(x))()
    assert len(runs) == 4


def test_a_stance_is_of_its_thread_and_task(hot: tuple[Any, list[int]]) -> None:
    f, runs = hot
    with hm.eager():
        thread = threading.Thread(target=lambda: f(hm.ones((3,))))
        thread.start()
        thread.join()
    assert not runs

    async def one() -> None:
        with hm.eager():
            await asyncio.sleep(0)
            f(hm.ones((3,)))

    async def other() -> None:
        await asyncio.sleep(0)
        f(hm.ones((3,)))

    async def both() -> None:
        await asyncio.gather(one(), other())

    asyncio.run(both())
    assert len(runs) == 1


def test_retraces() -> None:
    f = hm.trace(lambda x, n: x * n)
    x = hm.ones((3,))
    with hm.stance("fail_on_retrace"):
        f(x, 2)  # the first trace is none that is made again
        f(x, 2)
        with pytest.raises(hm.TraceError, match="argument n 2 -> 3"):
            f(x, 3)
        assert hm.functional.softmax(hm.ones((2, 7)), 1).shape == (2, 7)  # the library's own may
    with hm.stance("eager_on_retrace"):
        assert f(x, 3).tolist() == [3, 3, 3] and f(x, 2).tolist() == [2, 2, 2]
    assert f.cache_info().compiles == 1


def test_questions_with_other_answers() -> None:
    f = hm.trace(lambda x: x + 1 if x.sum() > 0 else x - 1)
    f(hm.ones((3,)))
    with hm.stance("fail_on_retrace"), pytest.raises(hm.TraceError, match="a value that it asks for"):
        f(-hm.ones((3,)))
    with hm.stance("eager_on_retrace"):
        assert f(-hm.ones((3,))).tolist() == [-2, -2, -2]
    assert f.cache_info().compiles == 1


def test_errors_leave_the_stance() -> None:
    with pytest.raises(ZeroDivisionError), hm.eager():
        _ = 1 / 0
    f = hm.trace(lambda x: x * 2)
    f(hm.ones((3,)))
    assert f.cache_info().compiles == 1
    with pytest.raises(hm.ArgumentError, match="eager_on_retrace"):
        hm.stance("lazy")
