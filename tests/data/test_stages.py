"""Streams in stages: what each gives, and that a run which goes on from a state gives what was left."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm
from hybridml.data import ChainDataset, DataLoader, Dataset, NumpyShards
from tests.support.loaders import lists
from tests.support.streams import STAGES, Count, plain, shards, tenfold, values


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    cycle=st.integers(1, 5),
    chain=st.lists(
        st.tuples(st.sampled_from(["map", "shuffle", "prefetch", "cache", "file"]), st.integers(1, 8)), max_size=4
    ),
    batch=st.integers(0, 3),
    epoch=st.integers(0, 2),
    part=st.floats(0, 1),
    warm=st.booleans(),
)
def test_a_stream_goes_on_where_its_state_was_taken(
    sizes: list[int], cycle: int, chain: list[tuple[str, int]], batch: int, epoch: int, part: float, warm: bool
) -> None:
    """From anywhere, through JSON, in a new program or in one whose caches are full; the state can be taken again."""
    with tempfile.TemporaryDirectory() as text:
        source = shards(Path(text), sizes)

        def make(folder: Path) -> Any:
            stream: Any = source.interleave(cycle)
            for number, (name, n) in enumerate(chain):
                stream = STAGES[name](stream, n, folder / f"cache{number}")
            return stream.batch(batch) if batch else stream

        first, second = Path(text, "first"), Path(text, "second")
        first.mkdir(), second.mkdir()
        stream = make(first)
        epochs = [values(stream) for _ in range(4)]
        assert len({len(samples) for samples in epochs}) == 1
        given, begun = round(part * len(epochs[0])), make(second)
        begun.set_epoch(epoch)
        run = iter(begun)
        assert [plain(next(run)) for _ in range(given)] == epochs[epoch][:given]
        state = json.loads(json.dumps(begun.state_dict()))
        resumed = make(first if warm else second)
        resumed.load_state_dict(state)
        rest = iter(resumed)
        if given < len(epochs[epoch]):
            assert plain(next(rest)) == epochs[epoch][given]
            again = make(second)
            again.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
            assert values(again) == epochs[epoch][given + 1 :]
        assert values(rest) == epochs[epoch][given + 1 :]
        assert [values(resumed), values(run)] == [epochs[epoch + 1], epochs[epoch][given:]]


def in_turn(sizes: list[int], cycle: int) -> list[int]:
    """The order of interleaved shards, step by step."""
    waiting = [[100 * number + k for k in range(size)] for number, size in enumerate(sizes)]
    slots: list[list[int]] = [waiting.pop(0) for _ in range(min(cycle, len(waiting)))]
    found = []
    while slots:
        slot = slots.pop(0)
        while not slot and waiting:
            slot = waiting.pop(0)
        if slot:
            found.append(slot[0])
            slots.append(slot[1:])
    return found


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), cycle=st.integers(1, 7))
def test_interleaved_parts_take_turns(sizes: list[int], cycle: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert values(shards(Path(folder), sizes).interleave(cycle)) == in_turn(sizes, cycle)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, 60), size=st.integers(1, 70), seed=st.integers(0, 2**40))
def test_shuffled_streams(count: int, size: int, seed: int) -> None:
    stream = Count(count).shuffle(size, seed)
    first, second = values(stream), values(stream)
    assert sorted(first) == sorted(second) == list(range(count))
    assert [values(Count(count).shuffle(size, seed)), values(stream)][0] == first
    assert all(sample < place + size for place, sample in enumerate(first))  # none before it is in the buffer
    if size > 20 and count > 20:
        assert first != second


def test_every_order_of_a_full_buffer_comes() -> None:
    stream = Count(3).shuffle(3, seed=0)
    orders = [tuple(values(stream)) for _ in range(600)]
    counts = [orders.count(order) for order in {*orders}]
    assert len(counts) == 6 and min(counts) > 60


def test_without_a_seed_the_default_generator_decides() -> None:
    hm.manual_seed(3)
    stream = Count(20).shuffle(20)
    first, second = values(stream), values(stream)
    hm.manual_seed(3)
    again = Count(20).shuffle(20)
    run = iter(again)
    assert [next(run) for _ in range(7)] == first[:7] and first != second
    state = again.state_dict()
    hm.manual_seed(4)
    other = Count(20).shuffle(20)
    other.load_state_dict(state)
    assert values(other) == first[7:]


def test_batches_and_maps() -> None:
    assert values(Count(5).map(tenfold).batch(2)) == [[0, 10], [20, 30], [40]]
    assert values(Count(5).batch(2, drop_last=True)) == [[0, 1], [2, 3]]
    assert values(DataLoader(Count(5).batch(2), batch_size=None)) == [[0, 1], [2, 3], [4]]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        values(Count(3).map(lambda k: next(iter(()))))


def test_prefetch_reads_ahead_and_no_further() -> None:
    source = Count(10)
    run = iter(source.prefetch(3))
    assert source.read == 0  # nothing is opened before the first sample
    assert next(run) == 0
    for job in list(run.cursor.jobs):
        job.result()
    assert source.read == 4
    assert values(run) == list(range(1, 10))


@pytest.mark.parametrize("in_file", [False, True])
def test_a_cache_is_filled_once_by_a_whole_run(tmp_path: Path, in_file: bool) -> None:
    source, path = Count(5), tmp_path / "kept" if in_file else None
    stream = source.shuffle(4, seed=1).cache(path)
    run = iter(stream)
    begun = [next(run), next(run)]
    assert list(tmp_path.iterdir()) == []
    first = values(stream)
    assert first[:2] == begun and source.read > 5
    read = source.read
    assert values(stream) == first and source.read == read and {*source.epochs} == {0}
    if in_file:
        assert [file.name for file in tmp_path.iterdir()] == ["kept.0-of-1"]
        other = Count(5)
        assert values(other.shuffle(4, seed=1).cache(path)) == first and other.read == 0
        file = tmp_path / "kept.0-of-1"
        for damaged in (b"", b"x" * 40, file.read_bytes()[:-3]):
            file.write_bytes(damaged)
            with pytest.raises(hm.ArgumentError, match=r"kept\.0-of-1 is not what a cache has written; remove it"):
                values(Count(5).cache(path))


@pytest.mark.parametrize("in_file", [False, True])
def test_what_is_done_to_samples_does_not_reach_the_cache(tmp_path: Path, in_file: bool) -> None:
    def more(sample: dict[str, Any]) -> list[int]:
        sample["x"] += 1
        sample["seen"].append(1)
        return [int(sample["x"]), len(sample["seen"])]

    stream = Count(3).map(lambda k: {"x": np.array(k), "seen": []}).cache(tmp_path / "kept" if in_file else None)
    assert [values(stream.map(more)) for _ in range(3)] == [[[1, 1], [2, 1], [3, 1]]] * 3


def test_a_state_of_other_samples_than_those_kept_reads_its_own() -> None:
    """Without a seed each cache has an order of its own, whose beginning is in the state."""
    first, second = Count(20).shuffle(20).cache(), Count(20).shuffle(20).cache()
    run = iter(first)
    begun = [next(run) for _ in range(5)]
    other = values(second)
    second.load_state_dict(first.state_dict())
    expected = values(run)
    assert values(second) == expected and [*begun, *expected] != other
    assert values(second) == [*begun, *expected]


def test_behind_the_end_a_state_is_of_the_next_epoch() -> None:
    stream = Count(20).shuffle(20, seed=1)
    states = [stream.state_dict()]
    epochs = []
    for _ in range(3):
        epochs.append(values(stream))
        states.append(stream.state_dict())
    for number, state in enumerate(states[:3]):
        resumed = Count(20).shuffle(20, seed=1)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state and values(resumed) == epochs[number]
    stream.set_epoch(1)
    assert values(stream) == epochs[1]


def test_a_stream_of_a_program_is_told_the_epoch_and_read_again() -> None:
    source = Count(6)
    stream = source.map(tenfold)
    values(stream)
    run = iter(stream)
    assert [next(run) for _ in range(4)] == [0, 10, 20, 30] and source.epochs == [0, 1]
    other = Count(6)
    resumed = other.map(tenfold)
    resumed.load_state_dict(stream.state_dict())
    assert values(resumed) == [40, 50] and other.epochs == [1] and other.read == 6


def test_chains_of_streams() -> None:
    chain = Count(3) + Count(2).map(tenfold)
    assert isinstance(chain, ChainDataset) and values(chain) == [0, 1, 2, 0, 10]
    run = iter(chain)
    assert [next(run) for _ in range(4)] == [0, 1, 2, 0]
    resumed = Count(3) + Count(2).map(tenfold)
    resumed.load_state_dict(chain.state_dict())
    assert values(resumed) == [10]


def fails_at(limit: int) -> Callable[[int], int]:
    def function(k: int) -> int:
        if k == limit:
            raise ZeroDivisionError(f"sample {k}")
        return k

    return function


@pytest.mark.parametrize("stage", ["map", "shuffle", "prefetch", "cache"])
def test_an_error_is_raised_again_and_leaves_nothing_out(stage: str) -> None:
    stream = STAGES[stage](Count(9).map(fails_at(4)), 2, Path())
    run = iter(stream)
    with pytest.raises(ZeroDivisionError, match="sample 4"):
        values(run)
    with pytest.raises(ZeroDivisionError, match="sample 4"):
        next(run)
    with pytest.raises(RuntimeError, match=r"the stream has failed \(sample 4\); go on from a state"):
        stream.state_dict()
    loader, got = DataLoader(STAGES["map"](Count(9).map(fails_at(4)), 2, Path()), 3), []
    with pytest.raises(ZeroDivisionError, match="sample 4"):
        got.extend(batch.tolist() for batch in loader)
    mended = DataLoader(STAGES["map"](Count(9), 2, Path()), 3)
    mended.load_state_dict(loader.state_dict())
    assert [*got, *lists(mended)] == [[0, 10, 20], [30, 40, 50], [60, 70, 80]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("staged", [True, False])
def test_a_loader_raises_an_error_again_and_begins_again(staged: bool, workers: int) -> None:
    """Whatever has become of the stream's own run: an epoch does not end early without a word."""
    stream = Count(9).map(fails_at(4))
    with pytest.raises(ZeroDivisionError):
        list(stream)
    loader = DataLoader(stream if staged else Failing(), 3, num_workers=workers)
    for _ in range(2):
        batches = iter(loader)
        got = [next(batches).tolist()]
        with pytest.raises(ZeroDivisionError, match="sample 4"):
            got.extend(batch.tolist() for batch in batches)
        with pytest.raises(ZeroDivisionError, match="sample 4"):
            next(batches)
        assert loader.state_dict()["batches"] == len(got) and got[0] == [0, 1, 2]


