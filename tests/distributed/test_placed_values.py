"""Placed programs: where values are between calls, and the errors of what cannot be placed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.placing.homes import home_of
from tests.support.placed import Block, batch, everywhere, mlp, trained


def test_a_tensor_has_its_value_where_it_is_updated() -> None:
    def rank() -> tuple[float, float, float, float]:
        w, count = hm.ones((100,)), hm.zeros(())

        @hm.trace
        def step(x: Any, given: Any) -> Any:
            with dist.device_of(1):
                w.add_(x)
                given.mul_(2)
            count.add_(1)
            with dist.device_of(0):
                return (w * 3).sum()

        given = hm.ones((100,))
        sums = [step(hm.ones((100,)), given).item() for _ in range(3)]
        assert sums == [600, 900, 1200]
        assert home_of(w) == (dist.init(), 1) and home_of(count) is None
        return w.sum().item(), given.sum().item(), count.item(), step.ir.count("send_to")

    assert dist.run_threads(2, rank) == [(100, 800, 3, 1), (400, 800, 3, 2)]  # the sum; w, and given


def evaluation(model: Any, ranks: list[int]) -> Any:
    @hm.trace
    def evaluate(x: Any) -> Any:
        for rank, layer in zip(ranks, model, strict=True):
            with dist.device_of(rank):
                x = hm.tanh(layer(x))
        return x.sum()

    return evaluate


@pytest.mark.parametrize("first", [False, True], ids=["behind", "before"])
def test_other_programs_find_what_one_has_updated(first: bool) -> None:
    """Those that read parameters on other ranks, whether they were there before or not, and eager code."""
    alone = mlp()
    trained("mlp", alone, everywhere, 2, True)
    wanted = evaluation(alone, [0, 0, 0])(batch()[0]).item()
    models = [mlp() for _ in range(2)]

    def rank() -> None:
        model = models[dist.get_rank()]
        evaluate = evaluation(model, [1, 0, 0])
        if first:
            evaluate(batch()[0])
        trained("mlp", model, dist.device_of, 2, True)
        assert evaluate(batch()[0]).item() == wanted
        wrong = {name[0] for name, t in model.state_dict().items() if (t != alone.state_dict()[name]).any()}
        # Layer 1 is trained on rank 1, the others on rank 0; programs that were there read layer 0 on rank 1, 1 on 0.
        own, held = {0: {"1"}, 1: {"0", "2"}}, {0: set(), 1: {"2"}}
        assert wrong == (held if first else own)[dist.get_rank()]
        model.load_state_dict(dist.full_state_dict(model))
        assert all((t == alone.state_dict()[name]).all() for name, t in model.state_dict().items())

    dist.run_threads(2, rank)


def test_gradients_are_where_their_parameters_are() -> None:
    """An optimizer outside of the trace updates each parameter on its rank; one that two ranks read has one home."""
    w = np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)

    def losses(on: Block) -> list[float]:
        shared = hm.tensor(w, requires_grad=True)
        optimizer = hm.optim.SGD([shared], lr=1e-3, momentum=0.9)

        @hm.trace
        def step(x: Any) -> Any:
            with on(0):
                x = hm.tanh(x @ shared)
            with on(1):
                loss = (x @ shared).sum()
            loss.backward()
            return loss

        found = []
        for _ in range(4):
            found.append(step(hm.ones((5, 20))).item())
            optimizer.step()
            optimizer.zero_grad()
        return found

    wanted = losses(everywhere)
    assert wanted[0] != wanted[-1]
    assert dist.run_threads(2, lambda: losses(dist.device_of)) == [wanted, wanted]


def test_one_process_has_the_plain_program() -> None:
    def text(on: Block) -> tuple[list[list[float]], str]:
        found = trained("mlp", mlp(), on, 3, True)
        return found[0], found[2]

    assert text(dist.device_of) == text(everywhere)
    assert dist.run_threads(1, lambda: text(dist.device_of)) == [text(everywhere)]


def test_a_rank_that_the_group_does_not_have() -> None:
    def rank() -> None:
        for wrong in (2, -1, 0.5, "fast"):
            with pytest.raises(hm.ArgumentError, match="device_of: rank must be a rank of"), dist.device_of(wrong):  # type: ignore[arg-type]
                pass

    dist.run_threads(2, rank)


def test_a_rank_that_fails_is_an_error_of_the_others() -> None:
    errors: dict[int, BaseException] = {}

    def rank() -> None:
        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(1):
                return hm.exp(x).sum()

        try:
            step(hm.ones((100,)))
            if dist.get_rank() == 1:
                raise ValueError("the disk is full")
            step(hm.ones((100,)))
        except Exception as error:
            errors[dist.get_rank()] = error
            raise

    with pytest.raises(ValueError, match="the disk is full"):
        dist.run_threads(2, rank)
    assert isinstance(errors[0], dist.CollectiveError) and "rank 0: another rank has failed" in str(errors[0])


def test_a_check_fails_on_the_rank_of_its_block() -> None:
    """Also where nobody reads the result; the others, which need nothing of it, go on."""
    errors: dict[int, str] = {}

    def rank() -> None:
        @hm.trace
        def step(x: Any, i: Any) -> Any:
            with dist.device_of(1):
                hm.exp(x)[i]
            with dist.device_of(0):
                return hm.sin(x).sum()

        for index in (hm.arange(90), hm.arange(90) + 50):
            try:
                step(hm.ones((100, 100)), index)
            except IndexError as error:
                errors[dist.get_rank()] = str(error)

    dist.run_threads(2, rank)
    assert list(errors) == [1] and "index 100 is out of range" in errors[1]


def test_functions_that_differ_are_an_error_with_their_name() -> None:
    def rank() -> None:
        @hm.trace
        def my_step(x: Any) -> Any:
            with dist.device_of(dist.get_rank()):
                return hm.exp(x).sum()

        my_step(hm.ones((100,)))

    with pytest.raises(dist.CollectiveError, match=r"rank \d of 2 has called placed\(my_step [0-9a-f]+\).*rank \d has"):
        dist.run_threads(2, rank)


def asks(x: Any) -> Any:
    with dist.device_of(1):
        y = hm.exp(x)
    return y + 1 if y.sum() > 3 else y


def asks_before(x: Any) -> Any:
    if x.sum() > 3:
        with dist.device_of(1):
            x = hm.exp(x)
    return x


QUEUE = hm.data.Queue(1, (), hm.float32)


def dequeues(x: Any) -> Any:
    with dist.device_of(1):
        return x * QUEUE.dequeue()


def in_a_body(x: Any) -> Any:
    def body(y: Any) -> Any:
        with dist.device_of(1):
            return hm.exp(y)

    return hm.cond(x.sum() > 3, body, hm.sin, x)


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (asks, hm.CompileError, "device_of: asks asks for a value"),
        (dequeues, hm.CompileError, "device_of: dequeues calls a queue"),
        (asks_before, hm.CompileError, "device_of: asks_before asks for a value"),
        (in_a_body, hm.TraceError, "device_of: one process computes all of a loop or branch"),
    ],
)
def test_what_blocks_do_not_take(fn: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        dist.run_threads(2, lambda: hm.trace(fn)(hm.ones((100,))))


def test_gradients_outside_of_the_trace_are_an_error() -> None:
    def rank() -> None:
        w = hm.ones((100,), requires_grad=True)

        @hm.trace
        def loss(x: Any) -> Any:
            with dist.device_of(1):
                return hm.exp(x * w).sum()

        with pytest.raises(hm.CompileError, match="device_of: loss_vjp is differentiated outside"):
            loss(hm.ones((100,))).backward()

    dist.run_threads(2, rank)


def test_blocks_of_two_groups_are_an_error() -> None:
    def rank() -> None:
        halves = dist.init().split(0)

        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(0):
                x = hm.exp(x)
            with dist.device_of(0, halves):
                return x.sum()

        with pytest.raises(hm.TraceError, match="blocks of one function are of one group"):
            step(hm.ones((100,)))

    dist.run_threads(2, rank)
