"""The device of a target whose code runs on the host: bytes in a wrapper that nothing but the target looks into."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .base import Target

_POISON = 0x7F  # a large number in every dtype: nothing may rely on what new memory holds


class Block:
    """Bytes that NumPy cannot take for an array."""

    __slots__ = ("_bytes",)
    users = frozenset[object]()  # other streams: there are none
    is_adopted = False

    def __init__(self, nbytes: int) -> None:
        self._bytes = np.full(nbytes, _POISON, np.uint8)

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes

    def opened(self) -> np.ndarray:
        """The bytes, for the target's own launches."""
        return self._bytes


class HostDevice:
    """The memory of a target, under its name. Nothing runs beside the caller: what it is asked for is done when the
    call returns."""

    has_values = True

    def __init__(self, target: Target) -> None:
        self.name, self.target = target.name, target

    def allocate(self, nbytes: int) -> Block:
        return Block(nbytes)

    def write(self, memory: Block, data: np.ndarray) -> None:
        memory.opened()[: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)

    write_later = write

    def copy(self, target: Block, source: Block) -> None:
        target.opened()[:] = source.opened()

    def read(self, memory: Block, nbytes: int) -> bytes:
        return memory.opened()[:nbytes].tobytes()

    def synchronize(self) -> None:
        """Returns at once: nothing is left to do."""

    def transfers(self) -> AbstractContextManager[None]:
        return nullcontext()
