"""The words at the start of a thread's scratch memory, and the functions that use them (scratch.py, polling.py)."""

from __future__ import annotations

from ..structs import words

# The free part of the memory; when a call is to look for interrupts next, whether it has been told to stop; of a
# worker of the pool, the word that says whether its job has.
THREAD = words("*free", "due", "stopped", "*job")

SCRATCH, READY = "hml_scratch", "hml_scratch_ready"
BEGIN, POLL, LOOK = "hml_poll_begin", "hml_poll", "hml_look"
POLL_NS = 1e6  # of estimated work between two polls
LOOK_NS = 20_000_000