class Failing(Dataset[int]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return fails_at(4)(index)


def noisy(sample: Any) -> Any:
    return float(sample) + float(np.random.random())


LOADERS: dict[str, Callable[[NumpyShards], Any]] = {
    "shards": lambda source: source,
    "interleaved": lambda source: source.interleave(2).map(tenfold),
    "all": lambda source: source.interleave(3).cache().shuffle(5, seed=1).prefetch(3),
    "batches": lambda source: source.shuffle(4, seed=2).batch(2),
    "drawn": lambda source: source.shuffle(4),
}


@pytest.mark.parametrize("workers", [0, 2, 4])
@pytest.mark.parametrize("chain", LOADERS)
def test_a_loader_goes_on_where_its_state_was_taken(tmp_path: Path, chain: str, workers: int) -> None:
    """From every batch of two epochs, through a file; shards are uneven, and fewer than four workers."""
    source = shards(tmp_path, [5, 2, 6])
    if workers:  # the random numbers of a batch, too
        source = source.map(noisy) if chain == "shards" else source  # type: ignore[assignment]

    def make() -> DataLoader:
        hm.manual_seed(7)
        size = None if chain == "batches" else 2
        return DataLoader(LOADERS[chain](source), size, num_workers=workers, generator=3)

    loader, epochs, states = make(), [[], []], []
    for number, epoch in enumerate(epochs):
        states.append((number, 0, loader.state_dict()))
        for batch in loader:
            epoch.append(batch.tolist())
            states.append((number, len(epoch), loader.state_dict()))
    whole = sorted(round(value // (10 if chain == "interleaved" else 1)) for batch in epochs[0] for value in batch)
    assert whole == [0, 1, 2, 3, 4, 100, 101, 200, 201, 202, 203, 204, 205]
    assert chain not in ("all", "batches") or epochs[0] != epochs[1]
    for number, count, state in states[:: 4 if workers else 1]:
        hm.save(state, tmp_path / "state")
        resumed = make()
        resumed.load_state_dict(hm.load(tmp_path / "state"))
        if chain != "drawn":
            assert repr(resumed.state_dict()) == repr(state)
            assert [lists(resumed) for _ in epochs[number:]] == [epochs[number][count:], *epochs[number + 1 :]]
        elif count:  # the seed of the epoch is in the state
            assert lists(resumed) == epochs[number][count:]


def test_a_loader_goes_on_without_reading_again(tmp_path: Path) -> None:
    loader = DataLoader(shards(tmp_path, [100]).map(noted), 10)
    batches = iter(loader)
    for _ in range(9):
        next(batches)
    SEEN.clear()
    resumed = DataLoader(shards(tmp_path, [100]).map(noted), 10)
    resumed.load_state_dict(loader.state_dict())
    assert lists(resumed) == [list(range(90, 100))] and len(SEEN) == 10


def test_one_worker_goes_on_for_none_and_none_for_one(tmp_path: Path) -> None:
    source = shards(tmp_path, [5, 2, 6]).shuffle(4, seed=1)
    whole = lists(DataLoader(source, 3))
    for before, behind in ((0, 1), (1, 0)):
        source.set_epoch(0)
        loader = DataLoader(source, 3, num_workers=before)
        batches = iter(loader)
        next(batches), next(batches)
        resumed = DataLoader(source, 3, num_workers=behind)
        resumed.load_state_dict(loader.state_dict())
        assert lists(resumed) == whole[2:]


SEEN: list[int] = []


def noted(sample: Any) -> Any:
    SEEN.append(int(sample))
    return sample


@pytest.mark.parametrize("how", ["persistent", "spawn", "thread", "left"])
def test_epochs_are_the_same_however_workers_live(tmp_path: Path, how: str) -> None:
    source = shards(tmp_path, [5, 2, 6]).shuffle(4, seed=1)
    options: dict[str, Any] = {
        "persistent": {"persistent_workers": True, "num_workers": 2},
        "spawn": {"multiprocessing_context": "spawn", "num_workers": 1},
        "thread": {"workers": "thread", "num_workers": 2},
        "left": {"num_workers": 1},
    }[how]
    plain = DataLoader(source, 3, num_workers=2 if how == "persistent" else 0)
    expected = [lists(plain) for _ in range(2)]
    source.set_epoch(0)
    loader = DataLoader(source, 3, **options)
    if how == "left":  # the next loop is the next epoch
        assert next(iter(loader)).tolist() == expected[0][0]
        assert lists(loader) == expected[1]
    else:
        assert [lists(loader) for _ in range(1 if how == "spawn" else 2)] == expected[: 1 if how == "spawn" else 2]


@pytest.mark.parametrize("seed", ["a", 1.5, -1, True])
def test_seeds_are_checked_when_a_stage_is_made(seed: Any) -> None:
    with pytest.raises(hm.ArgumentError, match=rf"shuffle: seed must be .*non-negative integer.*, got {seed!r}"):
        Count(3).shuffle(2, seed=seed)
    with pytest.raises(hm.ArgumentError, match=rf"generator must be .*non-negative integer.*, got {seed!r}"):
        list(DataLoader(range(3), shuffle=True, generator=seed))


@pytest.mark.parametrize("stage", ["batch", "shuffle", "prefetch", "interleave"])
@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2"])
def test_numbers_of_stages_are_checked(tmp_path: Path, stage: str, number: Any) -> None:
    with pytest.raises(hm.ArgumentError, match=rf"{stage}: .* must be a whole number from 1 on, got {number!r}"):
        getattr(shards(tmp_path, [1]), stage)(number)
