"""Errors, deadlines and interrupts around queues: no element is lost or comes twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import Queue
from hybridml.random import Generator
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from tests.support.threads import SECONDS, STYLES, beside, in_style


@STYLES
def test_a_timeout_takes_and_puts_nothing(traced: bool) -> None:
    first, second = Queue(2, ()), Queue(1, ())

    def move(x: Any) -> Any:
        first.enqueue(x)
        return second.dequeue(timeout=0.01)

    move = in_style(traced, move)
    for k in range(4):
        for more in (0.0, 0.5):
            with pytest.raises(TimeoutError, match=r"timeout=0\.01 s: queue\d+ has 0 of 1"):
                move(hm.tensor(k + more))
        assert first.dequeue_many(2, timeout=SECONDS).tolist() == [
            k,
            k + 0.5,
        ]  # put in before the wait, and in every call
        second.enqueue(10.0)
        assert move(hm.tensor(5.0)).item() == 10.0
        assert first.dequeue().item() == 5.0
    first.enqueue_many([1.0, 1.0])
    with pytest.raises(TimeoutError, match="enqueue: no room within"):
        in_style(traced, lambda: first.enqueue(hm.tensor(2.0), timeout=0.01))()
    assert first.size().item() == 2


@STYLES
def test_numbers_that_a_step_captures(traced: bool) -> None:
    queue, count, seconds = Queue(9, ()), [2], [0.01]

    def step() -> Any:
        return queue.dequeue_many(count[0], seconds[0]) if count[0] else queue.dequeue(seconds[0])

    step = in_style(traced, step)
    queue.enqueue_many(range(6))
    assert step().tolist() == [0, 1]
    count[0] = 3
    assert step().tolist() == [2, 3, 4]
    count[0] = 0
    assert step().item() == 5
    seconds[0] = 0.02
    with pytest.raises(TimeoutError, match=r"0\.02 s"):
        step()


def failing_steps(queue: Queue) -> list[Callable[..., Any]]:
    """Functions that fail for some numbers before or behind calls of a queue."""

    def raises_before(x: Any, k: Any) -> Any:
        y = (x * 3)[k]
        queue.enqueue(x * 2)
        return y

    def raises_behind(x: Any, k: Any) -> Any:
        queue.enqueue(x * 2)
        return (x * 3)[k]

    def raises_between(x: Any, k: Any) -> Any:
        y = queue.dequeue()
        z = (y * 3)[k]
        return z + queue.dequeue()

    def raises_before_what_it_takes(x: Any, k: Any) -> Any:
        return (x * 3)[k] + queue.dequeue() * queue.dequeue()

    def raises_of_a_matrix(x: Any, k: Any) -> Any:
        y = hm.linalg.cholesky(hm.eye(3) * (2.5 - k)).sum()
        return y + queue.dequeue_many(2)

    def raises_for_what_nobody_reads(x: Any, k: Any) -> Any:
        a = x.sum() * hm.ones((64, 64))
        (x * 3)[(a @ a).sum().astype("int64") // 10**8 + k]
        queue.enqueue(x + 1)
        queue.enqueue(x + 2)
        return x

    return [
        raises_before,
        raises_behind,
        raises_between,
        raises_before_what_it_takes,
        raises_of_a_matrix,
        raises_for_what_nobody_reads,
    ]


@pytest.mark.parametrize("which", range(6))
def test_errors_around_a_queue_leave_it_as_eager_code_does(which: int) -> None:
    def run(traced: bool) -> list[Any]:
        queue = Queue(64, (3,))
        queue.enqueue_many(np.arange(120, dtype=np.float32).reshape(40, 3))
        step, found = in_style(traced, failing_steps(queue)[which]), []
        for k in (1, 7, 1, 7, 7, 2, 0, 7):
            try:
                found.append(step(hm.arange(3.0), hm.tensor(k)).tolist())
            except Exception as error:
                found.append(type(error))
            found.append(queue.size().item())
        return [*found, queue.dequeue().tolist()]

    assert run(traced=True) == run(traced=False)


def test_a_question_about_what_was_taken_takes_it_once() -> None:
    """Python asks for a value in the middle of a trace; the program is in parts then."""
    queue = Queue(16, ())
    queue.enqueue_many([1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0])

    @hm.trace
    def step() -> Any:
        x = queue.dequeue()
        return x + queue.dequeue() if x > 0 else x

    queue.enqueue(-9.0)
    assert [step().item() for _ in range(5)] == [-1.0] * 4 + [-9.0]
    assert queue.size().item() == 0


@STYLES
def test_what_does_not_fit_is_refused(traced: bool) -> None:
    queue = Queue(2, [(3,), ()], ["float32", "int64"])
    x, k, small = hm.zeros((3,)), hm.tensor(1), Queue(2, (), "uint8")
    for error, text, call in [
        (ShapeError, r"enqueue: an element of .* has 2 parts, got 1", lambda: queue.enqueue(x)),
        (ShapeError, r"enqueue: the queue takes float32\[3\], got shape \(2,\)", lambda: queue.enqueue((x[:2], k))),
        (DTypeError, r"enqueue: the queue takes int64\[\], got float32", lambda: queue.enqueue((x, x[0]))),
        (DTypeError, r"enqueue: the queue takes int64\[\], got float64", lambda: queue.enqueue((x, np.float64(1.5)))),
        (DTypeError, "has no place for some of these", lambda: small.enqueue(-1)),
        (ShapeError, r"the queue takes rows of float32\[3\]", lambda: queue.enqueue_many((x, k))),
        (ShapeError, "the parts have 1 and 2 rows", lambda: queue.enqueue_many((hm.zeros((1, 3)), [1, 2]))),
        (ArgumentError, "3 elements do not fit", lambda: queue.enqueue_many((hm.zeros((3, 3)), [1, 2, 3]))),
        (ArgumentError, "dequeue_many: count must be", lambda: queue.dequeue_many(3)),
        (ArgumentError, "dequeue: timeout is a number", lambda: queue.dequeue(timeout=-1)),
        (ArgumentError, "dequeue: not inside of vmap", lambda: hm.vmap(lambda x: x + queue.dequeue()[0])(hm.zeros(4))),
        (ArgumentError, "dequeue: not inside of hm.checkpoint", lambda: hm.checkpoint(lambda: queue.dequeue(1)[0])),
    ]:
        with pytest.raises(error, match=text):
            in_style(traced, call)()
    assert queue.size().item() == 0


def test_a_queue_that_cannot_be() -> None:
    for args, text in [
        ((0, ()), "capacity must be an integer from 1 on, got 0"),
        ((1, 3), "a shape is a tuple"),
        ((1, [()], ["float32", "int64"]), "a dtype for each shape, got 1 shapes and 2 dtypes"),
        ((1, []), "a dtype for each shape"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            Queue(*args)
    queue = Queue(1, (), name="mine")
    with pytest.raises(ArgumentError, match="there is a queue 'mine'"):
        Queue(1, (), name="mine")
    assert repr(queue) == "Queue('mine', 0 of 1 elements float32[])"
    del queue
    Queue(1, (), name="mine")


def test_a_loop_over_a_queue_makes_a_traced_function_run_eagerly() -> None:
    queue = Queue(4, ())
    queue.enqueue_many([1.0, 2.0])
    queue.close()

    @hm.trace
    def total() -> Any:
        found = hm.zeros(())
        for x in queue:
            found = found + x
        return found

    with pytest.warns(UserWarning, match="ends when another thread closes it"):
        assert total().item() == 3.0


# -- ends of waiting


@STYLES
def test_a_deadline_ends_a_wait(traced: bool) -> None:
    queue = Queue(1, ())
    take = in_style(traced, lambda: queue.dequeue())
    queue.enqueue(1.0)
    take()
    with pytest.raises(TimeoutError, match=r"the deadline of 0\.1 s has passed"), hm.deadline(0.1):
        take()
    queue.enqueue(2.0)
    assert take().item() == 2.0


@STYLES
def test_ctrl_c_ends_a_wait(traced: bool) -> None:
    program = f"""
import os, signal, threading, time
import hybridml as hm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
queue = hm.data.Queue(1, ())
take = hm.trace(lambda: queue.dequeue()) if {traced} else queue.dequeue
queue.enqueue(1.0)
take()

def interrupt():
    while not queue._stored._taking:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    take()
except KeyboardInterrupt:
    queue.enqueue(2.0)
    print(take().item(), not queue._stored._taking)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout == "2.0 True\n", done.stderr


@STYLES
def test_random_draws_of_others_go_on_while_a_step_that_draws_waits(traced: bool) -> None:
    queue, generator = Queue(1, ()), Generator(0)
    step = in_style(traced, lambda: queue.dequeue(SECONDS) + hm.random.gamma(hm.ones(()), generator=generator) * 0)

    def produce() -> None:
        for k in range(5):
            queue.enqueue(hm.random.uniform((), generator=generator) * 0 + k)

    with beside(produce):
        assert [step().item() for _ in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
