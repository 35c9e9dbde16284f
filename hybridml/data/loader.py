"""DataLoader: batches from a data set, in order or shuffled, on this thread or ahead of it in worker processes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ..core.states import check_entries
from .collate import pinned
from .dataset import Subset, TensorDataset
from .fetching import Fetcher
from .sampler import (
    BatchSampler,
    RandomSampler,
    Seed,
    SequentialSampler,
    drawn_from,
    random_bits,
    restore,
    state_of,
)
from .stages import IterableDataset, Run, Stage
from .workers import Epoch, Pool

WORKERS = ("process", "thread")


@dataclass
class _Epoch:
    """An epoch: the state of the order before it, how many batches of it were given, whether it has begun and not
    ended, the seed of its workers, and for streams that know it their place."""

    start: Any = None
    given: int = 0
    begun: bool = False
    seed: int | None = None
    place: Callable[[], Any] = lambda: None


class DataLoader:
    """Iterates over batches of `dataset`; each ``iter(loader)`` is one epoch.

    The order of a shuffled epoch depends only on `generator` (a seed) and on the number of the epoch; without a seed it
    is drawn from the default generator, and `hm.manual_seed` decides. Batches and their order are the same for every
    `num_workers`: processes that make up to ``num_workers * prefetch_factor`` (of 2) batches ahead and put them where
    this process reads them without a copy. Of an `IterableDataset` each has a copy, which divides its samples by
    `get_worker_info`. With ``workers="thread"`` they are threads, which suit data sets that wait for files.

    Each batch that a worker process makes has random numbers of its own (Python's, NumPy's and hybridml's default
    generators are seeded for it): they depend on `generator`, the epoch and the place of the batch alone. Workers begin
    with ``worker_init_fn(number)``. They live for an epoch, or with `persistent_workers` as long as the loader; a
    worker that dies, and one without a batch after `timeout` seconds, is a `WorkerError` (a RuntimeError); errors of
    the data set arrive at their batch, with the worker's traceback. `multiprocessing_context` is "fork", "forkserver",
    "spawn" or a context: Linux forks, others take what Python takes there (docs/data.md).

    With `pin_memory=True` batches are in page-locked memory, from which a GPU copies by itself: `batch.to("cuda",
    non_blocking=True)`. It is that of `pin_memory_device`, of the first GPU without one; nothing changes without a GPU.

    `state_dict` tells where a loader is, also in the middle of an epoch, and `load_state_dict` goes on from there.

    >>> data = hm.data.TensorDataset(hm.arange(10))
    >>> [len(batch[0]) for batch in DataLoader(data, batch_size=4)]
    [4, 4, 2]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: Any = None,
        generator: Seed = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        workers: str = "process",
    ) -> None:
        ahead = 2 if prefetch_factor is None else prefetch_factor
        if num_workers < 0 or ahead < 1 or timeout < 0:
            raise ArgumentError(
                "DataLoader: needs num_workers >= 0, prefetch_factor >= 1 and timeout >= 0, got "
                f"{num_workers}, {ahead}, {timeout}"
            )
        if workers not in WORKERS:
            raise ArgumentError(f'DataLoader: workers are "process" or "thread", got {workers!r}')
        if workers == "thread" and (timeout or worker_init_fn is not None or multiprocessing_context is not None):
            raise ArgumentError(
                "DataLoader: timeout, worker_init_fn and multiprocessing_context are for worker processes, and "
                'workers="thread"'
            )
        if persistent_workers and not num_workers:
            raise ArgumentError("DataLoader: persistent_workers needs num_workers above 0")
        streams = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        if streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("DataLoader: a stream (IterableDataset) decides its own order: no shuffle, no sampler")
        if shuffle and sampler is not None:
            raise ArgumentError("DataLoader: give shuffle=True or a sampler, not both")
        if batch_sampler is not None and (batch_size not in (None, 1) or shuffle or sampler is not None or drop_last):
            raise ArgumentError("DataLoader: a batch_sampler replaces batch_size, shuffle, sampler and drop_last")
        self.dataset, self.batch_size, self.drop_last, self.generator = dataset, batch_size, drop_last, generator
        self.num_workers, self.prefetch_factor, self.collate_fn = num_workers, ahead, collate_fn
        self.pin_memory, self.pin_memory_device, self.workers = pin_memory, pin_memory_device, workers
        self.timeout, self.worker_init_fn, self.persistent_workers = timeout, worker_init_fn, persistent_workers
        self.multiprocessing_context = multiprocessing_context
        self._epoch, self._begun = _Epoch(), 0
        self._pool: Pool | None = None
        self._resumed: _Epoch | None = None
        self._streams = streams
        self.sampler: Iterable[int] | None = None
        self.batch_sampler: Iterable[Sequence[int]] | None = batch_sampler
        if streams:
            if batch_size is not None:
                BatchSampler((), batch_size)  # checks it
            return
        if batch_sampler is None:
            chosen: Any = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            self.sampler = chosen if sampler is None else sampler
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[Any]:
        source, resumed, generator = self._source(), self._resumed, drawn_from(self.generator)
        now = _state_of(source)
        if resumed is None:
            self._epoch = epoch = _Epoch(now, begun=True)
            self._begun += 1
        else:
            epoch, self._resumed = resumed, None
            restore(source, epoch.start)
        before = None if generator is None else generator.get_state().tolist()
        # The order is drawn here and now, on the caller's thread: random draws keep their place in the program.
        if isinstance(source, Stage):
            jobs = self._begin(source, epoch)
        else:
            jobs = None if self._streams and self._in_processes() else iter(source)
        if self._in_processes() and epoch.seed is None:
            epoch.seed = self._seed(before)
        batches = self._batches(jobs, epoch)
        if resumed is not None:
            restore(source, now)
        return _Batches(batches, epoch)

    def state_dict(self) -> dict[str, Any]:
        """The loader's position: batches given in the present epoch (of the last ``iter``), and the state of the order.

        `hm.save` can hold it. A stream of your own is read again up to its place; one in stages (`TarDataset`,
        ``stream.shuffle(1000)``) goes on there, with as many workers. A sampler or a stream that is not the same in
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
            "begun": epoch.begun,
            "start": epoch.start if epoch.begun else None,
            "order": _state_of(self._source()),
            "epochs": self._begun,
            "seed": epoch.seed if epoch.begun else None,
            "stream": epoch.place() if epoch.begun else None,
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
        given, stream = int(state["batches"]), state.get("stream")
        begun = bool(state.get("begun", given))
        if stream is not None and len(stream["readers"]) != self._readers():
            raise ArgumentError(
                f"DataLoader.load_state_dict: the state is of a stream that {len(stream['readers'])} processes read, "
                f"here {self._readers()} would; make the loader with the same num_workers"
            )
        restore(self._source(), state["order"])
        self._begun, seed = int(state.get("epochs", 0)), state.get("seed")
        seed = None if seed is None else int(seed)
        self._epoch = _Epoch(state["start"], given, begun, seed, lambda: stream)
        self._resumed = self._epoch if begun else None

    def __len__(self) -> int:
        if not self._streams:
            return len(self._source())
        if not hasattr(self.dataset, "__len__"):
            raise TypeError("a DataLoader over a stream has no length")
        count = len(self.dataset) / (self.batch_size or 1)
        return math.floor(count) if self.drop_last else math.ceil(count)

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

    def _in_processes(self) -> bool:
        return self.num_workers > 0 and self.workers == "process"

    def _readers(self) -> int:
        """The number of processes that read a stream."""
        return self.num_workers if self._in_processes() else 1

    def _begin(self, stream: Stage, epoch: _Epoch) -> Iterator[Any] | None:
        """Begins an epoch of a stream that knows its place, or goes on with it: the run, or None where workers have
        theirs."""
        place = epoch.place() or {"readers": [stream.begin()] * self._readers(), "turn": 0}
        epoch.place = lambda: place
        if self._in_processes():
            return None
        return stream.run(place["readers"][0])

    def _seed(self, before: Any) -> int:
        """The seed of an epoch's workers: that of the order, so that none is drawn where an order was drawn."""
        generator = drawn_from(self.generator)
        if generator is None:
            bits = random_bits(self.generator, self._begun, use=1)
        elif generator.get_state().tolist() != before:
            bits = np.random.Generator(np.random.Philox(np.random.SeedSequence(before)))
        else:
            bits = random_bits(generator)
        return int(bits.integers(2**63))

    def _batches(self, jobs: Any, epoch: _Epoch) -> Iterator[Any]:
        """The batches of an epoch after those that were given."""
        fetcher = Fetcher(self.dataset, self.collate_fn, self.batch_size, self.drop_last)
        pin = partial(pinned, device=self.pin_memory_device or None)
        if jobs is not None and epoch.place() is None:
            deque(islice(jobs, epoch.given * (self.batch_size or 1) if self._streams else epoch.given), maxlen=0)
        if self._in_processes():
            batches = self._from_processes(fetcher, jobs, epoch)
        elif self._streams:
            batches = fetcher.stream(jobs)
            if isinstance(jobs, Run):
                batches = map(partial(_placed, jobs, epoch), batches)
        elif self.num_workers:
            return self._from_threads((lambda job: pin(fetcher.batch(job))) if self.pin_memory else fetcher.batch, jobs)
        else:
            batches = (fetcher.batch(job) for job in jobs)  # not `map`, which a StopIteration of the data set ends
        return map(pin, batches) if self.pin_memory else batches

    def _from_processes(self, fetcher: Fetcher, jobs: Any, epoch: _Epoch) -> Iterator[Any]:
        pool, seed = self._pool, epoch.seed or 0
        if pool is None or not pool.is_idle():
            pool = Pool(fetcher, self.num_workers, seed, self.worker_init_fn, self.multiprocessing_context)
        keep = self.persistent_workers and (self._pool is pool or self._pool is None or not self._pool.members)
        if keep:
            self._pool = pool
        place = epoch.place()
        first = place["turn"] if place else 0 if jobs is None else epoch.given
        states = place and place["readers"]
        batches = Epoch(pool, jobs, seed, self.prefetch_factor, self.timeout, first, keep, states)
        if place:
            epoch.place = batches.place
        elif jobs is None:  # such streams cannot leave out what they have given
            deque(islice(batches, epoch.given), maxlen=0)
        return batches

    def _from_threads(self, fetch: Callable[[Any], Any], jobs: Iterator[Any]) -> Iterator[Any]:
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="hybridml-data")
        waiting: deque[Future[Any]] = deque()
        try:
            for job in islice(jobs, self.num_workers * self.prefetch_factor):
                waiting.append(pool.submit(fetch, job))
            while waiting:
                batch = waiting.popleft().result()  # an error of the worker is raised here, at its batch
                for job in islice(jobs, 1):
                    waiting.append(pool.submit(fetch, job))
                yield batch
        finally:  # also when the consumer stops early
            pool.shutdown(wait=False, cancel_futures=True)


def _placed(run: Run, epoch: _Epoch, batch: Any) -> Any:
    """The batch, behind which the epoch now is: an error in the middle of the next one does not change its place."""
    state = run.state_dict()
    epoch.place = lambda: {"readers": [state], "turn": epoch.given}
    return batch


def _state_of(source: Any) -> Any:
    """The state of the next order of a source, also of a stream in stages whose own run has failed."""
    return source.upcoming() if isinstance(source, Stage) else state_of(source)


class _Batches(Iterator[Any]):
    """The batches of an epoch, counted. One that has raised an error raises it again: the epoch has not ended."""

    def __init__(self, batches: Iterator[Any], epoch: _Epoch) -> None:
        self.batches, self.epoch = batches, epoch
        self.error: Exception | None = None

    def __next__(self) -> Any:
        if self.error is not None:
            raise self.error
        try:
            batch = next(self.batches)
        except StopIteration:
            self.epoch.given, self.epoch.begun = 0, False
            raise
        except Exception as error:
            self.error = error
            raise
        self.epoch.given += 1
        return batch
