"""Stacks of the threads started here: LLVM and BLAS need larger ones than a program may have set."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from hybridml_compiler.in_force import Changes

LEAST = 1 << 20  # bytes: LLVM compiles the largest kernels with 256 KB, which is no promise
_changes = Changes()


def roomy() -> AbstractContextManager[None]:
    """Context in which threads are started with stacks of `LEAST` bytes, or of `threading.stack_size` if that is more.

    That setting is the process's: a thread that another one starts meanwhile has the larger stack too.
    """
    return _changes.hold({"stacks": _enlarge})


def _enlarge() -> Callable[[], object] | None:
    size = threading.stack_size()
    if not 0 < size < LEAST:
        return None
    threading.stack_size(LEAST)
    return partial(threading.stack_size, size)
