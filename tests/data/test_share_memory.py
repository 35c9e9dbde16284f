"""Tensors in memory that processes share: one writes, the other one reads, and nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.shared.memory import memory_of
from hybridml_compiler.errors import ArgumentError, DeviceError
from hybridml_examples import hogwild

METHODS = pytest.mark.parametrize("method", ["fork", "spawn"])
STYLES = pytest.mark.parametrize("traced", [False, True])
SECONDS = 60
Way = Connection


@contextmanager
def child(method: str, target: Callable[..., None], *args: Any) -> Iterator[tuple[Any, Way]]:
    """A process that is given the arguments and a way to this one."""
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=target, args=(*args, there), daemon=True)
    process.start()
    there.close()
    try:
        yield process, here
        process.join(SECONDS)
        assert process.exitcode is not None
    finally:
        process.kill()
        here.close()


def said(way: Way) -> Any:
    assert way.poll(SECONDS)
    return way.recv()


def train(model: Any, traced: bool, way: Way) -> None:
    optimizer, x = hm.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), hm.ones((4, 3))

    def step() -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step = hm.trace(step) if traced else step
    for _ in range(5):
        step()
    way.send((all(p.is_shared() for p in model.parameters()), model.weight.tolist(), model.weight.requires_grad))


@METHODS
@STYLES
def test_a_step_in_another_process_trains_this_ones_parameters(method: str, traced: bool) -> None:
    hm.manual_seed(0)
    model = hm.nn.Linear(3, 2)
    before, forward = model.weight.tolist(), hm.trace(lambda x: model(x).sum())
    forward(hm.ones((1, 3)))  # a program that knows where the parameters were
    assert model.share_memory() is model and model.weight.tolist() == before
    with child(method, train, model, traced) as (_, way):
        is_shared, weight, requires_grad = said(way)
    assert is_shared and requires_grad and weight != before
    assert model.weight.tolist() == weight
    assert float(forward(hm.ones((1, 3)))) == float(model(hm.ones((1, 3))).sum())


def answer(x: Any, view: Any, way: Way) -> None:
    x += 1
    view[0] = 7.0
    way.send("written")
    again = way.recv()
    way.send((memory_of(again._array) is memory_of(x._array), again.shape))
    way.recv()
    way.send(x[0, 0].item())


@METHODS
def test_both_see_what_the_other_writes(method: str) -> None:
    x = hm.zeros((500, 400)).share_memory_()
    view = x[:, 3]
    with child(method, answer, x, view) as (_, way):
        assert said(way) == "written"
        assert x[0, 3].item() == 7.0 and x[1, 3].item() == 1.0 and x.sum().item() == 500 * 400 + 6
        way.send(x[2:, ::2])
        assert said(way) == (True, (498, 200))  # which is the memory that it has
        x.copy_(hm.full((500, 400), 3.0))
        way.send("go on")
        assert said(way) == 3.0


def through_queue(queue: Any, way: Way) -> None:
    x = queue.get(timeout=SECONDS)
    x *= 2
    way.send(x.is_shared())


def test_a_queue_of_multiprocessing_sends_handles() -> None:
    queue = multiprocessing.get_context("spawn").Queue()
    x = hm.ones((1000,)).share_memory_()
    with child("spawn", through_queue, queue) as (_, way):
        queue.put(x)
        assert said(way)
    assert x.sum().item() == 2000.0
    queue.close()
    queue.join_thread()


def test_what_is_sent_is_small_and_what_is_not_shared_is_copied() -> None:
    x = hm.ones((100_000,))
    assert len(ForkingPickler.dumps(x)) > 400_000
    x.share_memory_()
    assert len(ForkingPickler.dumps(x)) < 2000
    assert len(pickle.dumps(x)) > 400_000  # for a file, say, when the memory may be gone


def write_and_die(x: Any, way: Way) -> None:
    x += 1
    way.send("written")
    os.kill(os.getpid(), signal.SIGKILL)


@METHODS
def test_a_process_that_is_killed_takes_no_memory_with_it(method: str) -> None:
    x = hm.zeros((10,)).share_memory_()
    with child(method, write_and_die, x) as (process, way):
        assert said(way) == "written"
        process.join(SECONDS)
        assert process.exitcode == -signal.SIGKILL
    assert x.tolist() == [1.0] * 10


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_memory_goes_with_its_last_tensor() -> None:
    def files() -> int:
        return sum(
            os.readlink(f"/proc/self/fd/{n}").startswith("/memfd:hybridml-tensors")
            for n in os.listdir("/proc/self/fd")
            if os.path.islink(f"/proc/self/fd/{n}")
        )

    gc.collect()
    before, named = files(), set(os.listdir("/dev/shm"))
    x = hm.zeros((1000,)).share_memory_()
    view = x[10:20]
    model = hm.nn.Sequential(*[hm.nn.Linear(4, 4) for _ in range(20)]).share_memory()
    assert before < files() <= before + 4  # of Python's maps, too: not one for each of 40 parameters
    assert set(os.listdir("/dev/shm")) <= named  # no name that a death would leave behind
    del x, model
    gc.collect()
    assert view.is_shared() and view.sum().item() == 0.0
    del view
    gc.collect()
    assert files() == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_values_and_types_stay(dtype: str) -> None:
    x = hm.asarray(np.arange(12).reshape(3, 4) % 5).astype(dtype)
    for t in (x, x.T.clone(), x[0, 0].clone(), x[:0].clone()):
        wanted, kind = t.tolist(), t.dtype
        assert t.share_memory_() is t and t.is_shared() and t.tolist() == wanted and t.dtype == kind
        sent = ForkingPickler.loads(bytes(ForkingPickler.dumps(t)))
        assert sent.tolist() == wanted and sent.dtype == kind and sent.is_shared()
        assert t.clone().is_shared() is False and t.share_memory_().is_shared()


def test_modules_share_all_that_they_have() -> None:
    model = hm.nn.Sequential(hm.nn.Linear(3, 4), hm.nn.BatchNorm1d(4))
    model[0].weight.grad = hm.ones((4, 3))
    tied = hm.nn.ModuleList([model[0], model[0]])
    tied.share_memory()
    model.share_memory()
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
    assert len({id(memory_of(t._array)) for t in tied.parameters()}) == 1
    assert not model[0].weight.grad.is_shared() and model[0].weight.requires_grad


@STYLES
def test_updates_here_stay_in_the_shared_memory(traced: bool) -> None:
    x = hm.zeros((3,)).share_memory_()
    memory = memory_of(x._array)
    other = np.frombuffer(memory, np.float32, 3)

    def step(y: Any) -> None:
        x.copy_(x * 2 + y)

    step = hm.trace(step) if traced else step
    for k in range(4):
        step(hm.tensor([1.0, 2.0, float(k)]))
    assert memory_of(x._array) is memory and other.tolist() == x.tolist() == [15.0, 30.0, 11.0]


def test_what_cannot_be_shared() -> None:
    x = hm.zeros((4, 4))
    view = x[1:]
    for t in (x, view):
        with pytest.raises(ArgumentError, match="share_memory_: the tensor is a view of another one, or has views"):
            t.share_memory_()
    del t, view
    assert x.share_memory_().is_shared() and x[1:].share_memory_().is_shared()
    with pytest.raises(DeviceError, match="share_memory_: processes share memory of the CPU, got a tensor on"):
        hm.zeros((2,)).to("cuda:sim").share_memory_()
    y = hm.zeros((2,))
    with pytest.raises(ArgumentError, match="share_memory_: not inside of a traced function"):
        hm.trace(lambda: y.share_memory_(), strict=True)()


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_train_one_network_on_digits(processes: int) -> None:
    pytest.importorskip("sklearn")
    found = hogwild.train(processes, steps=200, method="fork")
    assert found.last < 0.6 * found.first and found.accuracy > 0.85
