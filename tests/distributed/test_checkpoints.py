"""Step-numbered checkpoints: whole or not there, whatever is killed; a training that goes on from one is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed import checkpoints

Mpi = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parent.parent.parent


def objects() -> dict[str, Any]:
    hm.manual_seed(3)
    model = hm.nn.Linear(2, 2)
    return {"model": model, "optimizer": hm.optim.Adam(model.parameters(), lr=0.1), "notes": {"best": 1.5}}


def trained(state: dict[str, Any], steps: int) -> list[float]:
    model, optimizer = state["model"], state["optimizer"]
    for _ in range(steps):
        optimizer.zero_grad()
        hm.nn.functional.dropout(model(hm.ones((4, 2))), 0.5).sum().backward()
        optimizer.step()
    return model.weight.tolist()


def test_a_restored_training_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """With the random numbers that it would have drawn."""
    state = objects()
    manager = dist.CheckpointManager(tmp_path / "a" / "b")
    assert manager.restore(state) is None and manager.latest_step() is None
    trained(state, 2)
    assert manager.save(2, state)
    expected = trained(state, 3)
    again = objects()
    again["notes"]["best"] = 0.0
    assert manager.restore(again) == 2 and again["notes"] == {"best": 1.5}
    assert trained(again, 3) == expected


def test_which_steps_are_kept(tmp_path: Path) -> None:
    manager = dist.CheckpointManager(tmp_path, max_to_keep=2, save_interval_steps=5)
    assert [step for step in range(23) if manager.save(step, {"notes": {}})] == [0, 5, 10, 15, 20]
    assert manager.all_steps() == [15, 20] and manager.latest_step() == 20
    manager.save(20, {"notes": {"again": 1}})
    notes: dict[str, int] = {}
    assert manager.restore({"notes": notes}) == 20 and notes == {"again": 1}
    assert manager.restore({"notes": notes}, step=15) == 15 and notes == {}


def test_what_a_kill_leaves_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = dist.CheckpointManager(tmp_path)
    manager.save(1, {"notes": {"step": 1}})

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "barrier", killed)
        with pytest.raises(KeyboardInterrupt):
            manager.save(2, {"notes": {"step": 2}})
    assert manager.all_steps() == [1]
    manager.save(3, {"notes": {}})
    assert sorted(os.listdir(tmp_path)) == ["step-1", "step-3"]


def test_mistakes(tmp_path: Path) -> None:
    manager = dist.CheckpointManager(tmp_path)
    with pytest.raises(TypeError, match=r"'epoch' must have state_dict.* or be a dict, got int"):
        manager.save(1, {"epoch": 3})
    assert manager.all_steps() == []
    manager.save(1, {"notes": {}})
    with pytest.raises(hm.io.CheckpointError, match="has no 'model'; it has 'notes'"):
        manager.restore({"model": hm.nn.Linear(1, 1)})
    with pytest.raises(hm.ArgumentError, match="max_to_keep must be 1 or more, got 0"):
        dist.CheckpointManager(tmp_path, max_to_keep=0)


def test_other_numbers_of_processes(tmp_path: Path) -> None:
    """Saved by three, restored by two and by four."""

    def saves() -> None:
        dist.CheckpointManager(tmp_path).save(7, {"notes": {"rank": dist.get_rank()}})

    def restores() -> tuple[int | None, dict[str, int]]:
        notes: dict[str, int] = {}
        return dist.CheckpointManager(tmp_path).restore({"notes": notes}), notes

    dist.run_threads(3, saves)
    for size in (2, 4):
        assert dist.run_threads(size, restores) == [(7, {"rank": 0})] * size


TRAINING = """
import os, sys, time
import hybridml as hm
from hybridml import distributed as dist

folder, steps = sys.argv[1], 60
hm.manual_seed(0)
net = hm.nn.Sequential(hm.nn.Linear(6, 30), hm.nn.Tanh(), hm.nn.Linear(30, 1))
model = dist.DataParallel(net)
optimizer = hm.optim.Adam(model.parameters(), lr=0.01)
manager = dist.CheckpointManager(folder, save_interval_steps=5)
state = {"model": model, "optimizer": optimizer}
rank, size = dist.get_rank(), dist.get_world_size()

@hm.trace
def step(x):
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss

with open(f"{folder}-{rank}.txt", "a") as log:
    print("pid", os.getpid(), file=log, flush=True)
    for k in range(manager.restore(state) or 0, steps):
        x = hm.random.normal((4, 6), generator=hm.random.Generator(1000 * k + rank))
        loss = float(dist.all_reduce(step(x), "mean"))
        print("step", k, loss, file=log, flush=True)
        manager.save(k + 1, state)
        time.sleep(0.02)
"""


def losses(log: Path) -> list[tuple[int, str]]:
    return [(int(words[1]), words[2]) for words in map(str.split, log.read_text().splitlines()) if words[0] == "step"]


def test_killed_workers_cost_no_more_than_an_interval(mpi: Mpi, tmp_path: Path) -> None:
    """Twice a worker is killed, at any step; the training ends with the losses of one that nobody disturbs."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HYBRIDML_NUM_THREADS": "1"}

    def start(folder: str, restarts: int) -> subprocess.Popen[bytes]:
        options = ["-n", "2", "--max-restarts", str(restarts)]
        command = [sys.executable, "-m", "hybridml.run", *options, str(script), folder]
        return subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)

    assert start("whole", 0).wait(120) == 0
    running, log = start("killed", 2), tmp_path / "killed-1.txt"
    try:
        for kill, after in enumerate((13, 37), start=1):
            end = time.monotonic() + 60
            while not (log.exists() and log.read_text().count("pid") == kill and losses(log)[-1:] >= [(after, "")]):
                assert time.monotonic() < end and running.poll() is None
                time.sleep(0.01)
            os.kill(int(log.read_text().rpartition("pid ")[2].split()[0]), signal.SIGKILL)
        assert running.wait(120) == 0
    finally:
        running.kill()
    whole, found = losses(tmp_path / "whole-1.txt"), losses(log)
    assert [k for k, _ in whole] == list(range(60)) and set(found) == set(whole)
    assert len(whole) < len(found) <= len(whole) + 2 * 5 + 2  # a step may be logged whose checkpoint was not yet there
