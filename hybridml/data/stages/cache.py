"""Keeping samples, in memory or in a file: the first run that comes to its end fills the cache, later ones read it.

All runs are the first epoch of the stream behind, whose beginning is kept too: one that resumes without the cache
reads again from there and fills it.

Memory keeps copies and gives copies, as a file does, so that programs may write to their samples: 10 us for a dict of
ten numbers, 30 us for an image of 600 kB.
"""

from __future__ import annotations

import copy
import mmap
import os
import pickle
import tempfile
from typing import Any, NamedTuple, Protocol
from weakref import finalize

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ...core import atomic
from .reading import Reading, hooks
from .stage import Cursor, Stage, as_stage, passed_over, within

MARK = b"hybridml"  # the end of a file


class Samples(Protocol):
    """The samples of an epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


class Kept(NamedTuple):
    """Samples, and the place of their beginning in the stream behind."""

    start: Any
    samples: Samples


class Cache(Stage):
    """The samples of the first epoch in every epoch, read once."""

    step = "cache"

    def __init__(self, source: Any, path: str | os.PathLike[str] | None) -> None:
        self.source, self.path = as_stage(source), None if path is None else os.fspath(path)
        self.kept: dict[Reading, Kept] = {}
        self._replica = self.source.replica or hooks.processes()  # now: workers that are spawned are in no group

    @property
    def replica(self) -> tuple[int, int]:
        return self._replica

    def open(self, reading: Reading, place: Any) -> Cursor:
        reading = reading._replace(epoch=0)
        kept = self._find(reading)
        if kept is not None and place is not None and kept.start != place["start"]:
            kept = None
        given = 0 if place is None else place["given"]
        if kept is not None:
            return Reread(kept, within(given, len(kept.samples)))
        cursor = Filling(self, reading, self.source.open(reading, None if place is None else place["start"]))
        passed_over(cursor, given)
        return cursor

    def _find(self, reading: Reading) -> Kept | None:
        if self.path is not None and reading not in self.kept and os.path.exists(self._file(reading)):
            file = CacheFile(self._file(reading))
            self.kept[reading] = Kept(file.start, file)
        return self.kept.get(reading)

    def _file(self, reading: Reading) -> str:
        return f"{self.path}.{reading.reader}-of-{reading.readers}"

    def fill(self, reading: Reading, start: Any, store: Memory | Spill) -> None:
        """Keeps what a run has read."""
        if isinstance(store, Memory):
            self.kept[reading] = Kept(start, store)
        else:
            self.kept.pop(reading, None)
            store.save(self._file(reading), start)

    def __getstate__(self) -> dict[str, Any]:  # another process fills one of its own, or finds the file
        return super().__getstate__() | {"kept": {}}


class Reread(Cursor):
    """Samples that were kept."""

    def __init__(self, kept: Kept, given: int) -> None:
        self.kept, self.given = kept, given

    def __next__(self) -> Any:
        if self.given == len(self.kept.samples):
            raise StopIteration
        self.given += 1
        return self.kept.samples[self.given - 1]

    def place(self) -> Any:
        return {"start": self.kept.start, "given": self.given}


class Filling(Cursor):
    """Samples of the stream behind, which are kept at its end."""

    def __init__(self, cache: Cache, reading: Reading, cursor: Cursor) -> None:
        self.cache, self.reading, self.cursor, self.start = cache, reading, cursor, cursor.place()
        self.store: Memory | Spill = (
            Memory() if cache.path is None else Spill(os.path.dirname(os.path.abspath(cache.path)))
        )
        self.is_full = False

    def __next__(self) -> Any:
        try:
            sample = next(self.cursor)
        except StopIteration:
            if not self.is_full:
                self.cache.fill(self.reading, self.start, self.store)
                self.is_full = True
            raise
        self.store.append(sample)
        return sample

    def place(self) -> Any:
        return {"start": self.start, "given": len(self.store)}


class Memory:
    """Samples of which it keeps copies and gives copies."""

    def __init__(self) -> None:
        self.samples: list[Any] = []

    def append(self, sample: Any) -> None:
        self.samples.append(copy.deepcopy(sample))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return copy.deepcopy(self.samples[number])


class Spill:
    """Pickled samples in a file without a name, which goes with the run that does not come to its end."""

    def __init__(self, folder: str) -> None:
        self.file = tempfile.TemporaryFile(dir=folder)
        finalize(self, self.file.close)
        self.ends = [0]

    def append(self, sample: Any) -> None:
        pickle.dump(sample, self.file, pickle.HIGHEST_PROTOCOL)
        self.ends.append(self.file.tell())

    def __len__(self) -> int:
        return len(self.ends) - 1

    def save(self, path: str, start: Any) -> None:
        """Writes a whole file with a name, at once: samples, then where they end, then where that is, then the mark."""
        self.file.flush()
        end = self.ends[-1]
        samples = mmap.mmap(self.file.fileno(), end, access=mmap.ACCESS_READ) if end else b""
        index = pickle.dumps((start, np.array(self.ends)))
        atomic.replace(path, [memoryview(samples), index, end.to_bytes(8, "little"), MARK])


class CacheFile:
    """The samples of a file. Raises ArgumentError for a file that no cache has written."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        index = int.from_bytes(self.bytes[-16:-8], "little")
        if self.bytes[-8:] != MARK or index > size - 16:
            raise ArgumentError(f"cache: {path} is not what a cache has written; remove it, or give another path")
        self.start, self.ends = pickle.loads(self.bytes[index:-16])

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> Any:
        return pickle.loads(self.bytes[self.ends[number] : self.ends[number + 1]])
