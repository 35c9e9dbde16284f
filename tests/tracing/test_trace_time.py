"""The time of a first call: what takes long is left to Python, and rounds of a loop are one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.capture import tracer
from hybridml.tracing.run import native_call
from hybridml.tracing.specialize import eager_calls, entry
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml.tracing.specialize.parts import Part, parts_of
from hybridml.tracing.specialize.path_tree import ValueBranch
from hybridml_compiler import pipeline, time_limit
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.schedule import plan
from hybridml_compiler.targets.cpu.runtime import jit


def step_by_step(x: hm.Tensor) -> hm.Tensor:
    seen = {3: 1.0}
    for i in range(200):
        x = x * seen.get(i, 0.5) + 1
        seen[i + 2] = 0.25
    return x


def first_below(x: hm.Tensor) -> int:
    for i in [*range(40)]:
        if (x[i] * 2).sum() < 0:
            return i
    return -1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time_limit, "clock", made)
    return made


@pytest.mark.parametrize("fn", [step_by_step, first_below])
def test_a_capture_that_takes_long_is_given_up(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", -1.0)
    x, traced = hm.ones((40, 3)), hm.trace(fn)
    with pytest.warns(TraceWarning, match="takes more than -1 s to compile") as found:
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(traced(x)), np.asarray(fn(x)))
    assert len(found) == 1 and traced.cache_info().compiles == 0


@pytest.mark.parametrize("stage", [(pipeline, "verify"), (plan, "make_plan")], ids=["passes", "kernels"])
def test_a_compilation_that_takes_long_is_given_up(
    stage: tuple[Any, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, state = getattr(*stage), hm.zeros(3)

    def slow(*args: Any, **more: Any) -> Any:
        clock.now += 10.0
        return usual(*args, **more)

    def fn(x: hm.Tensor) -> hm.Tensor:
        state.add_(1.0)
        return step_by_step(x) + state

    monkeypatch.setattr(*stage, slow)
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 4.0)
    traced = hm.trace(fn)
    with pytest.warns(TraceWarning, match="takes more than 4 s to compile"):
        found = traced(hm.ones(3))
    assert state.tolist() == [1.0] * 3
    np.testing.assert_array_equal(found.numpy(), step_by_step(hm.ones(3)).numpy() + 1)


def test_a_compilation_of_loops_that_are_kept_has_a_second_more(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, seconds = pipeline.verify, 4.5

    def slow(*args: Any, **more: Any) -> Any:
        clock.now += seconds
        return usual(*args, **more)

    def smoothed(x: hm.Tensor) -> hm.Tensor:
        y = 0.0
        for i in range(len(x)):
            y = 0.5 * y + x[i]
        return y

    monkeypatch.setattr(pipeline, "verify", slow)
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 4.0)
    x = hm.ones(40)
    traced = hm.trace(smoothed)
    assert traced(x).item() == pytest.approx(smoothed(x).item()) and traced.cache_info().compiles == 1
    seconds, traced, x = 5.5, hm.trace(smoothed), hm.ones(41)
    with pytest.warns(TraceWarning, match="more than 5 s to compile, with all of its loops.*Trace parts of it"):
        assert traced(x).item() == smoothed(x).item()
    assert traced.cache_info().compiles == 0 and clock.now < 30


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: hm.zeros(int((x > 0.5).sum())), "the value of an int at .*Instead, make an array"),
        (lambda x: sum(x[i] if x[i] > 0.5 else 0.0 for i in [*range(20)]), "bool.. at .*Instead, use hm.where"),
    ],
    ids=["size", "ways"],
)
def test_costly_programs_for_the_data_of_most_calls_are_told_of_once(
    fn: Callable[..., Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_calls, "COSTLY_SECONDS", 0.0)
    traced = hm.trace(fn)
    with pytest.warns(TraceWarning, match=f"is compiled for the data of most calls .{words}") as found:
        for seed in range(20):
            x = hm.asarray(np.random.default_rng(seed).random(20))
            np.testing.assert_allclose(np.asarray(traced(x)), np.asarray(fn(x)))
    assert len(found) == 1


@pytest.mark.parametrize("way", ["strict", "deterministic", "plain"])
def test_other_programs_take_the_time_that_they_take(way: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    fn = (lambda x: hm.sin(x) + 1) if way == "plain" else step_by_step
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", -1.0)
    if way == "deterministic":
        monkeypatch.setattr(entry, "is_deterministic", lambda: True)
    traced, x = hm.trace(fn, strict=way == "strict"), hm.ones(3)
    np.testing.assert_allclose(traced(x).numpy(), fn(x).numpy())
    assert traced.cache_info().compiles == 1


def test_a_capture_is_tried_again_when_eager_calls_have_taken_twice_as_long(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tracer.Tracer.emit

    def slow(*args: Any) -> Any:
        clock.now += 0.02  # 8 s for all
        return usual(*args)

    def eagerly(x: hm.Tensor) -> hm.Tensor:
        clock.now += 3.0
        return step_by_step(x)

    monkeypatch.setattr(tracer.Tracer, "emit", slow)
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 2.0)
    monkeypatch.setattr(eager_calls, "_IN_A_ROW", 2)
    x, traced, calls = hm.ones(3), hm.trace(step_by_step), 0
    with pytest.warns(TraceWarning, match="takes more than 2 s to compile.* until they have taken 8 s") as found:
        while not traced.cache_info().compiles:
            np.testing.assert_array_equal(traced(x).numpy(), step_by_step(x).numpy())
            traced._fn = eagerly
            calls += 1
            assert calls < 100
    eager = 3.0 * (calls - 2)
    assert len(found) == 1 and clock.now - eager <= eager + 2.0 + 0.1


@pytest.mark.parametrize("compiled", [0.1, 0.012, 0.0001])
def test_a_program_that_is_slower_than_eager_is_left(
    compiled: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    usual = hm.TracedFunction._compiled_call

    def timed(*args: Any) -> Any:
        calls.append("compiled")
        clock.now += compiled
        return usual(*args)

    def eagerly(x: hm.Tensor) -> hm.Tensor:
        calls.append("eager")
        clock.now += 0.01
        return step_by_step(x)

    monkeypatch.setattr(hm.TracedFunction, "_compiled_call", timed)
    x, traced = hm.ones(3), hm.trace(step_by_step)
    expected = traced(x).numpy()
    traced._fn = eagerly
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(20):
            np.testing.assert_array_equal(traced(x).numpy(), expected)
    said = [str(w.message) for w in found]
    if compiled == 0.1:
        assert len(said) == 1 and "step_by_step takes 100 ms compiled and 10 ms eagerly" in said[0]
        assert set(calls[-8:]) == {"eager"} and traced.cache_info().compiles == 1
    else:
        assert not said and "eager" not in calls[-2:] and calls.count("eager") == (4 if compiled == 0.012 else 0)


def test_a_wait_for_code_ends() -> None:
    job = jit._Job("name", jit.Source("", str))
    with time_limit.until(time_limit.clock()), pytest.raises(time_limit.TimeIsUp):
        job.result()


def test_calls_that_run_eagerly_are_known_by_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", -1.0)
    monkeypatch.setattr(eager_calls.Patience, "is_due", False)
    monkeypatch.setattr(eager_calls, "MANY_PROGRAMS", 9)
    traced, looked = hm.trace(lambda x, n: step_by_step(x) if n else x + 1), list[int]()
    holds = entry.Entry.holds
    monkeypatch.setattr(entry.Entry, "holds", lambda self, leaves: looked.append(1) or holds(self, leaves))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            traced(hm.ones(3), True)
    looked.clear()
    for _ in range(eager_calls._IN_A_ROW):
        traced(hm.ones(3), True)
    assert len(looked) <= 2  # one, after so many
    compiled = traced.cache_info().compiles
    for other in (hm.ones(3), False), (hm.ones(4), False), (hm.ones(3, dtype="float64"), False):
        assert traced(*other).tolist() == [2.0] * other[0].shape[0]
    assert traced.cache_info().compiles > compiled


def test_a_loop_whose_product_is_a_column_in_its_last_step() -> None:
    """Whether it is one decides how the compiler sees it, after the step."""

    def cholesky(a: hm.Tensor) -> hm.Tensor:
        low, n = hm.zeros_like(a), 40
        for j in range(n):
            low[j, j] = hm.sqrt(a[j, j] - (low[j, :j] ** 2).sum())
            if j + 1 < n:
                low[j + 1 :, j] = (a[j + 1 :, j] - low[j + 1 :, :j] @ low[j, :j]) / low[j, j]
        return low

    x = np.random.default_rng(0).random((40, 40))
    a = hm.asarray(x @ x.T + 40 * np.eye(40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on a slow machine it runs eagerly
        np.testing.assert_allclose(hm.trace(cholesky)(a).numpy(), cholesky(a).numpy(), rtol=1e-12)


# -- rounds of a loop


def segments(traced: Any) -> list[Any]:
    found, at = [], traced._last.root
    while isinstance(at, ValueBranch):
        found.append(at.segment)
        (at,) = at.next.values()
    return found


def test_rounds_that_read_other_rows_are_one_program() -> None:
    traced, x = hm.trace(first_below), hm.asarray(np.random.default_rng(0).random((40, 5)))
    assert traced(x) == -1
    found = [segment for segment in segments(traced) if segment is not None]
    assert len(found) == 40 and len({id(segment.executable) for segment in found}) == 1
    for at in (37, 3, 39):
        x[at] = -1.0
        for _ in range(3):
            assert traced(x) == first_below(x)
            assert traced(x[:, ::-1]) == first_below(x[:, ::-1])


def test_numbers_of_arrays_are_interpreted_and_compiled_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call would take the time of all compilations."""

    def positives(x: hm.Tensor) -> int:
        return sum(1 for i in range(20) if x[i] > 0)

    traced, x = hm.trace(positives), hm.asarray(np.random.default_rng(0).standard_normal(20))
    monkeypatch.setattr(native_call, "_BUILD_SECONDS", -1.0)
    assert [traced(x) for _ in range(4)] == [positives(x)] * 4
    assert not traced._last.fast.start.next
    monkeypatch.setattr(native_call, "_BUILD_SECONDS", 60.0)
    assert [traced(x) for _ in range(4)] == [positives(x)] * 4
    assert traced._last.fast.start.next
    y = hm.asarray(-np.asarray(x))
    assert [traced(y) for _ in range(4)] == [positives(y)] * 4


