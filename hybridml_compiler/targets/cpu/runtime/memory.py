"""A look whether there is memory for code that cannot go on without.

LLVM ends the process where an allocation fails ("LLVM ERROR: out of memory", or an exception of C++ that nobody
catches): a handler for that may not return, and Python cannot raise from it. So we look before it begins. That is for
limits of the address space (`ulimit -v`, a kernel that does not overcommit); where a container's memory ends, the
kernel ends the process, whoever asks.
"""

from __future__ import annotations

import mmap

# A call of LLVM takes less than 26 MB for modules of up to 64 kB of text. A thread takes 8 MB for its stack, and the C
# library has an arena for each.
RESERVE, PER_BYTE = 48 << 20, 512


def require(text: int = 0) -> None:
    """Raises MemoryError unless there is memory to compile a module with so many bytes of text."""
    wanted = RESERVE + PER_BYTE * text
    try:
        mmap.mmap(-1, wanted).close()
    except OSError as error:
        raise MemoryError(
            f"compiling needs {wanted >> 20} MiB of address space, and there is less ({error}); free some memory, "
            "raise the limit (ulimit -v), or compute eagerly"
        ) from None
