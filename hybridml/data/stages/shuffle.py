"""Shuffling a stream: a sample is drawn from a buffer, and the next of the stream takes its place.

The place in a shuffled stream has no samples. It has the numbers of those that wait in the buffer, and a place of the
stream behind that is before all of them: a run from there reads on from it and keeps those. The draws are those of a
seed by their number, so that they need no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...random import Generator
from ..sampler import Seed, checked_seed, random_bits
from .checks import at_least_one
from .reading import Reading
from .stage import Cursor, Stage, Trail, as_stage, within

DRAWS = 1024  # drawn at once


class Shuffle(Stage):
    """Samples in an order that depends on the seed and the epoch."""

    def __init__(self, source: Any, buffer_size: int, seed: Seed) -> None:
        self.source, self.seed = as_stage(source), checked_seed("shuffle: seed", seed)
        self.buffer_size = at_least_one("shuffle", "buffer_size", buffer_size)
        kind = "Generator" if isinstance(seed, Generator) else self.seed
        self.step = f"shuffle({self.buffer_size}, seed={kind})"

    def open(self, reading: Reading, place: Any) -> Cursor:
        if place is None:
            key = int(random_bits(self.seed, reading.epoch, use=2).integers(2**63))
            return Shuffled(Trail(self.source.open(reading, None), self.buffer_size), self.buffer_size, key)
        trail = Trail(self.source.open(reading, place["source"]), self.buffer_size, place["from"])
        return Shuffled(trail, self.buffer_size, place["key"], place["given"], reread(trail, place))


def reread(trail: Trail, place: Any) -> list[tuple[int, Any]]:
    """The samples that waited, with their numbers. Raises ArgumentError where the stream has become shorter."""
    waiting = dict.fromkeys(place["waiting"])
    for number, sample in enumerate(islice(trail, place["read"] - trail.read), trail.read):
        if number in waiting:
            waiting[number] = sample
    within(place["read"], trail.read)
    return list(waiting.items())


class Shuffled(Cursor):
    """Samples drawn from a buffer; `given` of them were, and `buffer` has those that wait, with their numbers."""

    def __init__(
        self, trail: Trail, size: int, key: int, given: int = 0, buffer: Sequence[tuple[int, Any]] = ()
    ) -> None:
        self.trail, self.size, self.key, self.given, self.buffer = trail, size, key, given, list(buffer)
        self.draws: tuple[int, np.ndarray] = (-1, np.zeros(0))  # the number of a block, and it

    def __next__(self) -> Any:
        while len(self.buffer) < self.size:
            number = self.trail.read
            sample = next(self.trail, self.trail)
            if sample is self.trail:
                break
            self.buffer.append((number, sample))
        if not self.buffer:
            raise StopIteration
        chosen = int(self._draw() * len(self.buffer))
        self.buffer[chosen], self.buffer[-1] = self.buffer[-1], self.buffer[chosen]
        self.given += 1
        return self.buffer.pop()[1]

    def _draw(self) -> float:
        """A number from 0 to 1, of its place among the draws."""
        block, place = divmod(self.given, DRAWS)
        if self.draws[0] != block:
            bits = np.random.Generator(np.random.Philox(key=self.key, counter=[0, block, 0, 0]))
            self.draws = block, bits.random(DRAWS)
        return self.draws[1][place]

    def place(self) -> Any:
        waiting = [number for number, _ in self.buffer]
        first, source = self.trail.before(min(waiting, default=self.trail.read))
        return {
            "key": self.key,
            "given": self.given,
            "read": self.trail.read,
            "waiting": waiting,
            "from": first,
            "source": source,
        }
