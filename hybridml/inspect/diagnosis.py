"""`hybridml.doctor`: the parts of the framework that work on this machine, and why the rest do not."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Finding = tuple[str, bool, str]  # (what was looked at, whether it is as it should be, what there is)

# Extras, by what is missing without them.
_OPTIONAL = {
    "scipy": "a second source of BLAS",
    "matplotlib": "pictures in notebooks",
}


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Findings of `doctor`, one line per thing looked at. `ok`: what tracing needs is there and right."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(fine for _, fine, _ in self.findings)

    def __repr__(self) -> str:
        wide = max(len(what) for what, _, _ in self.findings)
        lines = [f"{'ok' if fine else '--':<4}{what:<{wide}}  {said}" for what, fine, said in self.findings]
        return "\n".join([*lines, "all is well" if self.ok else "what is marked -- is missing or slower"])


def doctor() -> Diagnosis:
    """Looks at this machine: Python, NumPy, LLVM, vectors, threads, caches, the native entry, one compiled
    program, and what device "cuda" takes.

    Nothing is changed but the object cache, which keeps the program. The result prints itself; `.ok` is true where
    everything that traced functions use is there, `.findings` has (what, whether it is fine, what there is).

    >>> import hybridml as hm
    >>> hm.doctor().findings[0][0]
    'hybridml'
    """
    return Diagnosis(tuple(finding for look in _LOOKS for finding in _careful(look)))


def _careful(look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of one check, or the error that it ended with."""
    try:
        return list(look())
    except Exception as error:
        return [(look.__name__.strip("_"), False, f"{type(error).__name__}: {error}".splitlines()[0])]


PACKAGE = __name__.partition(".")[0]


def _versions() -> Iterable[Finding]:
    found = sys.modules[PACKAGE]
    yield "hybridml", True, f"{found.__version__} in {os.path.dirname(os.path.abspath(found.__file__ or ''))}"
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    known = platform.python_implementation() == "CPython" and not free
    said = f"{platform.python_version()}{', free-threaded: not supported' * free}, {platform.platform()}"
    yield "Python", known, said
    yield "NumPy", True, np.__version__


def _llvm() -> Iterable[Finding]:
    try:
        from hybridml_compiler.targets.cpu.spec import host_spec, llvm_version

        machine, version = host_spec(), llvm_version()
    except ImportError as error:
        yield "LLVM", False, f"{error}; pip install llvmlite. Traced functions cannot be compiled"
        return
    yield "LLVM", True, f"llvmlite {version}"
    vectors = f"{machine.name}, vectors of {machine.vector_bits} bits"
    more = "" if machine.registers else "; no fused multiply-add: products are left to BLAS"
    yield "CPU", bool(machine.registers), vectors + more


def _threads() -> Iterable[Finding]:
    from hybridml_compiler.targets.cpu.runtime import threads

    count, cores = threads.get_num_threads(), os.cpu_count()
    yield "threads", True, f"{count} of {cores} CPUs (HYBRIDML_NUM_THREADS, hm.set_num_threads)"


def _blas() -> Iterable[Finding]:
    from hybridml_compiler.targets.cpu.runtime import blas

    found = blas.find()
    if found is None:
        yield "BLAS", False, "none that multiplies correctly: large products are compiled by hybridml alone"
    else:
        yield "BLAS", True, os.path.basename(found.source)


def _cache() -> Iterable[Finding]:
    from hybridml_compiler.runtime import cache

    found = cache.info()
    if found.directory is None:
        yield "object cache", True, "in memory only (HYBRIDML_CACHE_DIR)"
        return
    at = found.directory
    while not os.path.exists(at):
        at = os.path.dirname(at)
    writable = os.access(at, os.W_OK)
    said = f"{found.directory}, {found.entries} entries, {found.bytes / 2**20:.1f} MiB"
    yield "object cache", writable, said + ("" if writable else "; not writable: every process compiles anew")


def _entry() -> Iterable[Finding]:
    from hybridml_compiler.targets.cpu.python_entry import object_layout

    fast = object_layout.measured() is not None
    portable = "the portable one: a call takes about 10 us instead of 1 (another Python or NumPy than is known)"
    yield "native entry", fast, "calls of compiled programs enter native code directly" if fast else portable


def _program() -> Iterable[Finding]:
    from ..arrays.creation import arange
    from ..tracing.decorator import trace

    def f(x: Any) -> Any:
        return x * 2 + 1

    traced = trace(f)
    x = arange(1000.0)
    same = bool((traced(x)._array == f(x)._array).all())
    said = f"first call {traced.stats.first_ms:.0f} ms" if same else "another result than eager"
    yield "a traced program", same, said


def _cuda() -> Iterable[Finding]:
    from hybridml_compiler.targets.cuda.availability import availability
    from hybridml_compiler.targets.cuda.libraries.files import libraries

    found = availability()

    def version(numbers: tuple[int, int] | None) -> str:
        return "none" if numbers is None else ".".join(map(str, numbers))

    yield "NVRTC", True, version(found.nvrtc)
    for name, library, instead in (("cuBLAS", "cublas", "products"), ("cuDNN", "cudnn", "convolutions")):
        files = libraries(library)
        yield name, True, Path(files[0]).name if files else f"none: {instead} are kernels of ours"
    yield "CuPy", True, found.cupy or "none"
    yield "CUDA driver", True, version(found.driver)
    if found.problem:
        yield 'device "cuda"', True, f"not available: {found.problem}"
        return
    from .. import cuda
    from ..core.tensor import wrap

    pinned = wrap(np.ones(1)).pin_memory("cuda").is_pinned()
    yield "page-locked memory", pinned, "copies with non_blocking=True are beside the CPU" if pinned else "none"
    for index in range(found.devices):
        gpu = cuda.get_device_properties(index)
        said = f"{gpu.name}, sm_{gpu.major}{gpu.minor}, {gpu.total_memory / 2**30:.0f} GiB"
        yield f'device "cuda:{index}"', True, said


def _optional() -> Iterable[Finding]:
    for name, what in _OPTIONAL.items():
        try:
            yield name, True, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, True, f"not installed (optional: {what})"


_LOOKS = (_versions, _llvm, _threads, _blas, _cache, _entry, _program, _cuda, _optional)
