"""Data sets, samplers and the loader: what is batched, in which order, from how many threads."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
    random_split,
)
from tests.support.loaders import lists


class Squares(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count, self.threads = count, set()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        self.threads.add(threading.get_ident())
        if index == 13:
            raise RuntimeError("sample 13 is broken")
        return index * index


class Stream(IterableDataset[float]):
    def __iter__(self) -> Iterator[float]:
        return iter([0.5, 1.5, 2.5, 3.5, 4.5])


def test_batches_in_order() -> None:
    assert lists(DataLoader(Squares(5), batch_size=2)) == [[0, 1], [4, 9], [16]]
    assert lists(DataLoader(Squares(5), batch_size=2, drop_last=True)) == [[0, 1], [4, 9]]
    assert [len(DataLoader(Squares(5), 2, drop_last=drop)) for drop in (False, True)] == [3, 2]
    assert list(DataLoader(Squares(3), batch_size=None)) == [0, 1, 4]
    assert lists(DataLoader(Squares(5), batch_sampler=[[0, 4], [1]])) == [[0, 16], [1]]
    assert lists(DataLoader(Squares(5), batch_size=2, sampler=[3, 1, 2])) == [[9, 1], [4]]


def test_streams() -> None:
    assert lists(DataLoader(Stream(), batch_size=2)) == [[0.5, 1.5], [2.5, 3.5], [4.5]]
    assert lists(DataLoader(Stream(), batch_size=2, drop_last=True)) == [[0.5, 1.5], [2.5, 3.5]]
    assert list(DataLoader(Stream(), batch_size=None)) == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert lists(DataLoader(Stream(), 3, collate_fn=lambda xs: hm.asarray(sum(xs)))) == [4.5, 8.0]
    with pytest.raises(TypeError, match="no length"):
        len(DataLoader(Stream()))


def test_shuffling_depends_on_seed_and_epoch_alone() -> None:
    loader = DataLoader(Squares(10), batch_size=4, shuffle=True, generator=7)
    first, second = lists(loader), lists(loader)
    assert first != second and sorted(value for batch in first for value in batch) == [k * k for k in range(10)]
    hm.random.uniform((3,))  # the default generator plays no part
    again = DataLoader(Squares(10), batch_size=4, shuffle=True, generator=7, num_workers=2)
    assert [lists(again), lists(again)] == [first, second]
    assert lists(DataLoader(Squares(10), batch_size=4, shuffle=True, generator=8)) != first


def test_without_a_seed_the_default_generator_decides() -> None:
    loader = DataLoader(Squares(10), batch_size=10, shuffle=True)
    hm.manual_seed(1)
    first, second = lists(loader), lists(loader)
    hm.manual_seed(1)
    assert [lists(loader), lists(loader)] == [first, second] and first != second
    own = [list(RandomSampler(range(5), generator=hm.random.Generator(3))) for _ in range(2)]
    assert own[0] == own[1]


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_give_the_same_batches(workers: int) -> None:
    data = Squares(12)
    assert lists(DataLoader(data, 5, num_workers=workers, workers="thread")) == lists(DataLoader(Squares(12), 5))
    assert threading.get_ident() not in data.threads


def test_an_error_comes_at_its_batch_and_early_exit_is_clean() -> None:
    for workers in (0, 2):
        got = []
        with pytest.raises(RuntimeError, match="sample 13"):
            for batch in DataLoader(Squares(20), batch_size=5, num_workers=workers, workers="thread"):
                got.append(batch.tolist())
        assert len(got) == 2
        for batch in DataLoader(Squares(10), batch_size=2, num_workers=workers):
            assert batch.tolist() == [0, 1]
            break


def test_tensor_dataset_takes_whole_batches() -> None:
    x, y = hm.asarray(np.arange(12.0).reshape(6, 2)), hm.arange(6)
    data = TensorDataset(x, y)
    assert len(data) == 6 and data[2][0].tolist() == [4, 5] and data[-1][1].item() == 5
    xs, ys = next(iter(DataLoader(data, batch_size=3, shuffle=True, generator=0)))
    assert xs.shape == (3, 2) and xs.dtype == x.dtype and xs.tolist() == [[2 * k, 2 * k + 1] for k in ys.tolist()]
    collated = next(iter(DataLoader(data, batch_size=3, collate_fn=default_collate)))
    assert [t.tolist() for t in collated] == [[[0, 1], [2, 3], [4, 5]], [0, 1, 2]]
    with pytest.raises(IndexError):
        data[6]


def test_subsets_and_splits() -> None:
    data = TensorDataset(hm.arange(10))
    part = Subset(data, [7, 1, 3])
    assert len(part) == 3 and part[0][0].item() == 7 and next(iter(DataLoader(part, 2)))[0].tolist() == [7, 1]
    assert lists(DataLoader(Subset(Squares(5), [4, 2]), 2)) == [[16, 4]]
    one, other = random_split(data, [0.75, 0.25], generator=1)
    assert (len(one), len(other)) == (8, 2)
    assert sorted([*one.indices.tolist(), *other.indices.tolist()]) == list(range(10))
    assert random_split(data, [7, 3], generator=1)[0].indices[:5].tolist() == one.indices[:5].tolist()
    with pytest.raises(ValueError, match="sum to 11"):
        random_split(data, [8, 3])
    with pytest.raises(IndexError, match="between 0 and 9"):
        Subset(data, [10])


def test_collate() -> None:
    point = namedtuple("point", "x y")
    assert default_collate([1, 2]).dtype == hm.int64 and default_collate([1.0, 2.0]).dtype == hm.float32
    assert default_collate([True, False]).dtype == hm.bool
    assert default_collate([np.float64(1), np.float64(2)]).dtype == hm.float64
    assert default_collate([np.zeros((2, 3)), np.ones((2, 3))]).shape == (2, 2, 3)
    assert default_collate([hm.zeros((2,)), hm.ones((2,))]).tolist() == [[0, 0], [1, 1]]
    assert default_collate(["a", "b"]) == ["a", "b"]
    mixed = default_collate([{"x": (1, "a")}, {"x": (2, "b")}])
    assert mixed["x"][0].tolist() == [1, 2] and mixed["x"][1] == ["a", "b"] and type(mixed["x"]) is tuple
    named = default_collate([point(1, 2), point(3, 4)])
    assert type(named) is point and named.y.tolist() == [2, 4]
    with pytest.raises(TypeError, match="collate_fn"):
        default_collate([object()])
    with pytest.raises(ValueError, match="number of entries"):
        default_collate([(1,), (1, 2)])
    with pytest.raises(hm.ShapeError, match=r"samples of shapes \(2,\), \(3,\) make no batch"):
        default_collate([(np.zeros(2), 0), (np.zeros(3), 1)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DataLoader(Squares(3), batch_size=0), "positive integer"),
        (lambda: DataLoader(Squares(3), shuffle=True, sampler=[0]), "not both"),
        (lambda: DataLoader(Stream(), shuffle=True), "own order"),
        (lambda: DataLoader(Squares(3), 2, batch_sampler=[[0]]), "replaces batch_size"),
        (lambda: DataLoader(Squares(3), num_workers=-1), "num_workers >= 0"),
        (lambda: list(DataLoader(Squares(3), shuffle=True, generator=-1)), "seed"),
        (lambda: TensorDataset(hm.zeros((2,)), hm.zeros((3,))), "first axes must be equal"),
    ],
)
def test_errors_say_what_is_wrong(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_samplers() -> None:
    assert list(SequentialSampler(range(3))) == [0, 1, 2] and len(RandomSampler(range(3))) == 3
    assert list(BatchSampler(SequentialSampler(range(3)), 2)) == [[0, 1], [2]]


def test_the_order_is_drawn_when_an_epoch_begins() -> None:
    hm.manual_seed(1)
    expected = lists(DataLoader(Squares(10), batch_size=3, shuffle=True))
    hm.manual_seed(1)
    batches = iter(DataLoader(Squares(10), batch_size=3, shuffle=True))
    hm.random.uniform((3,))
    assert [batch.tolist() for batch in batches] == expected


class Shuffled(hm.data.Sampler):
    """A user's sampler with state, whose `__iter__` is a generator."""

    def __init__(self) -> None:
        self.seed = 0

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng(self.seed).permutation(7).tolist()
        self.seed += 1
        yield from order

    def __len__(self) -> int:
        return 7

    def state_dict(self) -> dict[str, int]:
        return {"seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seed = state["seed"]


class Counting(IterableDataset[int]):
    """A stream that knows its place."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[int]:
        while self.next < 7:
            self.next += 1
            yield self.next
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


LOADERS: dict[str, Callable[[], DataLoader]] = {
    "in order": lambda: DataLoader(Squares(7), 3),
    "a seed": lambda: DataLoader(Squares(7), 3, shuffle=True, generator=0),
    "a generator": lambda: DataLoader(Squares(7), 3, shuffle=True, generator=hm.random.Generator(3)),
    "the default generator": lambda: DataLoader(Squares(7), 3, shuffle=True, drop_last=True),
    "workers": lambda: DataLoader(Squares(7), 2, shuffle=True, generator=5, num_workers=2),
    "samples": lambda: DataLoader(range(7), None, shuffle=True, generator=5, collate_fn=hm.asarray),
    "a sampler": lambda: DataLoader(Squares(7), 3, sampler=Shuffled()),
    "a list": lambda: DataLoader(Squares(7), 3, sampler=[3, 1, 2, 5, 6]),
    "batches": lambda: DataLoader(Squares(7), batch_sampler=[[0, 3], [1], [2]]),
    "batches of a sampler": lambda: DataLoader(Squares(7), batch_sampler=BatchSampler(Shuffled(), 3)),
    "a stream": lambda: DataLoader(Stream(), 2),
    "samples of a stream": lambda: DataLoader(Stream(), None, collate_fn=hm.asarray),
    "a stream in stages": lambda: DataLoader(Stream().shuffle(4, seed=2), 2),
    "stages in workers": lambda: DataLoader(Stream().shuffle(4, seed=0), 2, num_workers=2, generator=1),
    "a stream with a state": lambda: DataLoader(Counting(), 2),
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_a_resumed_loader_gives_what_is_left(make: Callable[[], DataLoader], tmp_path: Path) -> None:
    """From every place of two epochs, through a file, beside other uses of the default generator."""
    hm.manual_seed(3)
    loader, epochs, states = make(), [], [(0, make().state_dict())]
    for epoch in range(4):
        epochs.append([])
        batches = iter(loader)
        states.append((epoch, loader.state_dict()))  # before the first batch
        for batch in batches:
            hm.random.uniform((2,))  # as dropout would
            epochs[-1].append(batch.tolist())
            states.append((epoch, loader.state_dict()))
        states.append((epoch + 1, loader.state_dict()))
    for epoch, state in states[: len(states) // 2]:
        hm.save(state, tmp_path / "state")
        resumed = make()
        hm.manual_seed(99)
        resumed.load_state_dict(hm.load(tmp_path / "state"))
        assert repr(resumed.state_dict()) == repr(state)
        given, got = state["batches"], []
        for _ in epochs[epoch:]:
            got.append([])
            for batch in resumed:
                hm.random.uniform((2,))
                got[-1].append(batch.tolist())
        assert got == [epochs[epoch][given:], *epochs[epoch + 1 :]], (epoch, given)


def test_a_state_is_of_the_last_epoch_begun() -> None:
    loader = DataLoader(Squares(7), 2)
    first, second = iter(loader), iter(loader)
    next(second)
    assert [len(list(first)), loader.state_dict()["batches"]] == [4, 1]
    for _ in loader:
        break
    assert loader.state_dict()["batches"] == 1


def test_states_of_other_loaders_are_refused() -> None:
    state = DataLoader(Squares(7), 2, shuffle=True, generator=0).state_dict()
    with pytest.raises(hm.ArgumentError, match="of batches of 2, this loader has batch_size=3"):
        DataLoader(Squares(7), 3, shuffle=True, generator=0).load_state_dict(state)
    with pytest.raises(hm.ArgumentError, match=r"has a generator .* of one with a seed"):
        DataLoader(Squares(7), 2, shuffle=True).load_state_dict(state)
    with pytest.raises(hm.ArgumentError, match="batch_size, batches, order, start is missing"):
        DataLoader(Squares(7), 2).load_state_dict({})


def test_a_sampler_may_have_no_length() -> None:
    odd: Any = type("Odd", (hm.data.Sampler,), {"__iter__": lambda self: iter((1, 3, 5))})()
    assert list(odd) == [1, 3, 5] and len(list(DataLoader(Squares(7), 2, sampler=odd))) == 2


def test_reprs_say_what_they_are_of() -> None:
    data = TensorDataset(hm.ones((4, 2)), hm.arange(4))
    assert repr(data) == "TensorDataset(4 samples of float32[2], int64[])"
    assert repr(Subset(data, [2, 0])) == "Subset(2 of 4 samples of TensorDataset)"
    loader = DataLoader(data, batch_size=2, shuffle=True, generator=0)
    order = "BatchSampler(RandomSampler(4 samples, generator=0, epoch=0), batch_size=2, drop_last=False)"
    assert [line.strip(" ,") for line in repr(loader).splitlines()] == [
        "DataLoader(", repr(data), order, "num_workers=0, batches given=0", ")",
    ]  # fmt: skip
    assert "SequentialSampler(4 samples)" in repr(DataLoader(data, batch_size=None))
    assert "list" in repr(DataLoader([1, 2]))
