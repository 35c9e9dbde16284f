"""Memory of a device: blocks that are kept when they are freed, for the next that asks for as much.

To allocate memory of a GPU takes a hundred times as long as a launch, and to free it waits for all that runs. So freed
blocks stay in the pool, by stream and size: on its own stream a block may be handed out while work on it is still
queued, as what comes next is behind that. Sizes are rounded up to an eighth of a power of two, so that sizes that
differ a little share their blocks; 12 % are lost at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from ...errors import OutOfMemoryError, describe_line, user_frame
from ...locks import rlock
from .driver import Driver, Pointer, Raw, Stream

_ALIGNMENT = 256  # bytes, CUDA's
_LEAST = 2 * _ALIGNMENT
NUMBER = 16  # bytes of the largest one: a buffer has one element, if the array has none
_LINES = 8  # of a summary

Place = tuple[str, int]  # file and line of the user


class Block:
    """Memory of a device. It goes back to the pool when nobody refers to it."""

    __slots__ = ("__weakref__", "address", "nbytes", "place", "pool", "raw", "size", "stream", "users")

    def __init__(
        self, pool: Pool, address: int, raw: Raw, nbytes: int, size: int, stream: Stream, place: Place | None
    ) -> None:
        self.pool, self.address, self.raw, self.nbytes, self.size = pool, address, raw, nbytes, size
        self.stream, self.place = stream, place
        self.users: set[Stream] = set()  # other streams that have used it

    @property
    def pointer(self) -> Pointer:
        return Pointer(self, 0, self.nbytes)

    def __del__(self) -> None:
        if self.raw is not None:
            self.pool.give(self)


class Adopted:
    """Memory of another library, which its array keeps. `part` is called when nobody here refers to it."""

    __slots__ = ("__weakref__", "address", "nbytes", "owner", "part", "raw", "stream", "users")

    def __init__(
        self, address: int, raw: Raw, nbytes: int, owner: object, stream: Stream, part: Callable[[Adopted], None]
    ) -> None:
        self.address, self.raw, self.nbytes, self.part = address, raw, nbytes, part
        self.owner, self.stream = owner, stream
        self.users: set[Stream] = set()

    @property
    def pointer(self) -> Pointer:
        return Pointer(self, 0, self.nbytes)

    def __del__(self) -> None:
        self.part(self)


def rounded(nbytes: int) -> int:
    """The size of the block for so many bytes. Numbers have blocks of their own: callers keep some, such as losses, and
    what is free for arrays does not change by that.

    >>> [rounded(n) for n in (0, 16, 17, 512, 513, 1000, 1 << 20, (1 << 20) + 1)]
    [256, 256, 512, 512, 576, 1024, 1048576, 1179648]
    """
    if nbytes <= NUMBER:
        return _ALIGNMENT
    step = 1 << max((nbytes - 1).bit_length() - 4, 6)
    return max(-(-nbytes // step) * step, _LEAST)


class Pool:
    """The blocks of a device, and how many bytes of them are in use. Counters have PyTorch's names."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.limit = driver, driver.properties.memory
        self.counts: Counter[str] = Counter()
        self.peaks: Counter[str] = Counter()
        self._kept: dict[tuple[Stream, int], list[tuple[int, Raw]]] = {}  # heaps of addresses, by stream and size
        self._live: Counter[Place | None] = Counter()  # bytes in use, by the user's line
        self._lock = rlock()

    def take(self, nbytes: int, stream: Stream) -> Block:
        """A block for work on a stream. OutOfMemoryError, with a summary, where there is none left."""
        return self.take_all([nbytes], stream)[0]

    def take_all(self, sizes: Iterable[int], stream: Stream) -> list[Block]:
        """A block for each number of bytes: all of them or none."""
        frame = user_frame()
        place = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        with self._lock:
            return [self._take(max(nbytes, NUMBER), stream, place) for nbytes in sizes]

    def _take(self, nbytes: int, stream: Stream, place: Place | None) -> Block:
        size = rounded(nbytes)
        kept = self._kept.get((stream, size))
        # That with the lowest address: what a loop gets follows from what is free, and not from the order in which that
        # became free, so that its calls come by the same addresses again (see executable.py).
        address, raw = heappop(kept) if kept else self._allocate(size, nbytes)
        self._count("allocated_bytes", size)
        self._count("allocations", 1)
        self._live[place] += size
        self.driver.scribble(raw)
        return Block(self, address, raw, nbytes, size, stream, place)

    def give(self, block: Block) -> None:
        """Takes a block back that nobody refers to."""
        size = block.size
        self.driver.scribble(block.raw)
        for other in block.users:  # what they were asked for comes first
            event = self.driver.event(False)
            self.driver.record(event, other)
            self.driver.wait(block.stream, event)
        with self._lock:
            heappush(self._kept.setdefault((block.stream, size), []), (block.address, block.raw))
            self.counts["allocated_bytes"] -= size
            self.counts["allocations"] -= 1
            self._live[block.place] -= size
            if not self._live[block.place]:
                del self._live[block.place]

    def empty_cache(self) -> None:
        """Gives all that is kept and not in use back to the driver."""
        with self._lock:
            kept, self._kept = self._kept, {}  # a collection of garbage may give blocks back in the middle of this
            for (_, size), raws in kept.items():
                for _, raw in raws:
                    self.driver.free(raw)
                    self.counts["reserved_bytes"] -= size

    def reset_peaks(self) -> None:
        with self._lock:
            self.peaks = self.counts.copy()

    def _allocate(self, size: int, wanted: int) -> tuple[int, Raw]:
        try:
            raw = self._from_driver(size)
        except MemoryError:
            self.counts["num_alloc_retries"] += 1
            self.empty_cache()
            try:
                raw = self._from_driver(size)
            except MemoryError:
                self.counts["num_ooms"] += 1
                message = f"{self.driver.name}: no memory for {amount(wanted)} more\n{self.summary()}"
                raise OutOfMemoryError(message) from None
        self._count("reserved_bytes", size)
        return self.driver.address(raw), raw

    def _from_driver(self, size: int) -> Raw:
        if self.counts["reserved_bytes"] + size > self.limit:
            raise MemoryError
        return self.driver.alloc(size)

    def _count(self, name: str, more: int) -> None:
        now = self.counts[name] = self.counts[name] + more
        if now > self.peaks[name]:
            self.peaks[name] = now

    def summary(self) -> str:
        """Text of the memory in use, and of the lines whose arrays have most of it."""
        return "\n".join(self._summary())

    def _summary(self) -> Iterator[str]:
        with self._lock:
            live, counts, peaks = self._live.most_common(), self.counts.copy(), self.peaks.copy()
        used, reserved = counts["allocated_bytes"], counts["reserved_bytes"]
        yield (
            f"  {amount(used)} in use (at most {amount(peaks['allocated_bytes'])}), {amount(reserved - used)} kept for "
            f"reuse, of {amount(self.limit)}"
        )
        for place, nbytes in live[:_LINES]:
            yield f"  {amount(nbytes):>10}  {'the framework' if place is None else describe_line(*place)}"
        if live[_LINES:]:
            yield f"  {amount(sum(nbytes for _, nbytes in live[_LINES:])):>10}  {len(live) - _LINES} other lines"


def amount(nbytes: int) -> str:
    """`1.5 MiB`: a number of bytes for people."""
    value = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"
