"""Arenas: memory for what a program computes on the way. A program has its own; where that is large, all share one.

Of two programs that run at the same time one finds the shared arena at work, and its call takes the long way, in
another one: 15 us more, where a large arena alone takes longer to fill. Drawing the four tables of a recommendation
model made four programs, whose arenas held 240 MiB for good.
"""

from __future__ import annotations

from contextlib import suppress

from ...locks import lock
from .python_entry import spec
from .python_entry.spec import Arena

LARGE = 1 << 20  # bytes


class Arenas:
    """The arena of native entries, and those of calls that go the long way: none while one is in it."""

    def __init__(self) -> None:
        self._free: list[Arena] = []
        self._shared: Arena | None = None
        self._sharing = lock()

    def take(self, nbytes: int) -> Arena:
        """An arena of at least so many bytes, for one call."""
        with suppress(IndexError):  # the first call, or a second thread, which gets one of its own
            arena = self._free.pop()
            if arena.nbytes >= nbytes:
                return arena
        return spec.arena(nbytes)

    def give_back(self, arena: Arena) -> None:
        """Keeps the arena of a call for the next one."""
        self._free[:] = [arena]  # no lock, which an interrupt at the wrong place would leave held

    def shared(self, nbytes: int) -> Arena:
        """An arena of at least so many bytes for native entries: all share one, or the last of a few, each twice as
        large as the one before. The first is that of calls before, which rarely come again."""
        with self._sharing:
            before = self._shared
            if before is None or before.nbytes < nbytes:
                with suppress(IndexError):  # by now another thread may be in it
                    if self._free[0].nbytes >= nbytes:
                        self._shared = self._free.pop()
                        return self._shared
                self._shared = spec.arena(max(nbytes, 0 if before is None else 2 * before.nbytes))
            assert self._shared is not None
            return self._shared


_all = Arenas()


def arenas_for(nbytes: int, own: Arenas) -> Arenas:
    """Those that a program with this need takes its arenas from."""
    return _all if nbytes >= LARGE else own
