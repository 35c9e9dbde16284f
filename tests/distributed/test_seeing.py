"""Sums of collectives, clocks of many processes, the file for Perfetto, and who comes last."""

from __future__ import annotations

import copy
import itertools
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.seeing import clocks
from hybridml.distributed.seeing.gathering import gathered, told
from hybridml.distributed.seeing.log import Event, What
from hybridml.distributed.seeing.stragglers import Stragglers, meetings, stragglers_of
from hybridml_compiler.errors import ArgumentError
from tests.support.two_buckets import trained

Mpi = Callable[..., subprocess.CompletedProcess[str]]


def styled(fn: Callable[..., Any], traced: bool) -> Callable[..., Any]:
    return hm.trace(fn) if traced else fn


# -- sums


@pytest.mark.parametrize("traced", [False, True])
def test_calls_and_bytes_are_counted_by_collective_and_label(traced: bool) -> None:
    def rank() -> Any:
        step = styled(lambda x: dist.all_reduce(dist.all_gather(x), "max") + dist.all_reduce(x.sum()), traced)
        train = trained(traced)
        dist.reset_statistics()
        for _ in range(4):
            step(hm.ones((5,)))
            train()
        return dist.statistics()

    for found in dist.run_threads(3, rank):
        rows = {(row.name, row.label): (row.calls, row.bytes) for row in found.rows}
        assert rows.pop(("all_gather", "")) == (4, 4 * 5 * 4)
        assert rows.pop(("all_reduce", "max")) == (4, 4 * 15 * 4)
        assert rows.pop(("all_reduce", "sum")) == (4, 4 * 4)
        assert sorted(label[:13] for _, label in rows) == ["sum, bucket 0", "sum, bucket 1"]
        assert sum(nbytes for _, nbytes in rows.values()) == 4 * 4 * (8 * 8 + 8 + 8 * 4 + 4)
        assert found.calls == 20 and found.bytes == sum(row.bytes for row in found.rows)


def test_who_comes_early_waits_and_who_comes_late_does_not() -> None:
    def rank() -> Any:
        time.sleep(0.1 * dist.get_rank())
        dist.barrier()
        return dist.statistics().rows[0]

    early, late = dist.run_threads(2, rank)
    assert early.waiting_ms - late.waiting_ms > 50
    assert early.blocked_ms >= early.waiting_ms + early.moving_ms


def test_a_program_is_not_blocked_by_what_goes_on_beside_it() -> None:
    """A sum that was begun waits for a late process while this one goes on."""

    def rank(seconds: float) -> Any:
        group = dist.init()
        time.sleep(0.1 * group.rank)
        begun = group.begin("barrier", hm.ones((1,)).numpy(), "", lambda transport: None)
        time.sleep(seconds)
        group.wait(begun)
        return dist.statistics().rows[0]

    early, _ = dist.run_threads(2, lambda: rank(0.2))
    assert early.waiting_ms > 50 and early.blocked_ms < 0.5 * early.waiting_ms
    early, _ = dist.run_threads(2, lambda: rank(0.0))
    assert early.waiting_ms > 50 and early.blocked_ms > 0.5 * early.waiting_ms


def test_messages_are_counted_by_route() -> None:
    def rank() -> Any:
        other = 1 - dist.get_rank()
        for _ in range(3):
            dist.send(hm.ones((4,)), other, tag=2)
            dist.recv(hm.ones((4,)), other, tag=2)
        return {(row.name, row.label): (row.calls, row.bytes) for row in dist.statistics().rows}

    first, _ = dist.run_threads(2, rank)
    assert first == {("send", "0 -> 1, tag 2"): (3, 48), ("recv", "1 -> 0, tag 2"): (3, 48)}


