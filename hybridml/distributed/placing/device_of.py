"""`device_of`: the block of a traced function that one process computes; and `place`, which leaves the choice to the
compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from hybridml_compiler.errors import ArgumentError, TraceError

from ...tracing.capture.tracer import current_tracer
from ...tracing.decorator import trace
from ...tracing.function import TracedFunction
from ...tracing.specialize.errors import NotGeneralizable
from ..functions import call
from ..groups import Group, default
from ..transport import is_whole
from .regions import AUTO, Rank, Regions

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def device_of(rank: Rank, group: Group | None = None) -> Iterator[None]:
    """Context manager: one process of a group computes what a traced function does in the block.

    rank: of the process in the group, or "auto", which leaves it to the compiler, operation by operation: what takes
    the least time by its estimate. group: all processes of the job by default.

    All processes call the function, with the same arguments; each runs its part of one program, with messages between
    them, and all return what the function returns. A gradient is computed where the operation was that it is of. What
    is in no block is computed where its operands are, and by each process that needs it where it has none but
    arguments and other values that all processes have. A tensor that the function updates has its new values in the
    process that computes them (see docs/distributed.md); `full_state_dict` has them in all. In eager code, and in a
    group of one process, a block changes nothing: every process computes all of it.

    Raises ArgumentError for a rank that the group does not have; TraceError in the body of `hm.scan` and its like, and
    for two groups in one function; CompileError, when the function is called, where it asks for values, is
    differentiated outside, or has tensors of other devices than the CPU; CollectiveError where processes have captured
    functions that differ.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def fn():
    ...     @hm.trace
    ...     def both(x):
    ...         with dist.device_of(0):
    ...             a = hm.sin(x)
    ...         with dist.device_of(1):
    ...             b = hm.cos(x)
    ...         return (a * a + b * b).sum()
    ...     return round(both(hm.ones((100,))).item(), 3), "sin" in both.ir, "cos" in both.ir
    >>> dist.run_threads(2, fn)
    [(100.0, True, False), (100.0, False, True)]
    """
    group = default(group)
    if rank != AUTO and group.size > 1 and not (is_whole(rank) and 0 <= rank < group.size):
        raise ArgumentError(
            f"device_of: rank must be a rank of {group!r}, 0 to {group.size - 1}, or 'auto', got {rank!r}"
        )
    tracer = current_tracer()
    if tracer is None or group.size == 1:
        yield
        return
    if tracer.guards is not None:
        raise NotGeneralizable(why="messages between processes have fixed sizes")
    if tracer.frames:  # a loop of Python's is captured again, step by step
        raise TraceError(
            "device_of: one process computes all of a loop or branch (hm.cond, hm.scan, ...); put the block around it"
        )
    if tracer.regions is None:
        call(group, "placed")
        tracer.regions = Regions(group)
    if tracer.regions.group is not group:
        raise TraceError(f"device_of: blocks of one function are of one group, {tracer.regions.group!r}, got {group!r}")
    with tracer.regions.inside(rank):
        yield


def place(fn: Callable[P, R], group: Group | None = None) -> TracedFunction[P, R]:
    """Captures a function as `trace` does, and spreads its operations over the processes of a group.

    As if its body were in a block of `device_of("auto")`: the compiler estimates what operations and messages take, and
    leaves all to one process where messages would cost more than they spare. Blocks of `device_of` inside have their
    ranks. group: all processes of the job by default. Errors are those of `device_of`.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, lambda: dist.place(lambda x: (x * 2).sum())(hm.ones((100,))).item())
    [200.0, 200.0]
    """
    group = default(group)

    @functools.wraps(fn)
    def placed(*args: P.args, **kwargs: P.kwargs) -> R:
        with device_of(AUTO, group):
            return fn(*args, **kwargs)

    return trace(placed)
