"""Functions by which guards read values and put them back: bytes of arrays and buffers, variables, the environment."""

from __future__ import annotations

import os
import types
import warnings
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import logging

ABSENT = object()  # the value where there is none: None is one
MOST_COMPARED = 10000  # bytes or items that are compared as they are: a check must take microseconds


def is_buffer(obj: Any) -> bool:
    """Whether an object gives its memory to others: bytearray, array.array, memoryview, what ctypes makes."""
    try:
        memoryview(obj).release()
    except (TypeError, ValueError, BufferError):  # no buffer, or one that has been released
        return False
    return True


def elements(buffer: Any) -> bytes:
    """The bytes of an array or a buffer."""
    return buffer.tobytes() if isinstance(buffer, np.ndarray) else memoryview(buffer).tobytes()


def checksum(buffer: Any) -> bytes:
    """The CRC-32 of all bytes of a large array or buffer, 0.25 ms per MB."""
    if isinstance(buffer, np.ndarray):
        buffer = np.ascontiguousarray(buffer).reshape(-1).view(np.uint8).data
    view = memoryview(buffer)
    return zlib.crc32(view if view.c_contiguous else view.tobytes()).to_bytes(4)


def form(array: np.ndarray) -> tuple[Any, ...]:
    """Shape, dtype, strides and writability of an array: all that may be changed besides its elements."""
    return array.shape, array.dtype, array.strides, array.flags.writeable


def put_form(array: np.ndarray, was: tuple[Any, ...]) -> None:
    """Gives an array a form that it has had."""
    array.flags.writeable = was[3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's for strides since 2.4, for the others since 2.5
        array.dtype = was[1]  # type: ignore[misc]
        array.shape = was[0]
        if array.strides != was[2]:
            array.strides = was[2]


def size_of(buffer: Any) -> int:
    """The bytes of an array or a buffer."""
    return int(buffer.nbytes if isinstance(buffer, np.ndarray) else memoryview(buffer).nbytes)


def put_bytes(buffer: Any, data: bytes) -> None:
    """Gives an array or a buffer these bytes; a buffer may have had another number of them."""
    if isinstance(buffer, np.ndarray):
        np.copyto(buffer, np.frombuffer(data, buffer.dtype).reshape(buffer.shape))
    elif size_of(buffer) == len(data):
        view = memoryview(buffer)
        if view.c_contiguous:
            view.cast("B")[:] = data
        else:
            put_bytes(np.asarray(view), data)
    else:
        buffer[:] = array(buffer.typecode, data) if isinstance(buffer, array) else data


def environment(environ: os._Environ[str]) -> tuple[Any, ...]:
    """All environment variables: 1 us for 30 of them."""
    data = environ._data  # type: ignore[attr-defined]
    return (*data, *data.values())


def variable(context: ContextVar[Any]) -> Any:
    """The value of a context variable; `ABSENT` where it has none."""
    try:
        return context.get()
    except LookupError:
        return ABSENT


def given_by(function: Callable[[], Any]) -> Any:
    """The object that a function gives."""
    return function()


def keys_of(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict in their order, whatever its class makes of them."""
    kind: type[dict[Any, Any]] = OrderedDict if isinstance(mapping, OrderedDict) else dict  # which has an order apart
    return tuple(kind.__iter__(mapping))


def put_keys(mapping: dict[Any, Any], keys: Iterable[Any]) -> None:
    """Gives a dict the order of these keys, as far as it has them."""
    for key in keys:
        if key in mapping:
            mapping[key] = mapping.pop(key)


def entries_of(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict, then its values."""
    return (*mapping, *mapping.values())


def put_contents(container: Any, contents: Any) -> None:
    """Gives a container these items; for a dict they are as in `entries_of`."""
    container.clear()
    if isinstance(container, dict):
        half = len(contents) // 2
        container.update(zip(contents[:half], contents[half:], strict=True))
    elif isinstance(container, set):
        container.update(contents)
    else:
        container.extend(contents)


def level(logger: logging.Logger) -> tuple[int, int, bool]:
    """The levels and the switch that decide whether a logger says something."""
    return logger.getEffectiveLevel(), logger.manager.disable, logger.disabled


def contents(cell: types.CellType) -> Any:
    """The value in a closure cell; None where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
