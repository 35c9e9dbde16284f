"""Scratch memory of a thread, for kernels that want more than a stack should hold (packed panels, transformed squares).

It begins with a pointer to its free part. A function takes some by moving the pointer when it is called, and moves
it back when it returns (`IRBuilder.memory`). Nothing else is on the way of a kernel: whoever runs steps has asked
`hml_scratch_ready` first, where running out of memory can still be told. A thread has it from then on until it ends;
pages that are never touched exist as addresses only. See [Note: Memory of kernels].
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.thread_block import READY, SCRATCH

# Twice the limit of a module: bodies of loops and chains have tables of pointers below the kernels that they call.
THREAD_BYTES = 1 << 22
# The functions that make a key, whose value is given to a function when a thread ends, read it and set it; and whether
# 0 is success.
_MAKE, _GET, _SET, _ZERO = (
    ("FlsAlloc", "FlsGetValue", "FlsSetValue", False)
    if sys.platform == "win32"
    else ("pthread_key_create", "pthread_getspecific", "pthread_setspecific", True)
)


def symbols() -> dict[str, int]:
    """Addresses of the functions that generated code imports: `ptr hml_scratch()` and `i64 hml_scratch_ready()`."""
    return {name: _library().address(name) for name in (SCRATCH, READY)}


def prepare() -> bool:
    """Whether this thread has its memory now."""
    return bool(_ready()())


def require() -> None:
    """MemoryError where this thread cannot have its memory."""
    if not prepare():
        raise MemoryError(f"hybridml: no memory for the {THREAD_BYTES} bytes that this thread works in")


@once
def _ready() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(symbols()[READY])


def source() -> jit.Source:
    """The module, for those who compile others at the same time: once per machine."""

    def emit() -> str:
        from hybridml_compiler.targets.cpu.runtime import scratch_ir

        return scratch_ir.text(_GET, _SET, _ZERO, THREAD_BYTES)

    emitters = ("targets.cpu.runtime.scratch*", "targets.cpu.runtime.thread_block")
    return jit.emitted_source("scratch", emit, *emitters, opt=jit.RARELY_CALLED)


@once
def _library() -> loader.Library:
    """The code, and the memory of the key, which both live as long as the process: threads may end after all else."""
    libc: Any = ctypes.CDLL(None if sys.platform != "win32" else "msvcrt")
    threads: Any = libc if sys.platform != "win32" else ctypes.CDLL("kernel32")
    key = ctypes.c_int64(0)
    if _ZERO:
        failed = threads[_MAKE](ctypes.byref(key), libc.free)
    else:
        key.value = threads[_MAKE](libc.free)
        failed = key.value in (-1, 0xFFFFFFFF)
    if failed:
        raise MemoryError("hybridml: this process has no key for memory of threads left (PTHREAD_KEYS_MAX)")
    imports = {name: loader.address_of(getattr(libc, name)) for name in ("malloc", "free")}
    imports |= {name: loader.address_of(getattr(threads, name)) for name in (_GET, _SET)}
    imports["hml_scratch_key"] = ctypes.addressof(key)
    return loader.load([jit.compile_source(source())], imports, (SCRATCH, READY), keep=[key])
