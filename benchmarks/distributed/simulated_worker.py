"""A process of several that measure their link, their steps, and what the simulation says of the same steps.

Then all but the first are workers of TensorFlow's null steps, and the first is their server of parameters.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import hybridml as hm
from hybridml import distributed as dist

from .worker import NETWORKS, made, training_step

STEPS, SECONDS, ROUNDS = 5, 2.0, 3  # at least so many, for so long, in turns with the simulation
NULL_BYTES = {"scalar": 4, "sparse": 32 * 4096, "dense 100 MB": 100_000_000}
NULL_STEPS = {"scalar": 200, "sparse": 200, "dense 100 MB": 7}


def maker(network: str, style: str) -> Callable[[], Callable[[], Any]]:
    """The function that makes the model and step of a process."""

    def make() -> Callable[[], Any]:
        hm.manual_seed(0)
        model, loss_of, arrays = made(hm, "hybridml", network)
        model = dist.DataParallel(model)
        optimizer = hm.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
        batch = [hm.from_numpy(array) for array in arrays]
        step = training_step(model, loss_of, optimizer)
        run = hm.trace(step) if style == "traced" else step
        return lambda: run(*batch)

    return make


def real(step: Callable[[], Any]) -> list[float]:
    """Milliseconds of steps."""
    start = time.perf_counter()
    step()
    mine = hm.asarray(int(SECONDS / (time.perf_counter() - start)))
    count = min(max(int(dist.all_reduce(mine, "min")), STEPS), 100)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def step_row(network: str, style: str) -> dict[str, Any]:
    """The step as it is and as it is simulated, in turns: medians. This process simulates while the others do, too:
    they share the cores, and memory, in both."""
    group, make = dist.init(), maker(network, style)
    step = make()
    for _ in range(3):
        step()
    times, found, links = list[float](), list[Any](), list[dist.Link]()
    for _ in range(ROUNDS):
        links.append(dist.calibrate())
        times.append(statistics.median(real(step)))
        dist.barrier()
        overlap = group.transport.overlaps
        found += dist.simulate(make, (group.size,), links[-1], overlap=overlap, repeats=9).predictions
    ratios = [one.step_ms / ms for one, ms in zip(found, times, strict=True)]
    return {
        "network": network, "style": style, "ranks": group.size, "real ms": statistics.median(times),
        "simulated ms": statistics.median(one.step_ms for one in found), "error": statistics.median(ratios) - 1,
        "work ms": statistics.median(one.work_ms for one in found),
        "communication ms": statistics.median(one.communication_ms for one in found),
        "blocked ms": statistics.median(one.blocked_ms for one in found),
        "latency us": 1e6 * statistics.median(link.latency for link in links),
        "GB/s": statistics.median(link.bandwidth for link in links) / 1e9,
    }  # fmt: skip


def null_rows() -> list[dict[str, Any]]:
    """Null steps of 1, 2, ... workers: they read the parameters, and send as much back."""
    rank, size, rows = dist.get_rank(), dist.get_world_size(), []
    for what, nbytes in NULL_BYTES.items():
        x = hm.ones((nbytes // 4,))
        for workers in range(1, size):
            times = []
            for _ in range(NULL_STEPS[what]):
                dist.barrier()
                start = time.perf_counter()
                _null_step(x, rank, workers)
                times.append(1e3 * (time.perf_counter() - start))
            rows.append({"what": what, "bytes": nbytes, "workers": workers, "real ms": statistics.median(times)})
    return rows


def _null_step(x: Any, rank: int, workers: int) -> None:
    if rank == 0:
        for worker in range(1, workers + 1):
            dist.send(x, worker)
        for worker in range(1, workers + 1):
            dist.recv(x, worker)
    elif rank <= workers:
        dist.send(dist.recv(x, 0), 0)


def main() -> None:
    """Rank 0 prints what it has found."""
    networks = [name for name in sys.argv[1].split(",") if name in NETWORKS]
    rows = [step_row(network, style) for network in networks for style in ("eager", "traced")]
    null = null_rows()
    if dist.get_rank() == 0:
        print(json.dumps({"steps": rows, "null": null}))


if __name__ == "__main__":
    main()