@pytest.mark.parametrize(
    ("starts", "stops", "steps", "shape", "first"),
    [
        ((2, 0, 0), (3, 3, 4), (1, 1, 1), (3, 4), 24),
        ((1, 0, 0), (4, 3, 4), (1, 1, 1), None, 12),
        ((1, 2, 1), (2, 3, 3), (1, 1, 1), (2,), 21),
        ((4, 2, 3), (5, 3, 4), (1, 1, 1), (), 59),
        ((0, 1, 0), (2, 2, 4), (1, 1, 1), None, None),
        ((0, 0, 0), (1, 1, 4), (1, 1, 2), None, None),
        ((0, 0, 1), (1, 2, 3), (1, 1, 1), None, None),
    ],
)
def test_parts_are_elements_in_a_row(starts: Any, stops: Any, steps: Any, shape: Any, first: int | None) -> None:
    x = ir.input_node(Aval((5, 3, 4), np.dtype("f8")), "x")
    node = make("slice", x, starts=starts, stops=stops, steps=steps)
    node = node if shape is None else make("reshape", node, shape=shape)
    found = parts_of(ir.topological([node]), lambda n: n is x).get(node)
    assert found == (None if first is None else Part(x, first, node.shape, node.aval.size))
    if found is not None:
        array = np.arange(60.0).reshape(5, 3, 4)
        np.testing.assert_array_equal(found.of(array), interpret(ir.Graph((x,), (node,)), [array])[0])
        assert np.shares_memory(found.of(array), array)


