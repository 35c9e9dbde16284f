"""Tensors that travel together: those of one dtype in buckets, of which each is one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hybridml_compiler.record import record

from ..arrays.shaping.manipulation import concat
from ..core.context import no_grad
from ..core.tensor import Tensor
from .functions import broadcast
from .groups import Group

# 25 MB over MPI on one machine in buckets of 256 KiB, 1, 2, 4 and 25 MiB: 3.4, 3.6, 3.5, 3.1, 2.8 GB/s.
BUCKET_MIB = 2.0


@record
class Bucket:
    """Tensors of one dtype."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in which they travel: one alone as it is, several after each other."""
        alone = len(self.tensors) == 1
        return tuple(self.tensors[0].shape) if alone else (sum(t.numel() for t in self.tensors),)

    def together(self, values: Sequence[Tensor]) -> Tensor:
        """Values of their shapes in the one in which they travel."""
        return values[0] if len(values) == 1 else concat([value.reshape(-1) for value in values])

    def cut(self, whole: Tensor) -> list[Tensor]:
        """The values of which `together` has made this."""
        if len(self.tensors) == 1:
            return [whole]
        found, at = [], 0
        for t in self.tensors:
            found.append(whole[at : at + t.numel()].reshape(t.shape))
            at += t.numel()
        return found


def buckets(named: Iterable[tuple[str, Tensor]], most_mib: float = BUCKET_MIB) -> list[Bucket]:
    """The tensors in their order, in buckets of at most so many MiB; a larger one has its own."""
    found: list[list[tuple[str, Tensor]]] = []
    size = 0.0
    for name, t in named:
        nbytes = t.numel() * t.dtype.itemsize
        if not found or size + nbytes > most_mib * (1 << 20) or found[-1][0][1].dtype is not t.dtype:
            found.append([])
            size = 0.0
        found[-1].append((name, t))
        size += nbytes
    return [Bucket(tuple(name for name, _ in pairs), tuple(t for _, t in pairs)) for pairs in found]


def copy_from(src: int, tensors: Iterable[Tensor], group: Group) -> None:
    """Copies a rank's values into these tensors of all processes, which must call it."""
    with no_grad():
        for bucket in buckets(("", t) for t in tensors):
            flat = broadcast(bucket.together([t.detach() for t in bucket.tensors]), src, group)
            for t, value in zip(bucket.tensors, bucket.cut(flat), strict=True):
                t.copy_(value)
