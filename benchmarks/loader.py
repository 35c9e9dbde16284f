"""Loaders that feed a step: `python -m benchmarks.loader [--workers N] [--rounds N] [--json FILE]`.

Images of 256 x 256 in JPEG's format are decoded, cropped at random, mirrored and normalized by worker processes, in
batches of 32, and a step takes them. Rates are in batches per second: of the loader alone, of the step alone on a batch
that is there, and of both together, whose rate is at most that of the slower. The step is that of a device: this
process waits for it, as for a GPU, as long as the loader needs for a batch, half and twice as long. A step on the same
processors, of a traced network on one thread, has to share them with the workers: of it the seconds of processors are
compared, of the loader and of the step alone with those of both together.

Also: seconds from `iter(loader)` to the first batch of two workers, of an epoch of eight small batches with a start and
an end (PyTorch's loader beside it, where it is installed), from `kill -9` of a worker to the end of a program that
waits for it, and from Ctrl-C to the end of all processes.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import nn
from hybridml.data import DataLoader, Dataset
from hybridml.data import transforms as T

from .process import ROOT

BATCH, BATCHES, SIDE = 32, 24, 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Photographs(Dataset[Any]):
    """Images in JPEG's format, in memory, as a folder of them is after the first epoch."""

    def __init__(self, count: int, side: int = SIDE) -> None:
        from PIL import Image

        y, x = np.mgrid[:side, :side]
        noise = np.random.default_rng(0).integers(0, 40, (4, side, side, 3), np.uint8)
        self.files = []
        for k in range(4):
            waves = 100 + 80 * np.sin(x / (20 + k))[..., None] * np.cos(y[..., None] / (9.0, 15.0, 30.0))
            file = io.BytesIO()
            Image.fromarray((waves + noise[k]).astype(np.uint8)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.count = count
        self.augment = T.Compose(
            [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]
        )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        image = Image.open(io.BytesIO(self.files[index % len(self.files)]))
        return self.augment(image), index % 10


def rate(batches: Iterable[Any], step: Callable[[Any], object] = lambda batch: None) -> float:
    """Batches per second after the first two."""
    begun, count = 0.0, 0
    for count, batch in enumerate(batches, 1):
        step(batch)
        if count == 2:
            begun = time.perf_counter()
    return (count - 2) / (time.perf_counter() - begun)


def computed(loader: DataLoader, step: Callable[[Any], object]) -> float:
    """Seconds of processors for a batch, in this process and its workers."""
    next(iter(loader))  # starts them
    workers = [Path(f"/proc/{number}/stat") for number in children()]

    def used() -> float:
        ticks = [int(n) for file in workers for n in file.read_text().rpartition(")")[2].split()[11:13]]
        return time.process_time() + sum(ticks) / os.sysconf("SC_CLK_TCK")

    before = used()
    for batch in loader:
        step(batch)
    return (used() - before) / len(loader)


def children() -> list[int]:
    return [int(number) for number in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def waiting(seconds: float) -> Callable[[Any], object]:
    """A step of a device, which takes so long and no time of the processors."""
    return lambda batch: time.sleep(seconds)


def training() -> Callable[[Any], object]:
    """A traced step of a small network, on the processors."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = hm.optim.SGD(model.parameters(), lr=0.01)

    @hm.trace
    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda batch: step(batch[0], batch[1])


def fed(workers: int, rounds: int) -> dict[str, Any]:
    """Rates together, of those of the slower alone, and processors' seconds: medians of rounds."""
    loader = DataLoader(
        Photographs(BATCH * BATCHES), BATCH, shuffle=True, generator=0, num_workers=workers, persistent_workers=True
    )
    hm.set_num_threads(1)
    there = [next(iter(DataLoader(Photographs(BATCH), BATCH)))] * BATCHES
    network = training()
    rate(there, network)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        alone = rate(loader)
        found.setdefault("loader", []).append(alone)
        for name, share in (("device, half", 0.5), ("device, equal", 1.0), ("device, twice", 2.0)):
            step = waiting(share / alone)
            together, again = rate(loader, step), rate(loader)  # the machine is as busy before as after
            found.setdefault(name, []).append(together / min((alone + again) / 2, rate(there, step)))
            alone = again
        begun = time.process_time()
        rate(there, network)
        seconds = (time.process_time() - begun) / BATCHES
        parts = computed(loader, lambda batch: None) + seconds
        found.setdefault("step of a network, seconds", []).append(seconds)
        found.setdefault("seconds alone, of together", []).append(parts / computed(loader, network))
    return {name: statistics.median(values) for name, values in found.items()}


class Small(Dataset[Any]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return np.full(1000, index, np.float32)


def started(make: Callable[..., Any], data: Any, rounds: int) -> dict[str, float]:
    """Seconds to the first batch of two workers, and of an epoch with their start and end: the least of many."""
    first, whole = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        batches = iter(make(data, batch_size=4, num_workers=2))
        next(batches)
        first.append(time.perf_counter() - begun)
        for _ in batches:
            pass
        del batches
        whole.append(time.perf_counter() - begun)
    return {
        "first batch": min(first),
        "epoch of 8 batches": min(whole),
        "first batch, median": statistics.median(first),
    }


PROGRAM = """
import os, sys, time
import numpy as np
import hybridml as hm

class Rows(hm.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        if index >= 100:
            time.sleep(100)
        return np.full(20_000, index, np.float32)

for k, batch in enumerate(hm.data.DataLoader(Rows(), 10, num_workers=2)):
    if k == 0:
        print(*open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split(), flush=True)
"""


def ended(how: str) -> float:
    """Seconds from a signal, to all (Ctrl-C) or to one worker (kill -9), to the end of the program and its workers."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert program.stdout is not None
    workers = program.stdout.readline().split()
    time.sleep(0.5)
    begun = time.perf_counter()
    if how == "Ctrl-C":
        os.killpg(program.pid, signal.SIGINT)
    else:
        os.kill(int(workers[0]), signal.SIGKILL)
    _, said = program.communicate()
    took = time.perf_counter() - begun
    assert ("KeyboardInterrupt" if how == "Ctrl-C" else f"process {workers[0]}") in said, said
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"start": started(DataLoader, Small(), 10 * arguments.rounds)}
    if importlib.util.find_spec("torch") is not None:
        from torch.utils.data import DataLoader as Theirs

        found["start, PyTorch"] = started(Theirs, Small(), 10 * arguments.rounds)
    found["end"] = {how: ended(how) for how in ("Ctrl-C", "kill -9")}
    found["fed"] = fed(arguments.workers, arguments.rounds)
    for part, figures in found.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:<32}{value:9.3f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
