"""Rates of this machine in products and in reading memory, and the times of calls beside their kernels.

Measured where `explain_speed` needs it, once for each number of threads, with the library's own kernels: a product of
1024 x 1024, a sum of 64 MiB. The least of a few rounds counts, as what else runs only adds to it.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hybridml_compiler.targets.cpu.runtime.threads import get_num_threads

from ...arrays.creation import ones
from ...core import ops
from ...tracing.function import TracedFunction
from ..record import Recording

_SIDE, _SWEEP, _FRESH = 1024, 1 << 26, 1 << 20  # of a product; bytes that are read; bytes of new memory
_ROUNDS, _MANY, _CALLS = 5, 50, 300  # rounds of long and of short calls, and short calls in each


@dataclass(frozen=True)
class Machine:
    """Rates of all threads together, and times of one call in milliseconds."""

    threads: int
    gflops: float  # of a large float32 product
    gbs: float  # reading memory
    operation_ms: float  # an eager operation on one number
    again_ms: float  # the same, done again as those that a profile has seen
    call_ms: float  # a call of a compiled program on one number
    fault_ms: float  # a page of new memory

    def memory_ms(self, nbytes: float) -> float:
        """The time to read so many bytes, had no cache any of them."""
        return nbytes / self.gbs / 1e6


def machine() -> Machine:
    """The machine with as many threads as now."""
    return _measured(get_num_threads())


@functools.cache
def _measured(threads: int) -> Machine:
    one = ones((1,))
    matrix, long = ones((_SIDE, _SIDE)), ones((_SWEEP // 4,))
    product = TracedFunction(lambda x: ops.matmul(x, x))
    sweep = TracedFunction(lambda x: ops.sum(x))
    tiny = TracedFunction(lambda x: ops.add(x, x))
    return Machine(
        threads=threads,
        gflops=2 * _SIDE**3 / least(lambda: product(matrix), 1) / 1e6,
        gbs=_SWEEP / least(lambda: sweep(long), 1) / 1e6,
        operation_ms=least(lambda: one + one, _CALLS),
        again_ms=_again_ms(lambda: one + one),
        call_ms=least(lambda: tiny(one), _CALLS),
        fault_ms=_fault_ms(),
    )


def least(call: Callable[[], object], calls: int) -> float:
    """Milliseconds of a call, the least over rounds of so many."""
    for _ in range(3):  # compiled, the long way, the native entry
        call()
    found = []
    for _ in range(_ROUNDS if calls == 1 else _MANY):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) * 1e3 / calls)
    return min(found)


def _again_ms(call: Callable[[], object]) -> float:
    """The time of the operation of a call, done again."""
    recording = Recording(repeatable=True)
    recording.begin()
    try:
        call()
    finally:
        recording.end()
    (operation,) = [found.again for found in recording.calls if found.again is not None]
    return least(operation, _CALLS)


def faults() -> int:
    """Pages of new memory that the process has been given so far; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _fault_ms() -> float:
    """The time of writing to new memory beyond that of writing to it again, a page (of 4 KiB: NumPy asks for larger
    ones from 4 MiB on)."""
    found = []
    for _ in range(9):
        before, start = faults(), time.perf_counter()
        fresh = np.empty(_FRESH // 8)
        fresh.fill(1.0)
        first, count = time.perf_counter() - start, faults() - before
        start = time.perf_counter()
        fresh.fill(2.0)
        again = time.perf_counter() - start
        if count:
            found.append(max(first - again, 0.0) * 1e3 / count)
    return min(found, default=0.0)
