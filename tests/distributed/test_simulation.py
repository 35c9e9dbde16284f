"""Steps with more processes than there are: laws of costs, of replays, of pipelines and of parameter servers."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.simulation.calibration import fitted
from hybridml.distributed.simulation.links import ALGORITHMS, rounds
from hybridml.distributed.simulation.replay import replayed
from hybridml.distributed.simulation.tape import Entry, taped
from hybridml_compiler.errors import ArgumentError
from tests.support.two_buckets import trained

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
LINK = dist.Link(10e-6, 1e9)


# -- links


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [2, 3, 8, 4096])
def test_more_bandwidth_and_less_latency_are_never_slower(name: str, size: int) -> None:
    for algorithm in (*ALGORITHMS, "best"):
        for nbytes in (0, 8, 10**6):
            took = LINK.seconds(name, nbytes, size, algorithm)
            assert dist.Link(10e-6, 2e9).seconds(name, nbytes, size, algorithm) <= took
            assert dist.Link(5e-6, 1e9).seconds(name, nbytes, size, algorithm) < took
            assert LINK.seconds(name, nbytes, size) <= took
    assert LINK.seconds(name, 10**6, 1) == 0.0


def test_all_reduces_take_what_the_paper_says() -> None:
    """Thakur et al., section 4.5, behind a meeting of lg p rounds."""
    alpha, beta, n = 10e-6, 1e-9, 10**6
    for p, lg in ((2, 1), (4, 2), (16, 4), (1024, 10)):
        share = (p - 1) / p
        wanted = {
            "ring": 2 * (p - 1) * alpha + 2 * share * n * beta,
            "doubling": lg * (alpha + n * beta),
            "halving": 2 * lg * alpha + 2 * share * n * beta,
        }
        found = {way: LINK.seconds("all_reduce", n, p, way) - lg * alpha for way in wanted}
        assert found == pytest.approx(wanted)
        assert LINK.seconds("all_reduce", n, p) - lg * alpha == pytest.approx(min(wanted.values()))
    assert [rounds(p) for p in (1, 2, 3, 4, 5, 4096)] == [0, 1, 2, 2, 3, 12]


def test_a_sum_in_parts_takes_what_the_whole_takes() -> None:
    """A ring's all-reduce is its reduce-scatter and all-gather, but for the second meeting."""
    for p in (2, 5, 64):
        n = 1000 * p
        parts = LINK.seconds("reduce_scatter", n, p, "ring") + LINK.seconds("all_gather", n / p, p, "ring")
        whole = LINK.seconds("all_reduce", n, p, "ring")
        assert parts == pytest.approx(whole + rounds(p) * LINK.latency)


def test_links_that_make_no_sense_are_refused() -> None:
    for latency, bandwidth in ((-1.0, 1.0), (0.0, 0.0), (float("nan"), 1.0)):
        with pytest.raises(ArgumentError, match="Link: latency is 0 s or more"):
            dist.Link(latency, bandwidth)
    with pytest.raises(ArgumentError, match="algorithm is 'best', ring"):
        LINK.seconds("all_reduce", 1, 2, "star")


@pytest.mark.parametrize("size", [2, 4, 6])
def test_a_calibration_finds_the_link_that_made_the_times(size: int) -> None:
    times = {n: LINK.seconds("all_reduce", n, size) for n in (0, 10**6, 4 * 10**6)}
    found = fitted(times, size)
    assert found.latency == pytest.approx(LINK.latency) and found.bandwidth == pytest.approx(LINK.bandwidth, rel=0.01)


def test_all_ranks_are_told_one_link() -> None:
    first, *others = dist.run_threads(3, dist.calibrate)
    assert all(link == first for link in others) and first.latency > 0
    with pytest.raises(ArgumentError, match="a process alone has no link"):
        dist.calibrate()


# -- replays

TAPE = [
    Entry(1.0, "begin", "all_reduce", "first", 100),
    Entry(2.0, "begin", "all_reduce", "second", 50),
    Entry(0.5, "wait", number=0),
    Entry(0.25, "wait", number=1),
    Entry(0.25, "meet", "barrier"),
    Entry(1.0, "end"),
]


