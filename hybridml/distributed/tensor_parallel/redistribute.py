"""Equal parts of an axis, one for each process, and moves between whole tensors, parts and terms of a sum.

The processes compute one loss together, which each of them has: so a gradient is that of this loss, and not of the sum
of all processes' losses as in functions.py. Each move is the transpose of another one. Source: the conjugate operators
f and g of Megatron-LM (Shoeybi et al., 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.errors import ShapeError
from hybridml_compiler.record import record

from ...arrays.creation import zeros_like
from ...arrays.shaping.manipulation import concat
from ...core.autodiff.function import Function
from ...core.tensor import Tensor
from ..functions import call
from ..groups import Group


@dataclass(frozen=True)
class Replicate:
    """A tensor that all processes have.

    >>> from hybridml import distributed as dist
    >>> dist.ColwiseParallel(output_layouts=dist.Replicate()).output_layouts
    Replicate()
    """


@dataclass(frozen=True)
class Shard:
    """A tensor of which each process has an equal part of an axis.

    >>> from hybridml import distributed as dist
    >>> dist.RowwiseParallel(output_layouts=dist.Shard(1)).output_layouts
    Shard(dim=1)
    """

    dim: int


Placed = Replicate | Shard


@record
class Axis:
    """Equal parts of an axis, or of each of the equal matrices that a tensor packs after each other along it."""

    shape: tuple[int, ...]
    axis: int
    size: int  # processes
    packed: int = 1

    def part(self, whole: Tensor, rank: int) -> Tensor:
        return part_of(whole, self.axis, self.packed, self.size, rank)

    def joined(self, parts: Tensor) -> Tensor:
        return joined(parts, self.axis, self.packed)


def part_of(whole: Tensor, axis: int, packed: int, size: int, rank: int) -> Tensor:
    """A process's part of an axis. Raises ShapeError where it has no equal parts."""
    axis %= whole.ndim
    before, n, behind = whole.shape[:axis], whole.shape[axis], whole.shape[axis + 1 :]
    if n % (packed * size):
        raise ShapeError(
            f"Shard({axis}): axis {axis} of a tensor of shape {whole.shape} does not divide into {packed * size} equal "
            f"parts, {packed} for each process"
        )
    each = n // (packed * size)
    matrices = whole.reshape((*before, packed, size * each, *behind))
    index = (*(slice(None),) * (axis + 1), slice(rank * each, (rank + 1) * each))
    return matrices[index].reshape((*before, packed * each, *behind))


def joined(parts: Tensor, axis: int, packed: int) -> Tensor:
    """The whole tensor, of the parts of all processes along a first axis."""
    size, *shape = parts.shape
    axis %= len(shape)
    before, n, behind = shape[:axis], shape[axis], shape[axis + 1 :]
    matrices = parts.reshape((size, *before, packed, n // packed, *behind)).movedim(0, axis + 1)
    return matrices.reshape((*before, size * n, *behind))


def _added(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    found: Tensor = call(group, "all_reduce", x, reduce="sum")
    return found


def _joined(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    parts = call(group, "all_gather", x.reshape((1, *x.shape)), size=group.size)
    return joined(parts, axis, packed)


def _cut(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    return part_of(x, axis, packed, group.size, group.rank)


def _scattered(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    parts = [part_of(x, axis, packed, group.size, rank) for rank in range(group.size)]
    rows = concat([part.reshape((1, *part.shape)) for part in parts])
    found = call(group, "reduce_scatter", rows, size=group.size, reduce="sum")
    return found.reshape(parts[0].shape)


def _same(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    return x


def _once(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    return x if group.rank == 0 else zeros_like(x)


# What a process makes of its tensor, and the move of gradients. "use" and "join to use" give a whole tensor of which
# each process makes a part of what follows: each has a term of its gradient.
_MOVES: dict[str, tuple[Callable[[Tensor, int, int, Group], Tensor], str]] = {
    "use": (_same, "add"),
    "add": (_added, "use"),
    "join to use": (_joined, "scatter"),
    "scatter": (_scattered, "join to use"),
    "join": (_joined, "cut"),
    "cut": (_cut, "join"),
    "once": (_once, "keep"),
    "keep": (_same, "once"),
}


class _Move(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, axis: int, packed: int, group: Group) -> Tensor:
        ctx.given = axis, packed, group
        move, ctx.transposed = _MOVES[name]
        return move(x, axis, packed, group)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _Move.apply(g, ctx.transposed, *ctx.given), None, None, None, None


def used(x: Tensor, layout: Placed, group: Group) -> Tensor:
    """The whole tensor, of which each process makes a part of what follows."""
    name, axis = ("use", 0) if isinstance(layout, Replicate) else ("join to use", layout.dim)
    found: Tensor = _Move.apply(x, name, axis, 1, group)
    return found


def added(x: Tensor, layout: Placed, group: Group) -> Tensor:
    """The sum of the processes' terms, or this process's part of it."""
    name, axis = ("add", 0) if isinstance(layout, Replicate) else ("scatter", layout.dim)
    found: Tensor = _Move.apply(x, name, axis, 1, group)
    return found


def whole(x: Tensor, axis: int, packed: int, group: Group) -> Tensor:
    """The whole of a tensor of which each process has a part."""
    found: Tensor = _Move.apply(x, "join", axis, packed, group)
    return found


def cut(x: Tensor, axis: int, group: Group) -> Tensor:
    """This process's part of a tensor that all have."""
    found: Tensor = _Move.apply(x, "cut", axis, 1, group)
    return found


def once(x: Tensor, group: Group) -> Tensor:
    """A term of a sum over the processes: the tensor, which all have, in the first process, and zeros in others."""
    found: Tensor = _Move.apply(x, "once", 0, 1, group)
    return found
