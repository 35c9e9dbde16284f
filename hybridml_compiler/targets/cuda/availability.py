"""Availability of the device "cuda" on this machine, and one sentence for what is missing.

The driver is asked through ctypes, so that nobody has to install CuPy to learn that there is no GPU.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...errors import DeviceError
from ...once import once
from ...record import record
from . import nvrtc

_DRIVERS = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_INSTALL = "pip install 'hybridml[cuda]'"
_INSTEAD = '; device "cuda:sim" needs none of it'


@record
class Availability:
    """Versions, None where there is none: (major, minor) of CUDA for the driver, and the number of GPUs."""

    driver: tuple[int, int] | None
    devices: int
    cupy: str | None
    runtime: tuple[int, int] | None  # of CUDA, that CuPy was built for
    nvrtc: tuple[int, int] | None

    @property
    def problem(self) -> str:
        """The first thing that is missing and what to do about it; nothing where device "cuda" works."""
        if self.driver is None:
            return (
                "this machine has no NVIDIA driver (no libcuda): install the driver of its GPU, and see that "
                f"nvidia-smi lists it{_INSTEAD}"
            )
        if not self.devices:
            return (
                "the NVIDIA driver finds no GPU: look at nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it"
                f"{_INSTEAD}"
            )
        if self.cupy is None:
            return f"CuPy is not installed: {_INSTALL} (it takes cupy-cuda13x){_INSTEAD}"
        if self.runtime is not None and self.driver[0] < self.runtime[0]:
            old = ".".join(map(str, self.driver))
            return (
                f"the NVIDIA driver is for CUDA {old} and too old for CuPy's CUDA {self.runtime[0]}: install a newer "
                f"driver, or in place of {_CUPY[0]} the CuPy for CUDA {self.driver[0]}: "
                f"pip install cupy-cuda{self.driver[0]}x{_INSTEAD}"
            )
        if self.nvrtc is None:
            return f"NVRTC, which compiles kernels, is not installed: pip install nvidia-cuda-nvrtc, or {_INSTALL}"
        if self.nvrtc[0] > self.driver[0]:  # a driver takes machine code of its own major version's compilers
            return (
                f"the NVIDIA driver is for CUDA {self.driver[0]} and too old for NVRTC {self.nvrtc[0]}: install a "
                f"newer driver, or in place of nvidia-cuda-nvrtc that for CUDA {self.driver[0]}: "
                f"pip install nvidia-cuda-nvrtc-cu{self.driver[0]}{_INSTEAD}"
            )
        return ""


@once
def availability() -> Availability:
    """Findings about this machine. Nothing of it is imported but, where there is a GPU, CuPy."""
    driver, devices = _driver()
    cupy = _installed(_CUPY)
    runtime = None
    if cupy is not None and devices:
        version = import_module("cupy").cuda.runtime.runtimeGetVersion()
        runtime = version // 1000, version % 1000 // 10
    return Availability(driver, devices, cupy, runtime, nvrtc.version() if nvrtc.is_installed() else None)


def device_count() -> int:
    """The number of GPUs that device "cuda" could be; 0 where something is missing."""
    found = availability()
    return 0 if found.problem else found.devices


def checked_driver(index: int) -> Any:
    """The driver of a GPU. DeviceError, in one sentence, where there is none."""
    from .cupy_driver import CupyDriver

    found = availability()
    if found.problem:
        raise DeviceError(f'device "cuda" is not available: {found.problem}')
    if index >= found.devices:
        raise DeviceError(
            f'device "cuda:{index}" is not available: the driver finds {found.devices} GPUs, from "cuda:0" on'
        )
    return CupyDriver(index, import_module("cupy"), cuda=_libcuda())


def _driver() -> tuple[tuple[int, int] | None, int]:
    """The driver's version of CUDA and its number of GPUs."""
    library = _libcuda()
    if library is None:
        return None, 0
    version, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    failed = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    return (version.value // 1000, version.value % 1000 // 10), 0 if failed else count.value


def _libcuda() -> Any:
    for name in _DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


def _installed(names: Sequence[str]) -> str | None:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None
