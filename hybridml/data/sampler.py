"""Samplers: the order in which a loader visits a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .. import random
from ..core.context import at_place
from ..core.states import check_entries
from ..core.tensor import CPU
from ..random import Generator, default_generator

Seed = int | Generator | None  # a seed of its own, or a generator (None: the default one) to draw a seed from


def random_bits(seed: Seed, epoch: int = 0, use: int = 0) -> np.random.Generator:
    """A NumPy generator for host-side orders: counter-based, so that each (seed, epoch, use) has its own stream."""
    seed = checked_seed("generator", seed)
    if seed is None or isinstance(seed, Generator):
        high, low = at_place(CPU.type, lambda: random.bits((2,), generator=seed).tolist())
        # No epoch: the generator has moved on, which is what tells one epoch from the next.
        return np.random.Generator(np.random.Philox(key=high << 32 | low))
    return np.random.Generator(np.random.Philox(key=seed & (2**128 - 1), counter=[0, 0, use, epoch]))


def checked_seed(name: str, seed: Any) -> Seed:
    """The seed. Raises ArgumentError where it is none."""
    if seed is None or isinstance(seed, Generator):
        return seed
    if not _is_whole(seed) or seed < 0:
        raise ArgumentError(f"{name} must be a seed (a non-negative integer), a Generator or None, got {seed!r}")
    return int(seed)


def drawn_from(seed: Seed) -> Generator | None:
    """The generator that `random_bits` draws a seed from; None for a seed."""
    if isinstance(seed, Generator):
        return seed
    return default_generator if seed is None else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class Sampler:
    """Base class of samplers: iterating one yields indices.

    One whose order is not the same each time may define ``state_dict()`` and ``load_state_dict(state)``, which decide
    what the next ``iter`` yields: a loader then resumes with it. Subclasses write ``__iter__`` (NotImplementedError
    without it), and ``__len__`` where the number of indices is known: the length of a loader is made from it.

    >>> class Reverse(Sampler):
    ...     def __len__(self):
    ...         return 3
    ...
    ...     def __iter__(self):
    ...         return iter((2, 1, 0))
    >>> list(Reverse())
    [2, 1, 0]
    """

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__ method")


class SequentialSampler(Sampler):
    """Sampler of the indices 0, 1, 2, ... of a data source, in order.

    >>> list(SequentialSampler(["a", "b", "c"]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)

    def __repr__(self) -> str:
        return f"SequentialSampler({len(self)} samples)"


class DrawnSampler(Sampler):
    """Base class of samplers whose order depends only on the seed and on the number of epochs begun."""

    def __init__(self, num_samples: int, generator: Seed) -> None:
        if not _is_whole(num_samples) or num_samples < 0:
            raise ArgumentError(f"{type(self).__name__}: num_samples must be a whole number, got {num_samples!r}")
        self.num_samples, self.generator = int(num_samples), generator
        self.epoch = 0

    def _order(self, bits: np.random.Generator) -> np.ndarray:
        """The indices of an epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        order = self._order(random_bits(self.generator, self.epoch))
        self.epoch += 1
        return iter(order.tolist())

    def __len__(self) -> int:
        return self.num_samples

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} samples, generator={self.generator!r}, epoch={self.epoch})"

    def state_dict(self) -> dict[str, Any]:
        """The number of epochs begun, and the state of the generator that seeds are drawn from (None for a seed).

        >>> sampler = RandomSampler(range(4), generator=0)
        >>> first = list(sampler)
        >>> again = RandomSampler(range(4), generator=0)
        >>> again.load_state_dict(sampler.state_dict())
        >>> list(again) == list(sampler) != first
        True
        """
        source = drawn_from(self.generator)
        return {"epoch": self.epoch, "generator": None if source is None else source.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` gave; without a generator of its own, the default one continues from there.

        Raises ArgumentError for the state of a sampler with a seed where this one has none, and the reverse.
        """
        check_entries(self, state, "epoch", "generator")
        source = drawn_from(self.generator)
        if (source is None) != (state["generator"] is None):
            kinds = "a seed", "a generator that seeds are drawn from"
            here, there = kinds if source is None else kinds[::-1]
            raise ArgumentError(
                f"load_state_dict: this sampler has {here}, the state is of one with {there}; give both the same kind "
                "of generator="
            )
        self.epoch = int(state["epoch"])
        if source is not None:
            source.set_state(state["generator"])


class RandomSampler(DrawnSampler):
    """Sampler of every index once, or with `replacement` of any at any place, `num_samples` of them in an epoch.

    The order depends only on the seed and the number of epochs begun. `generator` is a seed; a `Generator`, or None for
    the default one, has a seed drawn from it each epoch, so that `hm.manual_seed` decides. Without replacement, more
    samples than there are take whole rounds through the data source; ArgumentError for samples of an empty one.

    >>> sorted(RandomSampler(range(4), generator=0))
    [0, 1, 2, 3]
    >>> len(list(RandomSampler(range(4), replacement=True, num_samples=10)))
    10
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Seed = None
    ) -> None:
        self.data_source, self.replacement, self._given = data_source, replacement, num_samples
        super().__init__(0 if num_samples is None else num_samples, generator)

    def __len__(self) -> int:  # the data source may grow
        return len(self.data_source) if self._given is None else self.num_samples

    def _order(self, bits: np.random.Generator) -> np.ndarray:
        size, count = len(self.data_source), len(self)
        if count and not size:
            raise ArgumentError(f"RandomSampler: {count} samples of an empty data source")
        if self.replacement:
            return bits.integers(size, size=count) if count else np.zeros(0, np.int64)
        rounds = [bits.permutation(size) for _ in range(-(-count // size) if size else 0)]
        return np.concatenate(rounds)[:count] if rounds else np.zeros(0, np.int64)


class SubsetRandomSampler(DrawnSampler):
    """Sampler of the given indices, each once, in an order that depends on the seed and the number of epochs begun.

    >>> sorted(SubsetRandomSampler([5, 7, 9], generator=0))
    [5, 7, 9]
    """

    def __init__(self, indices: Sequence[int], generator: Seed = None) -> None:
        self.indices = np.asarray(indices, np.int64)
        super().__init__(len(self.indices), generator)

    def _order(self, bits: np.random.Generator) -> np.ndarray:
        return self.indices[bits.permutation(len(self.indices))]


class WeightedRandomSampler(DrawnSampler):
    """Sampler of `num_samples` indices in proportion to their weights, which need not sum to 1.

    Without `replacement` no index comes twice in an epoch. Raises ArgumentError for weights that are negative, not
    finite or all zero, and for more samples without replacement than there are weights above zero.

    >>> sorted(WeightedRandomSampler([0.0, 1.0, 3.0], 2, replacement=False, generator=0))
    [1, 2]
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Seed = None) -> None:
        super().__init__(num_samples, generator)
        self.weights, self.replacement = np.asarray(weights, np.float64), replacement
        if self.weights.ndim != 1 or not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise ArgumentError("WeightedRandomSampler: weights must be a list of finite numbers, none below 0")
        possible = int((self.weights > 0).sum())
        if not possible or (not replacement and possible < num_samples):
            raise ArgumentError(
                f"WeightedRandomSampler: {num_samples} samples of {possible} indices whose weight is above 0"
            )

    def _order(self, bits: np.random.Generator) -> np.ndarray:
        if self.replacement:
            ends = np.cumsum(self.weights)
            last = np.searchsorted(ends, ends[-1])  # which the product below may round to
            drawn = np.searchsorted(ends, bits.random(self.num_samples) * ends[-1], side="right")
            return np.minimum(drawn, last)
        # The largest of u ** (1 / w) are a weighted sample without replacement (Efraimidis and Spirakis, 2006).
        with np.errstate(divide="ignore"):
            keys = bits.standard_exponential(len(self.weights)) / self.weights
        return np.argsort(keys, kind="stable")[: self.num_samples]