@pytest.fixture
def slow_captures(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock by which each operation takes 0.05 s to capture."""
    usual = tracer.Tracer.emit

    def slow(*args: Any) -> Any:
        clock.now += 0.05
        return usual(*args)

    monkeypatch.setattr(tracer.Tracer, "emit", slow)
    return clock


def test_new_ways_wait_for_eager_calls(slow_captures: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def ways(x: hm.Tensor) -> hm.Tensor:
        y = x * 1.0
        for k in range(6):
            y = y * 2.0 if x[k] > 0 else y + 1.0
        return y

    def given(k: int) -> hm.Tensor:
        return hm.asarray(np.where(k >> np.arange(6) & 1, 1.0, -1.0))

    def eagerly(x: hm.Tensor) -> hm.Tensor:
        clock.now += 0.1
        return ways(x)

    clock = slow_captures
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 2.0)
    traced = hm.trace(ways)
    with pytest.warns(
        TraceWarning, match="another program in most calls .*x\\[k\\] > 0.* is another than before"
    ) as found:
        for k in range(40):
            np.testing.assert_array_equal(traced(given(k)).numpy(), ways(given(k)).numpy())
    assert len(found) == 1
    known, before = traced.cache_info().compiles, clock.now
    assert 3 <= known < 20
    for k in (3, 41):
        np.testing.assert_array_equal(traced(given(k)).numpy(), ways(given(k)).numpy())
    assert clock.now == before and traced.cache_info().compiles == known
    traced._fn = eagerly
    calls = 0
    while traced.cache_info().compiles == known:
        traced(given(63 - calls % 20))
        calls += 1
        assert calls < 100
    assert calls > 3 and clock.now - before < 2 * 0.1 * calls + 2.0  # compiling takes no longer than eager calls


def test_new_sizes_wait_for_eager_calls(slow_captures: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(x: hm.Tensor) -> hm.Tensor:
        y = x * 1.0
        for k in range(x.shape[0]):
            y = y * float(seen.get(k, 2.0))
        return y

    seen = {3: 1.5}
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 1.0)
    traced = hm.trace(first, dynamic=False)
    with pytest.warns(TraceWarning, match="another program in most calls .*float32") as found:
        for n in range(2, 30):
            np.testing.assert_array_equal(traced(hm.ones(n)).numpy(), first(hm.ones(n)).numpy())
    assert len(found) == 1 and 3 <= traced.cache_info().compiles < 20


def test_calls_that_most_others_make_up_for_do_not_wait(slow_captures: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 0.01)
    traced = hm.trace(lambda x: x.flatten() * 2.0, dynamic=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has been traced 8 times")
        for k in range(10):
            for _ in range(6):
                traced(hm.ones((k, 3)))
    assert traced.cache_info().compiles == 10


def test_other_arguments_have_less_time_where_some_were_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 4.0)
    assert [eager_calls.Patience(n).seconds for n in (0, 1, 3, 9)] == [4.0, 2.0, 0.5, 0.25]


def test_a_program_that_is_given_up_while_it_is_compared(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its eager calls are no turns of the comparison, which had no compiled one."""

    def f(x: hm.Tensor) -> hm.Tensor:
        y = step_by_step(x)
        return y * 2.0 if x.sum() > 0 else y + 1.0

    monkeypatch.setattr(eager_calls, "MOST_SECONDS", 4.0)
    usual = tracer.Tracer.emit
    traced, x = hm.trace(f), hm.ones(3)
    traced(x)

    def slow(*args: Any) -> Any:
        clock.now += 1.0
        return usual(*args)

    monkeypatch.setattr(tracer.Tracer, "emit", slow)
    with pytest.warns(TraceWarning, match="takes more than"):
        for _ in range(8):
            np.testing.assert_array_equal(traced(-x).numpy(), f(-x).numpy())
