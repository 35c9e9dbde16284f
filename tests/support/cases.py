"""Tests that go through many cases: a test each would take longer to collect and to report than to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(label: str) -> Iterator[None]:
    """Names the case on whatever it raises."""
    try:
        yield
    except BaseException as error:  # a failure of pytest's is no Exception
        error.add_note(f"in the case {label}")
        raise
