"""Memory of tensors that other processes see: files in memory without a name.

A forked child has the memory of its parent. Other processes are sent a handle of the file where `multiprocessing`
pickles a tensor that has such memory (its pipes, queues and arguments of processes), and map it. A file has no name, so
that the system frees it with the last process that has it, however that ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DeviceError
from hybridml_compiler.weak import WeakValues

from ..aliasing import forget, stamp
from ..context import current_interpreter
from ..tensor import Tensor, adopt

ALIGNED = 64  # bytes, a cache line and the widest vector


class Memory(mmap.mmap):
    """Memory of a file without a name; pickled, it is the handle of the file."""

    handle: int

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.handle), len(self))

    def __del__(self) -> None:
        os.close(self.handle)


_mapped: WeakValues[tuple[int, int], Memory] = WeakValues()  # by file: what is received twice is one memory


def unnamed_file(what: str) -> int:
    """The handle of a new file in memory, of no bytes; the system lists it with what it is for."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"hybridml-{what}", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _map(handle: int, size: int) -> Memory:
    """The memory of a file, which takes the handle."""
    memory, file = Memory(handle, size), os.fstat(handle)
    memory.handle = handle
    return _mapped.add((file.st_dev, file.st_ino), memory)


def _received(duplicate: Any, size: int) -> Memory:
    return _map(duplicate.detach(), size)


def memory_of(array: Any) -> Memory | None:
    """The shared memory that an array is in, None for another."""
    while isinstance(array, np.ndarray):
        array = array.base
    found = array.obj if isinstance(array, memoryview) else array
    return found if isinstance(found, Memory) else None


def is_shared(t: Tensor) -> bool:
    """Whether a tensor is in shared memory."""
    return memory_of(t._array) is not None


def share(name: str, tensors: Iterable[Tensor]) -> None:
    """Moves tensors to shared memory, to one file; those that are there stay. `name`: the function that errors name."""
    moved = [t for t in {id(t): t for t in tensors}.values() if not is_shared(t)]
    for t in moved:
        _check(name, t)
    if not moved:
        return
    places = _places([t.nbytes for t in moved])
    handle = unnamed_file("tensors")
    os.ftruncate(handle, size := max(places[-1], mmap.PAGESIZE))
    memory = _map(handle, size)
    for t, place in zip(moved, places, strict=False):
        array: np.ndarray = np.ndarray(t.shape, t.dtype, memory, place)
        array[...] = t._array
        t._array = array
        stamp(t)


def _places(sizes: Sequence[int]) -> list[int]:
    """Places of blocks behind each other, and the end."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + -(-size // ALIGNED) * ALIGNED)
    return found


def _check(name: str, t: Tensor) -> None:
    if current_interpreter() is not None:
        raise ArgumentError(f"{name}: not inside of a traced function or a transform; call it before")
    if type(t).home is not None:
        raise DeviceError(f"{name}: processes share memory of the CPU, got a tensor on {t.device.type!r}; use .cpu()")
    if type(t._version) is list:
        forget(t._version)
    if getattr(t, "_view", None) is not None or (type(t._version) is list and len(t._version) > 1):
        raise ArgumentError(
            f"{name}: the tensor is a view of another one, or has views, and would not share their memory any longer; "
            "call it before there are views, or on a clone()"
        )


def _reduce(t: Tensor) -> Any:
    """A tensor as `multiprocessing` pickles it."""
    memory = memory_of(t._array)
    if memory is None:
        return t.__reduce__()
    start = np.frombuffer(memory, np.uint8).ctypes.data
    array = t._array
    return _tensor, (memory, array.ctypes.data - start, array.shape, array.strides, array.dtype, t._node is not None)


def _tensor(
    memory: Memory, place: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, requires_grad: bool
) -> Tensor:
    t = adopt(np.ndarray(shape, dtype, memory, place, strides))
    return t.requires_grad_() if requires_grad else t


ForkingPickler.register(Tensor, _reduce)
