"""Worker processes of the loader: equal batches, memory that is used again, random numbers, errors, deaths, the end."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import DataLoader, Dataset, IterableDataset, TensorDataset, WorkerError, get_worker_info
from hybridml.data.workers import shared_memory
from tests.support.loaders import Rows, children, handles, lists

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
CONTEXTS = ["fork", pytest.param("forkserver", marks=pytest.mark.slow), pytest.param("spawn", marks=pytest.mark.slow)]
Point = namedtuple("Point", "x y")


class Draws(Dataset[Any]):
    """Numbers of all generators that a worker seeds, and its own number."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return random.random(), float(np.random.rand()), float(np.random.random()), info.id, info.seed


class Stream(IterableDataset[int]):
    """The numbers below `count`, divided among the workers."""

    def __init__(self, count: int, uneven: bool = False) -> None:
        self.count, self.uneven = count, uneven

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        number, count = (0, 1) if info is None else (info.id, info.num_workers)
        if self.uneven:  # the first worker has a single number
            return iter([0] if number == 0 else range(1, self.count))
        return iter(range(number, self.count, count))


@dataclass
class Sample:
    image: Any
    name: str


class Odd(Dataset[Any]):
    """Samples of every kind."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        image = hm.full((4, 5000), float(index), dtype="bfloat16" if index % 2 else None)
        return {"s": Sample(image, f"n{index}" * 9000), "p": Point(index, (float(index), b"x")), "l": [np.int8(index)]}


class Fails(Rows):
    def __init__(self, how: str) -> None:
        super().__init__(20)
        self.how = how

    def __getitem__(self, index: int) -> Any:
        if index == 13:
            if self.how == "error":
                raise KeyError("sample 13")
            if self.how == "private":
                raise type("Own", (Exception,), {})("of a class that cannot be sent")
            if self.how == "stop":
                raise StopIteration("sample 13")
            if self.how == "exit":
                os._exit(3)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "sleep":
                time.sleep(60)
            if self.how == "lambda":
                return lambda: None, 0
        return super().__getitem__(index)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(children()), handles()
    yield
    if "multiprocessing.resource_tracker" not in sys.modules:  # processes of `spawn` and `forkserver` stay
        assert set(children()) <= before[0] and handles() <= before[1]


@pytest.mark.parametrize("context", CONTEXTS)
def test_batches_are_those_of_this_process(context: str) -> None:
    for data in (Rows(11), Rows(11, 20_000), Odd(), TensorDataset(hm.arange(30.0).reshape(10, 3), hm.arange(10))):
        expected = lists(DataLoader(data, 3, shuffle=True, generator=1))
        for persistent in (False, True):
            given: Any = {"persistent_workers": persistent, "multiprocessing_context": context}
            loader = DataLoader(data, 3, shuffle=True, generator=1, num_workers=2, **given)
            assert lists(loader) == expected != lists(loader)
            del loader


def test_containers_and_dtypes_arrive_as_they_are() -> None:
    here, there = (next(iter(DataLoader(Odd(), 5, num_workers=n))) for n in (0, 1))
    assert type(there["s"]) is Sample and type(there["p"]) is Point and there["s"].name == here["s"].name
    assert there["s"].image.dtype == here["s"].image.dtype and there["l"][0].dtype == hm.int8
    assert (there["s"].image == here["s"].image).all()
    batches = list(DataLoader(Rows(3), batch_size=None, num_workers=2))
    assert isinstance(batches[2][0], hm.Tensor) and batches[2][1] == 2


class Settings(Dataset[Any]):
    """The default dtype, threads and gradient mode that code in a worker sees, as texts."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return str(hm.get_default_dtype()), str(hm.get_num_threads()), str(hm.is_grad_enabled())


@pytest.mark.parametrize("context", CONTEXTS)
def test_settings_of_a_worker(context: str) -> None:
    """The default dtype is that of this process, the others are those of a worker."""
    threads = hm.get_num_threads()
    hm.set_default_dtype(hm.float64)
    hm.set_num_threads(3)
    try:
        with hm.no_grad():
            (found,) = DataLoader(Settings(), num_workers=1, multiprocessing_context=context)
    finally:
        hm.set_default_dtype(hm.float32)
        hm.set_num_threads(threads)
    assert [value for (value,) in found] == [str(hm.float64), "1", "True"]


