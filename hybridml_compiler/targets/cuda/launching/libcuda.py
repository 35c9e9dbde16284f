"""Launches and replays by the driver's own library through ctypes.

CuPy's call of a function makes a NumPy number of each argument, which is most of the time that a launch takes. Here the
arguments of a launch are made once, in memory that the library reads them from: a call writes the addresses that are
its own there, and is one foreign call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import DeviceError
from ..driver import Argument, Extent, Memory, Place, Pointer, Prepared, Stream

_CELL = 16  # bytes of an argument, at most
_WORDS = _CELL // 8


class Libcuda:
    """The functions of the library that are called often."""

    def __init__(self, library: Any, name: str) -> None:
        self._launch, self._replay, self.name = library.cuLaunchKernel, library.cuGraphLaunch, name
        self._streams: dict[int, tuple[Stream, ctypes.c_void_p]] = {}  # by the id of an object that is kept

    def handle(self, stream: Stream) -> ctypes.c_void_p:
        """The library's own name of a stream."""
        found = self._streams.get(id(stream))
        if found is None:
            found = self._streams[id(stream)] = stream, ctypes.c_void_p(stream.ptr)
        return found[1]

    def prepared(self, function: int, grid: Extent, block: Extent, arguments: Sequence[Argument]) -> Prepared:
        """A launch of a function by its address."""
        sizes = [ctypes.c_uint(n) for size in (grid, block) for n in _three(size)]
        head = (ctypes.c_void_p(function), *sizes, ctypes.c_uint(0))
        written, open_places = b"", []
        for k, argument in enumerate(arguments):
            if isinstance(argument, Pointer) and isinstance(argument.block, Place):
                open_places.append((k * _WORDS, argument.block.number, argument.offset))
                written += bytes(_CELL)
            else:
                written += _bytes(argument).ljust(_CELL, b"\0")
        count = len(arguments)
        words = ctypes.c_int64 * (count * _WORDS)
        pointers = ctypes.c_void_p * count
        # A call has its own while it lasts: other threads may launch the same.
        stock: list[tuple[Any, Any]] = []
        launch, handle = self._launch, self.handle

        def made() -> tuple[Any, Any]:
            values = words.from_buffer_copy(written)
            first = ctypes.addressof(values)
            return values, pointers(*range(first, first + _CELL * count, _CELL))

        def call(memories: Sequence[Memory], stream: Stream, home: Stream) -> None:
            try:
                given = stock.pop()
            except IndexError:
                given = made()
            values, table = given
            for at, number, offset in open_places:
                values[at] = memories[number].raw + offset
            status = launch(*head, handle(stream), table, None)
            stock.append(given)
            if status:
                raise self._failed("a launch", status)

        return call

    def replay(self, graph: int, stream: Stream) -> None:
        """Launches a graph by its address."""
        status = self._replay(ctypes.c_void_p(graph), self.handle(stream))
        if status:
            raise self._failed("the replay of a graph", status)

    def _failed(self, what: str, status: int) -> DeviceError:
        return DeviceError(f"{self.name}: {what} failed with CUDA's status {status}")


def _three(size: Extent) -> tuple[int, ...]:
    sizes = size if isinstance(size, tuple) else (size,)
    return (*sizes, 1, 1)[:3]


def _bytes(argument: Argument) -> bytes:
    number = argument.block.raw + argument.offset if isinstance(argument, Pointer) else argument
    return (number if isinstance(number, np.generic) else np.int64(number)).tobytes()
