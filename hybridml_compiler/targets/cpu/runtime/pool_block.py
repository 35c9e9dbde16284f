"""The control block of the fork-join pool, which its native code (pool_ir.py) and Python (threads.py) share."""

from __future__ import annotations

import platform
import sys

from ....config import MAX_THREADS
from ..structs import Struct

LINE = 64
MAX_RANGES = MAX_THREADS

# A line that one side writes while another polls is written by that side only.
POOL = Struct(
    {
        "epoch": (0, "i64"),  # its low half is the word of the futex
        "sleepers": (64, "i32"),
        "busy": (128, "i32"),
        "function": (192, "ptr"),
        "argument": (200, "ptr"),
        "total": (208, "i64"),
        "granule": (216, "i64"),
        "units": (224, "i64"),
        "ranges": (232, "i64"),
        "cpu": (240, "i32"),
        "posted": (248, "i64"),
        "threads": (256, "i64"),
        "started": (264, "i64"),
        "max_spin": (272, "i64"),
        "stop": (280, "i32"),
        "start": (288, "ptr"),
        "stops": (296, "i64"),  # whether the job may be stopped between its ranges
        "stopped": (384, "i64"),
        "states": (512, "i64"),  # of each range, on a line of its own
    }
)
BLOCK_BYTES = POOL.offset("states") + LINE * MAX_RANGES

SPIN_NS = 50_000  # longest wait without sleeping; one idle period burns at most this much of a core
MIN_SPIN = 8  # polls

CALLED = ("hml_parallel", "hml_parallel_chunks", "hml_parallel_stops")  # by generated code
EXPORTS = (*CALLED, "hml_worker", "hml_stop", "hml_try_lock", "hml_unlock", "hml_spin")
LIBC = ("syscall", "sched_yield", "sched_getcpu", "clock_gettime")
FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}.get(platform.machine(), 0)
PARALLEL = sys.platform == "linux" and FUTEX_NUMBER != 0 and sys.byteorder == "little"