def test_large_arrays_are_shared_and_small_ones_are_not() -> None:
    loader = DataLoader(Rows(40, 20_000), 4, num_workers=1, prefetch_factor=1)
    labels, places = [], set()
    for images, label in loader:
        labels.append(label)
        places.add(images.numpy().ctypes.data // (1 << 12))
        images += 1  # the program's own memory now
        del images
    assert len(places) <= 4  # blocks are used again, though all labels are kept
    assert [x for label in labels for x in label.tolist()] == list(range(40))


def test_batches_that_are_kept_stay_as_they_are() -> None:
    loader = DataLoader(Rows(60, 20_000), 2, num_workers=2)
    kept = list(loader)
    for _ in loader:
        pass
    del loader
    assert [int(images[0, 0].item()) for images, _ in kept] == list(range(0, 60, 2))
    assert all((images == images[:, :1]).all() for images, _ in kept) and len(kept) == 30


class Growing(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.full(20_000 + 9000 * (index * 7 % 10), index, np.float32)


def test_blocks_of_any_size() -> None:
    loader = DataLoader(Growing(40), 1, num_workers=2)
    for k, batch in enumerate(loader):
        assert batch.shape == (1, 20_000 + 9000 * (k * 7 % 10)) and bool((batch == k).all())


def test_a_writer_takes_the_smallest_block_that_is_free() -> None:
    file = shared_memory.SharedFile()
    writer, reader = shared_memory.Writer(file), shared_memory.Reader(file)
    small, large = (np.arange(n, dtype=np.int64) for n in (10_000, 40_000))
    messages = [writer.write(x) for x in (small, large)]
    for message, x in zip(messages, (small, large), strict=True):
        assert (reader.read(message) == x).all()
    writer.release(reader.released())
    assert writer.write(small).block == messages[0].block
    again = writer.write(np.arange(60_000))  # too large for what is free, which is given up
    assert again.dropped == (messages[1].block or (0,))[:1] and (reader.read(again) == np.arange(60_000)).all()
    del again
    file.close()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_random_numbers_depend_on_seed_epoch_and_batch_alone(workers: int) -> None:
    def drawn(loader: DataLoader) -> list[Any]:
        return [[column.tolist() for column in batch[:3]] for batch in loader]

    loader = DataLoader(Draws(), 3, shuffle=True, generator=4, num_workers=workers)
    first, second = drawn(loader), drawn(loader)
    assert first != second and len({x for batch in first for column in batch for x in column}) == 36
    kept = DataLoader(Draws(), 3, shuffle=True, generator=4, num_workers=2, persistent_workers=True)
    assert [drawn(kept), drawn(kept)] == [first, second]


def test_random_numbers_without_a_seed_are_those_of_the_default_generator() -> None:
    for shuffle in (False, True):
        found = []
        for seed in (1, 1, 2):
            hm.manual_seed(seed)
            loader = DataLoader(Draws(), 4, shuffle=shuffle, num_workers=2)
            found.append([lists(loader), lists(loader)])
        assert found[0] == found[1] != found[2] and found[0][0] != found[0][1]


def test_the_order_is_the_same_for_every_number_of_workers() -> None:
    orders = []
    for workers in (0, 1, 2):
        hm.manual_seed(5)
        loader = DataLoader(Rows(20), 4, shuffle=True, num_workers=workers)
        orders.append([[batch[1].tolist() for batch in loader] for _ in range(3)])
    assert orders[0] == orders[1] == orders[2]


def test_a_resumed_epoch_has_the_same_random_numbers() -> None:
    for generator in (3, None):
        hm.manual_seed(7)
        loader = DataLoader(Draws(), 2, shuffle=True, num_workers=2, generator=generator)
        lists(loader)
        batches = []
        for batch in loader:
            batches.append([column.tolist() for column in batch[:3]])
            if len(batches) == 2:
                state = pickle.loads(pickle.dumps(loader.state_dict()))
        following = lists(loader)
        hm.manual_seed(99)
        resumed = DataLoader(Draws(), 2, shuffle=True, num_workers=3, generator=generator)
        resumed.load_state_dict(state)
        assert [[column.tolist() for column in batch[:3]] for batch in resumed] == batches[2:]
        assert [batch[:3] for batch in lists(resumed)] == [batch[:3] for batch in following]


def test_worker_info() -> None:
    batches = lists(DataLoader(Draws(), 3, num_workers=2, generator=1))
    assert [batch[3] for batch in batches] == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]
    seeds = [batch[4][0] for batch in batches]
    assert seeds[1] == seeds[0] + 1 and seeds[2:] == seeds[:2] and get_worker_info() is None


def test_streams_are_divided_by_the_data_set() -> None:
    for workers in (1, 2, 3):
        for persistent in (False, True):
            loader = DataLoader(Stream(10), 2, num_workers=workers, persistent_workers=persistent)
            for _ in range(2):
                batches = lists(loader)
                assert sorted(x for batch in batches for x in batch) == list(range(10))
            assert batches[0] == list(range(0, 2 * workers, workers))
    uneven = DataLoader(Stream(8, uneven=True), None, num_workers=3, prefetch_factor=3)
    expected = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert [list(uneven) for _ in range(2)] == [expected] * 2
    assert len(list(DataLoader(Stream(7), 2, drop_last=True, num_workers=2))) == 3


def begin(number: int) -> None:
    info = get_worker_info()
    assert info is not None and info.id == number
    info.dataset.size = 10 + number


def test_worker_init_fn() -> None:
    shapes = [batch[0].shape for batch in DataLoader(Rows(8), 2, num_workers=2, worker_init_fn=begin)]
    assert shapes == [(2, 10), (2, 11)] * 2
    with pytest.raises(ZeroDivisionError) as caught:
        list(DataLoader(Rows(8), 2, num_workers=2, worker_init_fn=lambda number: 1 // number and None))
    assert "worker_init_fn" in caught.value.__notes__[0]


def test_persistent_workers_stay() -> None:
    loader = DataLoader(Rows(8), 2, num_workers=2, persistent_workers=True)
    before = set(children())
    seen = set()
    for _ in range(3):
        assert [batch[1].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        seen |= set(children()) - before
    assert len(seen) == 2
    for _ in loader:  # left in the middle: what was asked for is not wanted any more
        break
    assert [batch[1].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    first, second = iter(loader), iter(loader)  # at once: the second has workers of its own
    assert [next(first)[1].tolist(), next(second)[1].tolist(), next(first)[1].tolist()] == [[0, 1], [0, 1], [2, 3]]
    assert len(list(second)) == 3 and len(list(first)) == 2
    assert set(children()) - before == seen
    del loader, first, second
    assert set(children()) == before


def test_an_error_arrives_at_its_batch_with_its_traceback() -> None:
    got = []
    with pytest.raises(KeyError) as caught:
        for batch in DataLoader(Fails("error"), 5, num_workers=2):
            got.append(batch)
    assert len(got) == 2 and caught.value.args == ("sample 13",)
    assert "batch 2, samples [10, 11, 12, 13, 14]" in caught.value.__notes__[0]
    assert "worker 0" in caught.value.__notes__[0]
    assert 'raise KeyError("sample 13")' in str(caught.value.__cause__)


def test_errors_and_batches_that_cannot_be_sent() -> None:
    for workers in (0, 2):  # which must not end the epoch
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(DataLoader(Fails("stop"), 5, num_workers=workers))
    with pytest.raises(RuntimeError, match="Own: of a class that cannot be sent") as caught:
        list(DataLoader(Fails("private"), 5, num_workers=2))
    assert "in __getitem__" in str(caught.value.__cause__)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        list(DataLoader(Fails("lambda"), 5, num_workers=2, collate_fn=list))
    with pytest.raises(ValueError, match="processes"), open(os.devnull, "rb"):
        list(DataLoader(Rows(4), 2, num_workers=1, multiprocessing_context="processes"))


@pytest.mark.parametrize(("how", "words"), [("kill", r"killed by signal 9 \(SIGKILL\)"), ("exit", "exit code 3")])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_that_dies_is_an_error_that_names_it(how: str, words: str, persistent: bool) -> None:
    loader = DataLoader(Fails(how), 5, num_workers=2, persistent_workers=persistent)
    with pytest.raises(WorkerError, match=rf"worker 0 \(process \d+\) .*{words}"):
        list(loader)
    with pytest.raises(WorkerError, match=words):  # with new workers
        list(loader)


def test_an_idle_worker_that_is_killed_is_an_error() -> None:
    loader = DataLoader(Rows(8), 2, num_workers=2, persistent_workers=True)
    before = set(children())
    list(loader)
    victim = min(set(children()) - before)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=f"process {victim}"):
        list(loader)
    assert len(list(loader)) == 4


def test_timeout() -> None:
    with pytest.raises(RuntimeError, match=r"no batch within timeout=0.2 s; at work: worker 0 \(process \d+\)"):
        list(DataLoader(Fails("sleep"), 5, num_workers=2, timeout=0.2))


def zeros(samples: list[Any]) -> np.ndarray:
    return np.zeros(28_000, np.uint8)


def test_many_large_jobs_ahead_of_the_results() -> None:
    """More of both than the pipes hold: neither process may wait for the other to read."""
    found: list[int] = []
    loader = DataLoader(range(250_000), 4096, num_workers=1, prefetch_factor=60, collate_fn=zeros)
    thread = threading.Thread(target=lambda: found.append(len(list(loader))), daemon=True)
    thread.start()
    thread.join(60)
    assert found == [62]


def test_a_forked_child_has_workers_of_its_own() -> None:
    loader = DataLoader(Rows(8), 2, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    for rest in (3, 4):
        process = os.fork()
        if not process:
            with suppress(BaseException):
                with pytest.raises(WorkerError, match="begin one here"):
                    next(batches)
                os._exit(len(list(loader)))
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 4 and len(list(batches)) == rest
        batches = iter(loader)


def test_early_exit_ends_workers_that_are_at_work() -> None:
    for batch in DataLoader(Fails("sleep"), 1, num_workers=2, sampler=[1, 13, 2, 13, 13]):
        assert batch[1].tolist() == [1]
        break


@hm.trace
def doubled(x: hm.Tensor) -> hm.Tensor:
    return hm.tanh(x * 2).sum()


class Traced(Rows):
    """Samples that compiled code makes."""

    def __getitem__(self, index: int) -> Any:
        new = hm.trace(lambda x: hm.tanh(x * 3).sum())
        return doubled(hm.full((100,), float(index))), new(hm.full((7,), float(index)))


def test_workers_start_while_threads_compile() -> None:
    """Locks and pools of hybridml are free in a fork, and its code compiles there."""
    expected = [[x.item() for x in Traced(6)[k]] for k in range(6)]
    stop = threading.Event()

    def compile_on() -> None:
        while not stop.is_set():
            hm.trace(lambda x: hm.tanh(x * 2).sum() + 1)(hm.ones((50,)))

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        for _ in range(2):
            pairs = [zip(*batch, strict=True) for batch in lists(DataLoader(Traced(6), 3, num_workers=2))]
            found = [pair for batch in pairs for pair in batch]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    finally:
        stop.set()
        thread.join()


def test_loaders_in_traces_and_modes() -> None:
    with hm.no_grad():
        assert [len(batch) for batch in DataLoader(Rows(4), 2, num_workers=1)] == [2, 2]

    @hm.trace
    def total(x: hm.Tensor) -> hm.Tensor:
        for rows, _ in DataLoader(Rows(4), 2, num_workers=1):
            x = x + rows.sum()
        return x

    assert total(hm.zeros(())).item() == 18.0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_do_not_hold_the_memory_of_other_loaders() -> None:
    before = set(children())
    first = iter(DataLoader(Rows(40, 20_000), 4, num_workers=2))
    next(first)
    old = set(children()) - before
    second = iter(DataLoader(Rows(40, 20_000), 4, num_workers=2))
    next(second), next(second)  # one of each
    new = set(children()) - before - old
    maps = [Path(f"/proc/{process}/maps").read_text() for process in new]
    own = [len({line.split()[4] for line in text.splitlines() if "hybridml-batches" in line}) for text in maps]
    assert own == [1, 1]  # one file each


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_death_is_seen_while_another_loader_has_younger_workers() -> None:
    before = set(children())
    loader = DataLoader(Rows(8), 2, num_workers=1, persistent_workers=True)
    list(loader)
    (victim,) = set(children()) - before
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(len(list(DataLoader(Rows(8), 2, num_workers=2)))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = iter(DataLoader(Rows(8), 2, num_workers=2))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=f"process {victim}"):
        list(loader)
    assert found == [4] * 4 and len(list(other)) == 4
