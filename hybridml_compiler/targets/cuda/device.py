"""The memory of a GPU, real or simulated, as the framework's `Device` (see targets/device.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

import numpy as np

from ...locks import rlock
from ...once import lazy
from ..base import Target
from ..device import DeviceArray, kind_of
from .driver import Driver, Event, Memory, Pointer, Stream
from .launching.checks import Checks
from .pool import Adopted, Block, Pool


class CudaDevice:
    """A GPU: its driver, its pool of memory, and the stream that work goes to."""

    has_values = True

    def __init__(self, driver: Driver, target: Target) -> None:
        self.name, self.driver, self.target = driver.name, driver, target
        self.pool, self.checks = Pool(driver), Checks(driver)
        self._lock = rlock()
        self._sources: list[tuple[Event, np.ndarray]] = []  # arrays that are copied later
        self._spare: list[Stream] = []
        self._current: ContextVar[Stream | None] = ContextVar(f"stream of {driver.name}", default=None)
        self.current = self._current.get  # the stream that a block has named

    @lazy
    def default_stream(self) -> Stream:
        """The stream of all that names none. It is none of CUDA's own, which other streams wait for."""
        return self.driver.stream()

    @property
    def stream(self) -> Stream:
        """The stream in force in this thread."""
        return self.current() or self.default_stream

    @contextmanager
    def using(self, stream: Stream) -> Iterator[None]:
        """Inside, work goes to this stream."""
        token = self._current.set(stream)
        try:
            yield
        finally:
            self._current.reset(token)

    def allocate(self, nbytes: int) -> Block:
        return self.pool.take(nbytes, self.stream)

    def write(self, memory: Block, data: np.ndarray) -> None:
        self.driver.write(memory.pointer, data, self.stream)

    def page_locked(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A new array of the host, in page-locked memory."""
        whole = np.asarray(self.driver.page_locked(prod(shape) * dtype.itemsize))
        return whole.view(dtype).reshape(shape)

    def write_later(self, memory: Block, data: np.ndarray) -> None:
        """Keeps the array until it is copied: its memory would be another one's as soon as nobody has it."""
        with self._lock:
            self._sources = [source for source in self._sources if not self.driver.is_done(source[0])]
            self.driver.write_later(memory.pointer, data, self.stream)
            self._sources.append((self.mark(self.stream), data))

    def read(self, memory: Block | Adopted, nbytes: int) -> bytes:
        stream = self.stream
        self.join([memory], stream)
        found = self.driver.read(memory.pointer[:nbytes], stream).tobytes()
        self.checks.tell(stream)
        return found

    @lazy
    def _transfer_stream(self) -> Stream:
        return self.driver.stream()

    def transfers(self) -> AbstractContextManager[None]:
        """Inside, work goes to a stream of its own. Whoever reads what it has written waits for it (`join`)."""
        return self.using(self._transfer_stream)

    def synchronize(self, work: Stream | Event | None = None) -> None:
        """Waits for a stream or an event, or for all streams."""
        self.driver.synchronize(work)
        self.checks.tell(work)

    def join(self, memories: Iterable[Memory], stream: Stream) -> None:
        """Lets a stream wait for those that wrote to these memories, and these blocks know that it uses them."""
        waited: set[int] = set()
        for memory in memories:
            if memory.stream is stream:
                continue
            if id(memory.stream) not in waited:
                waited.add(id(memory.stream))
                self.driver.wait(stream, self.mark(memory.stream))
            memory.users |= {stream}

    def copy(self, target: Memory, source: Memory) -> None:
        """Copies the bytes of a block on the device."""
        stream, n = self.stream, min(target.nbytes, source.nbytes)
        self.join([source], stream)
        self.driver.copy(Pointer(target, 0, n), Pointer(source, 0, n), n, stream)

    @contextmanager
    def spare_stream(self) -> Iterator[Stream]:
        """A stream that nobody else has in the meantime."""
        try:
            stream = self._spare.pop()
        except IndexError:
            stream = self.driver.stream()
        try:
            yield stream
        finally:
            self._spare.append(stream)

    def mark(self, stream: Stream, timed: bool = False) -> Event:
        """A new event behind all that a stream was asked for."""
        event = self.driver.event(timed)
        self.driver.record(event, stream)
        return event

    # ---- other libraries

    def _part(self, memory: Adopted) -> None:
        """Lets the stream of its owner wait for all that use a memory, which the owner may use again."""
        others = self.driver.others()
        for stream in {memory.stream, *memory.users} - {others}:
            self.driver.wait(others, self.mark(stream))

    def exported(self, array: DeviceArray, dtype: np.dtype) -> Any:
        """The memory of an array of the device as an array with `__dlpack__`, of a dtype of the same width.

        Others do not know our streams: theirs (CuPy's and PyTorch's default one, unless it was changed) waits for the
        memory now, and is waited for before the memory is used again.
        """
        self.join([array.memory], self.driver.others())
        return self.driver.export(array.memory.pointer, array.shape, dtype, self.stream)

    def adopted(self, other: Any) -> DeviceArray:
        """An array over memory of another library that is on this device."""
        raw, owner = self.driver.adopt(other, self.stream)
        memory = Adopted(self.driver.address(raw), raw, owner.nbytes, owner, self.stream, self._part)
        return DeviceArray(kind_of(self, tuple(owner.shape), np.dtype(owner.dtype)), memory)
