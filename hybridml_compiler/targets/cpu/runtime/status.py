"""Status words of a step that has failed, beside the number of the launch whose index check did."""

from __future__ import annotations

from hybridml_compiler.runtime import host_callback
from hybridml_compiler.targets.cpu.runtime import sanitize, scratch

NO_MEMORY, OUT_OF_BOUNDS, STOPPED = -1, -2, -3


def reraise(status: int) -> None:
    """Raises the error of a status, or of NumPy within the step. An index check is left to whoever runs the program
    again, and finds the user's line."""
    if status == NO_MEMORY:
        scratch.require()
    if status == OUT_OF_BOUNDS:
        sanitize.complain()
    host_callback.reraise()
    if status == STOPPED:  # somebody's `sys.unraisablehook` was told of the interrupt in the place of ours
        raise KeyboardInterrupt
