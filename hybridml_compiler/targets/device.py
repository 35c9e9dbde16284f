"""Devices: memory that host code cannot touch, and the arrays in it.

A `Device` is the memory of a target. An array of one is dense, and its elements are never changed: operations make new
ones. Values come and go by `upload` and `download` alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..aval import Aval
from ..errors import DeviceError

if TYPE_CHECKING:
    from .base import Target


class Memory(Protocol):
    """A block of a device's memory; it is free again when nobody refers to it."""

    @property
    def nbytes(self) -> int: ...


class Device(Protocol):
    """The memory of a target."""

    name: str
    has_values: bool  # whether its arrays have elements: those of "meta" have none

    @property
    def target(self) -> Target:
        """The target whose programs use it."""

    def allocate(self, nbytes: int) -> Memory:
        """A block whose bytes may be anything. MemoryError where there is no room."""

    def write(self, memory: Any, data: np.ndarray) -> None:
        """Copies the bytes of a C-contiguous host array to the beginning of a block."""

    def write_later(self, memory: Any, data: np.ndarray) -> None:
        """`write` from page-locked memory, which must not change before what this thread asks for next is done."""

    def read(self, memory: Any, nbytes: int) -> bytes:
        """A copy of the first bytes of a block, once all that writes them has ended."""

    def copy(self, target: Any, source: Any) -> None:
        """Copies the bytes of a block to one of the same size."""

    def synchronize(self) -> None:
        """Waits until the device has done all that it was asked for."""

    def transfers(self) -> AbstractContextManager[None]:
        """A context in which `write` is done beside what the device computes, if it can."""


class PageLocked:
    """Memory of the host that a GPU can read by itself, while the host goes on. Arrays over it keep it: `np.asarray` of
    it is the first."""

    def __init__(self, owner: object, address: int, nbytes: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def is_page_locked(array: Any) -> bool:
    """Whether an array is over page-locked memory of ours."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, PageLocked)


class Kind:
    """The type of arrays of a device. There is one object for each, by whose identity calls know a type; a second one
    where more types have been met than are kept."""

    __slots__ = ("aval", "device", "dtype", "nbytes", "shape")

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self.aval = Aval(shape, dtype, device=device.name)
        self.nbytes = prod(shape) * dtype.itemsize


_kinds: dict[tuple[Device, tuple[int, ...], np.dtype], Kind] = {}
_MOST_KINDS = 1 << 14


def kind_of(device: Device, shape: tuple[int, ...], dtype: np.dtype) -> Kind:
    """The type of arrays of this device, shape and dtype."""
    key = device, shape, dtype
    found = _kinds.get(key)
    if found is None:
        if len(_kinds) >= _MOST_KINDS:
            _kinds.clear()
        found = _kinds.setdefault(key, Kind(*key))
    return found


class DeviceArray:
    """A dense array of a device, in C order."""

    __slots__ = ("__weakref__", "device", "dtype", "kind", "memory", "shape")

    def __init__(self, kind: Kind, memory: Any) -> None:
        self.kind, self.memory = kind, memory
        self.device, self.shape, self.dtype = kind.device, kind.shape, kind.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.kind.nbytes

    @property
    def aval(self) -> Aval:
        return self.kind.aval

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(f"the array is in the memory of {self.device.name!r}: download it first")

    def __repr__(self) -> str:
        return f"<{self.aval} on {self.device.name}>"


def out_of_reach(device: str, what: str) -> DeviceError:
    """The error for an array whose memory NumPy was asked to look into."""
    return DeviceError(f"{what}: the tensor is on {device!r}, out of NumPy's reach; use .cpu() first")


def empty(device: Device, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
    """An array whose elements may be anything."""
    kind = kind_of(device, shape, dtype)
    return DeviceArray(kind, device.allocate(kind.nbytes))


def upload(device: Device, array: np.ndarray, later: bool = False) -> DeviceArray:
    """A copy of a host array on a device. `later`: one in page-locked memory may be copied after this returns."""
    found, data = empty(device, array.shape, array.dtype), np.ascontiguousarray(array)
    write = device.write_later if later and is_page_locked(data) else device.write
    write(found.memory, data)
    return found


def download(array: DeviceArray) -> np.ndarray:
    """A copy of an array on the host, which may be written to."""
    data = bytearray(array.device.read(array.memory, array.nbytes))
    return np.frombuffer(data, np.uint8).view(array.dtype).reshape(array.shape)


def copied(array: DeviceArray) -> DeviceArray:
    """A copy in memory of its own."""
    found = empty(array.device, array.shape, array.dtype)
    array.device.copy(found.memory, array.memory)
    return found


def host_copy(array: Any) -> np.ndarray:
    """A copy on the host of an array of NumPy's or of a device."""
    copy: np.ndarray = download(array) if isinstance(array, DeviceArray) else array.copy()
    return copy


def on_host(array: Any) -> np.ndarray:
    """An array of NumPy's as it is, one of a device as a copy."""
    return download(array) if isinstance(array, DeviceArray) else array
