"""`hybridml.profile`: what it records, that its sums match, that it changes nothing. No assertion is on a time."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import dispatch, native_methods
from hybridml.core.tensor import Tensor
from hybridml.profiler import record
from hybridml.profiler.events import events_of
from hybridml.profiler.profile import Profile
from hybridml.profiler.record import _without
from hybridml.tracing.function import TracedFunction
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.executable import CpuExecutable
from hybridml_compiler.targets.cpu.runtime.spans import clock
from tests.support.markup import balanced

timed = pytest.mark.skipif(clock() is None, reason="a system without clock_gettime")
W = hm.asarray(np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32))
X = hm.asarray(np.random.default_rng(1).standard_normal((32, 64), dtype=np.float32))


def network(x: hm.Tensor) -> hm.Tensor:
    h = hm.tanh(x @ W)  # the first line
    return (h * 2.0).sum(axis=0)  # the second line


def make_step() -> Callable[[hm.Tensor], hm.Tensor]:
    hm.manual_seed(0)
    model = hm.nn.Sequential(hm.nn.Linear(64, 32), hm.nn.ReLU(), hm.nn.Linear(32, 4))
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def names(found: Profile, kind: str) -> list[str]:
    return [event.name for event in found.events if event.kind == kind]


def test_eager_operations_with_bytes_flops_and_lines() -> None:
    found = hm.profile(network, X)
    assert names(found, "operation") == ["matmul", "tanh", "multiply", "sum"]
    rows = {row.name: row for row in found.operations}
    assert rows["matmul"].flops == 2 * 32 * 64 * 64
    assert rows["matmul"].bytes == X.nbytes + W.nbytes + 32 * 64 * 4
    assert rows["tanh"].flops == 32 * 64
    first, second = (next(row for row in found.lines if text in row.name) for text in ("the first", "the second"))
    assert (first.count, second.count) == (2, 2)


def test_native_calls_step_aside() -> None:
    native_methods.install()
    x = hm.ones((3,))
    found = hm.profile(lambda: (x + x, hm.multiply(x, 2.0), hm.tanh(x), np.subtract(x, 1.0), x[0] * x[1]))
    assert names(found, "operation")[:4] == ["add", "multiply", "tanh", "subtract"]
    assert names(found, "operation").count("multiply") == 2


@timed
def test_launches_of_a_traced_function() -> None:
    traced = hm.trace(network)
    for _ in range(3):  # compiled, long way, native entry
        traced(X)
    launches = traced._shown().program.executable.launches if hasattr(traced._shown(), "program") else None
    with hm.profile() as found:
        for _ in range(5):
            traced(X)
    assert names(found, "call") == ["network"] * 5
    ran = names(found, "launch")
    assert ran and len(ran) % 5 == 0
    assert launches is None or len(ran) == 5 * len(launches)
    assert sum(row.flops for row in found.operations) == 5 * sum(row.flops for row in hm.profile(network, X).operations)
    assert any("the first line" in row.name for row in found.lines)
    assert all(event.inside is not None and event.inside.kind == "call" for event in found.events
               if event.kind == "launch")  # fmt: skip


@timed
def test_a_loop_counts_for_the_lines_of_its_body() -> None:
    @hm.trace
    def recurrent(x: hm.Tensor) -> hm.Tensor:
        def body(c: hm.Tensor, t: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
            c = hm.tanh(c @ W + t)  # the line of the body
            return c, c

        return hm.scan(body, hm.zeros((8, 64), dtype=hm.float32), x)[1].sum()

    x = hm.asarray(np.ones((12, 8, 64), np.float32))
    for _ in range(3):
        recurrent(x)
    found = hm.profile(recurrent, x)
    row = next(row for row in found.lines if "the line of the body" in row.name)
    assert row.flops >= 12 * 2 * 8 * 64 * 64
    assert "" not in {row.name for row in found.lines}


def test_a_call_that_compiles_is_one() -> None:
    found = hm.profile(hm.trace(network), X)
    assert names(found, "compile") == ["network"]
    assert names(found, "operation") == []  # what is captured does not run


def test_sums_match() -> None:
    step = make_step()
    traced = hm.trace(step)
    with hm.profile() as found:
        for _ in range(3):
            step(X)
            traced(X)
    own = sum(row.self_ms for row in found.operations)
    outermost = sum(e.total_ns for e in found.events if e.inside is None and e.kind != "part") / 1e6
    assert own == pytest.approx(outermost)
    assert own == pytest.approx(sum(row.self_ms for row in found.lines))
    assert sum(row.total_ms for row in found.lines) >= own - 1e-6
    for what in ("bytes", "flops"):
        by_name, by_line = (sum(getattr(row, what) for row in rows) for rows in (found.operations, found.lines))
        assert by_name == pytest.approx(by_line)
    assert 0 < own <= found.wall_ms
    assert found.lost == 0


def test_watching_what_is_inside_is_no_time_of_the_outer_call() -> None:
    """A call of 100 ns with one of 30 inside, whose hook took 50 more to find its line and to count bytes."""
    recording = record.Recording()
    place = ("", 0)
    recording.calls = [
        record.Call("inner", "operation", 1, 20, 50, place, 0, 0, watching=50),
        record.Call("outer", "call", 1, 0, 100, place, 0, 0, watching=40),
    ]
    found = {event.name: (event.self_ns, event.total_ns) for event in events_of(recording)}
    assert found == {"outer": (20, 50), "inner": (30, 30)}


def test_hooks_say_how_long_they_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that ticks whenever it is read, there is watching beside every call, and outer calls keep ticks."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(record, "_now", lambda: next(ticks))
    with hm.profile() as profile:
        hm.functional.softmax(hm.exp(hm.ones((4, 5))), -1)
    watched = [event for event in profile.events if event.kind in ("operation", "call", "compile", "program")]
    assert watched and all(event.watching > 0 and event.self_ns >= 0 for event in watched)


def test_results_are_the_same_bits() -> None:
    plain = [make_step(), hm.trace(make_step())]
    watched = [make_step(), hm.trace(make_step())]
    for step, same in zip(plain, watched, strict=True):
        expected = [step(X).numpy() for _ in range(6)]
        got = [same(X).numpy() for _ in range(2)]
        with hm.profile():
            got += [same(X).numpy() for _ in range(2)]
        got += [same(X).numpy() for _ in range(2)]
        assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]


def test_nothing_is_left_of_it() -> None:
    watched: list[Any] = [op.fn for op in OPS.values()]
    watched += [f for f in vars(Tensor).values() if hasattr(f, "__code__")]
    watched += [dispatch.slow, TracedFunction.__call__, CpuExecutable.run]
    traced = hm.trace(network)
    traced(X)
    network(X)  # whatever is written at a first call is there now
    codes = [f.__code__ for f in watched]
    with hm.profile() as found:
        assert OPS["tanh"].fn.__code__ not in codes
        traced(X)
        traced(X)
    assert [f.__code__ for f in watched] == codes
    before = len(found.events)
    traced(X)
    network(X)
    assert len(found.events) == before
    assert all(e.step == t.plain for e, t in _timed())


def _timed() -> Any:
    from hybridml.profiler.record import _timed as known

    return list(known.items())


def test_a_clock_that_stands_still_in_breaks() -> None:
    shown = _without([(10, 20), (15, 25), (40, 50)])
    assert [shown(t) for t in (0, 10, 12, 25, 26, 40, 45, 50, 60)] == [0, 10, 10, 10, 11, 25, 25, 25, 35]
    assert _without([])(7) == 7


@pytest.mark.usefixtures("small_heap")
@timed
def test_a_profile_keeps_no_program() -> None:
    traced = hm.trace(network)
    traced(X)
    hm.profile(traced, X)
    known = len(_timed())
    del traced
    gc.collect()
    assert len(_timed()) < known


def test_an_error_ends_it() -> None:
    with pytest.raises(hm.ShapeError, match="matmul"), hm.profile() as found:
        hm.matmul(hm.ones((2, 3)), hm.ones((2, 3)))
    assert names(found, "operation") == ["full", "full"]
    with hm.profile():
        hm.ones((2,))


def test_misuse_says_what_to_do() -> None:
    with hm.profile() as found:
        with pytest.raises(hm.ArgumentError, match="another profile is on"), hm.profile():
            pass
        with pytest.raises(hm.ArgumentError, match="is still on"):
            _ = found.events
        assert repr(found) == "<profile: on>"
    with pytest.raises(hm.ArgumentError, match="make another"), found:
        pass
    with pytest.raises(hm.ArgumentError, match="takes a function, got int"):
        hm.profile(3)  # type: ignore[arg-type]
    assert "with" in hm.profile()._repr_html_()


def test_every_thread_has_its_operations() -> None:
    together = threading.Barrier(3)  # a thread that has ended gives its number to the next

    def work() -> None:
        together.wait()
        for _ in range(20):
            hm.exp(X)
        together.wait()

    threads = [threading.Thread(target=work, name=f"worker-{k}") for k in range(3)]
    with hm.profile() as found:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert names(found, "operation").count("exp") == 60
    assert len({event.thread for event in found.events}) == 3


@timed
def test_threads_prepare_a_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Slow(record.Timed):
        def __init__(self, executable: Any) -> None:
            time.sleep(0.1)
            super().__init__(executable)
            made.append(self)

    monkeypatch.setattr(record, "Timed", Slow)
    function = hm.trace(lambda x: x * 2 + 1)
    function(X)
    (executable,) = record.programs(function)
    assert isinstance(executable, CpuExecutable)
    plain, recording = executable.step, record.Recording()
    threads = [threading.Thread(target=recording._prepare, args=([executable],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and executable.step == made[0].step
    record.use({executable: made[0]}, False)
    assert executable.step == plain


def test_a_result_and_gradients() -> None:
    w = hm.tensor(np.ones((64, 8), np.float32), requires_grad=True)

    def loss() -> hm.Tensor:
        out = hm.functional.softmax(X @ w).sum()
        out.backward()
        return out

    found = hm.profile(loss)
    assert found.result.shape == ()
    assert w.grad is not None
    assert any("out.backward()" in row.name and row.count for row in found.lines)


def trace_of(found: Profile, path: Path) -> dict[str, Any]:
    found.save(path)
    made = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(made, dict)
    return made


def test_the_trace_is_one_that_perfetto_reads(tmp_path: Path) -> None:
    traced = hm.trace(network)
    traced(X)
    with hm.profile() as found:
        network(X)
        traced(X)
    made = trace_of(found, tmp_path / "trace.json")
    events = made["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= 0
    kinds = {event["cat"] for event in events if event["ph"] == "X"}
    assert {"operation", "call"} <= kinds
    rows = {event["tid"] for event in events if event["ph"] == "X"}
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert rows <= named
    assert [event["ts"] for event in events if event["ph"] == "C"] == sorted(
        event["ts"] for event in events if event["ph"] == "C"
    )


def test_tables(deterministic: None) -> None:  # a process with 64 programs of `linear` runs its operations
    found = hm.profile(make_step(), X)
    text = str(found)
    for word in ("profile:", "by operation and kernel", "by line", "memory:", "loss.backward()", "linear"):
        assert word in text
    balanced(found._repr_html_())
    assert "<svg" in found._repr_html_()
    assert "launches" in str(hm.profile(hm.trace(make_step()), X)) or clock() is None


def test_an_empty_profile() -> None:
    with hm.profile() as found:
        pass
    assert (found.events, found.operations, found.lines, found.memory.peak) == ([], [], [], 0)
    balanced(found._repr_html_())
    assert "profile:" in str(found)


# -- memory


def test_eager_memory_by_line() -> None:
    def chain(x: hm.Tensor) -> hm.Tensor:
        a = x + 1  # made here
        b = a * 2  # and here
        return b - a

    x = hm.zeros((1000,), dtype=hm.float32)
    memory = hm.memory_timeline(chain, x)
    assert memory.peak == 3 * 4000
    lines = {line.rsplit("# ", 1)[-1]: nbytes for line, nbytes in memory.at_peak.items()}
    assert lines["made here"] == 4000
    assert sum(memory.at_peak.values()) == memory.peak
    assert "memory, KiB" in str(memory) and "3.91  " in str(memory)


def test_views_have_no_memory_of_their_own() -> None:
    x = hm.zeros((1000,))
    assert hm.memory_timeline(lambda: x[10:20].reshape((2, 5))).peak == 0


@timed
def test_memory_of_a_traced_function_is_that_of_its_plan() -> None:
    def products(x: hm.Tensor) -> hm.Tensor:
        a = hm.tanh(x @ W)
        return hm.exp(a @ W) @ W

    traced = hm.trace(products)
    for _ in range(3):
        traced(X)
    memory = hm.memory_timeline(traced, X)
    made = [block for block in memory.blocks if block.kind == "traced"]
    assert made
    assert all("tanh" in block.where or "exp" in block.where for block in made)
    assert 0 < memory.peak <= memory.arenas + 2 * X.nbytes
    balanced(memory._repr_html_())
