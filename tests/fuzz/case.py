"""The case under way, kept in a file, so that it is known even when the process dies in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count

from hybridml_compiler.runtime.cache import ObjectCache

ENVIRONMENT = "HYBRIDML_FUZZ_CASE"  # the file; unset: nothing is kept


class Case:
    """Writes the name of each case over that of the one before."""

    def __init__(self) -> None:
        path = os.environ.get(ENVIRONMENT)
        self.handle = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def begin(self, name: str) -> None:
        if self.handle is not None:
            os.pwrite(self.handle, f"{name[:200]:<200}".encode(), 0)


# The cache between cases. Without one, a thread that still has a kernel to write makes the default one, which may come
# after the next case's and take its place.
NOWHERE = ObjectCache(None)


def cases(seconds: float, seed: int) -> Iterator[int]:
    """Seeds of cases, from `seed` on, until the time is up; at least one, so that no time repeats the case `seed`."""
    end, case = time.monotonic() + seconds, Case()
    for number in count(seed):
        case.begin(f"case {number}")
        yield number
        if time.monotonic() >= end:
            return
