"""The machine that code is generated for.

LLVM knows it, but llvmlite is slow to import. On Linux its answer is therefore kept in the object cache, under the
kernel's description of the CPU and the version of llvmlite: a process that finds its code there needs no LLVM.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from hybridml_compiler.once import lazy, once
from hybridml_compiler.runtime import cache
from hybridml_compiler.runtime.fingerprint import fingerprint
from hybridml_compiler.runtime.uninterrupted import uninterrupted

# Lines of /proc/cpuinfo that name a CPU; the others count cores, or change from moment to moment.
_CPU = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Host:
    """The machine code is generated for: part of the key of every cached object."""

    cpu: str
    features: str
    vector_bits: int
    registers: int  # of so many bits each, for tiles of multiply-adds; 0 where there are none
    triple: str
    llvm: str  # version of llvmlite and of its LLVM

    @lazy
    def key(self) -> str:
        """Text of all fields, for keys of the cache."""
        return "\n".join(map(str, asdict(self).values()))


@once
def host() -> Host:
    """The CPU of this process, asked once. Raises ImportError where there is no llvmlite."""
    cpu = _cpu()
    if cpu is None:
        return _ask()
    name = cache.key("host", cpu, platform.machine(), _version(), fingerprint("targets.cpu.runtime.host"))
    with suppress(ValueError, TypeError, UnicodeDecodeError):
        return Host(**json.loads(cache.get(name) or b"null"))
    found = _ask()
    cache.put(name, json.dumps(asdict(found)).encode())
    return found


def features() -> frozenset[str]:
    """Features of this CPU, by LLVM's names."""
    return frozenset(name[1:] for name in host().features.split(",") if name.startswith("+"))


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
    llvmlite = import_module("llvmlite")
    library = Path(llvmlite.__file__ or "").parent / "binding" / "libllvmlite.so"
    with suppress(OSError):
        status = library.stat()
        return f"{llvmlite.__version__} {status.st_size} {status.st_mtime_ns}"
    return str(llvmlite.__version__)


def _ask() -> Host:
    return uninterrupted(_ask_llvm)


def _ask_llvm() -> Host:
    llvm: Any = import_module("llvmlite.binding")
    features = llvm.get_host_cpu_features()
    triple = llvm.get_default_triple()
    found = vectors_of(triple, [name for name, here in features.items() if here])
    version = f"{import_module('llvmlite').__version__} LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
    return Host(llvm.get_host_cpu_name(), features.flatten(), found.bits, found.registers, triple, version)


def vectors_of(triple: str, features: Collection[str]) -> Vectors:
    """The row of `VECTORS` for a machine.

    >>> vectors_of("x86_64-unknown-linux-gnu", ["avx2", "fma"]).bits
    256
    """
    architecture = {"arm64": "aarch64", "amd64": "x86_64"}.get(name := triple.split("-")[0].lower(), name)
    fits = (row for row in VECTORS if row.architecture == architecture and set(row.features) <= set(features))
    return next(fits, PLAIN)
