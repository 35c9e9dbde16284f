"""Costs of collectives by latency and bandwidth: Thakur, Rabenseifner and Gropp, Optimization of collective
communication operations in MPICH, International Journal of High Performance Computing Applications 19, 2005.

A message of n bytes takes alpha + n * beta seconds; here beta has the time of adding up in it, as calibrations cannot
tell them apart. p processes can all send at once, each to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.record import record

Terms = tuple[float, float]  # of a collective: how many latencies, and how often each byte travels


class Algorithm(NamedTuple):
    """Ways in which processes exchange what they have, by their number."""

    all_reduce: Callable[[int], Terms]
    all_gather: Callable[[int], Terms]  # of bytes of the whole


def rounds(size: int) -> int:
    """The rounds after which all processes know of all, if each round doubles what they know: ceil(log2(size))."""
    return (size - 1).bit_length()


def _others(size: int) -> float:
    return (size - 1) / size


ALGORITHMS: Mapping[str, Algorithm] = {
    "ring": Algorithm(lambda p: (2 * (p - 1), 2 * _others(p)), lambda p: (p - 1, _others(p))),
    # Both trees: recursive doubling of whole arrays, and recursive halving and doubling of parts (Rabenseifner).
    "doubling": Algorithm(lambda p: (rounds(p), rounds(p)), lambda p: (rounds(p), _others(p))),
    "halving": Algorithm(lambda p: (2 * rounds(p), 2 * _others(p)), lambda p: (rounds(p), _others(p))),
}
_COLLECTIVES: Mapping[str, Callable[[Algorithm, int], Terms]] = {
    "all_reduce": lambda way, p: way.all_reduce(p),
    "all_gather": lambda way, p: _scaled(way.all_gather(p), p),  # a process gives its part
    "reduce_scatter": lambda way, p: way.all_gather(p),  # the same messages, backwards
    "all_to_all": lambda way, p: (p - 1, _others(p)),
    "broadcast": lambda way, p: (rounds(p), rounds(p)),
}


def _scaled(terms: Terms, times: float) -> Terms:
    return terms[0], terms[1] * times


@record
class Link:
    """Costs of messages between processes: `latency` in seconds, `bandwidth` in bytes a second.

    Raises ArgumentError for a negative latency, and for a bandwidth that is not above 0.

    >>> from hybridml import distributed as dist
    >>> link = dist.Link(latency=10e-6, bandwidth=1e9)
    >>> round(1e3 * link.seconds("all_reduce", 1_000_000, 4, "ring"), 3)  # milliseconds
    1.58
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not self.latency >= 0 or not self.bandwidth > 0:
            raise ArgumentError(
                f"Link: latency is 0 s or more and bandwidth above 0 bytes a second, got {self.latency!r} and "
                f"{self.bandwidth!r}"
            )

    def message(self, nbytes: float) -> float:
        """Seconds from one process to another."""
        return self.latency + nbytes / self.bandwidth

    def seconds(self, name: str, nbytes: float, size: int, algorithm: str = "best") -> float:
        """Seconds of a collective to which each of `size` processes gives so many bytes, with the meeting before it.

        name: that of the collective; one without a row of its own is a meeting alone. algorithm: "ring", "doubling",
        "halving" (both are trees), or the fastest of them, as libraries choose.
        """
        if algorithm != "best" and algorithm not in ALGORITHMS:
            raise ArgumentError(f"Link.seconds: algorithm is 'best', {', '.join(ALGORITHMS)}, got {algorithm!r}")
        if size == 1:
            return 0.0
        meeting = rounds(size) * self.latency
        if name not in _COLLECTIVES:
            return meeting
        ways = ALGORITHMS.values() if algorithm == "best" else [ALGORITHMS[algorithm]]
        terms = [_COLLECTIVES[name](way, size) for way in ways]
        return meeting + min(k * self.latency + share * nbytes / self.bandwidth for k, share in terms)
