"""Arenas: memory for what a program computes on the way. A program has its own; where that is large, all share one.

Of two programs that run at the same time one finds the shared arena at work, and its call takes the long way, in
another one. The shared arenas are kept until the process ends.
"""

from __future__ import annotations

from ...locks import lock
from .python_entry import spec
from .python_entry.spec import Arena

LARGE = 1 << 20  # bytes


class Arenas:
    """One arena that native entries share, and one for a call that goes the long way, while no call is in it."""

    def __init__(self) -> None:
        self._free: list[Arena] = []
        self._shared: Arena | None = None
        self._sharing = lock()

    def take(self, nbytes: int) -> Arena:
        """An arena of at least so many bytes, for one call."""
        return self._free_one(nbytes) or spec.arena(nbytes)

    def give_back(self, arena: Arena) -> None:
        """Keeps the arena of a call for the next one."""
        self._free[:] = [arena]  # no lock, which an interrupt at the wrong place would leave held

    def shared(self, nbytes: int) -> Arena:
        """An arena of at least so many bytes for native entries: all share one, or the last of a few, each twice as
        large as the one before. The first is that of calls before, which rarely come again."""
        with self._sharing:
            before = self._shared
            if before is None or before.nbytes < nbytes:
                least = max(nbytes, 0 if before is None else 2 * before.nbytes)
                self._shared = self._free_one(nbytes) or spec.arena(least)
            assert self._shared is not None
            return self._shared

    def _free_one(self, nbytes: int) -> Arena | None:
        """An arena that no call is in, if it is large enough; by now another thread may have taken it."""
        try:
            arena = self._free.pop()
        except IndexError:
            return None
        return arena if arena.nbytes >= nbytes else None


_all = Arenas()


def arenas_for(nbytes: int, own: Arenas) -> Arenas:
    """The arenas that a program with this need takes one of."""
    return _all if nbytes >= LARGE else own
