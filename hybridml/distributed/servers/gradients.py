"""Gradients on their way from a worker to the shards: whole, of some rows of a table, or compressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...arrays.creation import asarray
from ...core.autodiff.sparse import SparseGradient
from ...core.tensor import Tensor
from ...nn.module import Module
from .embedding import tables_of
from .values import array_of, split


class Compressed(Protocol):
    """A gradient in fewer bytes."""

    @property
    def nbytes(self) -> int: ...

    def decode(self) -> np.ndarray:
        """The gradient that a shard takes it for."""
        ...


class Rows(NamedTuple):
    """The gradients of some rows of a shard's part of a table."""

    rows: np.ndarray  # (n,) int64
    values: np.ndarray  # (n, ...)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.values.nbytes


Gradient = np.ndarray | Compressed | Rows
Encode = Callable[[str, np.ndarray], np.ndarray | Compressed]


def collect(model: Module, placement: Sequence[Sequence[str]], encode: Encode) -> list[dict[str, Gradient]]:
    """For each shard what it gets of the gradients that a model has."""
    named = model.named_parameters()
    parts = split({name: encode(name, _dense(p.grad)) for name, p in named if p.grad is not None}, placement)
    for name, table in tables_of(model).items():
        rows, values = table.take_gradients()
        for k, part in enumerate(parts):
            if (mine := rows % len(parts) == k).any():
                part[name] = Rows(rows[mine] // len(parts), values[mine])
    return parts


def mean(found: Sequence[Any], count: int, parameter: Tensor) -> Any:
    """The mean of gradients of a parameter over `count` workers; those that have sent none count as zeros."""
    if isinstance(found[0], Rows):
        rows, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return SparseGradient(asarray(rows), asarray(values / values.dtype.type(count)), parameter.shape)
    first, *others = [each if isinstance(each, np.ndarray) else each.decode() for each in found]
    return asarray(sum(others, first) / parameter.dtype.type(count))


def bytes_of(parts: Sequence[Mapping[str, Any]]) -> int:
    """The bytes of all values."""
    return sum(value.nbytes for part in parts for value in part.values())


def _dense(gradient: Any) -> np.ndarray:
    return array_of(gradient.to_dense() if type(gradient) is SparseGradient else gradient)
