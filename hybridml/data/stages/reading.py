"""Who reads what: the epoch, and the number of this process or worker among all that read the same data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..workers import get_worker_info


@dataclass
class Hooks:
    """Answers of higher packages: the rank of this process, and how many there are (distributed/sampler.py)."""

    processes: Callable[[], tuple[int, int]]


hooks = Hooks(lambda: (0, 1))


class Reading(NamedTuple):
    """A run through a data set: its epoch, and which of how many readers runs."""

    epoch: int
    reader: int
    readers: int


class Share(NamedTuple):
    """The samples of a shard that a reader has: `first`, `first + step`, and so on."""

    shard: int
    first: int
    step: int


def present(epoch: int, replica: tuple[int, int]) -> Reading:
    """The reading of this worker of this process: each process has the same number of workers."""
    info = get_worker_info()
    worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
    rank, size = replica
    return Reading(epoch, rank * workers + worker, size * workers)


def shares(shards: int, reading: Reading) -> list[Share]:
    """The shards of a reader, in turn; where shards are fewer than readers, the samples of one shard in turn.

    >>> shares(5, Reading(0, 1, 2))
    [Share(shard=1, first=0, step=1), Share(shard=3, first=0, step=1)]
    >>> shares(2, Reading(0, 4, 5))
    [Share(shard=0, first=2, step=3)]
    """
    if shards >= reading.readers:
        return [Share(shard, 0, 1) for shard in range(reading.reader, shards, reading.readers)]
    first, shard = divmod(reading.reader, shards)
    return [Share(shard, first, len(range(shard, reading.readers, shards)))]
