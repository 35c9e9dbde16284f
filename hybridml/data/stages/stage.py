"""Stages: streams that know their place. A stage describes; a run through it has cursors, one for each stage.

A place is plain data (numbers, strings, lists and dicts of them) from which a cursor goes on with the same samples. It
means something to one chain of stages, which a state names.
Only the stage that a program iterates over counts epochs: it tells the stages behind it which one they read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any, Generic, TypeVar

from hybridml_compiler.errors import ArgumentError

from ...core.states import check_entries
from ..sampler import Seed
from .reading import Reading, hooks, present

T = TypeVar("T", covariant=True)
STAGES: dict[str, Callable[..., Any]] = {}  # by the method of streams that makes it; __init__.py puts them here


class IterableDataset(Generic[T]):
    """Base class of data sets that are streams: subclasses write ``__iter__`` (NotImplementedError without it).

    Its methods return streams of the same samples, in stages: ``data.shuffle(1000).map(decode).batch(32)``. Those have
    ``state_dict()`` and ``load_state_dict(state)``, of the place in the present epoch, and ``set_epoch(number)``.
    Streams of shards (`TarDataset` and its like) go on there at once. A stream of your own is read again up to its
    place, and is told the number of the epoch where it has a method `set_epoch`.

    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(5))
    >>> list(Count()), list(Count().map(lambda k: k * k).batch(2))
    ([0, 1, 2, 3, 4], [Tensor([0, 1]), Tensor([4, 9]), Tensor([16])])
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__ method")

    def __add__(self, other: Any) -> Any:
        return STAGES["+"]([self, other])

    def map(self, map_func: Callable[[Any], Any]) -> Stage:
        """The stream of what a function returns for each sample.

        What it draws at random is drawn again for samples that a later `shuffle` or `prefetch` had read when a state
        was taken: put random functions behind these, and behind `cache`, which keeps what they return.

        >>> list(hm.data.ChainDataset(["ab"]).map(str.upper))
        ['A', 'B']
        """
        return STAGES["map"](self, map_func)

    def batch(self, batch_size: int, drop_last: bool = False) -> Stage:
        """The stream of batches, as `default_collate` makes them; `drop_last` leaves out a shorter last one.

        A loader takes them with ``batch_size=None``. Raises ArgumentError for a `batch_size` below 1.

        >>> list(hm.data.ChainDataset([range(5)]).batch(2, drop_last=True))
        [Tensor([0, 1]), Tensor([2, 3])]
        """
        return STAGES["batch"](self, batch_size, drop_last)

    def shuffle(self, buffer_size: int, seed: Seed = None) -> Stage:
        """The stream in random order: each sample is drawn from a buffer of `buffer_size`, which the next one refills.

        The order depends on the seed and the number of the epoch; without a seed the default generator decides. Its
        states have no samples, but the numbers of those in the buffer: a run that goes on reads them again, which
        takes some ``buffer_size * log(buffer_size)`` samples. Raises ArgumentError for a `buffer_size` below 1.

        >>> sorted(hm.data.ChainDataset([range(5)]).shuffle(3, seed=0))
        [0, 1, 2, 3, 4]
        """
        return STAGES["shuffle"](self, buffer_size, seed)

    def cache(self, path: str | os.PathLike[str] | None = None) -> Stage:
        """The stream of the samples of the first epoch, in every epoch: kept in memory, or in a file.

        The first run that comes to its end fills it. Files are pickles with the name ``path.reader-of-readers``, are
        written at once, and serve later programs, too: remove them when what they are made of changes, and read none
        that you do not trust. Each worker process keeps its own memory, as long as it lives. A state is the number of
        samples given: a program that goes on without the cache reads the epoch again from its beginning. Raises
        ArgumentError for a file that no cache has written.

        >>> data = hm.data.ChainDataset([range(3)]).cache()
        >>> list(data), list(data)
        ([0, 1, 2], [0, 1, 2])
        """
        return STAGES["cache"](self, path)

    def prefetch(self, buffer_size: int) -> Stage:
        """The same stream, up to `buffer_size` samples of which a thread makes ahead.

        Errors are raised at their sample. A run that goes on reads up to `buffer_size` samples again. Raises
        ArgumentError for a `buffer_size` below 1.

        >>> list(hm.data.ChainDataset([range(3)]).prefetch(2))
        [0, 1, 2]
        """
        return STAGES["prefetch"](self, buffer_size)


