"""The part of a dataset that belongs to a process."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ..data.sampler import DrawnSampler
from ..data.stages.reading import hooks
from .groups import default

hooks.processes = lambda: (default().rank, default().size)  # shards are divided among the processes


class DistributedSampler(DrawnSampler):
    """Sampler of the indices that belong to this process: all have the same number, and every index is one's.

    dataset: what has a length, the same in all processes. num_replicas, rank: by default those of all processes.
    shuffle: whether the order is drawn, from `seed` and the number of epochs begun, equally in all processes; that
    number counts by itself, `set_epoch` sets it. drop_last: whether indices beyond equal parts are left out; without,
    parts are made equal by the first indices of the order once more. Raises ArgumentError for a rank that is not
    below `num_replicas`.

    >>> from hybridml import distributed as dist
    >>> [list(dist.DistributedSampler(range(5), 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset, self.shuffle, self.drop_last = dataset, shuffle, drop_last
        self.num_replicas = default().size if num_replicas is None else num_replicas
        self.rank = default().rank if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(
                f"DistributedSampler: rank must be 0 to {self.num_replicas - 1}, as num_replicas is "
                f"{self.num_replicas}, got {self.rank}"
            )
        super().__init__(len(self), seed)

    def __len__(self) -> int:  # the dataset may grow
        size = len(self.dataset)
        return size // self.num_replicas if self.drop_last else -(-size // self.num_replicas)

    def _order(self, bits: np.random.Generator) -> np.ndarray:
        size, total = len(self.dataset), len(self) * self.num_replicas
        order = bits.permutation(size) if self.shuffle else np.arange(size)
        return np.resize(order, total)[self.rank :: self.num_replicas]

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of epochs begun: the next order is that of epoch `epoch`.

        >>> from hybridml import distributed as dist
        >>> sampler = dist.DistributedSampler(range(100), 1, 0)
        >>> first = list(sampler)
        >>> sampler.set_epoch(0)
        >>> list(sampler) == first
        True
        """
        self.epoch = epoch
