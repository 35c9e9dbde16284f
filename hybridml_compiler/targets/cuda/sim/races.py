"""Races: accesses to a byte by two threads that nothing orders, at least one of which writes.

Accesses of one thread are in order, and those of a block before and after a barrier, by the block's clock, which counts
barriers. Nothing orders two blocks. Lockstep hides all of this: a kernel without its barriers computes the right
results in a simulator, so that each access is checked.
"""

from __future__ import annotations

import numpy as np

from ....record import record

_NOBODY, _SEVERAL, _BLOCKS = -1, -2, -3  # threads of one block, of more than one


@record(eq=False)
class ThreadIds:
    """The threads that access memory, each with its block and the block's clock."""

    thread: np.ndarray
    block: np.ndarray
    clock: np.ndarray

    def select(self, part: np.ndarray) -> ThreadIds:
        return ThreadIds(self.thread[part], self.block[part], self.clock[part])

    def repeated(self, times: int) -> ThreadIds:
        """Each of the threads so many times."""
        return ThreadIds(*(np.repeat(x, times) for x in (self.thread, self.block, self.clock)))


class Races:
    """The last accesses to each byte; elements are known by their first one."""

    def __init__(self, nbytes: int) -> None:
        self.writer = np.full(nbytes, _NOBODY, np.int64)
        self.reader = np.full(nbytes, _NOBODY, np.int64)
        self.writer_block, self.writer_clock = (np.zeros(nbytes, np.int64) for _ in range(2))
        self.reader_block, self.reader_clock = (np.zeros(nbytes, np.int64) for _ in range(2))

    def read(self, at: np.ndarray, ids: ThreadIds) -> str:
        """Notes reads; what is wrong with one of them, or nothing."""
        if self._unordered(at, ids, self.writer, self.writer_block, self.writer_clock).any():
            return "read after a write of another thread"
        before = self.reader[at]
        same = (self.reader_block[at] == ids.block) & (before != _BLOCKS)
        alone = (before == _NOBODY) | (before == ids.thread) | (same & (self.reader_clock[at] < ids.clock))
        self._note(at, ids, np.where(alone, ids.thread, np.where(same, _SEVERAL, _BLOCKS)))
        return ""

    def _note(self, at: np.ndarray, ids: ThreadIds, reader: np.ndarray) -> None:
        self.reader[at], self.reader_block[at], self.reader_clock[at] = reader, ids.block, ids.clock
        together = self.reader[at] != reader  # one byte read by several of these threads
        if together.any():
            at, block = at[together], ids.block[together]
            np.minimum.at(self.reader, at, np.where(self.reader_block[at] == block, _SEVERAL, _BLOCKS))

    def write(self, at: np.ndarray, ids: ThreadIds) -> str:
        """Notes writes; what is wrong with one of them, or nothing."""
        if self._unordered(at, ids, self.writer, self.writer_block, self.writer_clock).any():
            return "write after a write of another thread"
        if self._unordered(at, ids, self.reader, self.reader_block, self.reader_clock).any():
            return "write after a read of another thread"
        self.writer[at], self.writer_block[at], self.writer_clock[at] = ids.thread, ids.block, ids.clock
        return "two writes of an instruction" if (self.writer[at] != ids.thread).any() else ""

    @staticmethod
    def _unordered(
        at: np.ndarray, ids: ThreadIds, last: np.ndarray, block: np.ndarray, clock: np.ndarray
    ) -> np.ndarray:
        """Whether the last access to each byte is another thread's, with nothing between the two."""
        thread = last[at]
        other = (thread != _NOBODY) & (thread != ids.thread)
        if not other.any():
            return np.asarray(other)
        ordered = (block[at] == ids.block) & (clock[at] < ids.clock) & (thread != _BLOCKS)
        return np.asarray(other & ~ordered)
