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
class Who:
    """The threads that access memory, each with its block and the block's clock."""

    thread: np.ndarray
    block: np.ndarray
    clock: np.ndarray

    def some(self, part: np.ndarray) -> Who:
        return Who(self.thread[part], self.block[part], self.clock[part])


class Races:
    """The last accesses to each byte; elements are known by their first one."""

    def __init__(self, nbytes: int) -> None:
        self.writer = np.full(nbytes, _NOBODY, np.int64)
        self.reader = np.full(nbytes, _NOBODY, np.int64)
        self.writer_block, self.writer_clock = (np.zeros(nbytes, np.int64) for _ in range(2))
        self.reader_block, self.reader_clock = (np.zeros(nbytes, np.int64) for _ in range(2))

    def read(self, at: np.ndarray, who: Who) -> str:
        """Notes reads; what is wrong with one of them, or nothing."""
        if self._unordered(at, who, self.writer, self.writer_block, self.writer_clock).any():
            return "read after a write of another thread"
        before, same = self.reader[at], self.reader_block[at] == who.block
        alone = (before == _NOBODY) | (before == who.thread) | (same & (self.reader_clock[at] < who.clock))
        self._note(at, who, np.where(alone, who.thread, np.where(same & (before != _BLOCKS), _SEVERAL, _BLOCKS)))
        return ""

    def _note(self, at: np.ndarray, who: Who, reader: np.ndarray) -> None:
        self.reader[at], self.reader_block[at], self.reader_clock[at] = reader, who.block, who.clock
        together = self.reader[at] != reader  # one byte read by several of these threads
        if together.any():
            at, block = at[together], who.block[together]
            np.minimum.at(self.reader, at, np.where(self.reader_block[at] == block, _SEVERAL, _BLOCKS))

    def write(self, at: np.ndarray, who: Who) -> str:
        """Notes writes; what is wrong with one of them, or nothing."""
        if self._unordered(at, who, self.writer, self.writer_block, self.writer_clock).any():
            return "write after a write of another thread"
        if self._unordered(at, who, self.reader, self.reader_block, self.reader_clock).any():
            return "write after a read of another thread"
        self.writer[at], self.writer_block[at], self.writer_clock[at] = who.thread, who.block, who.clock
        return "two writes of an instruction" if (self.writer[at] != who.thread).any() else ""

    @staticmethod
    def _unordered(at: np.ndarray, who: Who, last: np.ndarray, block: np.ndarray, clock: np.ndarray) -> np.ndarray:
        thread = last[at]
        other = (thread != _NOBODY) & (thread != who.thread)
        ordered = (block[at] == who.block) & (clock[at] < who.clock) & (thread != _BLOCKS)
        return np.asarray(other & ~ordered)
