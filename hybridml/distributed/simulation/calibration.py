"""`calibrate`: latency and bandwidth of the processes of a group, from all-reduces that are measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from hybridml_compiler.dtypes import float64
from hybridml_compiler.errors import ArgumentError

from ...arrays.creation import asarray, ones
from ..functions import all_reduce, barrier, broadcast
from ..groups import Group, default
from .links import ALGORITHMS, Link, rounds

BYTES = (8, 64 << 10, 1 << 20, 4 << 20)
_SECONDS, _LEAST, _MOST = 0.05, 5, 200  # of calls of a size, about


def measured(group: Group) -> dict[int, float]:
    """Seconds of an all-reduce by the number of bytes: medians of what this process waited and moved. All processes
    must call it."""
    found = {}
    for nbytes in BYTES:
        x, times = ones((nbytes // 4,)), []
        for k in range(min(max(int(_SECONDS / (nbytes / 1e9 + 1e-4)), _LEAST), _MOST) + 2):
            barrier(group)
            before = _spent(group)
            all_reduce(x, group=group)
            if k > 1:
                times.append((_spent(group) - before) / 1e9)
        found[nbytes] = statistics.median(times)
    return found


def _spent(group: Group) -> int:
    """Nanoseconds that all-reduces have waited and moved."""
    sums = group.log.sums.get((group.name, "all_reduce", "sum"))
    return 0 if sums is None else sums.waiting + sums.moving


def fitted(times: Mapping[int, float], size: int) -> Link:
    """The link whose all-reduces of `size` processes take such times: its latency is that of the shortest, its
    bandwidth the one whose relative errors are least over the others."""
    shortest = min(times)
    latency = times[shortest] / (2 * rounds(size))  # a meeting, and as many rounds again
    ways = [way.all_reduce(size) for way in ALGORITHMS.values()]
    share = min(share for _, share in ways)
    steps = rounds(size) + min(k for k, times_ in ways if times_ == share)
    longer = [(nbytes, seconds) for nbytes, seconds in times.items() if nbytes > shortest]
    # The slope of seconds = latency * steps + nbytes * slope has the least squares of relative errors.
    weighed = [(nbytes / seconds, 1 - latency * steps / seconds) for nbytes, seconds in longer]
    slope = sum(x * y for x, y in weighed) / sum(x * x for x, _ in weighed)
    return Link(latency, share / max(slope, 1e-15))


def calibrate(group: Group | None = None) -> Link:
    """Measures all-reduces of 8 bytes to 4 MiB, and returns the link by which they take as long.

    group: that of all processes by default; all of its processes must call it, and get rank 0's link. Raises
    ArgumentError for a group of one process.

    >>> from hybridml import distributed as dist
    >>> links = dist.run_threads(2, dist.calibrate)
    >>> links[0] == links[1], links[0].bandwidth > 0
    (True, True)
    """
    group = default(group)
    if group.size == 1:
        raise ArgumentError("calibrate: a process alone has no link; start several, with mpiexec or run_threads")
    link = fitted(measured(group), group.size)
    latency, bandwidth = broadcast(asarray([link.latency, link.bandwidth], dtype=float64), group=group).tolist()
    return Link(latency, bandwidth)
