"""Memory that a worker process writes and its loader reads: one unnamed file for each worker, in blocks.

The large arrays of a batch lie in one block, which belongs to the batch as long as any of them lives, and then to the
worker again: nothing is copied, and after the first batches no page is new. The file has no name, so that nothing is
left behind however the processes end. Small arrays travel in the message: a label that is kept keeps no images.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections import deque
from contextlib import suppress
from functools import partial
from multiprocessing import reduction
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ...core.shared.memory import ALIGNED, unnamed_file
from ...core.tensor import Tensor

SMALL = 1 << 15  # bytes; what is smaller is copied
KEPT = 4  # blocks of a worker that the program may keep; further batches are copied out of theirs


class Message(NamedTuple):
    """A pickled batch: where its large parts are (place and size in the file), and which blocks are no more."""

    pickled: bytes
    block: tuple[int, int] | None = None
    parts: tuple[tuple[int, int], ...] = ()  # place in the block, size; the first is the pickle where that is large
    dropped: tuple[int, ...] = ()


class SharedFile:
    """A file in memory without a name, which a worker inherits or is sent."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = unnamed_file("batches") if handle is None else handle

    def __reduce__(self) -> Any:  # while a process is started by `spawn` or `forkserver`
        return _sent, (reduction.DupFd(self.handle),)

    def resize(self, size: int) -> None:
        """Gives the file so many bytes, the new ones zero."""
        os.ftruncate(self.handle, size)

    def map(self, place: int, size: int) -> mmap.mmap:
        """The bytes of the file from `place` on, which is a multiple of the size of a page."""
        return mmap.mmap(self.handle, size, offset=place)

    def close(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)


def _sent(duplicate: Any) -> SharedFile:
    return SharedFile(duplicate.detach())


class Writer:
    """A worker's side: takes blocks for batches."""

    def __init__(self, file: SharedFile) -> None:
        self.file, self.end = file, 0
        self.free: dict[int, mmap.mmap] = {}
        self.used: dict[int, mmap.mmap] = {}

    def release(self, places: tuple[int, ...]) -> None:
        """Takes back the blocks of batches that nobody has any more."""
        for place in places:
            self.free[place] = self.used.pop(place)

    def write(self, batch: Any) -> Message:
        """The message that says where the batch is."""
        large: list[memoryview] = []
        text = _dumps(batch, large)
        if not large and len(text) < SMALL:
            return Message(text)
        inside = len(text) >= SMALL
        large.insert(0, memoryview(text if inside else b""))
        places, end = [], 0
        for part in large:
            places.append((end, part.nbytes))
            end = -(-(end + part.nbytes) // ALIGNED) * ALIGNED
        place, dropped = self._take(end)
        memory = np.frombuffer(self.used[place], np.uint8)
        for (start, size), part in zip(places, large, strict=True):
            if size:
                memory[start : start + size] = np.frombuffer(part, np.uint8)
        block = (place, len(self.used[place]))
        return Message(b"" if inside else text, block, tuple(places), dropped)

    def _take(self, size: int) -> tuple[int, tuple[int, ...]]:
        """The place of a block of at least `size` bytes, the smallest that is free; a new one takes the place of all
        free ones, which were too small."""
        fitting = [place for place, memory in self.free.items() if len(memory) >= size]
        if fitting:
            place = min(fitting, key=lambda p: len(self.free[p]))
            self.used[place] = self.free.pop(place)
            return place, ()
        dropped = tuple(self.free)
        for memory in self.free.values():
            with suppress(OSError, AttributeError):  # Linux gives the pages back
                memory.madvise(mmap.MADV_REMOVE)
            memory.close()
        self.free.clear()
        step = max(mmap.ALLOCATIONGRANULARITY, 1 << max(0, size.bit_length() - 3))  # at most a quarter more
        size = -(-size // step) * step
        place, self.end = self.end, self.end + size
        self.file.resize(self.end)
        self.used[place] = self.file.map(place, size)
        return place, dropped


class Reader:
    """A loader's side: batches whose arrays are the blocks, and which of these have become free."""

    def __init__(self, file: SharedFile) -> None:
        self.file = file
        self.maps: dict[int, mmap.mmap] = {}
        self.kept: dict[int, Any] = {}  # weak references to the memory of blocks that the program has
        self.free: deque[int] = deque()

    def released(self) -> tuple[int, ...]:
        """Blocks that nobody has had since the last call."""
        return tuple(self.free.popleft() for _ in range(len(self.free)))

    def drop(self, message: Message) -> None:
        """Gives back the block of a batch that nobody wants."""
        self._forget(message.dropped)
        if message.block is not None:
            self.free.append(message.block[0])

    def read(self, message: Message) -> Any:
        """The batch of a message."""
        self._forget(message.dropped)
        if message.block is None:
            return pickle.loads(message.pickled)
        place, size = message.block
        if place not in self.maps:
            self.maps[place] = self.file.map(place, size)
        memory = np.frombuffer(self.maps[place], np.uint8)
        parts = [memory[start : start + size] for start, size in message.parts]
        text = message.pickled or parts[0].tobytes()
        if len(self.kept) >= KEPT:
            batch = pickle.loads(text, buffers=[part.copy() for part in parts[1:]])
            self.free.append(place)
            return batch
        self.kept[place] = ref(memory, partial(_end, place, self.kept, self.free))
        return pickle.loads(text, buffers=parts[1:])

    def _forget(self, dropped: tuple[int, ...]) -> None:
        for place in dropped:
            self.maps.pop(place, None)


def _end(place: int, kept: dict[int, Any], free: deque[int], _: Any) -> None:
    kept.pop(place, None)
    free.append(place)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.device.type != "cpu":
            raise ArgumentError(
                f"DataLoader: a worker process made a tensor on {value.device.type!r}; make batches on the CPU and "
                'send them there with `batch.to(...)` (pin_memory=True makes that fast), or take workers="thread"'
            )
        return NotImplemented


def _dumps(batch: Any, large: list[memoryview]) -> bytes:
    """The pickle of a batch without its large arrays, which are appended to `large`."""

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        large.append(raw)
        return False

    text = io.BytesIO()
    _Pickler(text, 5, buffer_callback=in_band).dump(batch)
    return text.getvalue()
