"""State that threads share, or that each has of its own, and memory that processes share.

locks.py    the locks of state that the library itself updates
calls.py    calls with effects, in the order of their thread
memory.py   memory of tensors that other processes see
"""

from .locks import accumulating, drawing, generator_states, given_back, is_generator_state

__all__ = ["accumulating", "drawing", "generator_states", "given_back", "is_generator_state"]
