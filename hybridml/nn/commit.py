"""Commit: write many new values at once, so that an interrupt leaves either all old or all new ones."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import setitem

from hybridml_compiler.errors import ShapeError

from ..core.aliasing import assign, stamp
from ..core.context import current_interpreter
from ..core.tensor import Tensor

Writes = list[tuple[Tensor, Tensor]]  # (target, new value of the same shape and dtype)


def commit(writes: Writes) -> None:
    """``target[...] = value`` for every pair, in place and unrecorded.

    Ctrl-C arrives between two bytecodes of the main thread. The writes are one call of C code (`deque` draining a `map`
    of array assignments): there is no bytecode between the first write and the last. Inside a traced function they are
    part of the one native call.
    """
    if current_interpreter() is not None:
        for target, value in writes:
            assign(target, value, "update")
        return
    for target, value in writes:
        if target.shape != value.shape or target.dtype != value.dtype or not target._array.flags.writeable:
            raise ShapeError(
                f"update: cannot write {value.dtype} {value.shape} into {target.dtype} {target.shape} in place"
                + ("" if target._array.flags.writeable else ": its memory is read-only, clone() the tensor first")
            )
    # Before the writes: a value kept for a gradient may be called stale too early, never too late.
    stamp(*(target for target, _ in writes))
    targets, values = [target._array for target, _ in writes], [value._array for _, value in writes]
    deque(map(setitem, targets, repeat(...), values), maxlen=0)
