"""State that threads share and that the library itself updates, and the lock of each kind.

An update reads, computes and stores: without a lock two threads would add to the same gradient and keep one sum, or
draw the same random numbers. In-place updates that user code asks for (`x += y`) are the user's to order, as in NumPy.
Locks are taken in this order: `drawing`, that of a traced function, `accumulating`; a trace, which only notes what is
to be done, takes none of the two here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybridml_compiler.locks import rlock
from hybridml_compiler.weak import WeakValues

from ..tensor import Tensor

accumulating = rlock()  # held from reading `.grad` of leaves to storing their sums
drawing = rlock()  # held from reading the state of a generator to storing the next one
generator_states: WeakValues[int, Tensor] = WeakValues()  # by id


def is_generator_state(value: object) -> bool:
    """Whether a tensor is the state of a generator."""
    return generator_states.get(id(value)) is value


@contextmanager
def given_back() -> Iterator[None]:
    """Gives the locks back in which this thread waits for others that may need them: ranks that are threads, each with
    leaves of its own."""
    locks: list[Any] = [lock for lock in (drawing, accumulating) if lock._is_owned()]  # type: ignore[attr-defined]
    states = [lock._release_save() for lock in locks]
    try:
        yield
    finally:
        for lock, state in zip(locks, states, strict=True):
            lock._acquire_restore(state)
