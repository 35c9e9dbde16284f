"""The table of devices' speeds and sizes, by which operations are placed (see placement/).

A GPU's are worked out of what its driver says and of the lanes of its architecture; the simulated one has those of the
GPU whose kernels it runs, an A100, so that it gets the programs that this would get. Whoever knows better says so in
`ASSUMED`, before the first call of what is placed.
"""

from __future__ import annotations

from .. import config
from ..placement.performance import Performance
from ..schedule.cost import FLOP_NS, FORK_NS
from .cuda.driver import Properties

ASSUMED: dict[str, Performance] = {}  # by device, in place of what is in this file

_CORE = 1e9 / FLOP_NS  # operations per second
_CORE_BANDWIDTH = 20e9  # bytes per second, between the last cache (33e9) and memory (10e9)
# Copies by way of memory that is not pinned; a call of CUDA for each, and the stream that is waited for.
_LINK, _LATENCY, _LAUNCH = 12e9, 15e-6, 3e-6
# Python between the programs of several devices (targets/partitioned.py).
_PROGRAM, _GPU_PROGRAM = 15e-6, 40e-6
# By architecture: float32 lanes of a multiprocessor, operations per cycle of its tensor cores on 16 bits, and the part
# of float32's speed that float64 has (CUDA programming guide and NVIDIA's data sheets).
_LANES = {80: (64, 2048, 0.5), 86: (128, 1024, 1 / 64), 89: (128, 1024, 1 / 64), 90: (128, 4096, 0.5)}
_A100 = Properties("A100", 80, 40 << 30, 108, 1_410_000_000, 1555e9)

# An interpreter in Python.
REFERENCE = Performance({4: 2e6}, {4: 2e6}, 1e9, 20e-6, 5e-6, 10e9)


def cpu_performance(cores: int) -> Performance:
    """Speeds of so many cores."""
    single = cores * _CORE
    rates = {2: single, 4: single, 8: single / 2}
    return Performance(rates, rates, cores * _CORE_BANDWIDTH, FORK_NS / 1e9, program=_PROGRAM)


def gpu_performance(properties: Properties) -> Performance:
    """Speeds of a GPU: at most what its lanes and its memory can do."""
    found = properties if properties.clock and properties.bandwidth else _A100
    known = max((capability for capability in _LANES if capability <= found.capability), default=min(_LANES))
    lanes, tensor, double = _LANES[known]
    cycles = float(found.multiprocessors * found.clock)
    single, narrow = 2 * lanes * cycles, tensor * cycles
    return Performance(
        elements={2: single, 4: single, 8: single * double},
        products={2: narrow, 4: narrow / 2 if config.field("tf32") else single, 8: single * double},
        bandwidth=found.bandwidth,
        launch=_LAUNCH,
        latency=_LATENCY,
        link=_LINK,
        memory=properties.memory,
        program=_GPU_PROGRAM,
    )
