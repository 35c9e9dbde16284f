"""Reading ahead: a thread makes the next samples while the program uses those that it has."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import finalize

from .checks import at_least_one
from .reading import Reading
from .stage import Cursor, Stage, Trail, as_stage, passed_over


class Prefetch(Stage):
    """The same samples, up to `buffer_size` of them made ahead."""

    step = "prefetch"

    def __init__(self, source: Any, buffer_size: int) -> None:
        self.source = as_stage(source)
        self.buffer_size = at_least_one("prefetch", "buffer_size", buffer_size)

    def open(self, reading: Reading, place: Any) -> Cursor:
        first, skipped, within = (0, 0, None) if place is None else (place["from"], place["skipped"], place["source"])
        trail = Trail(self.source.open(reading, within), self.buffer_size, first)
        passed_over(trail, skipped, first)
        return Ahead(trail, self.buffer_size)


class Ahead(Cursor):
    """Jobs of one thread, which ends with the cursor, after the sample that it is making."""

    def __init__(self, trail: Trail, count: int) -> None:
        self.trail, self.given = trail, trail.read
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="hybridml-prefetch")
        finalize(self, self.thread.shutdown, wait=False, cancel_futures=True)
        self.jobs: deque[Future[Any]] = deque()
        for _ in range(count):
            self._ask()

    def _ask(self) -> None:
        self.jobs.append(self.thread.submit(next, self.trail, self.trail))  # itself at the end

    def __next__(self) -> Any:
        sample = self.jobs.popleft().result()  # an error is raised here, at its sample
        self._ask()
        if sample is self.trail:
            raise StopIteration
        self.given += 1
        return sample

    def place(self) -> Any:
        first, source = self.trail.before(self.given)
        return {"from": first, "skipped": self.given - first, "source": source}