def test_what_is_begun_moves_beside_work() -> None:
    cost = {"all_reduce": 3.0, "barrier": 1.0}
    beside = replayed(TAPE, lambda name, nbytes: cost[name], overlap=True)
    # Begun at 1 and 3: done at 4 and 7. Waits at 3.5 and 4.25; the barrier at 7.25.
    assert (beside.work, beside.step, beside.communication) == (5.0, 9.25, 7.0)
    assert (beside.blocked, beside.hidden) == (4.25, 2.75)
    behind = replayed(TAPE, lambda name, nbytes: cost[name], overlap=False)
    assert (behind.step, behind.hidden) == (5.0 + 7.0, 0.0)
    assert beside.parts == behind.parts == {
        ("all_reduce", "first"): (1, 100, 3.0), ("all_reduce", "second"): (1, 50, 3.0), ("barrier", ""): (1, 0, 1.0),
    }  # fmt: skip


def test_a_replay_is_never_faster_than_its_work_or_its_communication() -> None:
    for seconds in (0.0, 0.1, 1.0, 10.0):
        times = [replayed(TAPE, lambda name, nbytes, s=seconds: s, overlap) for overlap in (True, False)]  # type: ignore[misc]
        for one in times:
            assert max(one.work, one.communication) - 1e-9 <= one.step <= one.work + one.communication + 1e-9
        assert times[0].step <= times[1].step
    assert replayed(TAPE, lambda name, nbytes: 0.0, True).step == sum(entry.seconds for entry in TAPE)


# -- steps


def parallel(traced: bool) -> Callable[[], Callable[[], Any]]:
    return lambda: trained(traced)


@pytest.mark.parametrize("traced", [False, True])
def test_a_simulated_rank_calls_what_a_real_one_calls(traced: bool) -> None:
    def rank() -> Any:
        step = parallel(traced)()
        dist.reset_statistics()
        step()
        return {(row.name, row.label): (row.calls, row.bytes) for row in dist.statistics().rows}

    real = dist.run_threads(3, rank)[0]
    (found,) = dist.simulate(parallel(traced), ranks=(3,), link=LINK).predictions
    assert {(part.name, part.label): (part.calls, part.bytes) for part in found.parts} == real


@pytest.mark.parametrize("traced", [False, True])
def test_steps_of_any_number_of_ranks_add_up(traced: bool) -> None:
    links = [dist.Link(1e-3, 1e6), dist.Link(1e-5, 1e12)]
    slow, fast = (dist.simulate(parallel(traced), (1, 2, 64, 4096), link, repeats=2) for link in links)
    for found in (*slow.predictions, *fast.predictions):
        assert found.step_ms == pytest.approx(found.work_ms + found.blocked_ms)
        assert found.communication_ms == pytest.approx(found.hidden_ms + found.blocked_ms)
        assert found.communication_ms == pytest.approx(sum(part.ms for part in found.parts))
        assert 0 <= found.hidden_ms <= found.communication_ms + 1e-9
    alone, *others = slow.predictions
    assert alone.communication_ms == alone.blocked_ms == 0.0 and alone.efficiency == 1.0
    assert [p.communication_ms for p in others] == sorted(p.communication_ms for p in others)
    assert len({p.work_ms for p in others}) == 1  # the same program: measured once
    for one, other in zip(slow.predictions[1:], fast.predictions[1:], strict=True):
        assert one.communication_ms > other.communication_ms
    assert "4,096" in str(slow) and slow.to_dict()["predictions"][3]["ranks"] == 4096


@pytest.mark.parametrize("traced", [False, True])
def test_a_tape_waits_for_all_that_it_has_begun(traced: bool) -> None:
    tape = taped(parallel(traced), 2, 1)
    begun = [k for k, entry in enumerate(tape) if entry.kind == "begin"]
    waited = [entry.number for entry in tape if entry.kind == "wait"]
    assert len(begun) == 2 and sorted(waited) == begun and tape[-1].kind == "end"
    (slow,) = dist.simulate(parallel(traced), (2,), dist.Link(1.0, 1e9), repeats=1).predictions
    assert slow.step_ms >= slow.communication_ms == pytest.approx(2 * 2 * 1e3)


