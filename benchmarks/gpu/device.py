"""The device that checks run on, and its clocks."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm
from hybridml_compiler.targets.registry import find_device

DTYPES = {"float32": hm.float32, "bfloat16": hm.bfloat16}

Record = dict[str, Any]


class Check:
    """The device that all checks run on, and how large everything is."""

    def __init__(self, device: str, small: bool, ends: float) -> None:
        self.device, self.small, self.ends = device, small, ends
        self.gpu: Any = find_device(device)
        self.background: subprocess.Popen[str] | None = None

    def left(self) -> float:
        """Seconds until the end."""
        return self.ends - time.monotonic()

    def tried(self, measure: Callable[[], Any]) -> Any:
        """A measurement, or why there is none: the others are made all the same."""
        if self.left() < 0:
            return "left out: no time"
        try:
            return measure()
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]

    def size(self, usual: int, small: int) -> int:
        return small if self.small else usual

    def array(self, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
        values = np.random.default_rng(seed).standard_normal(shape, np.float32)
        return hm.tensor(values).to(self.device).to(DTYPES[dtype])

    def milliseconds(self, call: Callable[[], object], repeats: int = 20) -> float:
        """The median of some runs by the device's own clock, each of as many calls as take two milliseconds."""
        for _ in range(3):
            call()
        repeats = self.size(repeats, 2)
        count = self.size(max(1, min(200, int(2 / max(self._timed(call, 1), 1e-3)))), 1)
        return statistics.median(self._timed(call, count) for _ in range(repeats))

    def _timed(self, call: Callable[[], object], count: int) -> float:
        with hm.cuda.device(self.device):
            start, end = hm.cuda.Event(enable_timing=True), hm.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / count

    def wall(self, call: Callable[[], object], calls: int) -> float:
        """Microseconds of the host for each of so many calls, and until the device has done them."""
        for _ in range(3):
            call()
        found = []
        for _ in range(self.size(7, 2)):
            self.gpu.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            self.gpu.synchronize()
            found.append((time.perf_counter() - start) / calls * 1e6)
        return statistics.median(found)


def torch_of(check: Check) -> Any:
    """PyTorch, where it is installed and sees the GPU."""
    if check.device == "cuda:sim" or importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch if torch.cuda.is_available() else None


def torch_ms(torch: Any, call: Callable[[], object]) -> float:
    for _ in range(5):
        call()
    found = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 5)
    return statistics.median(found)
