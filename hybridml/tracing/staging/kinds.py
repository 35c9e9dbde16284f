"""Parts of tensors of an interpreter that stands on a tracer: values and tangents, or batches, beneath it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.ops.table import OPS

from ...core.batching.interpreter import Batching
from ...core.tensor import Tensor

_permute = OPS["permute_dims"]


class Kind:
    """Parts of tensors of one interpreter: the one beneath, and more where a tensor `moves`, by a tangent or as a
    batch."""

    def __init__(self, around: Any) -> None:
        self.around, self.is_batch = around, type(around) is Batching

    def moves(self, t: Tensor) -> bool:
        if self.is_batch:
            return bool(self.around.lift(t)._array.is_batch)
        return self.around.parts(t)[1] is not None

    def parts(self, t: Tensor, moves: bool) -> list[Tensor]:
        """The tensors beneath."""
        if not moves:
            return [self.around.lift(t)._array.tensor]
        return [self.around.batch_of(t)] if self.is_batch else [*self.around.materialized(t)]

    def whole(self, parts: Sequence[Tensor], moves: bool) -> Tensor:
        """The tensor of these parts."""
        found: Tensor = self.around.wrap(parts[0], moves) if self.is_batch else self.around.wrap(*parts)
        return found

    def count(self, moves: bool) -> int:
        return 2 if moves and not self.is_batch else 1

    def all_parts(self, tensors: Sequence[Tensor], moving: Sequence[bool]) -> list[Tensor]:
        return [part for t, moves in zip(tensors, moving, strict=True) for part in self.parts(t, moves)]

    def wholes(self, parts: Sequence[Tensor], moving: Sequence[bool]) -> list[Tensor]:
        left = iter(parts)
        return [self.whole([next(left) for _ in range(self.count(moves))], moves) for moves in moving]

    def turned(self, stacks: Sequence[Tensor], moving: Sequence[bool]) -> list[Tensor]:
        """Stacks with their first two axes exchanged, batch and steps, where they have both."""
        if not self.is_batch:
            return list(stacks)
        return [
            _permute.fn(x, (1, 0, *range(2, x.ndim))) if moves else x for x, moves in zip(stacks, moving, strict=True)
        ]