def test_what_stands_for_moving_is_no_work() -> None:
    tape = taped(lambda: lambda: dist.init().meet("barrier", None, "", lambda transport: time.sleep(0.2)), 2, 1)
    assert [entry.kind for entry in tape] == ["meet", "end"] and sum(entry.seconds for entry in tape) < 0.1


@pytest.mark.parametrize("traced", [False, True])
def test_layers_in_parts_call_collectives_in_each_layer(traced: bool) -> None:
    """Tensor parallel by hand: the work gets less, and two collectives a layer come with it."""

    def make() -> Callable[[], Any]:
        size = dist.get_world_size()
        layers = [(hm.ones((64, 64 // size)), hm.ones((64 // size, 64))) for _ in range(3)]

        def step(x: Any) -> Any:
            for up, down in layers:
                x = dist.all_reduce(hm.tanh(x @ up) @ down)
            return x

        run = hm.trace(step) if traced else step
        return lambda: run(hm.ones((5, 64)))

    alone, *others = dist.simulate(make, ranks=(1, 2, 8), link=LINK).predictions
    assert alone.parts == ()
    for found in others:
        (part,) = found.parts
        assert (part.name, part.calls, part.bytes) == ("all_reduce", 3, 3 * 5 * 64 * 4)
        assert part.ms == pytest.approx(3e3 * LINK.seconds("all_reduce", 5 * 64 * 4, found.ranks))
        assert found.blocked_ms == pytest.approx(part.ms)  # the next layer waits for it


def test_sharded_parameters_are_gathered_in_parts_of_the_number_of_ranks() -> None:
    def make() -> Callable[[], Any]:
        model = dist.fully_shard(hm.nn.Linear(64, 32, bias=False))
        return lambda: model(hm.ones((2, 64))).sum().backward()

    for found in dist.simulate(make, ranks=(2, 16), link=LINK, repeats=1).predictions:
        parts = {part.name: part for part in found.parts}
        gathered = parts["all_gather"]
        assert gathered.bytes / gathered.calls == 64 * 32 * 4 / found.ranks
        assert parts["reduce_scatter"].bytes == 64 * 32 * 4


@pytest.mark.parametrize("traced", [False, True])
def test_each_collective_has_shapes_of_its_processes(traced: bool) -> None:
    def make() -> Callable[[], Any]:
        size = dist.get_world_size()

        def step(x: Any) -> Any:
            whole = dist.all_gather(x)
            assert whole.shape == (2 * size, 3)
            part = dist.reduce_scatter(whole)
            assert part.shape == (2, 3)
            return part.sum() + dist.all_to_all(dist.broadcast(whole)).sum()

        run = hm.trace(step) if traced else step
        return lambda: run(hm.ones((2, 3)))

    tape = taped(make, 6, 1)
    given = {entry.name: entry.nbytes for entry in tape if entry.kind == "meet"}
    assert given == {"all_gather": 24, "reduce_scatter": 144, "broadcast": 144, "all_to_all": 144}


def test_the_group_of_this_process_is_what_it_was() -> None:
    before = dist.init()
    dist.simulate(parallel(False), ranks=(2,), repeats=1)
    assert dist.init() is before and dist.get_world_size() == 1


def test_steps_that_one_process_cannot_stand_for_are_refused() -> None:
    with pytest.raises(ArgumentError, match="use simulate_pipeline"):
        dist.simulate(lambda: lambda: dist.send(hm.ones(()), 1), ranks=(2,))
    with pytest.raises(ArgumentError, match="use one group"):
        dist.simulate(lambda: lambda: dist.init().split(0), ranks=(2,))
    with pytest.raises(ArgumentError, match="ranks are numbers of processes"):
        dist.simulate(parallel(False), ranks=(0,))
    with pytest.raises(ArgumentError, match="repeats is a number of steps"):
        dist.simulate(parallel(False), repeats=0)


PROCESSES = """
import hybridml as hm
from hybridml import distributed as dist

link = dist.calibrate()
def make():
    model = dist.DataParallel(hm.nn.Linear(64, 64))
    @hm.trace
    def step():
        model.zero_grad()
        model(hm.ones((2, 64))).sum().backward()
    return step
found = dist.simulate(make, ranks=(2, 512), link=link, repeats=1)
total = dist.all_reduce(hm.asarray([link.latency, link.bandwidth], dtype=hm.float64), "mean")  # in the real group
assert total.tolist() == [link.latency, link.bandwidth]
few, many = found.predictions
assert 0 < few.communication_ms < many.communication_ms and dist.get_world_size() == 2
"""


def test_processes_simulate_more_of_them(mpi: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = mpi(2, PROCESSES)
    assert done.returncode == 0, done.stderr


# -- pipelines

FREE = dist.Link(0.0, 1e30)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_equal_stages_have_the_bubble_of_the_formula(schedule: str) -> None:
    for stages, parts in itertools.product((1, 2, 4, 7), (1, 4, 9, 32)):
        found = dist.simulate_pipeline([1.0] * stages, [2.0] * stages, 1e6, parts, FREE, schedule=schedule)
        assert found.step_ms == pytest.approx((parts + stages - 1) * 3.0)
        assert found.bubble == pytest.approx((stages - 1) / (parts + stages - 1))
        kept = [parts] * stages if schedule == "gpipe" else [min(stages - s, parts) for s in range(stages)]
        assert list(found.kept) == kept


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_is_bound_by_its_slowest_stage_and_its_messages(schedule: str) -> None:
    forward, backward = [1.0, 3.0, 1.0], [2.0, 5.0, 2.0]
    took = [
        dist.simulate_pipeline(forward, backward, 1e6, 8, dist.Link(0.0, rate), schedule=schedule).step_ms
        for rate in (1e8, 1e9, 1e10, 1e30)
    ]
    assert took == sorted(took, reverse=True)
    assert took[-1] >= 8 * (3.0 + 5.0) + 1.0 + 2.0
    two = dist.simulate_pipeline([1.0, 3.0], [2.0, 5.0], 1e6, 1, dist.Link(1e-3, 1e9), schedule=schedule)
    assert two.step_ms == pytest.approx(1.0 + 2.0 + 3.0 + 5.0 + 2.0 + 2.0)  # there and back, a message of 2 ms each
    one = dist.simulate_pipeline([4.0], [6.0], 1e9, 5, LINK, schedule=schedule)
    assert (one.step_ms, one.bubble) == (50.0, 0.0)


def test_pipelines_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="schedule is 'gpipe' or '1f1b'"):
        dist.simulate_pipeline([1.0], [1.0], 1.0, 1, LINK, schedule="zigzag")
    with pytest.raises(ArgumentError, match="needs a forward and a backward time"):
        dist.simulate_pipeline([1.0], [], 1.0, 1, LINK)


# -- parameter servers


def test_servers_are_bound_by_all_that_they_send_and_get() -> None:
    def step(workers: int, servers: int = 1, work: float = 0.0, **more: Any) -> float:
        return dist.simulate_parameter_server(work, 1e6, workers, servers, dist.Link(0.0, 1e9), **more)

    assert step(1) == pytest.approx(2.0) and step(1, servers=16) == pytest.approx(2.0)  # its own link
    late = dist.Link(1e-3, 1e30)
    assert dist.simulate_parameter_server(0.0, 4, 9, 16, late) == pytest.approx(10.0)  # a message each, and one back
    for workers in (2, 10, 100):
        assert step(workers) == pytest.approx(workers + 1.0)  # reads follow each other, the last one writes
        assert step(workers, work=1e3) == pytest.approx(1e3 + workers + 1.0)
        assert step(workers, servers=4) <= step(workers, servers=2) <= step(workers)
        assert step(workers, work=5.0, spread_ms=10.0) >= step(workers, work=5.0)
        assert step(workers, spread_ms=50.0, backup=1) < step(workers, spread_ms=50.0)
    with pytest.raises(ArgumentError, match="fewer backup workers than workers"):
        step(2, backup=2)
