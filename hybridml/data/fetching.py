"""Batches made of a data set: from the samples at some indices, or of a stream one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from .collate import default_collate, default_convert


@dataclass(frozen=True)
class Fetcher:
    """A data set, and how batches are made of it."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    batch_size: int | None
    drop_last: bool

    def batch(self, job: Any) -> Any:
        """One batch of the samples at some indices; with one index the sample alone."""
        if isinstance(job, int | np.integer):
            return (self.collate_fn or default_convert)(self.dataset[int(job)])
        if self.collate_fn is None and hasattr(self.dataset, "batch"):
            return self.dataset.batch(np.asarray(job, dtype=np.int64))
        if hasattr(self.dataset, "__getitems__"):  # PyTorch's name for several samples at once
            samples = self.dataset.__getitems__(list(job))
        else:
            samples = [self.dataset[index] for index in job]
        return (self.collate_fn or default_collate)(samples)

    def stream(self, samples: Iterator[Any] | None = None) -> Iterator[Any]:
        """The batches of a stream, of what is left in `samples`: a new run through it without them."""
        samples = iter(self.dataset) if samples is None else samples
        if self.batch_size is None:
            yield from map(self.collate_fn or default_convert, samples)
            return
        while group := list(islice(samples, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield (self.collate_fn or default_collate)(group)
