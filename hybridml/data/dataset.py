"""Data sets: something with a length and an index, or something to iterate over."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from .sampler import Seed, random_bits
from .stages import IterableDataset

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Base class of data sets with an index: subclasses write ``__len__`` and ``__getitem__``.

    One that can fetch many samples at once may also define ``batch(indices)`` (an int64 array) and return what
    collating those samples would: the loader then makes one call per batch instead of one per sample. Without the two
    methods they raise NotImplementedError.

    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 3
    ...
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> Squares()[2]
    4
    """

    def __getitem__(self, index: int) -> T:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__ method")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__ method")

    def __add__(self, other: Any) -> Any:
        return ConcatDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Data set of tensors: sample k is the tuple of row k of each.

    >>> data = TensorDataset(hm.asarray([[1.0], [2.0]]), hm.asarray([0, 1]))
    >>> len(data), data[1][0].tolist()
    (2, [2.0])
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ArgumentError("TensorDataset: needs at least one tensor")
        self.tensors = tuple(map(xp.asarray, tensors))
        lengths = [tensor.shape[:1] for tensor in self.tensors]
        if any(length != lengths[0] or not length for length in lengths):
            raise ArgumentError(
                f"TensorDataset: first axes must be equal, got shapes {[t.shape for t in self.tensors]}"
            )

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"TensorDataset: index {index} is outside of {len(self)} samples")
        return tuple(tensor[index] for tensor in self.tensors)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{t.dtype.name}{list(t.shape[1:])}" for t in self.tensors)
        return f"TensorDataset({len(self)} samples of {kinds})"

    def batch(self, indices: np.ndarray) -> tuple[Tensor, ...]:
        return tuple(xp.take(t, xp.asarray(indices, device=t.device), axis=0) for t in self.tensors)


class Subset(Dataset[T]):
    """Data set of the samples of another one at `indices`, in that order.

    Raises IndexError for an index outside of it.

    >>> Subset(["a", "b", "c"], [2, 0])[0]
    'c'
    """

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = np.asarray(indices, dtype=np.int64)
        if self.indices.ndim != 1 or not ((self.indices >= 0) & (self.indices < len(dataset))).all():
            raise IndexError(f"Subset: indices must be a list of numbers between 0 and {len(dataset) - 1}")
        if hasattr(dataset, "batch"):
            self.batch = self._batch

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> T:
        return self.dataset[int(self.indices[index])]

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {len(self.dataset)} samples of {type(self.dataset).__name__})"

    def _batch(self, indices: np.ndarray) -> Any:
        return self.dataset.batch(self.indices[indices])  # type: ignore[attr-defined]


class ConcatDataset(Dataset[Any]):
    """Data set of the samples of several, one after the other; `datasets` have lengths (ArgumentError for streams).

    >>> data = ConcatDataset([["a", "b"], ["c"]])
    >>> len(data), data[2], data[-3]
    (3, 'c', 'a')
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: needs at least one data set")
        if any(isinstance(data, IterableDataset) for data in self.datasets):
            raise ArgumentError("ConcatDataset: streams have no index; chain them: ChainDataset")
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"ConcatDataset: index {index} is outside of {len(self)} samples")
        index += len(self) if index < 0 else 0
        which = bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([*self.datasets, other])


class StackDataset(Dataset[Any]):
    """Data set whose samples are those of several side by side: tuples, or dicts where they are given by name.

    Raises ArgumentError for none, for both kinds at once, and for different lengths.

    >>> StackDataset(["a", "b"], [1, 2])[1]
    ('b', 2)
    >>> StackDataset(text=["a", "b"], label=[1, 2])[0]
    {'text': 'a', 'label': 1}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError("StackDataset: give data sets in order, or by name")
        self.datasets: Any = args or kwargs
        sizes = [len(data) for data in self._parts()]
        if len(set(sizes)) > 1:
            raise ArgumentError(f"StackDataset: data sets must be of one length, got {sizes}")
        if all(hasattr(data, "batch") for data in self._parts()):
            self.batch = self._batch

    def _parts(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _beside(self, parts: list[Any]) -> Any:
        return dict(zip(self.datasets, parts, strict=True)) if isinstance(self.datasets, dict) else tuple(parts)

    def __len__(self) -> int:
        return len(self._parts()[0])

    def __getitem__(self, index: int) -> Any:
        return self._beside([data[index] for data in self._parts()])

    def _batch(self, indices: np.ndarray) -> Any:
        return self._beside([data.batch(indices) for data in self._parts()])


def random_split(dataset: Dataset[T], lengths: Sequence[int | float], generator: Seed = None) -> list[Subset[T]]:
    """Disjoint random subsets; `lengths` are counts, or shares that sum to 1 (what rounding leaves goes to the first).

    >>> [len(part) for part in random_split(TensorDataset(hm.zeros((10,))), [0.8, 0.2], generator=1)]
    [8, 2]
    """
    count = len(dataset)
    if math.isclose(sum(lengths), 1) and all(0 <= share <= 1 for share in lengths):
        sizes = [math.floor(count * share) for share in lengths]
        for k in range(count - sum(sizes)):
            sizes[k % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != count or min(sizes, default=0) < 0:
        raise ArgumentError(
            f"random_split: lengths {list(lengths)} sum to {sum(lengths)}, the data set has {count} samples; "
            "give whole numbers from 0 on that sum to it, or shares that sum to 1"
        )
    order = random_bits(generator).permutation(count)
    ends = np.cumsum(sizes)
    return [Subset(dataset, order[end - size : end].tolist()) for size, end in zip(sizes, ends, strict=True)]
