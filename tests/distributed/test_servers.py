"""Parameter servers, by threads: what workers do together is what one process does, also where some are killed."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed import servers
from hybridml.distributed.servers.values import spread
from hybridml_compiler.errors import ArgumentError
from tests.support.workers import RNG, Killing, Loss, adam, alone, loss_of, net, same, sgd, together, weights

STYLES = pytest.mark.parametrize("traced", [False, True])


# -- synchronous


@STYLES
@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (2, 2), (3, 4)])
def test_in_step_workers_train_as_one_process_with_their_batches(traced: bool, workers: int, shards: int) -> None:
    loss = loss_of(traced)
    model, training = together(loss, shards=shards, workers=workers)
    for got, wanted in zip(weights(model), weights(alone(loss, adam, 12, workers)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    assert len(training.losses) == 12 and training.staleness == {0: 12 * workers} and training.dropped == 0
    assert [update.version for update in training.updates] == [k + 1 for k in range(12) for _ in range(workers)]
    whole = sum(array.nbytes for array in weights(model))
    assert training.bytes_pulled == training.bytes_pushed == 12 * workers * whole


def test_both_styles_end_with_the_same_bits() -> None:
    assert same(together(loss_of(False))[0], together(loss_of(True))[0])


def test_parameters_are_spread_by_their_sizes() -> None:
    sizes = {f"p{k}": int(size) for k, size in enumerate(RNG.integers(1, 1000, 40))}
    parts = spread(sizes, 3)
    assert sorted(itertools.chain(*parts)) == sorted(sizes)
    filled = [sum(sizes[name] for name in part) for part in parts]
    assert max(filled) - min(filled) <= min(max(sizes[name] for name in part) for part in parts)


def test_a_model_is_pushed_and_pulled_by_hand() -> None:
    model, loss = net(), loss_of(False)
    with servers.ParameterServer(model, adam, shards=3, engine="threads") as server:
        assert server.pull() == 0
        for step in range(5):
            model.zero_grad()
            loss(model, step, 0).backward()
            assert server.push() == step + 1
            assert server.pull() == step + 1
    assert same(model, alone(loss, adam, 5))


def test_parameters_without_gradients_stay_and_frozen_ones_are_not_moved() -> None:
    model = hm.nn.ParameterList([hm.nn.Parameter(hm.ones((2,))) for _ in range(4)])
    model[3].requires_grad_(False)

    def loss(m: Any, step: int, rank: int) -> Any:
        return (m[0] * m[3]).sum() if rank == 0 else m[0].sum() * 3 + m[1].sum()

    with servers.ParameterServer(model, lambda params: hm.optim.SGD(params, lr=0.5), engine="threads") as server:
        assert [sorted(names) for names in server.placement] == [["0", "1", "2"]]
        servers.train(server, loss, workers=2, steps=1)
    assert [array.tolist() for array in weights(model)] == [[0.0] * 2, [0.75] * 2, [1.0] * 2, [1.0] * 2]


def test_the_model_has_the_statistics_of_a_worker() -> None:
    model = hm.nn.Sequential(hm.nn.Linear(5, 8), hm.nn.BatchNorm1d(8), hm.nn.Linear(8, 3))
    with servers.ParameterServer(model, adam, engine="threads") as server:
        servers.train(server, loss_of(True), workers=2, steps=3)
    assert int(model[1].num_batches_tracked) == 3


# -- backup workers


class Late:
    """A loss whose rank 2 always gets ready when the others are past its step."""

    def __init__(self) -> None:
        self.loss, self.changed, self.begun, self.calls = loss_of(False), threading.Condition(), -1, 0

    def __call__(self, model: Any, step: int, rank: int) -> Any:
        with self.changed:
            self.calls += 1
            if rank == 2:
                assert self.changed.wait_for(lambda: self.begun > step, 20)
            else:
                self.begun = max(self.begun, step)
                self.changed.notify_all()
        return self.loss(model, step, rank)

    def end(self) -> None:
        with self.changed:
            self.begun = 1 << 30
            self.changed.notify_all()


def test_late_gradients_of_backup_workers_are_dropped() -> None:
    loss = Late()
    model, training = together(loss, workers=3, mode="backup", need=2)
    loss.end()
    assert {update.rank for update in training.updates} == {0, 1} and len(training.updates) == 24
    assert training.staleness == {0: 24}
    assert len(training.updates) + training.dropped == loss.calls and training.dropped > 1
    assert same(model, together(loss_of(False))[0])


# -- asynchronous


def gaps(training: servers.Training, workers: int) -> Iterator[int]:
    """How far the worker of each update was before the last one when it was applied."""
    clocks = [0] * workers
    for update in training.updates:
        assert update.step == clocks[update.rank]
        yield clocks[update.rank] - min(clocks)
        clocks[update.rank] += 1


@pytest.mark.parametrize("staleness", [0, 2])
def test_no_worker_is_further_ahead_than_is_allowed(staleness: int) -> None:
    loss, workers, steps, ahead = loss_of(True), 3, 12, threading.Event()

    def uneven(model: Any, step: int, rank: int) -> Any:
        if rank == 0 and step == 0:  # until another one is as far as it may be, and has time to go on
            assert ahead.wait(20)
            time.sleep(0.3)
        if rank > 0 and step == staleness:
            ahead.set()
        return loss(model, step, rank)

    _, training = together(uneven, sgd, workers=workers, steps=steps, mode="async", staleness=staleness)
    assert max(gaps(training, workers)) == staleness  # the fast ones use what they may
    assert [update.version for update in training.updates] == list(range(1, workers * steps + 1))
    assert max(training.staleness) <= (2 * staleness + 1) * (workers - 1)
    assert sum(training.staleness.values()) == workers * steps
    if staleness == 0:  # all pull when the last one is done, and are applied one after the other
        assert training.staleness == dict.fromkeys(range(workers), steps)
    assert training.losses[-1] < training.losses[0]


@STYLES
def test_one_asynchronous_worker_trains_as_one_process(traced: bool) -> None:
    loss = loss_of(traced)
    model, training = together(loss, workers=1, mode="async")
    assert same(model, alone(loss, adam, 12)) and training.staleness == {0: 12}


# -- faults


@STYLES
def test_a_disturbed_training_ends_with_the_bits_of_one_that_is_not(
    traced: bool, killing: Killing, tmp_path: Path
) -> None:
    loss = loss_of(traced)
    kills = {3: "shard 1", 6: "worker 0", 9: "shard 0"}
    killing(kills)
    manager = dist.CheckpointManager(tmp_path, save_interval_steps=4)
    model, training = together(loss, checkpoints=manager)
    assert not kills and training.restarts == 3
    assert same(model, alone_in_step(loss))
    assert [update.version for update in training.updates] == [k + 1 for k in range(12) for _ in range(2)]
    assert manager.all_steps() == [4, 8, 12]


def alone_in_step(loss: Loss) -> Any:
    """The weights and losses of two workers that nobody disturbs."""
    model = net()
    with servers.ParameterServer(model, adam, shards=2, engine="threads") as server:
        for step in range(12):
            found = []
            for rank in range(2):
                model.zero_grad()
                loss(model, step, rank).backward()
                grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
                found.append([{name: grads[name] for name in names} for names in server.placement])
            server.apply(found)
            server.pull()
    return model


def test_a_shard_that_hangs_is_started_again(tmp_path: Path) -> None:
    end, steps = threading.Event(), itertools.count()

    class Hanging(hm.optim.Adam):
        def update(self, *args: Any) -> Any:
            if next(steps) == 9:  # of both shards
                end.wait(30)
            return super().update(*args)

    loss, model = loss_of(False), net()
    manager = dist.CheckpointManager(tmp_path, save_interval_steps=2)
    with servers.ParameterServer(
        model, lambda params: Hanging(params, lr=0.05), shards=2, engine="threads", timeout=1.5
    ) as server:
        assert servers.train(server, loss, workers=2, steps=12, checkpoints=manager).restarts == 1
    end.set()
    assert same(model, together(loss)[0])


@pytest.mark.parametrize("mode", ["backup", "async"])
def test_other_modes_end_too(mode: str, killing: Killing, tmp_path: Path) -> None:
    kills = {3: "shard 1", 6: "worker 0", 9: "shard 0"}
    killing(kills)
    manager = dist.CheckpointManager(tmp_path, save_interval_steps=2)
    options: dict[str, Any] = {"need": 1} if mode == "backup" else {"staleness": 3}
    loss = loss_of(True)

    def uneven(model: Any, step: int, rank: int) -> Any:
        time.sleep(0.02 * rank)  # the last worker is busy when a shard dies
        return loss(model, step, rank)

    _, training = together(uneven, mode=mode, checkpoints=manager, **options)
    assert not kills and training.restarts == 3
    assert len(training.losses) == 12
    if mode == "async":
        assert sorted((u.step, u.rank) for u in training.updates) == [(k, r) for k in range(12) for r in range(2)]


def test_a_training_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    loss, manager = loss_of(True), dist.CheckpointManager(tmp_path, save_interval_steps=5)
    together(loss, steps=7, checkpoints=manager)
    model, training = together(loss, checkpoints=manager)
    assert len(training.losses) == 7 and same(model, together(loss)[0])
    with pytest.raises(ArgumentError, match=r"train: the checkpoint is of 2 workers, got workers=3"):
        together(loss, workers=3, checkpoints=manager)
    with pytest.raises(ArgumentError, match=r"the state is of 2 shards, this server has 1; make it with shards=2"):
        together(loss, shards=1, checkpoints=manager)


def test_a_shard_that_dies_is_an_error_without_a_checkpoint(killing: Killing) -> None:
    killing({3: "shard 1"})
    with pytest.raises(servers.ActorError, match=r"shard 1 has died, and no checkpoint .* pass checkpoints="):
        together(loss_of(False))


def test_restarts_are_limited(killing: Killing) -> None:
    killing(dict.fromkeys(range(12), "worker 1"))
    with pytest.raises(servers.ActorError, match=r"worker 1 has died; .* max_restarts=2"):
        together(loss_of(False), max_restarts=2)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_who_does_not_answer_is_named(mode: str) -> None:
    end = threading.Event()

    def loss(model: Any, step: int, rank: int) -> Any:
        if rank == 1 and step == 2:
            end.wait(20)
        return loss_of(False)(model, step, rank)

    with servers.ParameterServer(net(), sgd, shards=2, engine="threads", timeout=1.5) as server:
        with pytest.raises(servers.ActorError, match=r"^worker 1 has not answered within 1\.5 s"):
            servers.train(server, loss, workers=2, steps=9, mode=mode, max_restarts=0)
        end.set()


def test_a_shard_that_does_not_answer_is_named() -> None:
    end = threading.Event()

    class Slow(hm.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            end.wait(20)

    with servers.ParameterServer(net(), lambda p: Slow(p, lr=0.1), shards=2, engine="threads", timeout=0.2) as server:
        with pytest.raises(servers.ActorError, match=r"^shard 0 has not answered within 0\.2 s"):
            server.push()
        end.set()


def test_errors_of_users_are_raised_as_they_are() -> None:
    def loss(model: Any, step: int, rank: int) -> Any:
        raise ZeroDivisionError("mine") if step == 1 else LookupError if step else None

    with pytest.raises(AttributeError):  # None has no backward
        together(lambda model, step, rank: None)
    with pytest.raises(ZeroDivisionError, match="mine"):
        together(lambda model, step, rank: loss_of(False)(model, step, rank) if step < 1 else loss(model, step, rank))
    with pytest.raises(ArgumentError, match="learning rate"):
        together(loss_of(False), lambda params: hm.optim.SGD(params, lr=-1.0))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "fast"}, "train: mode must be one of 'sync', 'backup', 'async', got 'fast'"),
        ({"workers": 0}, "train: workers must be 1 or more, got 0"),
        ({"need": 1}, "train: need is for mode='backup'"),
        ({"mode": "backup"}, "train: need is for mode='backup'"),
        ({"mode": "backup", "need": 3}, "from 1 to workers=2; got 3"),
        ({"mode": "async", "staleness": -1}, "train: staleness must be 0 or more, got -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        together(loss_of(False), **options)


def test_a_server_checks_its_shards_and_engine() -> None:
    with pytest.raises(ArgumentError, match=r"ParameterServer: shards must be .* trained, 4; got 5"):
        servers.ParameterServer(net(), sgd, shards=5, engine="threads")
    with pytest.raises(ArgumentError, match=r"engine must be one of 'ray', 'threads', got 'dask'"):
        servers.ParameterServer(net(), sgd, engine="dask")


def test_without_ray_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "hybridml.distributed.servers.ray_engine", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'hybridml\[ray\]'; engine='threads' needs nothing"):
        servers.ParameterServer(net(), sgd)
