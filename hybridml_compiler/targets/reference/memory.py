"""Memory of the reference target: bytes of the host in a wrapper that nothing but the target looks into."""

from __future__ import annotations

import numpy as np

_POISON = 0x7F  # a large number in every dtype: nothing may rely on what new memory holds


class Block:
    """Bytes that NumPy cannot take for an array."""

    __slots__ = ("_bytes",)

    def __init__(self, nbytes: int) -> None:
        self._bytes = np.full(nbytes, _POISON, np.uint8)

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes

    def opened(self) -> np.ndarray:
        """The bytes, for the target's own launches."""
        return self._bytes
