"""Performance: how fast a device is and how much memory it has, as placement reckons with it.

A time is what a launch costs, and then that of the arithmetic or that of the memory, whichever is longer (the roofline
model of Williams et al., 2009). Figures are those of data sheets and of a few measurements: they decide between
alternatives, they do not predict. Times are whole nanoseconds, so that sums do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import inf

from ..record import record


@record
class Work:
    """Arithmetic and traffic of some operations. Operations are counted by the bytes of an element of their results."""

    launches: float = 0
    elements: Mapping[int, float] = field(default_factory=dict)  # operations outside of products, weighed by their cost
    products: Mapping[int, float] = field(default_factory=dict)  # multiplications and additions of products
    nbytes: float = 0  # read and written
    host_ns: float = 0  # what NumPy computes, on whatever device the values are
    host_calls: int = 0
    host_bytes: float = 0  # its operands and results, which are copied from a device and back


@record
class Performance:
    """Speeds of a device: operations and bytes in a second; times in seconds."""

    elements: Mapping[int, float]  # operations outside of products, by the bytes of an element
    products: Mapping[int, float]
    bandwidth: float  # of its memory
    launch: float  # from one launch to the next that does nothing
    latency: float = 0.0  # of a copy from the host or back, however small
    link: float = inf  # bandwidth of such copies
    memory: float = inf  # bytes
    program: float = 0.0  # the host's time to start a program of it

    def nanoseconds(self, work: Work) -> int:
        """The time of some work on values that are there."""
        arithmetic = _time(work.elements, self.elements) + _time(work.products, self.products)
        seconds = work.launches * self.launch + max(arithmetic, work.nbytes / self.bandwidth)
        copies = 2 * work.host_calls * self.latency + work.host_bytes / self.link
        return round((seconds + copies) * 1e9 + work.host_ns)


# A device of which nothing is known: one core, and memory of its own.
UNKNOWN = Performance({4: 1e11}, {4: 1e11}, 20e9, 5e-6, 5e-6, 10e9)


def copy_ns(source: Performance, target: Performance, nbytes: float) -> int:
    """The time of a copy from one device to another one, by way of the host."""
    return round((source.latency + target.latency + nbytes / source.link + nbytes / target.link) * 1e9)


def _time(operations: Mapping[int, float], rates: Mapping[int, float]) -> float:
    return sum(count / rates.get(size, rates[4]) for size, count in operations.items())
