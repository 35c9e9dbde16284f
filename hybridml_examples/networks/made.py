"""Data sets: samples that a function makes of their numbers, for training and for testing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

import hybridml as hm

Arrays = tuple[np.ndarray, ...]


class Missing(Exception):
    """The data cannot be made here; the message says what to install."""


class Unusable(Exception):
    """An input that the network cannot use; the message says what it can."""


class Samples(hm.data.Dataset[tuple[hm.Tensor, ...]]):
    """`count` samples: `make` takes an array of numbers below that and returns the arrays of a batch, inputs first."""

    def __init__(self, count: int, make: Callable[[np.ndarray], Arrays]) -> None:
        self.count, self.make = count, make

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[hm.Tensor, ...]:
        return tuple(tensor[0] for tensor in self.batch(np.asarray([index])))

    def batch(self, indices: np.ndarray) -> tuple[hm.Tensor, ...]:
        return tuple(hm.asarray(np.ascontiguousarray(array)) for array in self.make(np.asarray(indices)))


class Data(NamedTuple):
    """Data to train and to test with, and what they are in words, which is said at each result."""

    about: str
    training: Samples
    test: Samples


def rows(about: str, arrays: Arrays, test: int, seed: int = 0) -> Data:
    """Data of arrays with a row for each sample, of which `test`, drawn at random, are for testing."""
    order = np.random.default_rng(seed).permutation(len(arrays[0]))

    def samples(part: np.ndarray) -> Samples:
        return Samples(len(part), lambda k: tuple(array[part[k]] for array in arrays))

    return Data(about, samples(order[test:]), samples(order[:test]))


def endless(samples: Samples, batch: int, seed: int) -> Iterator[tuple[hm.Tensor, ...]]:
    """Batches, epoch after epoch, in an order that the seed says."""
    loader = hm.data.DataLoader(
        samples, batch_size=min(batch, len(samples)), shuffle=True, drop_last=True, generator=seed
    )
    while True:
        yield from loader


def padded(sequences: list[np.ndarray], length: int | None = None, value: float = 0) -> np.ndarray:
    """Sequences of several lengths as one array (n, length, ...), filled up with `value`, or cut."""
    longest = length or max(map(len, sequences))
    found = np.full((len(sequences), longest, *sequences[0].shape[1:]), value, sequences[0].dtype)
    for row, sequence in zip(found, sequences, strict=True):
        row[: len(sequence)] = sequence[:longest]
    return found
