"""Queues between threads: the same elements in eager and in traced functions, each once, in their order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.shared.calls import calls_of_thread
from hybridml.data import Queue
from hybridml_compiler.errors import CancelledError, OutOfRangeError
from tests.support.threads import SECONDS, STYLES, beside, in_style, waits

# -- elements


@STYLES
def test_elements_come_out_as_they_went_in(traced: bool) -> None:
    queue = Queue(8, [(2, 3), ()], ["float32", "int64"])
    put = in_style(traced, lambda x, k: queue.enqueue((x * 2, k + 1)))
    take = in_style(traced, lambda: queue.dequeue())
    for k in range(5):
        put(hm.full((2, 3), float(k)), hm.tensor(k))
    for k in range(5):
        x, label = take()
        np.testing.assert_array_equal(x.numpy(), np.full((2, 3), 2.0 * k, np.float32))
        assert label.item() == k + 1 and label.dtype == hm.int64
    assert queue.size().item() == 0


@STYLES
def test_many_elements_at_once_are_rows(traced: bool) -> None:
    queue = Queue(8, [(2,), ()])
    put = in_style(traced, lambda x, y: queue.enqueue_many((x, y)))
    take = in_style(traced, lambda: (queue.dequeue_many(3), queue.size(), queue.dequeue()))
    put(hm.arange(10.0).reshape(5, 2), hm.arange(5.0))
    (xs, ys), left, (x, y) = take()
    assert xs.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and ys.tolist() == [0.0, 1.0, 2.0]
    assert left.item() == 2 and x.tolist() == [6.0, 7.0] and y.item() == 3.0


@STYLES
def test_what_was_put_in_is_a_copy(traced: bool) -> None:
    queue, x = Queue(2, (3,)), hm.zeros((3,))
    put = in_style(traced, lambda: queue.enqueue(x))
    put()
    x += 1
    put()
    assert queue.dequeue().tolist() == [0.0] * 3 and queue.dequeue().tolist() == [1.0] * 3


def test_the_graph_shows_the_queue() -> None:
    queue = Queue(4, (3,), name="images")
    queue.enqueue([1.0, 2.0, 3.0])
    step = hm.trace(lambda: queue.dequeue().sum())
    assert step().item() == 6.0
    assert 'dequeue(%0) {count=None, queue="images", timeout=None} : i64[]' in step.ir
    assert 'part=0, queue="images", shape=(3,)} : f32[3]' in step.ir


@STYLES
def test_a_queue_is_called_in_loops_and_branches(traced: bool) -> None:
    queue = Queue(32, ())

    def total(x: Any) -> Any:
        for k in range(4):
            queue.enqueue(x * k)
        x = hm.fori_loop(0, 4, lambda k, sum: sum + queue.dequeue(), hm.zeros(()))
        if queue.size() == 0:
            queue.enqueue(x)
        return x

    total = in_style(traced, total)
    for k in range(3):
        assert total(hm.tensor(float(k))).item() == 6.0 * k
        assert queue.dequeue().item() == 6.0 * k
    assert queue.size().item() == 0


# -- threads


@STYLES
def test_a_producer_and_a_consumer_overlap(traced: bool) -> None:
    """A step waits for what a thread puts in only once the step before is done, and that one has room for one."""
    queue, back = Queue(1, (4,)), Queue(1, ())
    generate = in_style(traced, lambda k: queue.enqueue(hm.full((4,), 1.0) * k + back.dequeue()))

    def produce() -> None:
        for k in range(20):
            generate(hm.tensor(float(k)))

    def step() -> Any:
        back.enqueue(hm.tensor(1.0))
        return queue.dequeue().sum()

    step = in_style(traced, step)
    with beside(produce):
        assert [step().item() for _ in range(20)] == [4.0 * (k + 1) for k in range(20)]


@STYLES
def test_a_full_queue_holds_its_producer_back(traced: bool) -> None:
    queue, most = Queue(3, ()), 0
    put = in_style(traced, lambda x: queue.enqueue(x))

    def produce() -> None:
        for k in range(30):
            put(hm.tensor(float(k)))

    found = []
    with beside(produce):
        for _ in range(30):
            most = max(most, int(queue.size()))
            found.append(queue.dequeue().item())
    assert found == [float(k) for k in range(30)] and most <= 3


@STYLES
def test_no_element_of_many_threads_is_lost_or_doubled(traced: bool) -> None:
    queue = Queue(4, ())
    put = in_style(traced, lambda x: queue.enqueue(x))
    take = in_style(traced, lambda: queue.dequeue() + 0)

    def produce(first: int) -> None:
        for k in range(first, first + 50):
            put(hm.tensor(float(k)))

    def consume(_: int) -> list[float]:
        return [take().item() for _ in range(50)]

    with ThreadPoolExecutor(6) as pool:
        made, found = [pool.submit(produce, 50 * k) for k in range(3)], pool.map(consume, range(3))
        assert sorted(x for part in found for x in part) == [float(k) for k in range(150)]
        for promise in made:
            promise.result(SECONDS)


def test_errors_in_two_threads_take_one_element_each() -> None:
    """A program that fails is run again for its error, while another thread goes on with the same queue."""
    queue = Queue(400, ())
    queue.enqueue_many(np.arange(400.0))

    @hm.trace
    def step(k: Any) -> Any:
        x = queue.dequeue()
        return x + hm.zeros((3,))[k]

    def run(first: int) -> None:
        for k in range(100):
            if (k + first) % 2:
                step(hm.tensor(1))
            else:
                with pytest.raises(IndexError):
                    step(hm.tensor(7))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    assert queue.size().item() == 200 and queue.dequeue().item() == 200.0


def test_calls_are_noted_until_the_next_program() -> None:
    queue = Queue(100, ())
    put = hm.trace(lambda x: queue.enqueue(x))
    put(hm.tensor(0.0))

    def produce() -> int:
        for k in range(20):
            put(hm.tensor(float(k)))
        return len(calls_of_thread().notes)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(produce).result(SECONDS) == 1


def test_threads_that_follow_each_other_share_programs() -> None:
    queue = Queue(4, ())
    put = hm.trace(lambda x: queue.enqueue(x))
    for k in range(6):
        thread = threading.Thread(target=put, args=(hm.tensor(float(k)),))
        thread.start()
        thread.join(SECONDS)
        assert queue.dequeue().item() == k
    assert put.cache_info().compiles <= 2


def test_other_functions_have_one_program_for_all_threads() -> None:
    double = hm.trace(lambda x: x * 2)
    with ThreadPoolExecutor(4) as pool:
        assert [x.item() for x in pool.map(double, [hm.tensor(float(k)) for k in range(8)])] == [
            2.0 * k for k in range(8)
        ]
    assert double.cache_info().compiles == 1


def test_who_has_waited_longest_is_first() -> None:
    """One that waits for three elements gets them before those who come later take one."""
    queue, order = Queue(8, ()), []

    def take(count: int) -> None:
        order.append(queue.dequeue_many(count).tolist())

    threads = []
    for count in (3, 1, 1):
        threads.append(threading.Thread(target=take, args=(count,), daemon=True))
        threads[-1].start()
        waits(lambda: len(queue._stored._taking) == len(threads))
    for k in range(5):
        queue.enqueue(float(k))
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(order) == [[0.0, 1.0, 2.0], [3.0], [4.0]]


@STYLES
def test_a_producer_may_differentiate_while_a_step_that_does_waits(traced: bool) -> None:
    """Steps with gradients hold locks, which they give back while they wait."""
    queue, w, v = Queue(1, (3,)), hm.ones((3,), requires_grad=True), hm.ones((3,), requires_grad=True)

    def make() -> None:
        v.grad = None
        (v * 3).sum().backward()
        queue.enqueue(v.grad)

    def step() -> Any:
        x = queue.dequeue(timeout=SECONDS)
        (w * x).sum().backward()
        return w.grad.sum() + 0  # of all steps so far

    step = in_style(traced, step)
    with beside(lambda: [(time.sleep(0.01), make()) for _ in range(6)]):
        assert [step().item() for _ in range(6)] == [9.0 * k for k in range(1, 7)]


# -- the end


@STYLES
def test_a_closed_queue_ends_a_loop_over_it(traced: bool) -> None:
    queue, total = Queue(2, (2,)), hm.zeros((2,))
    add = in_style(traced, lambda x: total.copy_(total + x))

    def produce() -> None:
        for k in range(7):
            queue.enqueue([float(k), 1.0])
        queue.close()

    with beside(produce):
        for x in queue:
            add(x)
    assert total.tolist() == [21.0, 7.0]
    assert list(queue) == []


@STYLES
def test_taking_from_a_closed_queue_is_an_error_that_changes_nothing(traced: bool) -> None:
    queue, count = Queue(4, ()), hm.zeros(())

    def step() -> Any:
        count.copy_(count + 1)
        return queue.dequeue()

    step = in_style(traced, step)
    for k in range(4):
        queue.enqueue(float(k))
    queue.close()
    for k in range(4):
        assert step().item() == k
    for _ in range(3):
        with pytest.raises(OutOfRangeError, match="is closed and has no more elements"):
            step()
    assert count.item() == (4.0 if traced else 7.0)  # compiled steps are whole or not at all
    with pytest.raises(CancelledError, match="is closed and takes no more"):
        queue.enqueue(1.0)


@STYLES
def test_too_few_elements_of_a_closed_queue_stay_in_it(traced: bool) -> None:
    queue = Queue(4, ())
    take = in_style(traced, lambda: queue.dequeue_many(3))
    queue.enqueue_many([1.0, 2.0])
    queue.close()
    for _ in range(2):
        with pytest.raises(OutOfRangeError, match="has 2 of the 3 elements asked for"):
            take()
    assert queue.dequeue_many(2).tolist() == [1.0, 2.0]


@STYLES
@pytest.mark.parametrize("cancel", [False, True])
def test_closing_with_a_producer_that_waits(traced: bool, cancel: bool) -> None:
    queue, errors = Queue(1, ()), []
    put = in_style(traced, lambda x: queue.enqueue(x))
    put(hm.tensor(1.0))

    def produce() -> None:
        try:
            put(hm.tensor(2.0))
        except CancelledError as error:
            errors.append(str(error))

    with beside(produce):
        waits(lambda: bool(queue._stored._putting))
        in_style(traced, lambda: queue.close(cancel_pending_enqueues=cancel))()
        if cancel:
            waits(lambda: bool(errors))
        assert [x.item() for x in queue] == ([1.0] if cancel else [1.0, 2.0])
    assert len(errors) == cancel


def test_closing_ends_the_wait_of_consumers() -> None:
    queue = Queue(1, ())
    with beside(lambda: (waits(lambda: bool(queue._stored._taking)), queue.close())):
        assert list(queue) == []