class BatchSampler:
    """Sampler of lists of `batch_size` indices from those of another; `drop_last` drops a shorter last one.

    Raises ArgumentError for a `batch_size` below 1.

    >>> list(BatchSampler(range(5), 2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if not _is_whole(batch_size) or batch_size < 1:
            raise ArgumentError(f"batch_size must be a positive integer, got {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ArgumentError(f"drop_last must be True or False, got {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return self._groups(iter(self.sampler))  # the order is drawn now, not with the first group

    def _groups(self, indices: Iterator[int]) -> Iterator[list[int]]:
        group: list[int] = []
        for index in indices:
            group.append(index)
            if len(group) == self.batch_size:
                yield group
                group = []
        if group and not self.drop_last:
            yield group

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __repr__(self) -> str:
        return f"BatchSampler({self.sampler!r}, batch_size={self.batch_size}, drop_last={self.drop_last})"

    def state_dict(self) -> Any:
        """The state of the sampler; None where it has none."""
        return state_of(self.sampler)

    def load_state_dict(self, state: Any) -> None:
        """Continues from what `state_dict` gave."""
        restore(self.sampler, state)


def state_of(source: Any) -> Any:
    """The state of a sampler or a stream; None for one that gives the same each time, or does not tell."""
    return source.state_dict() if hasattr(source, "state_dict") else None


def restore(source: Any, state: Any) -> None:
    """Sets a sampler or a stream to what `state_of` gave. Raises ArgumentError where it has no state to be set."""
    if hasattr(source, "load_state_dict"):
        source.load_state_dict(state)
    elif state is not None:
        raise ArgumentError(
            f"load_state_dict: the state is of an order of its own, and {type(source).__name__} has none; make the "
            "loader of the same data set, with the same shuffle and sampler"
        )
