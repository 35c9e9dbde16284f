"""State that threads share and that the library itself updates, and the lock of each kind.

An update reads, computes and stores: without a lock two threads would add to the same gradient and keep one sum, or
draw the same random numbers. In-place updates that user code asks for (`x += y`) are the user's to order, as in NumPy.
Locks are taken in this order: `drawing`, that of a traced function, `accumulating`; a trace, which only notes what is
to be done, takes none of the two here.
"""

from __future__ import annotations

from hybridml_compiler.locks import rlock
from hybridml_compiler.weak import WeakValues

from .tensor import Tensor

accumulating = rlock()  # held from reading `.grad` of leaves to storing their sums
drawing = rlock()  # held from reading the state of a generator to storing the next one
generator_states: WeakValues[int, Tensor] = WeakValues()  # by id


def is_generator_state(value: object) -> bool:
    """Whether a tensor is the state of a generator."""
    return generator_states.get(id(value)) is value
