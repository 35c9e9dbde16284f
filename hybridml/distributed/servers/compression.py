"""Gradients in fewer bytes, and the feedback of what that leaves out.

Sources: Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes
SignSGD and other gradient compression schemes", ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .gradients import Compressed


class Compression(Protocol):
    """A way to send gradients in fewer bytes."""

    def encode(self, gradient: np.ndarray) -> Compressed: ...


class Largest(NamedTuple):
    """Some elements of an array, of which the others are zero."""

    places: np.ndarray  # uint32, in the flat array
    values: np.ndarray
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes

    def decode(self) -> np.ndarray:
        found = np.zeros(self.shape, self.values.dtype)
        found.reshape(-1)[self.places] = self.values
        return found


class Signs(NamedTuple):
    """A bit for each element of an array, and the value that stands for each of the two."""

    bits: np.ndarray  # uint8, eight elements in each
    values: np.ndarray  # of elements below zero, and of the others
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes + self.values.nbytes

    def decode(self) -> np.ndarray:
        count = int(np.prod(self.shape))
        return self.values[np.unpackbits(self.bits, count=count)].reshape(self.shape)


@dataclass(frozen=True)
class TopK:
    """Compression that sends the largest elements of each gradient, at least one. Raises ArgumentError.

    fraction: the part of the elements that is sent. Each takes four bytes for its place beside its value.

    >>> import numpy as np
    >>> from hybridml.distributed import servers
    >>> servers.TopK(0.5).encode(np.array([1.0, -4.0, 0.5, 3.0])).decode()
    array([ 0., -4.,  0.,  3.])
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ArgumentError(f"TopK: fraction must be above 0 and at most 1, got {self.fraction}")

    def encode(self, gradient: np.ndarray) -> Largest:
        """The elements to send."""
        flat = gradient.reshape(-1)
        count = min(flat.size, max(1, round(self.fraction * flat.size)))
        places = np.sort(np.argpartition(np.abs(flat), flat.size - count)[flat.size - count :])
        return Largest(places.astype(np.uint32), flat[places], gradient.shape)


@dataclass(frozen=True)
class OneBit:
    """Compression that sends a bit for each element, its sign, and the mean of those below zero and of the others.

    >>> import numpy as np
    >>> from hybridml.distributed import servers
    >>> servers.OneBit().encode(np.array([1.0, -4.0, -2.0, 3.0])).decode()
    array([ 2., -3., -3.,  2.])
    """

    def encode(self, gradient: np.ndarray) -> Signs:
        """The signs, and the two values."""
        flat = gradient.reshape(-1)
        above = flat >= 0
        values = np.array([part.mean() if part.size else 0 for part in (flat[~above], flat[above])], flat.dtype)
        return Signs(np.packbits(above), values, gradient.shape)


@dataclass
class ErrorFeedback:
    """Adds to each gradient what compression has left out of those before it."""

    compression: Compression
    residuals: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, name: str, gradient: np.ndarray) -> Compressed:
        wanted = gradient + self.residuals[name] if name in self.residuals else gradient
        sent = self.compression.encode(wanted)
        self.residuals[name] = wanted - sent.decode()
        return sent


def as_it_is(name: str, gradient: np.ndarray) -> np.ndarray:
    """The gradient, without compression."""
    return gradient
