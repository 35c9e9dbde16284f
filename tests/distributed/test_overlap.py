"""Sums that a backward begins: they are made by a thread of the group or by whoever waits, and where gradients are."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed import meanings
from hybridml.distributed.order import Order
from hybridml.distributed.threads import ThreadTransport
from hybridml.nn import functional as F
from hybridml_compiler.donation import donated


def trained(traced: bool, size: int) -> list[float]:
    """Losses of some steps, of so many processes with the same batch in all."""

    hm.manual_seed(0)
    network = hm.nn.Sequential(hm.nn.Linear(5, 7), hm.nn.Tanh(), hm.nn.Linear(7, 3))

    def rank() -> list[float]:
        model = dist.DataParallel(copy.deepcopy(network), bucket_mb=1e-4)
        optimizer = hm.optim.Adam(model.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = hm.trace(step) if traced else step
        x, y = hm.tensor(np.random.default_rng(0).standard_normal((4, 5), np.float32)), hm.tensor([0, 1, 2, 1])
        return [float(run(x, y)) for _ in range(4)]

    return dist.run_threads(size, rank)[0]


@pytest.mark.parametrize("traced", [False, True])
def test_without_a_core_to_spare_who_waits_does_what_was_begun(traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trained(traced, 1)
    threads: list[str] = []
    run = Order._run_next
    monkeypatch.setattr(Order, "_run_next", lambda self: (threads.append(threading.current_thread().name), run(self)))
    np.testing.assert_allclose(trained(traced, 2), wanted, rtol=1e-5)
    assert set(threads) == {"collectives"}
    monkeypatch.setattr(ThreadTransport, "overlaps", False)
    threads.clear()
    np.testing.assert_allclose(trained(traced, 2), wanted, rtol=1e-5)
    assert threads and "collectives" not in threads


def test_what_was_begun_comes_before_what_follows_it() -> None:
    done: list[int] = []
    order = Order(lambda: False)
    promises = [order.begin(lambda k=k: done.append(k)) for k in range(3)]
    assert not done
    order.result(promises[1])
    assert done == [0, 1]
    order.now(lambda: done.append(3))
    assert done == [0, 1, 2, 3] and all(promise.done() for promise in promises)


def test_sums_of_a_traced_step_are_made_where_the_gradients_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait of a program gives back the memory that the bucket was written to, and makes no copy on the way."""

    def no_copy(*_: Any) -> Any:
        raise AssertionError("a bucket was copied")

    monkeypatch.setattr(ThreadTransport, "overlaps", False)
    monkeypatch.setattr(meanings, "_reduced", no_copy)

    def rank() -> list[tuple[Any, Any]]:
        model = dist.DataParallel(hm.nn.Sequential(hm.nn.Linear(64, 64), hm.nn.Linear(64, 32)), bucket_mb=0.012)
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

        @hm.trace
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        step(hm.ones((3, 64)))
        launches = step._shown().program.executable.launches
        waits = [one for one in launches if any(n.op and n.op.name == "all_reduce_wait" for n in one.nodes)]
        return [(one.operands[0], one.operands[2]) for one in waits]

    for places in dist.run_threads(2, rank):
        assert len(places) == 2
        assert all(given == made for given, made in places)


@pytest.mark.parametrize("traced", [False, True])
def test_gradients_that_others_have_are_left_alone(traced: bool) -> None:
    """Sums are made in memory of their own where a gradient is read again: here by a hook that keeps it."""

    def rank() -> tuple[list[float], list[float]]:
        inner = hm.nn.Linear(3, 1, bias=False)
        with hm.no_grad():
            inner.weight.copy_(hm.ones((1, 3)))
        model = dist.DataParallel(inner)
        x = hm.full((1, 3), 1.0 + dist.get_rank())

        def step(x: Any) -> Any:
            kept = []
            hook = inner.weight.register_hook(lambda g: kept.append(g))
            model.zero_grad()
            model(x).sum().backward()
            hook.remove()
            return kept[0], inner.weight.grad

        own, mean = (hm.trace(step) if traced else step)(x)
        return own.flatten().tolist(), mean.flatten().tolist()

    assert dist.run_threads(2, rank) == [([1.0] * 3, [1.5] * 3), ([2.0] * 3, [1.5] * 3)]


def test_a_sum_is_made_in_memory_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadTransport, "overlaps", False)

    def rank() -> list[float]:
        group, x = dist.init(), np.arange(3.0, dtype=np.float32)
        token = meanings.MEANINGS["all_reduce_start"](group, x, group.token.numpy(), label="")
        with donated(x):
            assert meanings.MEANINGS["all_reduce_wait"](group, x, token) is x
        return list(x)

    assert dist.run_threads(2, rank) == [[0.0, 2.0, 4.0]] * 2


def test_an_error_behind_a_bucket_is_found_by_its_sum() -> None:
    """The program is run again for its error without the others, with what they have made together."""

    def rank() -> None:
        model = dist.DataParallel(hm.nn.Linear(1, 1, bias=False))

        @hm.trace
        def step(x: Any, rows: Any) -> Any:
            model.zero_grad()
            model(x).sum().backward()
            return hm.take(rows, model.module.weight.grad[0].astype("int64"))

        with pytest.raises(hm.OutOfBoundsError, match="index 7 is out of range"):
            step(hm.full((1, 1), 6.0 + 2 * dist.get_rank()), hm.ones(7))  # 6 alone is in range
        assert float(dist.all_reduce(hm.ones(()))) == 2.0

    dist.run_threads(2, rank)
