"""Samplers that draw, data sets made of others, and batches of every kind of container."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)

DRAWN = {
    "random": lambda g: RandomSampler(range(9), generator=g),
    "with replacement": lambda g: RandomSampler(range(9), replacement=True, num_samples=20, generator=g),
    "rounds": lambda g: RandomSampler(range(9), num_samples=21, generator=g),
    "subset": lambda g: SubsetRandomSampler([4, 5, 8, 2, 7], generator=g),
    "weighted": lambda g: WeightedRandomSampler(np.arange(9.0), 30, generator=g),
    "weighted, each once": lambda g: WeightedRandomSampler(np.arange(9.0), 8, replacement=False, generator=g),
}


@pytest.mark.parametrize("make", DRAWN.values(), ids=DRAWN)
def test_orders_depend_on_the_seed_and_go_on_from_a_state(make: Any) -> None:
    first = make(3)
    orders = [list(first) for _ in range(3)]
    assert [list(s) for s in [make(3)] * 3] == orders and orders[0] != orders[1] and len(first) == len(orders[0])
    assert all(type(index) is int for index in orders[0]) and list(make(4)) != orders[0]
    again = make(3)
    list(again)
    resumed = make(3)
    resumed.load_state_dict(again.state_dict())
    assert [list(resumed), list(resumed)] == orders[1:]
    hm.manual_seed(8)
    expected = list(make(None))
    hm.manual_seed(8)
    assert list(make(None)) == expected
    batches = [batch.tolist() for batch in DataLoader(range(9), 4, sampler=make(3))]
    assert [index for batch in batches for index in batch] == orders[0]


def test_what_is_drawn() -> None:
    rounds = list(DRAWN["rounds"](0))
    assert sorted(rounds[:9]) == sorted(rounds[9:18]) == list(range(9)) and len(set(rounds[18:])) == 3
    assert set(DRAWN["with replacement"](0)) <= set(range(9)) and sorted(DRAWN["subset"](1)) == [2, 4, 5, 7, 8]
    assert sorted(DRAWN["weighted, each once"](0)) == list(range(1, 9))  # none of weight 0
    assert list(RandomSampler([], generator=0)) == [] and list(RandomSampler(range(3), num_samples=0)) == []
    growing = [1, 2]
    sampler = RandomSampler(growing, generator=0)
    growing.append(3)
    assert len(sampler) == 3 and sorted(sampler) == [0, 1, 2]


def test_weights_are_probabilities() -> None:
    weights = np.array([1.0, 0.0, 3.0, 4.0, 0.0])
    counts = Counter(WeightedRandomSampler(weights, 80_000, generator=0))
    assert set(counts) == {0, 2, 3}
    for index, expected in ((0, 10_000), (2, 30_000), (3, 40_000)):
        assert abs(counts[index] - expected) < 5 * np.sqrt(expected)
    ends = SimpleNamespace(random=lambda count: np.array([0.0, 1.0]))  # the least, and what rounding may give
    assert WeightedRandomSampler([0.0, 1.0, 3.0, 0.0], 2)._order(ends).tolist() == [1, 2]  # type: ignore[arg-type]
    # Without replacement the first of them is drawn with these probabilities, too.
    first = Counter(next(iter(WeightedRandomSampler(weights, 2, False, generator=seed))) for seed in range(4000))
    for index, expected in ((0, 500), (2, 1500), (3, 2000)):
        assert abs(first[index] - expected) < 5 * np.sqrt(expected)
    assert list(WeightedRandomSampler(hm.asarray([0.0, 1.0]), 3, generator=0)) == [1, 1, 1]


class Letters(IterableDataset[str]):
    def __iter__(self) -> Any:
        return iter("abc")


def test_data_sets_of_others() -> None:
    data = TensorDataset(hm.arange(3)) + TensorDataset(hm.arange(10, 14))
    assert type(data) is ConcatDataset and len(data + data) == 14 and data.cumulative_sizes == [3, 7]
    assert [data[k][0].item() for k in (0, 2, 3, -1, -7)] == [0, 2, 10, 13, 0]
    with pytest.raises(IndexError, match="index 7 is outside of 7"):
        data[7]
    for workers in (0, 2):
        loader = DataLoader(data, 3, num_workers=workers)
        assert [batch[0].tolist() for batch in loader] == [[0, 1, 2], [10, 11, 12], [13]]
    chained = Letters() + Letters()
    assert type(chained) is ChainDataset and list(chained) == list("abcabc")
    assert len(DataLoader(ChainDataset([range(2), "abc"]), 2)) == 3
    assert len(DataLoader(ChainDataset([range(2), "abc"]), 2, drop_last=True)) == 2
    whole = StackDataset(x=TensorDataset(hm.arange(4)), y=TensorDataset(hm.arange(4) * 2))
    parts = StackDataset([1, 2, 3, 4], Subset("wxyz", [3, 2, 1, 0]))
    assert whole[3]["y"][0].item() == 6 and parts[1] == (2, "y") and len(parts) == 4
    assert next(iter(DataLoader(whole, 4)))["y"][0].tolist() == [0, 2, 4, 6]
    assert next(iter(DataLoader(parts, 2)))[1] == ["z", "y"]


@dataclass
class Pair:
    left: Any
    right: Any = field(init=False)

    def __post_init__(self) -> None:
        self.right = (self.left * 2, str(self.left))


def test_batches_keep_the_classes_of_containers() -> None:
    batch = default_collate([Pair(1), Pair(2)])
    assert type(batch) is Pair and batch.left.tolist() == [1, 2] and batch.right[0].tolist() == [2, 4]
    assert batch.right[1] == ["1", "2"]
    for kind in (OrderedDict, lambda entries: defaultdict(list, entries)):
        made = default_collate([kind([("b", 1), ("a", np.zeros(2))]), kind([("b", 2), ("a", np.ones(2))])])
        assert type(made) is type(kind([])) and list(made) == ["b", "a"] and made["a"].shape == (2, 2)
    assert default_collate([None, None]) == [None, None] and default_collate([1j, 2j]).dtype == hm.complex64
    assert default_collate([np.zeros(2), hm.ones((2,), dtype=hm.float64)]).tolist() == [[0, 0], [1, 1]]
    assert default_collate([np.str_("a"), np.str_("b")]) == ["a", "b"]
    assert default_collate([range(2), range(2, 4)])[1].tolist() == [1, 3]
    found = default_convert({"x": (np.ones(2), 3, "a"), "y": Pair(np.float32(2))})
    assert isinstance(found["x"][0], hm.Tensor) and found["x"][1:] == (3, "a") and found["y"].left.item() == 2
    with pytest.raises(hm.ArgumentError, match="differ in their keys"):
        default_collate([{"a": 1}, {"b": 1}])


class Pinned:
    def __init__(self, values: Any) -> None:
        self.values, self.pinned = values, False

    def pin_memory(self) -> Pinned:
        self.pinned = True
        return self


def test_pinned_memory_is_asked_for_everywhere() -> None:
    data = [(k, np.ones(2), "a") for k in range(4)]
    for workers in (0, 1):
        x, y, z = next(iter(DataLoader(data, 2, pin_memory=True, num_workers=workers)))
        assert x.tolist() == [0, 1] and y.shape == (2, 2) and z == ["a", "a"]
        own = DataLoader(data, 2, collate_fn=Pinned, pin_memory=True, num_workers=workers)
        assert [batch.pinned for batch in own] == [True, True]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WeightedRandomSampler([1.0, -1.0], 2), "none below 0"),
        (lambda: WeightedRandomSampler([0.0, 0.0], 2), "2 samples of 0 indices"),
        (lambda: WeightedRandomSampler([1.0, 0.0, 1.0], 3, replacement=False), "3 samples of 2 indices"),
        (lambda: WeightedRandomSampler([[1.0]], 2), "must be a list"),
        (lambda: WeightedRandomSampler([1.0], 2.5), "num_samples must be a whole number"),  # type: ignore[arg-type]
        (lambda: list(RandomSampler([], num_samples=2)), "empty data source"),
        (lambda: BatchSampler(range(3), True), "batch_size must be a positive integer"),
        (lambda: BatchSampler(range(3), 2, drop_last=1), "drop_last must be"),  # type: ignore[arg-type]
        (lambda: ConcatDataset([]), "at least one"),
        (lambda: ConcatDataset([Letters()]), "ChainDataset"),
        (lambda: random_split([1, 2, 3], [4, -1]), "whole numbers from 0 on"),
        (lambda: StackDataset(), "in order, or by name"),
        (lambda: StackDataset([1], [1, 2]), r"got \[1, 2\]"),
        (lambda: DataLoader([1], persistent_workers=True), "num_workers above 0"),
        (lambda: DataLoader([1], workers="greenlet"), '"process" or "thread"'),
        (lambda: DataLoader([1], workers="thread", num_workers=1, timeout=2), "for worker processes"),
        (lambda: DataLoader([1], timeout=-1), "timeout >= 0"),
        (lambda: list(DataLoader([1], num_workers=1, multiprocessing_context="threads")), "is not known here"),
    ],
)
def test_errors_say_what_is_wrong(make: Any, words: str) -> None:
    with pytest.raises(hm.ArgumentError, match=words):
        make()
