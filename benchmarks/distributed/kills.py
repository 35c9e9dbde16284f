"""Kills at random times of a training that is started again each time: what is lost, and whether the end is the same.

    python -m benchmarks.distributed.kills                 50 kills of one of two processes
    python -m benchmarks.distributed.kills --kills 5 --json kills.json

The training is a data-parallel step with Adam and dropout, with a checkpoint at each tenth step. It must end with the
bits of one that nobody disturbs, and run no more steps again than lie between two checkpoints for each kill.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
INTERVAL = 10  # steps


def train(folder: str, steps: int) -> None:
    """Trains as one of the processes, and logs its number, the steps that it begins, a digest of its last weights."""
    import hashlib

    import hybridml as hm
    from hybridml import distributed as dist

    hm.manual_seed(0)
    layers = [hm.nn.Linear(64, 256), hm.nn.Dropout(0.1), hm.nn.Tanh(), hm.nn.Linear(256, 1)]
    model = dist.DataParallel(hm.nn.Sequential(*layers))
    optimizer = hm.optim.Adam(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}
    manager = dist.CheckpointManager(folder, save_interval_steps=INTERVAL)

    @hm.trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    with Path(f"{folder}-{dist.get_rank()}.log").open("a", encoding="utf-8") as log:
        print("process", os.getpid(), file=log, flush=True)
        hm.manual_seed(dist.get_rank())
        for k in range(manager.restore(state) or 0, steps):
            print("step", k, file=log, flush=True)
            step(hm.randn((32, 64)))
            time.sleep(0.005)
            manager.save(k + 1, state)
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
        print("end", digest.hexdigest(), file=log, flush=True)


def logged(path: Path, what: str) -> list[str]:
    """The words that a process has logged behind one, such as the numbers of its steps behind \"step\"."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.split()[1] for line in lines if line.startswith(what) and len(line.split()) == 2]


def start(folder: Path, steps: int, restarts: int) -> subprocess.Popen[bytes]:
    """The training, of two processes."""
    command = [sys.executable, "-m", "hybridml.run", "-n", "2", "--max-restarts", str(restarts), "-m", __spec__.name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HYBRIDML_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--train", str(folder), str(steps)], env=environment, stderr=subprocess.DEVNULL)


def disturb(folder: Path, steps: int, kills: int) -> tuple[int, float]:
    """Kills a process after another, each a random time after the last start; returns how many were, and seconds."""
    rng, done, begin = random.Random(0), 0, time.monotonic()
    with start(folder, steps, kills) as running:
        while done < kills and running.poll() is None:
            victim = folder.with_name(f"{folder.name}-{rng.randrange(2)}.log")
            while len(logged(victim, "process")) <= done and running.poll() is None:
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 2.0))
            if running.poll() is None:
                os.kill(int(logged(victim, "process")[done]), signal.SIGKILL)
                done += 1
        assert running.wait() == 0, "the training has failed"
    return done, time.monotonic() - begin


def main(kills: int, steps: int) -> dict[str, Any]:
    """Trains undisturbed and disturbed; returns kills, steps done again, and whether the bits are the same."""
    with tempfile.TemporaryDirectory() as room:
        whole, disturbed = Path(room) / "whole", Path(room) / "disturbed"
        with start(whole, steps, 0) as alone:
            assert alone.wait() == 0
        done, seconds = disturb(disturbed, steps, kills)
        ends = [logged(Path(room) / f"{name}-{rank}.log", "end") for name in ("whole", "disturbed") for rank in (0, 1)]
        ran = [int(k) for k in logged(Path(room) / "disturbed-0.log", "step")]
        lost = [last + 1 - first for last, first in itertools.pairwise(ran) if first <= last]
    return {
        "kills": done, "steps": steps, "interval": INTERVAL, "most steps again": max(lost, default=0),
        "steps again": len(ran) - steps, "same bits": len({end for found in ends for end in found}) == 1,
        "seconds": round(seconds, 1),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train[0], int(given.train[1]))
    else:
        found = main(given.kills, given.steps)
        print(json.dumps(found))
        if given.json:
            command = shlex.join(["python", "-m", "benchmarks.distributed.kills", *sys.argv[1:]])
            given.json.write_text(json.dumps({"command": command, **found}, indent=1) + "\n", encoding="utf-8")
