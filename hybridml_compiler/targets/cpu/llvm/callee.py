"""Callee: the function of a spec, as the step that launches it sees it."""

from __future__ import annotations

from ....record import record
from ....schedule import cost
from ....sizes.dims import Size, hint, is_dim
from ..runtime.thread_block import POLL_NS

_RANGE_NS = 10 * POLL_NS  # of a launch that may be stopped between its ranges


@record
class Callee:
    symbol: str
    total: Size  # iterations of its range
    granule: int  # split points are multiples of it
    nanoseconds: float  # estimated, on one core
    calls_blas: bool
    cores: int  # that the threads are expected to have
    polls: bool = False  # whether it ends early where its call is to stop

    @property
    def parallel(self) -> bool:
        """Whether threads share its range; where that comes with the call, they may."""
        if is_dim(self.total):
            return True
        return self.total >= 2 * self.granule and self.nanoseconds > cost.PARALLEL_THRESHOLD_NS

    @property
    def parallel_from(self) -> int:
        """Iterations from which on threads share a range whose size comes with the call."""
        each = self.nanoseconds / max(hint(self.total), 1)
        return max(2 * self.granule, int(cost.PARALLEL_THRESHOLD_NS / max(each, 1e-3)))

    @property
    def ranges_a_thread(self) -> int:
        """Number of ranges that a thread's share is cut into: a thread that is done takes over ranges of another."""
        share = self.nanoseconds / self.cores
        return max(min(max(int(share / cost.RANGE_NS), 1), cost.RANGES_A_THREAD), int(share / _RANGE_NS))

    @property
    def is_long(self) -> bool:
        """Whether a launch takes long enough to be stopped before its end."""
        return self.polls or (self.parallel and self.nanoseconds >= POLL_NS)
