"""The CPU that code is generated for. The target, its plans, emitters and object code get it passed.

LLVM knows the CPU of this process, but llvmlite is slow to import. On Linux its answer is therefore kept in the object
cache, under the kernel's description of the CPU and the version of llvmlite: a process that finds its code there needs
no LLVM.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from ...config import MAX_THREADS
from ...errors import ArgumentError
from ...once import lazy, once
from ...record import record
from ...runtime import cache
from ...runtime.fingerprint import fingerprint
from ...runtime.uninterrupted import uninterrupted
from .runtime import llvm_library

# Lines of /proc/cpuinfo that name a CPU; the others count cores, or change from moment to moment.
_CPU = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")

# LLVM's name of any CPU of an architecture. Every other name is one more set of features.
GENERIC = "generic"


@record
class Vectors:
    """Vector registers of an architecture that has these features (LLVM's names), and how many a tile may fill."""

    architecture: str
    features: tuple[str, ...]
    bits: int
    registers: int


# The first row that fits ([Note: Vector widths]). SSE has no fused multiply-add, and the products that need one are
# left to BLAS there. NEON has 32 registers; elements on their way take some, as its multiply-adds read no memory.
VECTORS = (
    Vectors("x86_64", ("avx512f", "avx512vl", "avx512bw", "avx512dq"), 512, 32),
    Vectors("x86_64", ("avx2", "fma"), 256, 16),
    Vectors("aarch64", ("neon",), 128, 30),
)
PLAIN = Vectors("", (), 128, 0)


@record
class CpuSpec:
    """A CPU that code is generated for: part of the key of every cached object and program."""

    name: str  # LLVM's for the model, or `GENERIC`
    features: str  # as LLVM reads them: "+avx2,-avx512f"
    vector_bits: int
    registers: int  # of so many bits each, for tiles of multiply-adds; 0 where there are none
    triple: str
    cores: int  # CPUs that plans share their work among, whatever number of threads runs them
    blas: bool | None = None  # whether products may be left to a BLAS; None: where this process has one
    without: tuple[str, ...] = ()  # "products", "convolutions": those that have no kernels of ours

    @lazy
    def key(self) -> str:
        """Text of all that a plan depends on."""
        return "\n".join([self.code_key, str(self.cores), str(self.blas), *self.without])

    @lazy
    def code_key(self) -> str:
        """Text of all that the machine code of a given module depends on."""
        return "\n".join([self.triple, self.name, self.features, str(self.vector_bits), str(self.registers)])

    def lanes(self, dtype: np.dtype) -> int:
        """Elements of a vector register."""
        return self.vector_bits // (8 * dtype.itemsize)

    @lazy
    def enabled(self) -> frozenset[str]:
        """Features that it has, by LLVM's names."""
        return frozenset(name[1:] for name in self.features.split(",") if name.startswith("+"))

    @property
    def architecture(self) -> str:
        """The first part of the triple, by LLVM's name."""
        return _architecture(self.triple)

    def obstacle_on(self, other: CpuSpec) -> str:
        """The reason why its code cannot run on another CPU; empty where it can."""
        if self.triple != other.triple:
            return f"it is for {self.triple}, the CPU is {other.triple}"
        if lacking := sorted(self.enabled - other.enabled):
            return f"it uses {', '.join(lacking)}, the CPU ({other.name}) has none"
        return "" if self.name in (GENERIC, other.name) else f"it is for {self.name}, the CPU is {other.name}"


def spec_of(
    triple: str, features: Collection[str] = (), *, name: str = GENERIC, cores: int = 1, blas: bool = False
) -> CpuSpec:
    """A CPU by LLVM's names of its platform, of every feature that its code may use, and of its model.

    Plans look at these features alone, whatever others they or the model imply. With `blas` they leave products to one
    that the code is linked with, under the names `hml_sgemm` and `hml_dgemm`. Raises ArgumentError where `cores` is no
    number of cores.

    >>> spec_of("x86_64-unknown-linux-gnu", ["avx2", "fma"], cores=8).vector_bits
    256
    >>> spec_of("aarch64-unknown-linux-gnu", ["neon"]).registers
    30
    """
    if not 1 <= cores <= MAX_THREADS:
        raise ArgumentError(f"a CPU has from 1 to {MAX_THREADS} cores, got {cores!r}")
    found = vectors_of(triple, features)
    enabled = ",".join(f"+{x}" for x in sorted(set(features)))  # one key for one set
    return CpuSpec(name, enabled, found.bits, found.registers, triple, cores, blas)


@once
def host_spec() -> CpuSpec:
    """The CPU of this process, asked once. Raises ImportError where there is no llvmlite."""
    return CpuSpec(**_answer()["spec"], cores=cores())


def llvm_version() -> str:
    """Version of llvmlite and of its LLVM. Raises ImportError where there is none."""
    return str(_answer()["llvm"])


@once
def cores() -> int:
    """CPUs that the process may use, whatever number of threads it was asked to use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _quota(), MAX_THREADS))


def _quota() -> int:
    """CPUs' worth of time that a container may use; threads beyond it are throttled in the middle of a loop."""
    with suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            return max(1, math.ceil(int(quota) / int(period)))
    return MAX_THREADS


@once
def _answer() -> dict[str, Any]:
    """LLVM's version, and what it says of this CPU: the fields of its spec but the cores."""
    cpu = _cpu()
    if cpu is None:
        return _ask()
    code = fingerprint("targets.cpu.spec", "targets.cpu.runtime.llvm_library")
    name = cache.key("host", cpu, platform.machine(), _version(), code)
    with suppress(ValueError, TypeError, KeyError, UnicodeDecodeError):
        found: dict[str, Any] = json.loads(cache.get(name) or b"null")
        CpuSpec(**found["spec"], cores=1)
        return {"spec": found["spec"], "llvm": found["llvm"]}
    found = _ask()
    cache.put(name, json.dumps(found).encode())
    return found


def _cpu() -> str | None:
    """The lines that tell this CPU from others, where that can be found out without LLVM."""
    if sys.platform != "linux":
        return None
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read(1 << 14).split("\n\n")[0].splitlines()
    except OSError:
        return None
    named = [line for line in lines if line.split("\t")[0].split(":")[0].strip() in _CPU]
    return "\n".join(named) if any(line.startswith("flags") for line in named) else None


def _version() -> str:
    """Version of llvmlite, and of the library it brings (which a distribution may have built against another LLVM)."""
    version = str(import_module("llvmlite").__version__)
    with suppress(OSError):
        status = os.stat(llvm_library.library_path())
        return f"{version} {status.st_size} {status.st_mtime_ns}"
    return version


def _ask() -> dict[str, Any]:
    return uninterrupted(_ask_llvm)


def _ask_llvm() -> dict[str, Any]:
    name, features, triple = llvm_library.host_cpu()
    found = vectors_of(triple, [feature for feature, here in features.items() if here])
    listed = ",".join(f"{'+' if here else '-'}{feature}" for feature, here in sorted(features.items()))
    spec = vars(CpuSpec(name, listed, found.bits, found.registers, triple, cores=1))
    del spec["cores"], spec["blas"], spec["without"]  # a process may be given other ones
    llvm = ".".join(map(str, llvm_library.llvm_version_info()))
    return {"spec": spec, "llvm": f"{import_module('llvmlite').__version__} LLVM {llvm}"}


def vectors_of(triple: str, features: Collection[str]) -> Vectors:
    """The row of `VECTORS` for a machine.

    >>> vectors_of("x86_64-unknown-linux-gnu", ["avx2", "fma"]).bits
    256
    """
    architecture = _architecture(triple)
    fits = (row for row in VECTORS if row.architecture == architecture and set(row.features) <= set(features))
    return next(fits, PLAIN)


def _architecture(triple: str) -> str:
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name := triple.split("-")[0].lower(), name)
