"""What every measuring process does alike: requests line by line, calls timed in blocks, memory, the processor."""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ERROR_WORDS = 40  # of an error: compilers begin with a line that says nothing
BLOCK = 200e-6  # shorter calls are timed in blocks: reading the clock twice costs 0.1 us


def limit_cpus(count: int) -> None:
    """Every pool that sizes itself by the CPUs of the process gets the same number."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def sample(call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds a call, of blocks of calls, for about `seconds`; at least one block."""
    clock = time.perf_counter
    call()  # guards and caches that the reset has disturbed
    start = clock()
    call()
    count = max(1, round(BLOCK / max(clock() - start, 1e-9)))
    samples: list[float] = []
    gc.collect()
    gc.disable()
    try:
        deadline = clock() + seconds
        while not samples or clock() < deadline:
            start = clock()
            for _ in range(count):
                call()
            samples.append((clock() - start) / count)
    finally:
        gc.enable()
    return samples


def memory(peak: bool = False) -> int:
    """Bytes of this process in memory, now or at most since `forget_peak`; 0 where the system does not say."""
    field = "VmHWM:" if peak else "VmRSS:"
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith(field)), 0)
    return 0


def forget_peak() -> None:
    """Lets `memory(peak=True)` begin anew."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers requests until there are no more of them."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not look like an answer
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # reported by the parent, which goes on with the other candidates
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split()[:ERROR_WORDS])}"}
        print(json.dumps(reply), file=replies)


def cpu_model() -> str:
    """The processor's own name for itself; no name of the machine."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
