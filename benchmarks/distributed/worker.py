"""A process that trains its part: `python -m benchmarks.distributed.worker LIBRARY STYLE NETWORK RESULTS`."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hybridml.models import architecture, example_batch

STEPS, SECONDS = 5, 3.0  # at least so many, for so long


class Size(NamedTuple):
    """An architecture's batch, its options and those of its batch, and its optimizer."""

    batch: int
    options: dict[str, Any]
    sizes: dict[str, Any]
    optimizer: str = "sgd"


# One process's batch. The GPT is GPT-2 small with a third of its layers.
NETWORKS = {
    "mlp": Size(128, {}, {}),
    "resnet18": Size(8, {}, {}),
    "gpt2": Size(1, {"layers": 4}, {"length": 128}, "adam"),
}


def _mlp(lib: Any) -> tuple[Any, Any, list[np.ndarray]]:
    widths = (784, 1024, 1024, 1024, 10)
    layers = []
    for n, m in itertools.pairwise(widths):
        layers += [lib.nn.Linear(n, m), lib.nn.ReLU()]
    rng = np.random.default_rng(0)
    batch = NETWORKS["mlp"].batch
    arrays = [rng.standard_normal((batch, widths[0]), dtype=np.float32), rng.integers(0, widths[-1], batch)]
    loss = lib.nn.CrossEntropyLoss()
    return lib.nn.Sequential(*layers[:-1]), lambda model, x, y: loss(model(x), y), arrays


def made(lib: Any, library: str, name: str) -> tuple[Any, Any, list[np.ndarray]]:
    """The model, its loss as a function of model and batch, and the batch."""
    if name == "mlp":
        return _mlp(lib)
    size, row = NETWORKS[name], architecture(name)
    if library == "torch":
        from hybridml_examples.in_torch import in_torch

        models, losses = in_torch(row.module), in_torch("losses")
    else:
        models, losses = (importlib.import_module(f"hybridml.models.{file}") for file in (row.module, "losses"))
    model = getattr(models, name)(**size.options)
    return model, getattr(losses, row.loss), list(example_batch(name, size.batch, **size.sizes))


def training_step(model: Any, loss_of: Any, optimizer: Any) -> Callable[..., Any]:
    """A step on a batch, which returns the loss."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main(library: str, style: str, name: str, results: str) -> None:
    """Trains, and lets rank 0 write what it has measured."""
    lib = importlib.import_module(library)
    lib.set_num_threads(1)
    lib.manual_seed(0)
    model, loss_of, arrays = made(lib, library, name)
    if library == "torch":
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if size > 1:
            lib.distributed.init_process_group("gloo")
            model = lib.nn.parallel.DistributedDataParallel(model)
    else:
        from hybridml import distributed

        rank, size = distributed.get_rank(), distributed.get_world_size()
        if size > 1:
            model = distributed.DataParallel(model)
    if NETWORKS[name].optimizer == "adam":
        optimizer = lib.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    else:
        optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    batch = [lib.from_numpy(np.ascontiguousarray(array)) for array in arrays]

    step = training_step(model, loss_of, optimizer)
    found = _measured(lib.trace(step) if style == "traced" else step, batch, size)
    if rank == 0:
        Path(results).write_text(json.dumps(found), encoding="utf-8")
    if library == "torch" and size > 1:
        lib.distributed.destroy_process_group()


def _measured(run: Any, batch: list[Any], size: int) -> dict[str, float]:
    """Milliseconds of a step, the median, and the loss after a fixed number of steps. All processes take as many."""
    for _ in range(3):
        loss = float(run(*batch))
    start = time.perf_counter()
    run(*batch)
    count = max(STEPS, int(SECONDS / (time.perf_counter() - start)))
    count = min(count, 200) if size == 1 else _agreed(min(count, 200))
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run(*batch)
        times.append((time.perf_counter() - start) * 1e3)
    return {"ms": statistics.median(times), "loss": loss}


def _agreed(count: int) -> int:
    """The count of rank 0, for all."""
    if "torch" in sys.modules:
        import torch

        whole = torch.tensor(count)
        torch.distributed.broadcast(whole, 0)
        return int(whole)
    import hybridml as hm
    from hybridml import distributed

    return int(distributed.broadcast(hm.asarray(count)))


if __name__ == "__main__":
    main(*sys.argv[1:])
