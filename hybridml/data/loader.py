"""DataLoader: batches from a data set, in order or shuffled, on this thread or prefetched by others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core import pytree
from ..core.states import check_entries
from ..core.tensor import Tensor
from .dataset import IterableDataset, Subset, TensorDataset
from .sampler import BatchSampler, RandomSampler, Seed, SequentialSampler, restore, state_of


def default_collate(batch: Sequence[Any]) -> Any:
    """Stacks samples along a new first axis; tuples, lists and dicts of samples are stacked entry by entry.

    Tensors, arrays and numbers become tensors (floats of the default dtype, integers int64); strings stay a list.

    >>> default_collate([(1, 2.0), (3, 4.0)])[0].tolist()
    [1, 3]
    """
    first: Any = batch[0]
    shapes = sorted({sample.shape for sample in batch if isinstance(sample, Tensor | np.ndarray)})
    if len(shapes) > 1:
        raise ShapeError(
            f"default_collate: samples of shapes {', '.join(map(str, shapes))} make no batch; "
            "give them one shape (pad or crop), or pass a collate_fn"
        )
    if isinstance(first, Tensor):
        return xp.stack(list(batch))
    if isinstance(first, np.ndarray | np.generic):
        return xp.asarray(np.stack(batch))
    if isinstance(first, bool | int | float):
        return xp.asarray(list(batch))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise ArgumentError("default_collate: samples differ in their number of entries; pass a collate_fn")
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        kind: Any = type(first)
        return kind(*columns) if hasattr(first, "_fields") else kind(columns)
    raise TypeError(f"default_collate: cannot batch samples of type {type(first).__name__}; pass a collate_fn")


@dataclass
class _Epoch:
    """An epoch: the state of the order before it, and how many batches of it were given."""

    start: Any = None
    given: int = 0


class DataLoader:
    """Iterates over batches of `dataset`; each ``iter(loader)`` is one epoch.

    The order of a shuffled epoch depends only on `generator` (a seed) and on the number of the epoch; without a seed it
    is drawn from the default generator, and `hm.manual_seed` decides. `num_workers` threads fetch up to
    ``num_workers * prefetch_factor`` batches ahead; the batches and their order are the same for every number of them.
    With `pin_memory=True` batches are in page-locked memory, from which a GPU copies by itself: `batch.to("cuda",
    non_blocking=True)`. It is that of `pin_memory_device`, of the first GPU without one. `persistent_workers` is
    PyTorch's and says nothing here: threads start at once.

    `state_dict` tells where a loader is, also in the middle of an epoch, and `load_state_dict` goes on from there.

    >>> data = hm.data.TensorDataset(hm.arange(10))
    >>> [len(batch[0]) for batch in DataLoader(data, batch_size=4)]
    [4, 4, 2]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        prefetch_factor: int = 2,
        generator: Seed = None,
        *,
        pin_memory: bool = False,
        pin_memory_device: str = "",
        persistent_workers: bool = False,
    ) -> None:
        if num_workers < 0 or prefetch_factor < 1:
            raise ArgumentError(
                f"DataLoader: needs num_workers >= 0 and prefetch_factor >= 1, got {num_workers}, {prefetch_factor}"
            )
        streams = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        if streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("DataLoader: a stream (IterableDataset) decides its own order: no shuffle, no sampler")
        if shuffle and sampler is not None:
            raise ArgumentError("DataLoader: give shuffle=True or a sampler, not both")
        if batch_sampler is not None and (batch_size not in (None, 1) or shuffle or sampler is not None or drop_last):
            raise ArgumentError("DataLoader: a batch_sampler replaces batch_size, shuffle, sampler and drop_last")
        self.dataset, self.batch_size, self.drop_last, self.generator = dataset, batch_size, drop_last, generator
        self.num_workers, self.prefetch_factor, self.collate_fn = num_workers, prefetch_factor, collate_fn
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self._epoch = _Epoch()
        self._resumed: _Epoch | None = None
        self._streams = streams
        self.sampler: Iterable[int] | None = None
        self.batch_sampler: Iterable[Sequence[int]] | None = batch_sampler
        if streams:
            if batch_size is not None:
                BatchSampler((), batch_size)  # checks it
            return
        if batch_sampler is None:
            chosen = RandomSampler(dataset, generator) if shuffle else SequentialSampler(dataset)
            self.sampler = chosen if sampler is None else sampler
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[Any]:
        source = self._source()
        now = state_of(source)
        if self._resumed is None:
            self._epoch = _Epoch(now)
            return _counted(self._batches(0), self._epoch)
        self._epoch, self._resumed = self._resumed, None
        restore(source, self._epoch.start)
        batches = self._batches(self._epoch.given)
        restore(source, now)
        return _counted(batches, self._epoch)

    def state_dict(self) -> dict[str, Any]:
        """The loader's position: batches given in the present epoch (of the last ``iter``), and the state of the order.

        `hm.save` can hold it. A stream is read again up to its place. A sampler or a stream that is not the same in
        every epoch needs ``state_dict()`` and ``load_state_dict(state)``, which decide what its next ``iter`` gives.

        >>> data = hm.data.TensorDataset(hm.arange(6))
        >>> make = lambda: DataLoader(data, batch_size=2, shuffle=True, generator=0)
        >>> loader = make()
        >>> batches = [(batch[0].tolist(), loader.state_dict()) for _ in range(2) for batch in loader]
        >>> resumed = make()
        >>> resumed.load_state_dict(batches[0][1])
        >>> [batch[0].tolist() for _ in range(2) for batch in resumed] == [batch for batch, _ in batches[1:]]
        True
        """
        epoch = self._epoch
        return {
            "batch_size": self.batch_size,
            "batches": epoch.given,
            "start": epoch.start if epoch.given else None,
            "order": state_of(self._source()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from where a loader of the same arguments was: the next ``iter`` is the rest of its epoch.

        Where the order is drawn from a `Generator`, or from the default one, that generator goes on from there too.
        Raises ArgumentError for the state of a loader with other batches, or of something else.
        """
        check_entries(self, state, "batch_size", "batches", "order", "start")
        if state["batch_size"] != self.batch_size:
            raise ArgumentError(
                f"DataLoader.load_state_dict: the state is of batches of {state['batch_size']}, this loader has "
                f"batch_size={self.batch_size}; make it with the same"
            )
        given = int(state["batches"])
        restore(self._source(), state["order"])
        self._epoch = _Epoch(state["start"], given)
        self._resumed = self._epoch if given else None

    def __len__(self) -> int:
        if self._streams:
            raise TypeError("a DataLoader over a stream has no length")
        return len(self._source())

    def __repr__(self) -> str:
        of = repr(self.dataset) if isinstance(self.dataset, TensorDataset | Subset) else type(self.dataset).__name__
        order = "a stream" if self._streams else repr(self._source())
        return (
            f"DataLoader(\n  {of},\n  {order},\n  num_workers={self.num_workers}, batches given={self._epoch.given}\n)"
        )

    def _source(self) -> Any:
        """The source of the order: the stream, or the sampler of batches or of samples."""
        if self._streams:
            return self.dataset
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _batches(self, skip: int) -> Iterator[Any]:
        """The batches of an epoch after the first `skip`.

        The order is drawn here and now, on the caller's thread: random draws keep their place in the program.
        """
        jobs = iter(self._source())
        deque(islice(jobs, skip * (self.batch_size or 1) if self._streams else skip), maxlen=0)
        if self._streams:
            return self._stream(jobs)
        return self._prefetch(jobs) if self.num_workers else map(self._fetch, jobs)

    def _fetch(self, job: Any) -> Any:
        """One batch, or with ``batch_size=None`` one sample as it is."""
        return self._pinned(self._made(job))

    def _pinned(self, batch: Any) -> Any:
        """The batch, with its tensors in page-locked memory if that is asked for."""
        if not self.pin_memory:
            return batch
        device = self.pin_memory_device or None
        return pytree.tree_map(lambda leaf: leaf.pin_memory(device) if isinstance(leaf, Tensor) else leaf, batch)

    def _made(self, job: Any) -> Any:
        if isinstance(job, int | np.integer):
            sample = self.dataset[int(job)]
            return sample if self.collate_fn is None else self.collate_fn(sample)
        if self.collate_fn is None and hasattr(self.dataset, "batch"):
            return self.dataset.batch(np.asarray(job, dtype=np.int64))
        return (self.collate_fn or default_collate)([self.dataset[index] for index in job])

    def _stream(self, samples: Iterator[Any]) -> Iterator[Any]:
        if self.batch_size is None:
            yield from map(self._pinned, samples if self.collate_fn is None else map(self.collate_fn, samples))
            return
        while group := list(islice(samples, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield self._pinned((self.collate_fn or default_collate)(group))

    def _prefetch(self, jobs: Iterator[Any]) -> Iterator[Any]:
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="hybridml-data")
        waiting: deque[Future[Any]] = deque()
        try:
            for job in islice(jobs, self.num_workers * self.prefetch_factor):
                waiting.append(pool.submit(self._fetch, job))
            while waiting:
                batch = waiting.popleft().result()  # an error of the worker is raised here, at its batch
                for job in islice(jobs, 1):
                    waiting.append(pool.submit(self._fetch, job))
                yield batch
        finally:  # also when the consumer stops early
            pool.shutdown(wait=False, cancel_futures=True)


def _counted(batches: Iterator[Any], epoch: _Epoch) -> Iterator[Any]:
    for batch in batches:
        epoch.given += 1
        yield batch
    epoch.given = 0
