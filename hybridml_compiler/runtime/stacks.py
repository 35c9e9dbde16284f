"""Stacks of the threads that are started here: those of LLVM and of BLAS want more than a program may have set."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LEAST = 1 << 20  # bytes: LLVM compiles the largest kernels with 256 KB, which is no promise


@contextmanager
def roomy() -> Iterator[None]:
    """Threads that are started inside have stacks of `LEAST` bytes, or of what `threading.stack_size` gives them.

    That setting is the process's: a thread that another one starts meanwhile has the larger stack too.
    """
    size = threading.stack_size()
    if not 0 < size < LEAST:
        yield
        return
    threading.stack_size(LEAST)
    try:
        yield
    finally:
        threading.stack_size(size)
