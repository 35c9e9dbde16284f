"""`hybridml.explain_speed`: parts that add up, factors of programs made for one each, nothing left behind. No assertion
is on a time: clocks are lists of numbers here."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.inspect.side_by_side import Run
from hybridml.profiler.events import events_of
from hybridml.profiler.record import Recording
from hybridml.profiler.speed import factors, parts, report, rules
from hybridml.profiler.speed import machine as machines
from hybridml.profiler.speed.launches import PRODUCTS, Ran, kind_of, ran
from hybridml.profiler.speed.machine import Machine
from hybridml.profiler.speed.measure import Style, fast
from hybridml.profiler.speed.parts import Block, Operation, Operations, Part, parts_of
from hybridml.profiler.speed.report import Factor, Speed, Spent, Stage
from hybridml.tracing.function import TracedFunction
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.runtime.spans import Span
from tests.support.markup import accessible, whole_page

HERE = Machine(2, gflops=100.0, gbs=10.0, operation_ms=0.001, again_ms=0.002, call_ms=0.002, fault_ms=0.0005)
MS = 1_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring the machine takes a second, and says nothing here."""
    monkeypatch.setattr(machines, "_measured", lambda threads: replace(HERE, threads=threads))


def by_name(found: tuple[Part, ...]) -> dict[str, float]:
    return {part.name: pytest.approx(part.ms) for part in found}


# ---- parts


def test_parts_of_a_traced_call() -> None:
    """Two calls of 10 ms: 1 ms before the first launch, 1 between them, 2 behind the last; half of one is waiting."""
    launches = []
    for start in (0, 10 * MS):
        launches.append(Ran("elementwise", 1, start + MS, start + 3 * MS, MS, 2e6, 0.0))
        launches.append(Ran("matrix products", 1, start + 4 * MS, start + 8 * MS, 4 * MS, 1e6, 8e8))
    found = parts_of(Block([0, 10 * MS], 20 * MS, launches, 400), Operations(), HERE, 9.9, True)
    fresh = 200 * HERE.fault_ms
    assert by_name(found) == {
        parts.BEFORE: 1.0,
        parts.BETWEEN: 1.0,
        parts.AFTER: 2.0,
        "matrix products": 4.0 * (1 - fresh / 5),
        "elementwise": 1.0 * (1 - fresh / 5),
        parts.WAITING: 1.0,
        parts.ALLOCATION: fresh,
        parts.UNATTRIBUTED: -0.1,
    }
    products = next(part for part in found if part.name == "matrix products")
    assert (products.count, products.bytes, products.flops) == (1, 1e6, 8e8)
    assert products.memory_ms == pytest.approx(0.1)  # a megabyte at 10 GB/s
    assert next(part for part in found if part.name == "elementwise").memory_ms == pytest.approx(0.2)


def test_parts_of_an_eager_call() -> None:
    """10 ms with a launch of 2: an operation of 3 ms less what one on a single number takes, the rest Python."""
    seen = Operations([Operation("elementwise", 3.0, 8, 4), Operation("copies", 0.003, 8, 0)], calls=5)
    found = parts_of(
        Block([0], 10 * MS, [Ran("convolutions", 1, MS, 3 * MS, 2 * MS, 8, 8)], 0), seen, HERE, 10.0, False
    )
    own, dispatch, calls = 3.0 - HERE.again_ms, 2 * HERE.operation_ms, 5 * HERE.call_ms
    assert by_name(found) == {
        parts.PYTHON: 8.0 - own - dispatch - calls,
        parts.DISPATCH: dispatch,
        parts.CALLS: calls,
        "convolutions": 2.0,
        "elementwise": own,  # the copy is not clear of one on a single number
        parts.UNATTRIBUTED: 0.0,
    }


def test_operations_are_no_longer_than_what_is_left() -> None:
    seen = Operations([Operation("elementwise", 30.0, 8, 4)])
    found = by_name(parts_of(Block([0], 10 * MS, [], 0), seen, HERE, 12.0, False))
    assert found["elementwise"] == pytest.approx(10.0 - HERE.operation_ms)
    assert found[parts.UNATTRIBUTED] == 2.0
    assert parts.PYTHON not in found


