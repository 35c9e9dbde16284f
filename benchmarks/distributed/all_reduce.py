"""A process of two that measure all-reduce beside bare mpi4py's, of the same arrays in turns."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import hybridml as hm
from hybridml import distributed as dist

BYTES = (8, 64 << 10, 1 << 20, 4 << 20, 25 << 20)
ROUNDS, SECONDS = 15, 0.02


def main() -> None:
    """Rank 0 prints a row for each size."""
    dist.init()
    comm, rows = MPI.COMM_WORLD, []
    for size in BYTES:
        array = np.ones(size // 4, np.float32)
        tensor, out, place = hm.asarray(array), np.empty_like(array), array.copy()
        calls: dict[str, Callable[[], Any]] = {
            "hybridml us": lambda t=tensor: dist.all_reduce(t),  # type: ignore[misc]
            "mpi4py us": lambda a=array, o=out: comm.Allreduce(a, o),  # type: ignore[misc]
            "in place us": lambda p=place: comm.Allreduce(MPI.IN_PLACE, p, MPI.MAX),  # type: ignore[misc]
        }
        count = max(1, int(SECONDS / (size / 2e9 + 2e-5)))
        times = _times(list(calls.values()), count)
        medians = [statistics.median(found) * 1e6 for found in times]
        ratio = statistics.median(ours / theirs for ours, theirs in zip(*times[:2], strict=True))
        shown = {name: round(median, 2) for name, median in zip(calls, medians, strict=True)}
        rows.append({"bytes": size, **shown, "ratio": round(ratio, 3)})
    if dist.get_rank() == 0:
        print(json.dumps(rows))


def _times(calls: list[Callable[[], Any]], count: int) -> list[list[float]]:
    """Seconds of a call, in rounds of so many."""
    found: list[list[float]] = [[] for _ in calls]
    for k in range(ROUNDS + 2):
        for call, times in zip(calls, found, strict=True):
            MPI.COMM_WORLD.Barrier()
            start = time.perf_counter()
            for _ in range(count):
                call()
            if k > 1:
                times.append((time.perf_counter() - start) / count)
    return found


if __name__ == "__main__":
    main()
