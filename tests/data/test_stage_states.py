"""States of streams are those of one chain of stages, one reader and one place that is there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import DataLoader, NumpyShards
from tests.support.streams import STAGES, Count, plain, shards, tenfold, values


def test_states_of_others_are_refused(tmp_path: Path) -> None:
    source = shards(tmp_path, [5, 2, 6])
    loader = DataLoader(source, 2, num_workers=2)
    next(iter(loader))
    with pytest.raises(
        hm.ArgumentError, match="a stream that 2 processes read, here 1 would; make the loader with the"
    ):
        DataLoader(source, 2).load_state_dict(loader.state_dict())
    one = NumpyShards(source.paths, num_replicas=2, rank=0)
    next(iter(one))
    for state, workers in ((one.state_dict(), 0), (loader.state_dict(), 2)):
        other: Any = NumpyShards(source.paths, num_replicas=2, rank=1)
        other = DataLoader(other, 2, num_workers=2) if workers else other
        other.load_state_dict(state)
        with pytest.raises(
            hm.ArgumentError, match=r"the state is of reader 0 of 2, this is reader \d of \d; go on with"
        ):
            list(other)
    with pytest.raises(
        hm.ArgumentError, match="needs what state_dict gave; epoch, reader, place, chain, files is missing"
    ):
        source.load_state_dict({})
    whole = source.shuffle(20, seed=0)
    next(iter(whole))
    shorter = source.shuffle(20, seed=0)
    shorter.load_state_dict(whole.state_dict())
    shards(tmp_path, [5, 0, 0])
    with pytest.raises(
        hm.ArgumentError, match="13 samples had been read, and now there are 5; go on with the same files"
    ):
        list(shorter)


# Chains of which each gives other samples, or gives them in another order; behind `|` others that give the same.
CHAINS: dict[str, Callable[[Any], Any]] = {
    "Count": lambda source: Count(9).map(tenfold),
    "Count | with functions": lambda source: Count(9).map(plain).map(plain),
    "Count.batch(2)": lambda source: Count(9).batch(2),
    "Count.batch(2, drop_last=True)": lambda source: Count(9).batch(2, drop_last=True),
    "Count.shuffle(3, seed=0)": lambda source: Count(9).shuffle(3, seed=0),
    "Count.shuffle(3, seed=0) | of NumPy": lambda source: Count(9).shuffle(np.int64(3), seed=np.int64(0)),  # type: ignore[arg-type]
    "Count.shuffle(4, seed=0)": lambda source: Count(9).shuffle(4, seed=0),
    "Count.shuffle(3, seed=1)": lambda source: Count(9).shuffle(3, seed=1),
    "Count.shuffle(3, seed=None)": lambda source: Count(9).shuffle(3),
    "Count.shuffle(3, seed=Generator)": lambda source: Count(9).shuffle(3, seed=hm.Generator(1)),
    "Count.cache": lambda source: Count(9).cache(),
    "Count.cache | in a file": lambda source: Count(9).cache(Path(source.paths[0]).parent / "kept"),
    "Count.prefetch": lambda source: Count(9).prefetch(2),
    "Count.prefetch | another buffer": lambda source: Count(9).prefetch(3),
    "NumpyShards.prefetch": lambda source: source.prefetch(2),
    "NumpyShards": lambda source: source,
    "NumpyShards.interleave(2)": lambda source: source.interleave(2),
    "ChainDataset([Count, Count.cache])": lambda source: Count(9) + Count(9).cache(),
    "ChainDataset([Count, Count]).interleave(2)": lambda source: (Count(9) + Count(9)).interleave(2),
    "ChainDataset([Count.cache, Count])": lambda source: Count(9).cache() + Count(9),
}


def test_a_state_is_of_one_chain(tmp_path: Path) -> None:
    """Each chain refuses the state of each other one, from the middle and the beginning, by itself and in a loader."""
    source = shards(tmp_path, [5, 2, 6])
    for given, made in CHAINS.items():
        stream, loader = made(source), DataLoader(made(source), None)
        states = [stream.state_dict()]
        next(iter(stream)), next(iter(loader))
        states += [json.loads(json.dumps(stream.state_dict())), loader.state_dict()]
        for here, make in CHAINS.items():
            ours, theirs = here.split(" | ")[0], given.split(" | ")[0]
            words = re.escape(f"the state is of {theirs}, this is {ours}; ")
            for state in states:
                taker = DataLoader(make(source), None) if "batches" in state else make(source)
                with nullcontext() if ours == theirs else pytest.raises(hm.ArgumentError, match=words):
                    taker.load_state_dict(state)


# Sizes of files after some of sizes 5, 2, 6 (of 128 bytes and 8 a row), and what is said of them.
OTHERS: dict[str, tuple[list[int], str]] = {
    "longer": ([5, 3, 6], "file 1 was '1.npy' of 144 bytes, and here it is '1.npy' of 152 bytes"),
    "fewer": ([5, 2], "file 2 was '2.npy' of 176 bytes, and here it is none"),
    "more": ([5, 2, 6, 1], "file 3 was none, and here it is '3.npy' of 136 bytes"),
}


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize(
    "stages", [plain, lambda s: s.interleave(2).shuffle(3, seed=0), lambda s: Count(2) + s.map(plain)]
)
def test_a_state_is_of_the_files_that_it_was_taken_with(tmp_path: Path, stages: Callable[[Any], Any], how: str) -> None:
    """Wherever they lie: by their names, order and sizes."""
    sizes, words = OTHERS[how]
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    stream, loader = stages(shards(here, [5, 2, 6])), DataLoader(stages(shards(here, [5, 2, 6])), None)
    run, batches = iter(stream), iter(loader)
    next(run), next(batches)
    states = stream.state_dict(), loader.state_dict()
    rest = values(run), values(batches)
    same = stages(shards(there, [5, 2, 6])), DataLoader(stages(shards(there, [5, 2, 6])), None)
    other = stages(shards(there, sizes)), DataLoader(stages(shards(there, sizes)), None)
    for k, state in enumerate(states):
        with pytest.raises(hm.ArgumentError, match=re.escape(f"the state is of other files: {words}; go on with the")):
            other[k].load_state_dict(state)
        shards(there, [5, 2, 6])
        same[k].load_state_dict(state)
        assert values(same[k]) == rest[k]
    swapped = stages(NumpyShards([here / f"{k}.npy" for k in (1, 0, 2)]))
    with pytest.raises(hm.ArgumentError, match=r"file 0 was '0\.npy' of 168 bytes, and here it is '1\.npy'"):
        swapped.load_state_dict(states[0])


def test_a_loader_takes_no_state_of_another_kind_of_order(tmp_path: Path) -> None:
    staged, plain, shuffled, in_order = (
        lambda: DataLoader(shards(tmp_path, [4])),
        lambda: DataLoader(Count(4)),
        lambda: DataLoader(range(4), shuffle=True),
        lambda: DataLoader(range(4)),
    )
    for give, take, words in (
        (plain, staged, "NumpyShards.load_state_dict: needs what state_dict gave, got NoneType"),
        (staged, plain, "the state is of an order of its own, and Count has none"),
        (shuffled, in_order, "the state is of an order of its own, and SequentialSampler has none"),
        (in_order, shuffled, "RandomSampler.load_state_dict: needs what state_dict gave, got NoneType"),
    ):
        loader = give()
        next(iter(loader))
        with pytest.raises(hm.ArgumentError, match=words):
            take().load_state_dict(loader.state_dict())


@pytest.mark.parametrize("stage", ["map", "prefetch", "cache", "shuffle"])
def test_a_place_behind_the_end_is_an_error(stage: str) -> None:
    """The stream has become shorter since its state was taken."""
    long, short = (STAGES[stage](Count(count), 3, Path()) for count in (9, 4))
    run = iter(long)
    for _ in range(7):
        next(run)
    for _ in range(2):  # a cache that is full, too
        short.load_state_dict(long.state_dict())
        with pytest.raises(hm.ArgumentError, match="samples had been read, and now there are 4; go on with the same"):
            values(short)
        values(STAGES["map"](short, 0, Path()))
