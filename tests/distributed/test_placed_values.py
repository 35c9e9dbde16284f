"""Placed programs: where values are between calls, and the errors of what cannot be placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.placing.homes import home_of
from tests.support.placed import Block, batch, everywhere, forward_of_towers, mlp, towers, trained


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
    """Programs that read parameters on other ranks get them, whether they were there before or not."""
    alone = mlp()
    trained("mlp", alone, everywhere, 2, True)
    wanted = evaluation(alone, [0, 0, 0])(batch()[0]).item()
    models = [mlp() for _ in range(2)]

    def rank() -> None:
        model = models[dist.get_rank()]
        evaluate = evaluation(model, [1, 0, 0])
        if first:
            evaluate(batch()[0])
        trained("mlp", model, dist.device_of, 2, True, bring=False)
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


def test_a_checkpoint_has_the_values_of_all_processes(tmp_path: Path) -> None:
    """Parameters, buffers and the state of an optimizer are saved from whichever process has updated them."""

    def trainer(on: Block) -> tuple[Any, Any, Any]:
        model = models.pop()
        optimizer = hm.optim.Adam(model.parameters(), lr=0.01)

        @hm.trace
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = hm.functional.cross_entropy(forward_of_towers(model, x, on, 2), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, optimizer, step

    def rank(on: Block = dist.device_of) -> list[float]:
        model, optimizer, step = trainer(on)
        losses = [step(*batch()).item() for _ in range(3)]
        dist.CheckpointManager(tmp_path / on.__name__).save(3, {"model": model, "optimizer": optimizer})
        dist.barrier()
        model, optimizer, step = trainer(everywhere)
        dist.CheckpointManager(tmp_path / on.__name__).restore({"model": model, "optimizer": optimizer})
        return losses + [step(*batch()).item() for _ in range(3)]

    models = [towers() for _ in range(6)]
    alone = rank(everywhere)
    for losses in dist.run_threads(2, rank):
        np.testing.assert_allclose(losses, alone, rtol=1e-6)


def test_tensors_that_are_updated_and_returned_are_in_all_processes() -> None:
    def rank() -> list[Any]:
        total, table = hm.zeros((200,)), hm.zeros((2, 200))

        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(1):
                total.add_(x)
            with dist.device_of(0):
                table.add_(x)
            return total, table[1]

        found = []
        for _ in range(2):
            returned, row = step(hm.ones((200,)))
            assert returned is total
            found += [total.sum().item(), row.sum().item()]
        return found

    assert dist.run_threads(2, rank) == [[200, 200, 400, 400]] * 2


@pytest.mark.parametrize(
    "differs",
    [
        lambda a, rank: a.sum(axis=rank),
        lambda a, rank: (a - 1 if rank else 1 - a).sum(),
        lambda a, rank: (a * hm.asarray(np.full(20, rank, np.float32))).sum(),
    ],
    ids=["parameters", "operands", "constants"],
)
def test_processes_whose_programs_differ_are_told(differs: Any) -> None:
    def rank() -> None:
        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(0):
                a = hm.sin(x)
            with dist.device_of(1):
                return differs(a, dist.get_rank()).sum()

        step(hm.ones((20, 20)))

    with pytest.raises(dist.CollectiveError, match=r"placed\(step "):
        dist.run_threads(2, rank)


def test_messages_are_those_of_one_call() -> None:
    """Where one process fails before it has received, and the program catches that; and beside messages of users."""

    def rank() -> list[Any]:
        x = hm.asarray(np.repeat(np.arange(200, dtype=np.float32)[:, None], 100, 1))
        if dist.get_rank() == 0:
            dist.send(hm.zeros((100,)), 1, tag=8000)

        @hm.trace
        def step(x: Any, k: Any) -> Any:
            with dist.device_of(0):
                a = x[k] * hm.ones((100,))
            with dist.device_of(1):
                return (a * 2).sum()

        found: list[Any] = []
        for k in (3, 900, 5, 6):
            try:
                found.append(step(x, hm.tensor(k)).item())
            except (hm.OutOfBoundsError, dist.CollectiveError) as error:
                found.append(type(error).__name__)
        return found

    first, second = dist.run_threads(2, rank, timeout=1)
    assert first == [600, "OutOfBoundsError", "CollectiveError", "CollectiveError"]
    assert second == [600, "CollectiveError", "CollectiveError", "CollectiveError"]


def test_processes_that_call_other_programs_are_told() -> None:
    def rank() -> None:
        def made(name: str, k: float) -> Any:
            def step(x: Any) -> Any:
                with dist.device_of(0):
                    a = hm.sin(x) * k
                with dist.device_of(1):
                    return (a * 2).sum()

            step.__name__ = name
            return hm.trace(step)

        train, evaluate, x = made("train", 1.0), made("evaluate", 3.0), hm.ones((100,))
        for call in (train, evaluate):
            call(x)
        for call in (train, evaluate) if dist.get_rank() else (evaluate, train):
            call(x)

    told = r"rank 1 waits for .* \(placed\(train .*\), call 3\), which has sent .* \(placed\(evaluate .*\), call 3\)"
    with pytest.raises(dist.CollectiveError, match=told):
        dist.run_threads(2, rank, timeout=5)


def test_values_on_ranks_of_another_group_are_refused() -> None:
    def rank() -> None:
        total, same = hm.zeros((100,)), dist.init().split(0)

        def step(group: Any) -> Any:
            @hm.trace
            def add(x: Any) -> Any:
                with dist.device_of(1, group):
                    total.add_(x)

            return add(hm.ones((100,)))

        step(None)
        with pytest.raises(hm.CompileError, match="total has its value on rank 1 of Group"):
            step(same)

    dist.run_threads(2, rank)