def test_groups_are_told_apart() -> None:
    def rank() -> Any:
        pair = dist.init().split(dist.get_rank() // 2)
        dist.all_reduce(hm.ones((2,)), group=pair)
        dist.reset_statistics(dist.init())
        dist.barrier()
        dist.barrier()
        return pair.name, dist.statistics(pair), dist.statistics(dist.init()), dist.statistics()

    for name, of_pair, of_world, of_all in dist.run_threads(4, rank):
        assert [(r.group, r.name, r.calls) for r in of_pair.rows] == [(name, "all_reduce", 1)]
        assert [(r.group, r.name, r.calls) for r in of_world.rows] == [("world", "barrier", 2)]
        assert of_all.calls == 3 and name in of_all.to_text()
    with pytest.raises(ArgumentError, match="group must be"):
        dist.statistics("world")  # type: ignore[arg-type]


def test_a_process_alone_has_nothing_to_count() -> None:
    dist.all_reduce(hm.ones(()))
    assert dist.statistics(dist.init()).rows == ()
    assert dist.statistics(dist.init()).to_text().startswith("collectives: 0 calls")


# -- clocks


def test_no_delays_make_an_estimate_worse_than_it_says() -> None:
    rng = random.Random(0)
    for _ in range(300):
        offset, at, trips = rng.randint(-(10**12), 10**12), 0, []
        for _ in range(4):
            there, back = rng.randint(0, 10**6), rng.randint(0, 10**6)
            trips.append(clocks.Trip(at, at + there + offset, at + there + back))
            at += there + back + rng.randint(0, 10**6)
        found = clocks.estimated(trips)
        assert abs(found.offset - offset) <= found.error
        assert 2 * found.error <= min(trip.heard - trip.asked for trip in trips) + 1


def test_drift_between_two_readings_is_taken_out() -> None:
    def true(at: int) -> int:
        return at + 10**9 + at // 1000

    clock = clocks.Clock(*(clocks.Reading(at, true(at) - at, 0) for at in (0, 10**9)))
    assert all(abs(clock.time(at) - true(at)) <= 1 for at in range(0, 10**9, 10**7 + 1))


def test_clocks_that_differ_are_read_within_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    skew = {"rank 0": 7 * 10**9, "rank 1": -(10**9), "rank 2": 0}

    def skewed() -> int:
        return time.perf_counter_ns() + skew[threading.current_thread().name]

    monkeypatch.setattr(clocks, "_now", skewed)
    for rank, found in enumerate(dist.run_threads(3, lambda: clocks.read(dist.init()))):
        assert abs(found.offset - (skew["rank 0"] - skew[f"rank {rank}"])) <= found.error
        assert bool(found.error) == bool(rank)


def test_words_of_any_length_come_to_the_first_and_to_all() -> None:
    def rank() -> Any:
        group = dist.init()
        mine = b"x" * (1 + 1000 * group.rank)
        dist.send(hm.ones((1,)), (group.rank + 1) % 3, tag=15_999)  # on its way meanwhile
        found = gathered(group, mine), told(group, mine + b"!")
        return *found, dist.recv(hm.ones((1,)), (group.rank - 1) % 3, tag=15_999).item()

    ranks = dist.run_threads(3, rank)
    assert [len(word) for word in ranks[0][0]] == [1, 1001, 2001]
    assert [found[0] for found in ranks[1:]] == [[], []]
    assert [found[1:] for found in ranks] == [(b"x!", 1.0)] * 3


# -- stragglers


def event(number: int, came: int, met: int, name: str = "all_reduce", members: int = 2) -> Event:
    return Event(What("world", members, "sum", number, name, 8), came, met, met + 10)


def test_stragglers_of_a_few_calls_that_are_known() -> None:
    first = [event(0, 0, 100), event(1, 200, 201), event(2, 300, 600), event(3, 700, 700)]
    second = [event(0, 100, 100), event(1, 190, 201), event(2, 600, 600)]  # nobody meets the fourth
    found = stragglers_of(meetings([first, second]), 2, wall_ms=1e-3, error_ms=0.0)
    one, other = found.ranks
    assert (one.rank, one.last) == (1, 2)
    assert [one.late_ms, one.caused_ms, one.waited_ms] == pytest.approx([200e-6, 400e-6, 10e-6])
    assert [other.caused_ms, other.waited_ms] == pytest.approx([10e-6, 400e-6])
    assert (found.meetings, found.slowest) == (3, 1)
    assert "rank 1 comes last to 2 of 3 collectives, 200 ns after the others; they wait 40% of" in found.title
    assert stragglers_of(meetings([first, second]), 2, wall_ms=1.0, error_ms=0.0).slowest is None
    assert Stragglers.from_dict(json.loads(found.to_json())) == found


def test_what_is_caused_is_what_is_waited() -> None:
    rng = random.Random(1)
    seen = [[event(k, 1000 * k + rng.randint(0, 900), 1000 * k + 900, members=5) for k in range(40)] for _ in range(5)]
    found = stragglers_of(meetings(seen), 5, 1.0, 0.0)
    assert sum(r.caused_ms for r in found.ranks) == pytest.approx(sum(r.waited_ms for r in found.ranks))
    assert sum(r.last for r in found.ranks) == found.meetings == 40
    assert [r.caused_ms for r in found.ranks] == sorted((r.caused_ms for r in found.ranks), reverse=True)


def test_without_collectives_nobody_is_late() -> None:
    with dist.profile() as found:
        pass
    assert found.stragglers.slowest is None and "no collective" in str(found)


@pytest.mark.parametrize("traced", [False, True])
def test_a_slow_rank_is_named_in_all_ranks(traced: bool) -> None:
    def rank() -> Any:
        step = trained(traced)
        step()
        with dist.profile() as found:
            for _ in range(4):
                time.sleep(0.1 * (dist.get_rank() == 1))
                step()
        return found

    for found in dist.run_threads(3, rank):
        slow = found.stragglers
        assert slow.slowest == 1 and slow.meetings == 8 and slow.ranks[0].last >= 2
        assert slow.ranks[0].caused_ms > 2 * 4 * 50
        assert found.statistics.calls == 8 and "rank 1 comes last" in str(found) and "<table" in found._repr_html_()


# -- the file


def records(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


@pytest.mark.parametrize("traced", [False, True])
def test_a_file_has_all_ranks_with_their_collectives_and_arrows(traced: bool, tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"

    def rank() -> None:
        step = trained(traced)
        step()
        with dist.profile(path):
            for _ in range(2):
                step()
                other = 1 - dist.get_rank()
                dist.send(hm.ones(()), other)
                dist.recv(hm.ones(()), other)

    dist.run_threads(2, rank)
    found = records(path)
    spans = [r for r in found if r["ph"] == "X"]
    names = {r["pid"]: r["args"]["name"] for r in found if r["name"] == "process_name"}
    assert sorted(names) == [0, 1] and all(name.startswith(f"rank {k} of ") for k, name in names.items())
    calls = [r for r in spans if r["cat"] == "collective"]
    assert Counter((r["pid"], r["name"]) for r in calls) == {
        (k, name): count for k in (0, 1) for name, count in (("all_reduce", 4), ("send", 2), ("recv", 2))
    }
    for k in (0, 1):  # each has the work of its own thread
        wanted = {"launch"} if traced else {"operation"}
        assert wanted <= {r["cat"] for r in spans if r["pid"] == k}
        assert {r["args"]["name"] for r in found if r["pid"] == k and r["name"] == "thread_name"} >= {
            f"rank {k}", "collectives of world",
        }  # fmt: skip
        assert f"rank {1 - k}" not in {r["args"].get("name") for r in found if r["pid"] == k and "args" in r}
    ends = {kind: {r["id"]: r for r in found if r["ph"] == kind} for kind in "sf"}
    assert ends["s"].keys() == ends["f"].keys() and len(ends["s"]) == 4 + 4
    for number, start in ends["s"].items():
        end = ends["f"][number]
        assert start["pid"] != end["pid"] and start["ts"] <= end["ts"]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])  # by which Perfetto knows both ends
        for one in (start, end):  # each lies in a collective of that rank
            assert any(inside(one, r) for r in calls if r["pid"] == one["pid"])
    for wait in (r for r in spans if r["cat"] == "waiting"):
        assert any(r["ts"] == wait["ts"] and r["dur"] >= wait["dur"] for r in calls if r["pid"] == wait["pid"])
    assert min(r["ts"] for r in found if "ts" in r) == 0


def inside(arrow: dict[str, Any], span: dict[str, Any]) -> bool:
    return bool(span["ts"] <= arrow["ts"] <= span["ts"] + span["dur"] + 1e-3)


def test_a_process_alone_writes_a_file_as_well(tmp_path: Path) -> None:
    with dist.profile(tmp_path / "one.json") as found:
        hm.ones((3,)) + 1
    assert {r["name"] for r in records(tmp_path / "one.json")} >= {"full", "add", "process_name"}
    assert found.statistics.calls == 0


def test_a_block_that_fails_leaves_nothing_on(tmp_path: Path) -> None:
    def rank() -> None:
        with dist.profile(tmp_path / "x.json"):
            raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            dist.run_threads(2, rank)
    with hm.profile():
        pass


def test_one_profile_at_a_time() -> None:
    with dist.profile() as found:
        with pytest.raises(ArgumentError, match="nothing to show before"):
            _ = found.stragglers
        with pytest.raises(ArgumentError, match="another is on"), dist.profile():
            pass
    with pytest.raises(ArgumentError, match="has been used"), found:
        pass


# -- losses side by side


def training(traced: bool, mistake: Callable[[int], Any]) -> Callable[[], Callable[[], Any]]:
    """A training whose batches are as many times as large as `mistake` says."""
    hm.manual_seed(0)
    net, data = hm.nn.Sequential(hm.nn.Linear(5, 6), hm.nn.Tanh(), hm.nn.Linear(6, 1)), hm.randn((12, 5))

    def make() -> Callable[[], Any]:
        model = dist.DataParallel(copy.deepcopy(net))
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1)
        mine = data[dist.get_rank() :: dist.get_world_size()]
        count = itertools.count()

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = styled(step, traced)
        return lambda: run(mine * mistake(next(count)))

    return make


