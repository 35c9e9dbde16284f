"""Clocks that a traced function reads: its calls stay compiled, and each reads them itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import pytest

import hybridml as hm

CLOCKS = ["time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"]


class FakeClock:
    """A clock that moves by `step` at each reading, so that their order shows."""

    def __init__(self) -> None:
        self.count, self.step = 0.0, 1.0

    def __call__(self) -> float:
        self.count += self.step
        return self.count


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    from hybridml.tracing.python_state import clocks

    fake = FakeClock()
    monkeypatch.setattr(time, "time", fake)
    monkeypatch.setitem(clocks.CLOCKS, "time", fake)
    monkeypatch.setitem(clocks.PATCHES, "time", clocks._patch(fake))
    return fake


@pytest.mark.parametrize("name", CLOCKS)
def test_a_step_that_is_timed_stays_compiled(name: str) -> None:
    read: Callable[[], float] = getattr(time, name)
    lines = f"def f(x):\n    start = time.{name}()\n    y = hm.sin(x).sum()\n    return y, time.{name}() - start, start"
    space: dict[str, Any] = {"time": time, "hm": hm}
    exec(lines, space)
    f = hm.trace(space["f"])
    for _ in range(5):
        before = read()
        y, took, start = f(hm.ones((3,)))
        assert type(took) is type(start) is type(before) and before <= start <= start + took <= read()
        assert y.item() == pytest.approx(3 * 0.8414709848)
    assert (f.cache_info().compiles, f.cache_info().hits) == (1, 4)


def test_clocks_are_read_before_and_after_the_program(clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    @hm.trace
    def f(x: hm.Tensor) -> Any:
        start = time.time()
        y = x * 2
        took = time.time() - start
        seen.append(took)
        print("took", took, y[0].item())
        return {"rate": round(len(x) / took, 2), "half": -abs(took) / 2 + 1, "more": 10 - took % 4 // 1}

    for k in range(4):
        clock.count = 10.0 * k
        assert f(hm.ones((3,))) == {"rate": 3.0, "half": 0.5, "more": 9.0}
    assert seen == [1.0] * 4 and capsys.readouterr().out == "took 1.0 2.0\n" * 4
    assert (f.cache_info().compiles, f.cache_info().hits) == (1, 3)


def test_the_time_since_the_last_call(clock: FakeClock) -> None:
    class Meter:
        def __init__(self) -> None:
            self.last, self.rates = time.time(), [0.0]

        @hm.trace
        def step(self, x: hm.Tensor) -> hm.Tensor:
            y = x + 1
            now = time.time()
            self.rates.append(6 / (now - self.last))
            self.last = now
            return y

    clock.step = 0.0
    meter = Meter()
    for at in (3.0, 5.0, 8.0, 10.0):
        clock.count = at
        meter.step(hm.ones((3,)))
    assert meter.last == 10.0 and meter.rates == [0.0, 2.0, 3.0, 2.0, 3.0]
    assert Meter.step.cache_info().compiles == 1


def test_a_name_from_the_module() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> tuple[hm.Tensor, int]:
        start = perf_counter_ns()
        return x * 2, perf_counter_ns() - start

    for _ in range(4):
        assert f(hm.ones((3,)))[1] > 0
    assert (f.cache_info().compiles, f.cache_info().hits) == (1, 3)
    assert perf_counter_ns is time.perf_counter_ns


@pytest.mark.parametrize(
    "use", [lambda t, x: f"{t:.2f}", lambda t, x: x * t, lambda t, x: x if t > 0 else -x, lambda t, x: int(t)]
)
def test_what_needs_the_number_runs_eagerly(use: Callable[[float, hm.Tensor], Any]) -> None:
    @hm.trace
    def f(x: hm.Tensor) -> Any:
        return use(time.perf_counter() - time.perf_counter() + 1, x), x + 1

    with pytest.warns(UserWarning, match=r"f computes with the time \(test_trace_clocks.py:.*such calls run eagerly"):
        got = f(hm.ones((3,)))
    assert got[1].tolist() == [2, 2, 2] and type(f(hm.ones((3,)))[0]) is type(got[0])


def test_strict_names_the_clock() -> None:
    f = hm.trace(lambda x: (x, time.time()), strict=True)
    with pytest.raises(
        hm.TraceError, match=r"reads a clock \(test_trace_clocks.py:.*with strict=True that is an error"
    ):
        f(hm.ones((3,)))
