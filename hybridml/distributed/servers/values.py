"""Values of parameters by name, as arrays that travel, and how they are divided among shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.creation import asarray
from ...core.tensor import Tensor

Arrays = dict[str, np.ndarray]


def array_of(tensor: Tensor) -> np.ndarray:
    """The tensor's values, in its own memory where that is the CPU's."""
    found: np.ndarray = tensor.detach().to(device="cpu").numpy()
    return found


def write(targets: Mapping[Any, Tensor], values: Mapping[Any, Any]) -> None:
    """Copies values into the tensors that have their names."""
    for name, value in values.items():
        targets[name].detach().copy_(asarray(value))


def spread(sizes: Mapping[str, int], parts: int) -> list[list[str]]:
    """Names in so many parts of about the same size: the largest first, each to the part that is the smallest then."""
    found: list[list[str]] = [[] for _ in range(parts)]
    filled = [0] * parts
    for name in sorted(sizes, key=lambda n: -sizes[n]):
        k = filled.index(min(filled))
        found[k].append(name)
        filled[k] += sizes[name]
    return found


def split(values: Mapping[str, Any], placement: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The values that each shard gets, by name."""
    return [{name: values[name] for name in names if name in values} for names in placement]
