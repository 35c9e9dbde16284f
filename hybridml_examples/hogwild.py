"""Handwritten digits by processes that write to the same parameters, without locks (Hogwild, Niu et al. 2011).

Each process makes traced steps on batches of its own; an update may be lost where two write the same element at once.
``python -m hybridml_examples.hogwild``
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any, NamedTuple

import numpy as np

import hybridml as hm
from hybridml import nn

from .digits import load

STEPS, BATCH, RATE = 600, 128, 0.05


class Result(NamedTuple):
    """Mean losses of the first and last steps of all processes, the part of the test that is right, steps a second."""

    first: float
    last: float
    accuracy: float
    steps_per_second: float


def work(rank: int, model: nn.Module, data: tuple[hm.Tensor, hm.Tensor], steps: int, start: Any, losses: Any) -> None:
    """The program of a process: its batches are drawn by its rank, the parameters are everybody's."""
    hm.set_num_threads(1)
    images, labels = data
    order = np.random.default_rng(rank).integers(0, len(labels), (steps, BATCH))
    optimizer = hm.optim.SGD(model.parameters(), lr=RATE)

    @hm.trace
    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batches = [(images[rows], labels[rows]) for rows in order]
    found = [step(*batches[0]).item()]  # which compiles, before the clock runs
    start.wait()
    begin = time.perf_counter()
    found += [step(*batch).item() for batch in batches[1:]]
    losses.put((rank, (steps - 1) / (time.perf_counter() - begin), found))


def train(processes: int, steps: int = STEPS, method: str = "spawn") -> Result:
    """Trains one model by so many processes, which make `steps` steps together."""
    hm.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)).share_memory()
    training, test = load()
    data = tuple(t.clone().share_memory_() for t in training.tensors)  # all processes read one copy
    context = multiprocessing.get_context(method)
    losses, start = context.Queue(), context.Barrier(processes)
    each = steps // processes
    crew = [
        context.Process(target=work, args=(rank, model, data, each, start, losses), daemon=True)
        for rank in range(processes)
    ]
    for process in crew:
        process.start()
    results = [losses.get(timeout=300) for _ in crew]
    for process in crew:
        process.join()
    x, y = test.tensors
    accuracy = float((model(x).argmax(axis=1) == y).astype("float32").mean())
    first, last = (np.mean([found[part] for _, _, found in results]) for part in (slice(20), slice(-20, None)))
    return Result(float(first), float(last), accuracy, sum(rate for _, rate, _ in results))


def main() -> None:
    print(f"{STEPS} steps of {BATCH} digits, with one model in shared memory")
    alone = train(1)
    for processes in (1, 2):
        found = alone if processes == 1 else train(processes)
        print(
            f"{processes} process{'es' if processes > 1 else ''}: loss {found.first:.2f} -> {found.last:.2f}, "
            f"{found.accuracy:.1%} of the test right, {found.steps_per_second:,.0f} steps/s, "
            f"{found.steps_per_second / alone.steps_per_second:.2f} of one process"
        )


if __name__ == "__main__":
    main()