def test_operations_are_done_again_for_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.004, 1.0, 1.002, 2.0, 2.003, 5.0, 5.003, 6.0, 6.003, 7.0, 7.003])
    monkeypatch.setattr("hybridml.profiler.speed.parts.time.perf_counter", lambda: next(clock))
    grad = []
    seen = Operations(
        [Operation("copies", 0.0, 1, 1, lambda: grad.append(hm.is_grad_enabled())), Operation("x", 3.0, 1, 1)]
    )
    for _ in range(2):
        seen = seen.timed()
        assert [one.ms for one in seen.operations] == [pytest.approx(2.0), 3.0]
    assert grad == [False] * 6


def test_an_operation_that_cannot_be_done_again_keeps_the_time_that_it_has() -> None:
    seen = Operations([Operation("copies", 0.5, 1, 1, lambda: 1 // 0)]).timed()
    assert (seen.operations[0].ms, seen.operations[0].again) == (0.5, None)


def test_operations_of_compiled_functions_are_on_the_clock_and_not_done_again() -> None:
    """The softmax runs compiled: its time is that of the launches."""
    recording = Recording(repeatable=True)
    x = hm.ones((8, 8))
    recording.begin()
    try:
        hm.functional.softmax(hm.exp(x), -1)
    finally:
        recording.end()
    events = events_of(recording)
    outer = {id(event.inside) for event in events if event.kind != "operation"}
    seen = Operations.of(events, {name: op.kind for name, op in OPS.items()})
    every = [event for event in events if event.kind == "operation"]
    assert [one.again is None for one in seen.operations] == [id(event) in outer for event in every]
    (again,) = [event.again for event in every if event.name == "exp"]
    assert again is not None and hm.equal(again(), hm.exp(x)).all()
    assert {one.ms for one in seen.operations} == {0.0}


def test_a_tenth_of_the_blocks_is_faster() -> None:
    blocks = [Block([0], k * MS, (), 0) for k in range(30, 0, -1)]
    assert [fast(blocks[:n]).ms for n in (1, 9, 10, 30)] == [30, 22, 22, 4]


class Launched:
    def __init__(self, traced: Any) -> None:
        self.launches = traced.last_path.program.executable.launches


def test_what_threads_do_in_a_launch() -> None:
    traced = hm.trace(lambda x: hm.exp(x) * 2)
    traced(hm.ones((8,)))
    spans = [Span(0, 1, 0, 100, False), Span(0, 1, 0, 90, True), Span(0, 2, 20, 80, True), Span(0, 1, 200, 250, False)]
    first, second = ran([(Launched(traced), spans)], threads=2)  # type: ignore[list-item]
    assert (first.kind, first.busy, first.end) == ("elementwise", 75, 100)
    assert (second.start, second.busy) == (200, 50)  # nothing of it was shared


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        ({"elementwise", "movement"}, "elementwise"),
        ({"reduction", "elementwise"}, "reductions and scans"),
        ({"convolution", "elementwise"}, PRODUCTS[0]),
        ({"movement"}, "copies"),
        (set(), "copies"),
    ],
)
def test_kinds_of_launches(kinds: set[str], name: str) -> None:
    assert kind_of(kinds) == name


# ---- a whole explanation


def chain(x: hm.Tensor) -> hm.Tensor:
    return hm.exp(hm.sin(x) * 2 + x) - hm.tanh(x)


def step_of() -> tuple[Callable[..., Any], hm.nn.Module, hm.optim.Optimizer]:
    hm.manual_seed(3)
    model = hm.nn.Sequential(hm.nn.Linear(6, 5), hm.nn.Dropout(0.5), hm.nn.Linear(5, 2))
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, model, optimizer


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts: a call takes a millisecond for each operation or launch."""

    def sample(run: Any, block_ms: float) -> None:
        held = [cell.cell_contents for cell in run.variant.call.__closure__]
        paths = [fn.last_path for fn in held if isinstance(fn, TracedFunction)]
        counts = [len(path.program.executable.launches) for path in paths if path is not None]
        run.samples.append(float(counts[0] if counts else len(run.seen.operations)))

    monkeypatch.setattr(Run, "sample", sample)


def test_the_parts_of_both_styles_add_up_and_the_state_is_untouched() -> None:
    inner, model, optimizer = step_of()
    scaled = hm.trace(lambda x: x * 0.5 + 1.0)  # dropout is no compiled function where a process has had many shapes

    def step(x: hm.Tensor) -> hm.Tensor:
        return inner(scaled(x))

    x = hm.random.randn(4, 6)
    step(x)
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"].numpy().copy()
    generator = hm.random.default_generator.get_state().numpy().copy()
    found = hm.explain_speed(step, x, repeats=2, seconds=0.0)
    for style in (found.eager, found.traced):
        assert sum(part.ms for part in style.parts) == pytest.approx(style.ms)
        assert style.parts[-1].name == parts.UNATTRIBUTED
    assert {part.name for part in found.eager.parts} >= {parts.DISPATCH, parts.CALLS}
    assert {part.name for part in found.traced.parts} >= {parts.BEFORE, parts.AFTER, "matrix products"}
    assert {name: value.numpy().tolist() for name, value in model.state_dict().items()} == {
        name: value.tolist() for name, value in before.items()
    }
    assert np.array_equal(optimizer.state_dict()["state"][0]["momentum_buffer"].numpy(), momentum)
    assert np.array_equal(hm.random.default_generator.get_state().numpy(), generator)


def test_fusion_is_what_a_chain_of_operations_gains(counted: None) -> None:
    found = hm.explain_speed(chain, hm.ones((2000,)), repeats=2)
    assert (found["capture"].verdict, found["fusion"].verdict) == ("same", "slower")
    assert (found["fusion"].other_ms, found["fusion"].base_ms) == (6, 1)
    assert found["in_place"].identical
    assert found["memory_plan"].identical
    assert [(stage.name, stage.ms) for stage in found.waterfall] == [
        ("eager", 6),
        ("capture", 6),
        ("fusion", 1),
        ("traced", 1),
    ]
    assert "several operations in one kernel: worth 6.00 times the speed" in str(found)


def test_settings_in_force_are_those_of_the_program(counted: None) -> None:
    with hm.config(fusion=False):
        found = hm.explain_speed(chain, hm.ones((2000,)), repeats=2)
    assert found["fusion"].identical
    assert {stage.ms for stage in found.waterfall} == {6}
    assert {part.count for part in found.traced.kernels} == {6}


def test_a_product_gains_nothing(counted: None) -> None:
    found = hm.explain_speed(lambda x: x @ x, hm.ones((64, 64)), repeats=2)
    verdicts = {one.name: one.verdict for one in found.factors}
    assert {verdicts[name] for name in ("capture", "fusion", "recompute", "memory_plan", "in_place")} == {"same"}
    assert found["fusion"].identical
    assert not found["own_products"].identical  # the plan does not tell who multiplies
    assert "own_convolutions" not in verdicts
    assert "ShapeError" in found["batch"].missing


def test_capture_is_what_tiny_operations_gain() -> None:
    def tiny(x: hm.Tensor) -> hm.Tensor:
        for _ in range(20):
            x = x * 1.01 + 0.1
        return x

    found = hm.explain_speed(tiny, hm.ones((4,)), repeats=2, seconds=0.0)
    eager, traced = ({part.name: part for part in style.parts} for style in (found.eager, found.traced))
    assert eager[parts.DISPATCH].count == 40
    assert sum(part.count for part in found.traced.kernels) == 1
    assert parts.DISPATCH not in traced


def test_no_time_to_compile_is_said() -> None:
    found = hm.explain_speed(chain, hm.ones((8,)), repeats=2, seconds=0.0)
    assert "seconds=" in found["fusion"].missing
    assert [stage.name for stage in found.waterfall] == ["eager", "traced"]
    assert "several operations in one kernel: not measured, as compiling had taken 0 s" in found.to_text()


def test_a_report_is_text_json_and_a_chart() -> None:
    calls: list[int] = []
    found = hm.explain_speed(chain, hm.ones((8,)), repeats=2, seconds=0.0, peers={"numpy": lambda: calls.append(1)})
    assert len(calls) >= 3
    assert [peer.name for peer in found.peers] == ["numpy"]
    assert json.loads(found.to_json())["traced"]["parts"][-1]["name"] == parts.UNATTRIBUTED
    for shown in (found.to_text(), found._repr_html_()):
        for words in ("Where the time goes", "numpy", "whole-step capture", parts.UNATTRIBUTED, found.advice[0]):
            assert words in shown.replace("&#39;", "'")
    assert found.svg().count("<rect") == len(found.waterfall)


def test_a_function_that_runs_eagerly_is_explained_all_the_same() -> None:
    def step(x: hm.Tensor) -> hm.Tensor:
        with open(__file__) as file:
            file.readline()
        return hm.exp(x) * 2

    with pytest.warns(TraceWarning, match="its calls run eagerly"):
        found = hm.explain_speed(step, hm.ones((8,)), repeats=2, seconds=0.0)
    assert parts.PYTHON in {part.name for part in found.traced.parts} or found.traced.share(parts.DISPATCH) > 0


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="explain_speed: repeats must be at least 2, got 1"):
        hm.explain_speed(chain, hm.ones((2,)), repeats=1)
    with pytest.raises(ArgumentError, match="peers are functions without arguments by name, got int for 'torch'"):
        hm.explain_speed(chain, hm.ones((2,)), peers={"torch": 3})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="explain_speed: takes a function or a module, got int"):
        hm.explain_speed(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="compare: why explains the times on one device"):
        hm.compare(chain, hm.ones((2,)), devices=["cpu"], why=True)
    with hm.profile(), pytest.raises(ArgumentError, match="only one can be at a time"):
        hm.explain_speed(chain, hm.ones((2,)), repeats=2, seconds=0.0)
    x = hm.ones((2,))
    with pytest.raises(ZeroDivisionError):
        hm.explain_speed(lambda x: x / (1 // 0), x)


def test_compare_explains_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(factors, "OTHERS", {})
    found = hm.compare(chain, hm.ones((8,)), repeats=2, why=True)
    assert isinstance(found.why, Speed)
    assert found.why.to_text() in found.to_text()
    part = accessible(found._repr_html_())
    assert not part.all("h1", "h2") and len(part.all("svg")) == 1
    found.save_html(tmp_path / "page.html")
    whole_page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert json.loads(found.to_json())["why"]["name"] == "chain"
    assert hm.compare(chain, hm.ones((8,)), repeats=2).to_dict()["why"] is None


# ---- factors


def step_with(fn: Callable[..., Any], *args: Any) -> factors.Step:
    traced = hm.trace(fn)
    traced(*args)
    return factors.Step(fn, traced, args, {})


def test_a_batch_is_doubled_along_the_axis_that_most_arguments_share() -> None:
    x, y, w = hm.ones((4, 3)), np.zeros(4, np.int32), hm.ones((3, 5))
    args, kwargs, size = factors.doubled((x, w, 2.0), {"y": y})
    assert size == 4
    assert [np.shape(value) for value in (*args, kwargs["y"])] == [(8, 3), (3, 5), (), (8,)]
    for none, why in (((), "no argument"), ((hm.ones((2,), requires_grad=True),), "gradient")):
        with pytest.raises(factors.Missing, match=why):
            factors.doubled(none, {})


def test_factors_that_do_not_apply_say_why() -> None:
    step = step_with(chain, hm.ones((4,)))
    for factor, why in ((factors.dtype, "no products"), (factors.recomputation, "less than 1 MiB")):
        with pytest.raises(factors.Missing, match=why):
            next(factor(step))
    assert factors.applicable(step, factors.SWITCHES) == ("fusion", "recompute", "memory_plan", "in_place")


def test_threads_are_set_and_set_back() -> None:
    with hm.config(num_threads=3):
        found = list(factors.threads(step_with(chain, hm.ones((4,)))))
        assert [one.name for one in found] == ["threads=1", "threads=2"]
        around: AbstractContextManager[Any] = found[0].around()
        with around:
            assert hm.get_num_threads() == 1
        assert hm.get_num_threads() == 3
    with hm.config(num_threads=1), pytest.raises(factors.Missing, match="one thread"):
        next(factors.threads(step_with(chain, hm.ones((4,)))))


# ---- sentences


def spent(ms: float, *found: Part) -> Spent:
    rest = ms - sum(part.ms for part in found)
    return Spent("a style", ms, ms, (*found, Part(parts.UNATTRIBUTED, rest)))


def speed(eager: Spent, traced: Spent, *found: Factor) -> Speed:
    return Speed("step", eager, traced, found, (Stage("eager", 10.0), Stage("traced", 5.0)), (), 100.0, 3, HERE)


PRODUCT = Part("matrix products", 9.0, 1, 8.0, 0.5, 8.5e8)
FAST, SLOW = spent(5.0, Part("elementwise", 5.0)), spent(10.0, Part("elementwise", 10.0))
SAID = {
    "of which 60 % is Python and calls: trace": speed(spent(10.0, Part(parts.PYTHON, 6.0)), FAST),
    "is no faster": speed(FAST, SLOW),
    "products that run at 94 % of the rate": speed(SLOW, spent(10.0, PRODUCT)),
    "they are small or thin": speed(SLOW, spent(10.0, replace(PRODUCT, flops=9e7))),
    "is waiting for memory": speed(SLOW, spent(9.0, Part("elementwise", 9.0, 1, 8.0, 8.0))),
    "do more in one call": speed(SLOW, spent(5.0, Part(parts.BEFORE, 1.0), Part(parts.AFTER, 1.0))),
    "is Python all the same": speed(SLOW, spent(5.0, Part(parts.DISPATCH, 2.0))),
    "is between its kernels": speed(SLOW, spent(5.0, Part(parts.BETWEEN, 2.0))),
    "Threads wait for 40 %": speed(SLOW, spent(5.0, Part(parts.WAITING, 2.0))),
    "New memory takes 40 %": speed(SLOW, spent(5.0, Part(parts.ALLOCATION, 2.0))),
    "hm.set_num_threads(2)": speed(SLOW, FAST, Factor("threads=2", "", "2 threads", 5, 4, 0.8, 0.7, 0.9)),
    "a sample takes 20 % less": speed(SLOW, FAST, Factor("batch", "", "a batch of 8", 5, 4, 0.8, 0.7, 0.9)),
    "hm.autocast": speed(SLOW, FAST, Factor("dtype", "", "products in bfloat16", 5, 4, 0.8, 0.7, 0.9)),
    "keep the cache": replace(speed(SLOW, FAST), compile_ms=1e5),
    "Nothing stands out": speed(SLOW, FAST),
}


@pytest.mark.parametrize("words", SAID)
def test_advice(words: str) -> None:
    assert words in " ".join(rules.advice(SAID[words]))


def test_every_rule_has_a_program_that_it_is_for() -> None:
    assert all(any(rule.holds(found) for found in SAID.values()) for rule in rules.RULES)


@pytest.mark.parametrize(
    ("ratio", "lower", "upper", "verdict"),
    [
        (1.5, 1.4, 1.6, "slower"),
        (1.5, 0.9, 2.0, "unclear"),
        (0.7, 0.5, 1.1, "unclear"),
        (1.01, 0.9, 1.2, "same"),
        (1.01, 1.005, 1.02, "same"),
        (0.8, 0.7, 0.9, "faster"),
    ],
)
def test_what_is_within_the_spread_is_nothing(ratio: float, lower: float, upper: float, verdict: str) -> None:
    assert Factor("fusion", "", "", 1.0, ratio, ratio, lower, upper).verdict == verdict


@pytest.mark.parametrize("name", [*rules.WORTH, *factors.SWITCHES])
@pytest.mark.parametrize("verdict", ["slower", "faster", "same", "unclear"])
def test_every_factor_has_sentences(name: str, verdict: str) -> None:
    lower, ratio, upper = {"slower": (2, 2, 2), "faster": (0.5, 0.5, 0.5), "same": (1, 1, 1), "unclear": (0.7, 2, 3)}[
        verdict
    ]
    factor = Factor(name, "a title", "the other", 3.0, 3.0 * ratio, ratio, lower, upper)
    said = rules.sentence(factor)
    assert factor.verdict == verdict and "{" not in said
    assert ("not clear here" in said and "0.70 to 3.00 times" in said) == (verdict == "unclear")
    assert report.duration(3.0 * ratio) in said


def test_a_style_is_looked_at_until_both_kinds_of_blocks_take_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few times at most: a slow phase of the machine that meets one kind alone is no part of a call."""

    def looked(clocked: list[int]) -> Style:
        style = object.__new__(Style)
        style.plain, style.clocked, style.seen, style.once_ms = [], [], Operations(), 100.0
        style.samples, style.snapshot = [100.0], SimpleNamespace(restore=lambda: None)  # type: ignore[assignment]
        left = iter(clocked)

        def pair(block_ms: float) -> None:
            style.plain.append(Block([0], 100 * MS, [], 0))
            style.clocked.append(Block([0], next(left) * MS, [], 0))

        monkeypatch.setattr(style, "_pair", pair)
        style.look(0.0)
        return style

    assert [block.ms for block in looked([102, 1]).clocked] == [102.0]
    assert [block.ms for block in looked([120, 115, 103, 1]).clocked] == [120.0, 115.0, 103.0]
    assert [block.ms for block in looked([120] * 9).clocked] == [120.0] * 4