@pytest.mark.parametrize("traced", [False, True])
def test_losses_are_compared_step_by_step(traced: bool) -> None:
    same = dist.compare(training(traced, lambda k: 1.0), ranks=(1, 2, 3), steps=4)
    assert same.first is None and max(same.differences) < 1e-5 and "the same losses in 4 steps" in str(same)
    assert [len(losses) for losses in same.losses] == [4, 4, 4] and len(set(same.losses[0])) == 4
    wrong = training(traced, lambda k: 1.1 if k == 2 and dist.get_world_size() == 2 else 1.0)
    assert dist.compare(wrong, steps=4).first == 2
    with pytest.raises(ArgumentError, match="needs numbers of ranks"):
        dist.compare(wrong, ranks=())


def test_losses_that_are_no_numbers_differ() -> None:
    found = dist.compare(lambda: lambda: hm.tensor(float("nan") if dist.get_world_size() == 2 else 1.0), steps=1)
    assert found.first == 0


# -- real processes

SKEWED = """
import time
import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.seeing import clocks, log

rank = dist.get_rank()
if SKEW:  # clocks of other machines begin at other times
    clocks._now = log.now = lambda: time.perf_counter_ns() + rank * 5_000_000_000
for traced in (False, True):
    model = dist.DataParallel(hm.nn.Linear(8, 4))
    def step(x):
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss
    run = hm.trace(step) if traced else step
    run(hm.ones((2, 8)))
    with dist.profile(None if SKEW else f"{traced}.json") as found:
        for _ in range(5):
            time.sleep(0.1 * (rank == 1))
            run(hm.ones((2, 8)))
    slow = found.stragglers
    with open(f"{rank}.txt", "a") as file:
        print(traced, slow.slowest, slow.meetings, slow.ranks[0].late_ms < 1000, file=file)
"""


@pytest.mark.parametrize("skew", [False, True])
def test_processes_with_clocks_of_their_own(mpi: Mpi, tmp_path: Path, skew: bool) -> None:
    done = mpi(2, f"SKEW = {skew}\n" + SKEWED)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)] == ["False 1 5 True\nTrue 1 5 True\n"] * 2
    for traced in () if skew else (False, True):
        found = records(tmp_path / f"{traced}.json")
        assert Counter(r["pid"] for r in found if r.get("cat") == "collective") == {0: 5, 1: 5}
        assert {r["pid"] for r in found if r.get("cat") == ("launch" if traced else "operation")} == {0, 1}
        assert max(r["ts"] for r in found if "ts" in r) < 60e6


def test_a_folder_that_is_not_there_is_told_before_the_block(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        dist.profile(tmp_path / "missing" / "trace.json")
