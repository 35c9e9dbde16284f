"""Streams of parts (shards, other streams): one after the other, or several in turn."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .checks import at_least_one
from .reading import Reading
from .stage import Cursor, Stage, as_stage

Opener = Callable[[Any], Cursor]  # of a part, from a place in it on (None: from its beginning)


class Parts(Stage):
    """Base of streams of parts: subclasses write `parts`, and put what these are into `whole` and `files`."""

    cycle_length = 1
    whole: str  # the parts, as `chain` has them
    files = ""  # of the parts

    @property
    def chain(self) -> str:
        return self.whole if self.cycle_length == 1 else f"{self.whole}.interleave({self.cycle_length})"

    def parts(self, reading: Reading) -> Sequence[Opener]:
        """The parts of a reading."""
        raise NotImplementedError

    def open(self, reading: Reading, place: Any) -> Cursor:
        return InTurn(self.parts(reading), self.cycle_length, place)

    def interleave(self, cycle_length: int) -> Parts:
        """The stream that reads `cycle_length` of its parts (shards, chained streams) at once, one sample each in turn.

        Where one ends, the next takes its turn: the order is the same every time. Each reader has parts of its own
        (of its shards). Raises ArgumentError for a `cycle_length` below 1.

        >>> list(hm.data.ChainDataset(["abc", "de", "fg"]).interleave(2))
        ['a', 'd', 'b', 'e', 'c', 'f', 'g']
        """
        other = copy.copy(self)
        other.set_epoch(0)  # not in the middle of the other order
        other.cycle_length = at_least_one("interleave", "cycle_length", cycle_length)
        return other


class InTurn(Cursor):
    """Samples of parts, of which some are open, in turn."""

    def __init__(self, parts: Sequence[Opener], cycle_length: int, place: Any) -> None:
        self.parts = parts
        self.next: int = 0 if place is None else place["next"]
        active = [] if place is None else place["active"]
        self.active = deque((number, parts[number](within)) for number, within in active)
        while len(self.active) < cycle_length and self._open():
            self.active.rotate(-1)

    def _open(self) -> bool:
        """Opens the next part, whose turn it is."""
        if self.next == len(self.parts):
            return False
        self.active.appendleft((self.next, self.parts[self.next](None)))
        self.next += 1
        return True

    def __next__(self) -> Any:
        while self.active:
            try:
                sample = next(self.active[0][1])
            except StopIteration:
                self.active.popleft()
                self._open()
            else:
                self.active.rotate(-1)
                return sample
        raise StopIteration

    def place(self) -> Any:
        return {"next": self.next, "active": [[number, cursor.place()] for number, cursor in self.active]}


class ChainDataset(Parts):
    """Stream of several streams, one after the other; their lengths, where all have them, add up.

    >>> list(ChainDataset([range(2), "ab"]))
    [0, 1, 'a', 'b']
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self.whole = f"ChainDataset([{', '.join(as_stage(dataset).chain for dataset in self.datasets)}])"
        self.files = "\n".join(files for dataset in self.datasets if (files := as_stage(dataset).files))

    @property
    def replica(self) -> tuple[int, int] | None:
        found = {as_stage(dataset).replica for dataset in self.datasets} - {None}
        if len(found) > 1:
            raise ArgumentError(
                "ChainDataset: streams have different (rank, num_replicas), "
                f"{sorted(filter(None, found))}; give all the same"
            )
        return next(iter(found), None)

    def parts(self, reading: Reading) -> Sequence[Opener]:
        return [partial(as_stage(dataset).open, reading) for dataset in self.datasets]

    def __len__(self) -> int:
        return sum(map(len, self.datasets))
