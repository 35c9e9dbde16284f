"""Memory of a device: blocks that are kept when they are freed, for the next that asks for as much.

To allocate memory of a GPU takes a hundred times as long as a launch, and to free it waits for all that runs. So freed
blocks stay in the pool, by stream and size: on its own stream a block may be handed out while work on it is still
queued, as what comes next is behind that. Sizes are rounded up to an eighth of a power of two, so that sizes that
differ a little share their blocks; 12 % are lost at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from types import CodeType

from ...errors import OutOfMemoryError, describe_line, line_number, user_place
from ...locks import rlock
from .driver import Driver, Pointer, Raw, Stream

_ALIGNMENT = 256  # bytes, CUDA's
_LEAST = 2 * _ALIGNMENT
NUMBER = 16  # bytes of the largest one: a buffer has one element, if the array has none
_LINES = 8  # of a summary
_SMALL = 16  # calls that take less than memory / 2 ** 16, 1.2 MB of 80 GB, have no line: to look for it takes 1 us

Place = tuple[CodeType, int]  # code of the user, and an instruction in it: its line is looked up when it is shown
_NOBODY: frozenset[Stream] = frozenset()


class Block:
    """Memory of a device. It goes back to the pool when nobody refers to it."""

    __slots__ = ("address", "nbytes", "pool", "raw", "size", "stream", "users")
    is_adopted = False

    def __init__(self, pool: Pool, address: int, raw: Raw, nbytes: int, size: int, stream: Stream) -> None:
        self.pool, self.address, self.raw, self.nbytes, self.size = pool, address, raw, nbytes, size
        self.stream = stream
        self.users = _NOBODY  # other streams that have used it

    @property
    def pointer(self) -> Pointer:
        return Pointer(self, 0, self.nbytes)

    def __del__(self) -> None:
        if self.raw is not None:
            self.pool.give(self)


class Adopted:
    """Memory of another library, which its array keeps. `part` is called when nobody here refers to it."""

    __slots__ = ("__weakref__", "address", "nbytes", "owner", "part", "raw", "stream", "users")
    is_adopted = True  # so that it is never written to

    def __init__(
        self, address: int, raw: Raw, nbytes: int, owner: object, stream: Stream, part: Callable[[Adopted], None]
    ) -> None:
        self.address, self.raw, self.nbytes, self.part = address, raw, nbytes, part
        self.owner, self.stream = owner, stream
        self.users = _NOBODY

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
        self._told = self.limit >> _SMALL
        self.reserved, self.most_reserved, self.in_use, self.most_in_use = 0, 0, 0, 0  # bytes
        self.most_blocks, self.retries, self.failures = 0, 0, 0
        # Heaps of addresses, by stream and size; by the id of the stream, which is kept, as CuPy's hash is slow.
        self._kept: dict[int, tuple[Stream, dict[int, list[tuple[int, Raw]]]]] = {}
        self._live: dict[int, tuple[int, Place | None]] = {}  # of each address in use, its size and the user's line
        self._lock = rlock()

    def take(self, nbytes: int, stream: Stream) -> Block:
        """A block for work on a stream. OutOfMemoryError, with a summary, where there is none left."""
        return self.take_all([(max(nbytes, NUMBER), rounded(nbytes))], stream)[0]

    def take_all(self, sizes: Sequence[tuple[int, int]], stream: Stream) -> list[Block]:
        """A block for each number of bytes and what it is `rounded` to: all of them or none."""
        driver, live, found, total = self.driver, self._live, [], 0
        for _, size in sizes:
            total += size
        place = user_place() if total >= self._told else None
        with self._lock:
            try:
                kept = self._kept[id(stream)][1]
            except KeyError:
                kept = self._kept.setdefault(id(stream), (stream, {}))[1]
            try:
                for nbytes, size in sizes:
                    # That with the lowest address: what a loop gets follows from what is free, and not from the order
                    # in which that became free, so that its calls come by the same addresses again (see executable.py).
                    free = kept.get(size)
                    address, raw = heappop(free) if free else self._allocate(size, nbytes)
                    live[address] = size, place
                    if driver.scribble is not None:
                        driver.scribble(raw)
                    found.append(Block(self, address, raw, nbytes, size, stream))
            except BaseException:
                total = sum(block.size for block in found)  # which are given back
                raise
            finally:
                self.in_use += total
            if self.in_use > self.most_in_use:
                self.most_in_use = self.in_use
            if len(live) > self.most_blocks:
                self.most_blocks = len(live)
        return found

    def give(self, block: Block) -> None:
        """Takes a block back that nobody refers to."""
        size, address, driver = block.size, block.address, self.driver
        if driver.scribble is not None:
            driver.scribble(block.raw)
        for other in block.users:  # what they were asked for comes first
            event = driver.event(False)
            driver.record(event, other)
            driver.wait(block.stream, event)
        with self._lock:
            try:
                free = self._kept[id(block.stream)][1][size]
            except KeyError:
                sizes = self._kept.setdefault(id(block.stream), (block.stream, {}))[1]
                free = sizes.setdefault(size, [])
            heappush(free, (address, block.raw))
            self.in_use -= size
            del self._live[address]

    @property
    def counts(self) -> Counter[str]:
        """The present numbers, by PyTorch's names."""
        return _counter(self.reserved, self.in_use, len(self._live), self.retries, self.failures)

    @property
    def peaks(self) -> Counter[str]:
        """The largest numbers that there have been."""
        return _counter(self.most_reserved, self.most_in_use, self.most_blocks, self.retries, self.failures)

    def empty_cache(self) -> None:
        """Gives all that is kept and not in use back to the driver."""
        with self._lock:
            kept, self._kept = self._kept, {}  # a collection of garbage may give blocks back in the middle of this
            for _, sizes in kept.values():
                for size, raws in sizes.items():
                    while raws:  # whoever is taking some has this list
                        self.driver.free(raws.pop()[1])
                        self.reserved -= size

    def reset_peaks(self) -> None:
        with self._lock:
            self.most_reserved, self.most_in_use, self.most_blocks = self.reserved, self.in_use, len(self._live)

    def _allocate(self, size: int, wanted: int) -> tuple[int, Raw]:
        try:
            raw = self._from_driver(size)
        except MemoryError:
            self.retries += 1
            self.empty_cache()
            try:
                raw = self._from_driver(size)
            except MemoryError:
                self.failures += 1
                message = f"{self.driver.name}: no memory for {amount(wanted)} more\n{self.summary()}"
                raise OutOfMemoryError(message) from None
        self.reserved += size
        self.most_reserved = max(self.most_reserved, self.reserved)
        return self.driver.address(raw), raw

    def _from_driver(self, size: int) -> Raw:
        if self.reserved + size > self.limit:
            raise MemoryError
        return self.driver.alloc(size)

    def summary(self) -> str:
        """Text of the memory in use, and of the lines whose arrays have most of it."""
        return "\n".join(self._summary())

    def _summary(self) -> Iterator[str]:
        lines: Counter[tuple[str, int] | None] = Counter()
        with self._lock:
            for size, place in self._live.values():
                lines[None if place is None else (place[0].co_filename, line_number(*place))] += size
            used, most, reserved = self.in_use, self.most_in_use, self.reserved
        live = lines.most_common()
        yield (
            f"  {amount(used)} in use (at most {amount(most)}), {amount(reserved - used)} kept for "
            f"reuse, of {amount(self.limit)}"
        )
        for line, nbytes in live[:_LINES]:
            yield f"  {amount(nbytes):>10}  {'the framework, small arrays' if line is None else describe_line(*line)}"
        if live[_LINES:]:
            yield f"  {amount(sum(nbytes for _, nbytes in live[_LINES:])):>10}  {len(live) - _LINES} other lines"


def _counter(reserved: int, in_use: int, blocks: int, retries: int, failures: int) -> Counter[str]:
    return Counter(
        reserved_bytes=reserved, allocated_bytes=in_use, allocations=blocks, num_alloc_retries=retries,
        num_ooms=failures,
    )  # fmt: skip


def amount(nbytes: int) -> str:
    """`1.5 MiB`: a number of bytes for people."""
    value = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"