class Cursor(Iterator[Any]):
    """Samples from some place on, and the place of those that are left."""

    def place(self) -> Any:
        """The place behind the samples that were given: `open` gives the rest of them."""
        raise NotImplementedError


class Run(Iterator[Any]):
    """One epoch of a stage, from its beginning or from where a state was taken. Files are opened at the first sample.

    Raises ArgumentError, with the first sample, for the state of another reader. A run that has raised an error raises
    it again, and has no place: samples of the batch that was being made would be left out.
    """

    def __init__(self, stage: Stage, state: Mapping[str, Any]) -> None:
        self.stage, self.state, self.ended = stage, state, False
        self.cursor: Cursor | None = None
        self.error: Exception | None = None

    def _open(self) -> Cursor:
        self.reading = present(self.state["epoch"], self.stage.replica or hooks.processes())
        readers, place = [self.reading.reader, self.reading.readers], self.state["place"]
        if place is not None and list(self.state["reader"]) != readers:
            raise ArgumentError(
                f"{type(self.stage).__name__}: the state is of reader {self.state['reader'][0]} of "
                f"{self.state['reader'][1]}, this is reader {readers[0]} of {readers[1]}; go on with as many processes "
                "and workers, or begin the epoch again"
            )
        return self.stage.open(self.reading, place)

    def __next__(self) -> Any:
        if self.error is not None:
            raise self.error
        try:
            if self.cursor is None:
                self.cursor = self._open()
            return next(self.cursor)
        except StopIteration:
            self.ended = True
            raise
        except Exception as error:
            self.error = error
            raise

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the place in it. Raises RuntimeError behind an error."""
        if self.error is not None:
            raise RuntimeError(
                f"{type(self.stage).__name__}.state_dict: the stream has failed ({self.error}); go on from a state "
                "that was taken before"
            )
        if self.cursor is None:
            return dict(self.state)
        reader = [self.reading.reader, self.reading.readers]
        return {**self.state, "reader": reader, "place": self.cursor.place()}


class Stage(IterableDataset[Any]):
    """Base of streams that know their place. Subclasses write `open`, and say whose samples they have."""

    epoch = 0  # the number of epochs begun
    source: Stage
    step: str  # behind the source: the method, and those of its arguments that decide which samples come, and when

    _run: Run | None = None
    _state: Mapping[str, Any] | None = None  # that was loaded, for the next run

    def open(self, reading: Reading, place: Any) -> Cursor:
        """The cursor of a reading, from its beginning where `place` is None."""
        raise NotImplementedError

    @property
    def replica(self) -> tuple[int, int] | None:
        """The number of the process that reads, and how many do; None where the samples are not divided by these."""
        return self.source.replica

    @property
    def chain(self) -> str:
        """The stages up to this one, as a program writes them, with what decides the order of their samples."""
        return f"{self.source.chain}.{self.step}"

    @property
    def files(self) -> str:
        """The names and sizes of the files that are read, a line each: one string, which costs little in each state."""
        return self.source.files

    def __iter__(self) -> Iterator[Any]:
        self._run = self.run(self.begin())
        return self._run

    def begin(self) -> Mapping[str, Any]:
        """Begins an epoch, for whoever makes runs of it: the state of its beginning, or the one that was loaded."""
        state = self.upcoming()
        self.set_epoch(self.epoch + 1)
        return state

    def upcoming(self) -> dict[str, Any]:
        """The state with which the next epoch begins, whatever has become of the present run."""
        beginning = {"epoch": self.epoch, "reader": None, "place": None, "chain": self.chain, "files": self.files}
        return dict(self._state or beginning)

    def run(self, state: Mapping[str, Any]) -> Run:
        """The run from a state on."""
        return Run(self, state)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of epochs begun: the next one is epoch `epoch`, from its beginning."""
        self.epoch, self._run, self._state = epoch, None, None

    def state_dict(self) -> dict[str, Any]:
        """The place in the present run, of the last ``iter``; behind its end, that of the beginning of the next one."""
        if self._run is not None and not self._run.ended:
            return self._run.state_dict()
        return self.upcoming()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there: the next ``iter`` gives the rest of the epoch.

        What decides neither which samples are read nor their order may be other: `map`, sizes of `prefetch`, files of
        `cache`, folders of shards. Raises ArgumentError for the state of something else, also of other stages and of
        files with other names or sizes, and with the first sample for one of another reader, or where a stream has
        become shorter (ShardError: a file).
        """
        check_entries(self, state, "epoch", "reader", "place", "chain", "files")
        if state["chain"] != self.chain:
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: the state is of {state['chain']}, this is {self.chain}; make "
                "the same stages, with the same arguments"
            )
        if state["files"] != self.files:
            pairs = zip_longest(state["files"].split("\n"), self.files.split("\n"), fillvalue="none")
            number, (there, here) = next((k, pair) for k, pair in enumerate(pairs) if pair[0] != pair[1])
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: the state is of other files: file {number} was {there}, and "
                f"here it is {here}; go on with the same files, or begin the epoch again"
            )
        self.set_epoch(int(state["epoch"]))
        self._state = state

    def __getstate__(self) -> dict[str, Any]:  # runs are of this process
        return {name: value for name, value in vars(self).items() if name != "_run"}


def as_stage(dataset: Any) -> Stage:
    """The stage itself, or one of the samples of another stream."""
    return dataset if isinstance(dataset, Stage) else Foreign(dataset)


class Foreign(Stage):
    """Samples of a stream that a program has written, which is told the epoch where it has `set_epoch`. The place in it
    is how many were given: a run from there reads them again."""

    replica = None
    files = ""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    @property
    def chain(self) -> str:
        return type(self.dataset).__name__

    def open(self, reading: Reading, place: Any) -> Cursor:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(reading.epoch)
        return ForeignCursor(iter(self.dataset), place or 0)


class ForeignCursor(Cursor):
    """Samples of a stream that a program has written, counted."""

    def __init__(self, samples: Iterator[Any], given: int) -> None:
        self.samples, self.given = samples, given
        passed_over(samples, given)

    def __next__(self) -> Any:
        sample = next(self.samples)
        self.given += 1
        return sample

    def place(self) -> int:
        return self.given


def passed_over(samples: Iterator[Any], count: int, before: int = 0) -> None:
    """Reads the samples that were given when a state was taken. Raises ArgumentError where there are fewer."""
    within(before + count, before + sum(1 for _ in islice(samples, count)))


def within(read: int, there: int) -> int:
    """The number of samples that had been read. Raises ArgumentError where fewer are there."""
    if there < read:
        raise ArgumentError(
            f"load_state_dict: when the state was taken, {read} samples had been read, and now there are {there}; "
            "go on with the same files"
        )
    return read


class Trail(Iterator[Any]):
    """A cursor with places on the way, one in so many samples: whoever has read ahead begins again at one of them."""

    def __init__(self, cursor: Cursor, every: int, read: int = 0) -> None:
        self.cursor, self.every, self.read = cursor, every, read
        self.first = read
        self.places = deque([(read, cursor.place())])  # one thread appends, another one drops

    def __next__(self) -> Any:
        sample = next(self.cursor)
        self.read += 1
        if (self.read - self.first) % self.every == 0:
            self.places.append((self.read, self.cursor.place()))
        return sample

    def before(self, sample: int) -> tuple[int, Any]:
        """The last place that is not behind a sample, and the number of samples before it; drops earlier places."""
        while len(self.places) > 1 and self.places[1][0] <= sample:
            self.places.popleft()
        return self.places[0]
