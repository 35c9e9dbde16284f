"""What a signal handler computes while a function is captured is no part of its program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

import hybridml as hm

SIGNAL = getattr(signal, "SIGUSR1", None)
pytestmark = pytest.mark.skipif(SIGNAL is None, reason="this system has no SIGUSR1")


@pytest.fixture
def handlers() -> Iterator[list[Any]]:
    seen: list[Any] = []
    state = hm.tensor([1.0, 2.0])

    def handle(number: int, frame: Any) -> None:
        state.mul_(2.0)
        seen.append((hm.exp(state) * 3 + hm.random.rand((2,))).tolist())

    before = signal.signal(SIGNAL, handle)
    yield [seen, handle, state]
    signal.signal(SIGNAL, before)


def test_work_of_a_handler(handlers: list[Any], trace: Any) -> None:
    seen, handle, state = handlers

    def program(x: hm.Tensor) -> hm.Tensor:
        y = x * 2
        if raising:
            signal.raise_signal(SIGNAL)
        return y + state

    raising = False
    plain = trace(program)
    plain(hm.ones((2,)))
    raising = True
    traced = trace(program)
    assert traced(hm.ones((2,))).tolist() == [4.0, 6.0] and state.tolist() == [2.0, 4.0]
    assert len(seen) == 1 and isinstance(seen[0][0], float)
    assert traced.ir == plain.ir  # nothing of the handler is in it
    assert signal.getsignal(SIGNAL) is handle


def test_handlers_that_raise_or_replace_themselves(handlers: list[Any]) -> None:
    def stop(number: int, frame: Any) -> None:
        raise InterruptedError("stop")

    def replace(number: int, frame: Any) -> None:
        signal.signal(SIGNAL, stop)

    def program(x: hm.Tensor) -> hm.Tensor:
        signal.raise_signal(SIGNAL)
        return x * 2

    signal.signal(SIGNAL, replace)
    assert hm.trace(program)(hm.ones((2,))).tolist() == [2.0, 2.0]
    assert signal.getsignal(SIGNAL) is stop
    with pytest.raises(InterruptedError):
        hm.trace(program)(hm.ones((2,)))
    assert signal.getsignal(SIGNAL) is stop and hm.exp(hm.zeros(())).item() == 1.0
