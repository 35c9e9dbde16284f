"""A kind of launch: how it is emitted, the key of its code in the cache, the range that threads share. All of it is for
the CPU that is given, which an emitter finds in its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....loops.ir import KernelSpec
from ....record import record
from ....sizes.dims import Size
from ..spec import CpuSpec
from . import ir

if TYPE_CHECKING:
    from ....schedule.kernels.library import Call, Prepared


@record
class Kind:
    """`emit(module, name, spec)` adds `void name(ptr buffers, i64 lo, i64 hi)`; [lo, hi) is a part of `range`."""

    emit: Callable[..., ir.Function]
    source: Callable[..., str]  # all that `emit` depends on, beside what is in the key of the machine's code
    range: Callable[[Any, CpuSpec], tuple[Size, int]] = lambda *_: (1, 1)  # iterations, and what split points divide
    nanoseconds: Callable[[Any], float] = lambda _: 0.0  # estimated, on one core
    calls_blas: Callable[[Any, CpuSpec], bool] = lambda *_: False
    polls: Callable[[Any, CpuSpec], bool] = lambda *_: False  # whether it asks itself if it is to stop
    # Specs that it calls: `emit` and `source` take their names.
    parts: Callable[[Any, CpuSpec], Sequence[KernelSpec]] = lambda *_: ()


@record
class CallKind(Kind):
    """A kind of library call. With an epilogue its `emit` takes the epilogue's kernel as well."""

    computes: Callable[[Any, CpuSpec], bool] = lambda *_: False  # whether there is a kernel for a call
    takes_epilogue: Callable[[Any, CpuSpec], bool] = lambda *_: False
    # What its operands are prepared as, and the call without memory for its result.
    prepared: Callable[[Any, CpuSpec], tuple[Prepared | None, Prepared | None]] = lambda *_: (None, None)
    passing: Callable[[Any, CpuSpec], Call | None] = lambda *_: None
    # Number of times that it computes an element of a left operand without memory; whether two calls add up alike.
    computes_left: Callable[[Any, CpuSpec], int] = lambda *_: 0
    # Number of parts of its sums that have results of their own.
    sum_blocks: Callable[[Any, CpuSpec], int] = lambda *_: 1
    same_sums: Callable[[Any, Any, CpuSpec], bool] = lambda *_: False
