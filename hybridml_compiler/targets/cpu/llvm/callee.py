"""Callee: the function of a spec, as the step that launches it sees it."""

from __future__ import annotations

from ....record import record
from ....schedule import cost
from ....sizes.dims import Size, hint, is_dim


@record
class Callee:
    symbol: str
    total: Size  # iterations of its range
    granule: int  # split points are multiples of it
    nanoseconds: float  # estimated, on one core
    calls_blas: bool
    cores: int  # that the threads are expected to have

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
        return min(max(int(self.nanoseconds / (self.cores * cost.RANGE_NS)), 1), cost.RANGES_A_THREAD)
