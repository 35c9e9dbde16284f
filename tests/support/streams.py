"""Streams and stages for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml.data import IterableDataset, NumpyShards


class Count(IterableDataset[int]):
    """A program's own stream, which counts how many samples were read."""

    def __init__(self, count: int) -> None:
        self.count, self.read, self.epochs = count, 0, list[int]()

    def __iter__(self) -> Iterator[int]:
        for k in range(self.count):
            self.read += 1
            yield k

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def plain(sample: Any) -> Any:
    return sample.tolist() if isinstance(sample, hm.Tensor) else sample


def values(stream: Any) -> list[Any]:
    return [plain(sample) for sample in stream]


def tenfold(sample: Any) -> Any:
    return sample * 10


# (a stage of a stream, a number, a file) for chains of any of them, in any order.
STAGES: dict[str, Callable[[Any, int, Path], Any]] = {
    "map": lambda stream, n, path: stream.map(tenfold),
    "batch": lambda stream, n, path: stream.batch(n),
    "shuffle": lambda stream, n, path: stream.shuffle(n, seed=n),
    "prefetch": lambda stream, n, path: stream.prefetch(n),
    "cache": lambda stream, n, path: stream.cache(),
    "file": lambda stream, n, path: stream.cache(path),
}


def shards(folder: Path, sizes: list[int]) -> NumpyShards:
    for number, size in enumerate(sizes):
        np.save(folder / f"{number}.npy", np.arange(size) + 100 * number)
    return NumpyShards([folder / f"{number}.npy" for number in range(len(sizes))])
