"""Pipelines beside the model that is not cut: gradients, losses, and the activations that are kept."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.pipelining.actions import actions, timeline
from tests.support.pipelines import BATCH, SIZES, N, batch, blocks, example, stage_of

F = hm.functional
SCHEDULES = [dist.ScheduleGPipe, dist.Schedule1F1B]
styles = pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def arrays(module: hm.nn.Module) -> list[np.ndarray]:
    return [p.grad.numpy().copy() for p in module.parameters()]


def whole() -> tuple[float, list[np.ndarray]]:
    model = hm.nn.Sequential(*blocks())
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss.item(), arrays(model)


def in_stages(size: int, schedule: Any, traced: bool, n: int = N) -> tuple[float, list[np.ndarray]]:
    """The mean of the losses and the gradients of a model in stages."""
    models = [blocks() for _ in range(size)]

    def rank() -> tuple[list[float], list[np.ndarray]]:
        stage = stage_of(models[dist.get_rank()], size)
        runs = schedule(stage, n, F.cross_entropy)

        def step(x: Any, y: Any) -> Any:
            losses: list[Any] = []
            stage.submod.zero_grad()
            runs.step(x, target=y, losses=losses)
            return losses

        run = hm.trace(step) if traced else step
        for _ in range(2):
            losses = run(*batch())
        return [float(loss) for loss in losses], arrays(stage.submod)

    found = dist.run_threads(size, rank)
    assert all(not losses for losses, _ in found[:-1])
    return float(np.mean(found[-1][0])), [g for _, gradients in found for g in gradients]


@styles
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_gradients_are_those_of_the_whole_model(size: int, traced: bool) -> None:
    """To rounding; equal bits of both schedules."""
    loss, wanted = whole()
    gpipe, other = (in_stages(size, schedule, traced) for schedule in SCHEDULES)
    assert gpipe[0] == pytest.approx(loss, rel=1e-5)
    for ours, theirs, of_whole in zip(gpipe[1], other[1], wanted, strict=True):
        assert (ours == theirs).all() or traced  # programs may fuse sums otherwise
        np.testing.assert_allclose(ours, of_whole, atol=1e-6)
        np.testing.assert_allclose(theirs, of_whole, atol=1e-6)


@styles
def test_training_is_that_of_one_process(traced: bool) -> None:
    def trained(model: Any, update: Callable[[Any, Any], Any]) -> list[float]:
        optimizer = hm.optim.Adam(model.parameters(), lr=0.05)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = update(x, y)
            optimizer.step()
            return loss

        run = hm.trace(step) if traced else step
        return [float(run(*batch())) for _ in range(5)]

    alone = hm.nn.Sequential(*blocks())

    def backward(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(alone(x), y)
        loss.backward()
        return loss

    models = [blocks() for _ in range(3)]

    def rank() -> list[float]:
        stage = stage_of(models[dist.get_rank()], 3)
        schedule = dist.Schedule1F1B(stage, N, F.cross_entropy)

        def update(x: Any, y: Any) -> Any:
            losses: list[Any] = []
            schedule.step(x, target=y, losses=losses)
            return sum(losses, hm.asarray(0.0)) / N

        return trained(stage.submod, update)

    np.testing.assert_allclose(dist.run_threads(3, rank)[-1], trained(alone, backward), rtol=1e-4)


@styles
def test_step_and_eval_return_the_outputs_of_the_whole_batch(traced: bool) -> None:
    model = hm.nn.Sequential(*blocks())
    x, y = batch()
    wanted = model(x).detach().numpy()
    models = [blocks() for _ in range(2)]

    def rank() -> list[Any]:
        stage = stage_of(models[dist.get_rank()], 2)
        schedule = dist.Schedule1F1B(stage, N, F.cross_entropy)

        def step(x: Any, y: Any) -> Any:
            losses: list[Any] = []
            outputs = [
                schedule.step(x, target=y),
                schedule.step(x, target=y, return_outputs=False),
                schedule.eval(x),
                schedule.eval(x, target=y, losses=losses),
            ]
            return outputs, losses

        return (hm.trace(step) if traced else step)(x, y)

    (first, none), (last, losses) = dist.run_threads(2, rank)
    assert first == [None] * 4 and none == []
    assert last[1] is None
    for output in (last[0], last[2], last[3]):
        np.testing.assert_allclose(output.numpy(), wanted, atol=1e-6)
    assert np.mean([float(loss) for loss in losses]) == pytest.approx(F.cross_entropy(model(x), y).item(), rel=1e-5)


def test_eval_keeps_no_history() -> None:
    class Asking(hm.nn.Module):
        def forward(self, x: Any) -> Any:
            assert not hm.is_grad_enabled() and not x.requires_grad
            return x

    def rank() -> Any:
        stage = dist.PipelineStage(Asking(), dist.get_rank(), 2, hm.ones((1, 2)))
        return dist.Schedule1F1B(stage, 2).eval(hm.ones((2, 2)))

    assert dist.run_threads(2, rank)[1].tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("scale", [True, False])
def test_gradients_are_of_the_mean_or_of_the_sum(scale: bool) -> None:
    def rank() -> float:
        layer = hm.nn.Linear(1, 1, bias=False)
        layer.weight.data.fill_(1.0)
        stage = dist.PipelineStage(layer, dist.get_rank(), 2, hm.ones((1, 1)))
        schedule = dist.ScheduleGPipe(stage, 2, lambda y, t: (y * t).sum(), scale_grads=scale)
        for _ in range(2):  # gradients add up
            schedule.step(hm.ones((2, 1)), target=hm.asarray([[1.0], [3.0]]))
        return layer.weight.grad.item()

    assert dist.run_threads(2, rank) == [4.0 if scale else 8.0] * 2


class Watched(hm.nn.Module):
    """A layer that counts its results that are alive."""

    def __init__(self, layer: hm.nn.Module) -> None:
        super().__init__()
        self.layer, self.made, self.most = layer, [], 0

    def forward(self, x: Any) -> Any:
        y = hm.tanh(self.layer(x))  # which its backward reads
        self.made.append(weakref.ref(y._array))
        self.most = max(self.most, sum(one() is not None for one in self.made))
        return y * 1.0


@schedules
def test_activations_that_are_kept(schedule: Any) -> None:
    """GPipe keeps those of all micro-batches, 1F1B those of as many as there are stages from here."""
    size, n = 3, 6

    def rank() -> int:
        watched = Watched(hm.nn.Linear(4, 4))
        stage = dist.PipelineStage(watched, dist.get_rank(), size, hm.ones((1, 4)))
        schedule(stage, n, lambda y, t: (y * t).sum()).step(hm.ones((n, 4)), target=hm.ones((n, 4)))
        assert len(watched.made) == n
        return watched.most

    assert dist.run_threads(size, rank) == ([n] * size if schedule is dist.ScheduleGPipe else [3, 2, 1])


def test_every_stage_begins_as_soon_as_it_can() -> None:
    """In the shortest time that there is: (n + stages - 1) forwards and backwards each."""
    for stages in range(1, 6):
        for n in range(1, 9):
            for in_flight in ([n] * stages, [stages - k for k in range(stages)]):
                orders = [actions(n, most) for most in in_flight]
                rows = timeline(orders)
                assert [[a for a in row if a] for row in rows] == orders
                assert {len(row) for row in rows} == {2 * (n + stages - 1)}


def test_programs_send_as_soon_as_they_can() -> None:
    """In the program, sends and receives are in the order of the schedule, each forward before the next is begun, and
    the gradients of weights behind what the stage before waits for."""

    def rank() -> tuple[list[str], str]:
        stage = stage_of([hm.nn.Linear(n, m) for n, m in itertools.pairwise(SIZES)][:3], 3)
        schedule = dist.Schedule1F1B(stage, N, lambda y, t: (y * y * t).sum())

        @hm.trace
        def step(x: Any, t: Any) -> None:
            schedule.step(x, target=t)

        step(batch()[0], hm.ones((BATCH, SIZES[3])))
        launches = step._shown().program.executable.launches
        names = [n.op.name for one in launches for n in one.nodes if n.op and n.params.get("result", 0) == 0]
        short = {"matmul": "m", "send_to": "s", "receive_from": "r"}
        return "".join(short[name] for name in names if name in short), step.ir

    (first, text), (middle, _), (last, _) = dist.run_threads(3, rank)
    assert first == "msmsmsrmsmrmrmrm"
    assert middle == "rmsrmsrmsmrmsrmsmrmsrmsmrmsm"
    assert last == "rmmsm" * N
    assert text.count("send_to") == N and "send_to(%" in text and "peer=1" in text


@styles
def test_dropout_draws_for_each_micro_batch(traced: bool) -> None:
    """Masks are others for each, those of the backward are those of the forward, and styles draw the same."""

    def rank(traced: bool) -> tuple[list[float], list[float]]:
        first = dist.get_rank() == 0
        layer = hm.nn.Linear(8, 8, bias=False)
        layer.weight.data.copy_(hm.eye(8))
        part = hm.nn.Sequential(layer, hm.nn.Dropout(0.5)) if first else hm.nn.Identity()
        stage = dist.PipelineStage(part, dist.get_rank(), 2, hm.ones((1, 8)))
        schedule = dist.Schedule1F1B(stage, 3, lambda y, t: (y * t).sum(), scale_grads=False)
        hm.manual_seed(3)
        dist.barrier()

        def step(x: Any) -> Any:
            return schedule.step(x, target=x)

        y = (hm.trace(step) if traced else step)(hm.ones((3, 8)))
        return layer.weight.grad.numpy()[:, 0].tolist() if first else y.tolist()

    gradient, output = dist.run_threads(2, lambda: rank(traced))
    assert len({tuple(row) for row in output}) == 3
    assert gradient == np.sum(output, axis=0).tolist()
    if traced:
        assert dist.run_threads(2, lambda: rank(False)) == [gradient, output]


class Several(hm.nn.Module):
    """A stage of three results, one of them of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.factor = hm.nn.Linear(3, 3), hm.nn.Parameter(hm.full((3,), 1.5))

    def forward(self, x: Any, w: Any, k: Any) -> Any:
        return self.layer(x), w * self.factor, k + 1


@styles
def test_stages_that_exchange_several_tensors(traced: bool) -> None:
    hm.manual_seed(0)
    models = [Several() for _ in range(3)]
    rng = np.random.default_rng(0)
    x, w = (hm.asarray(rng.standard_normal((4, 3), np.float32)) for _ in range(2))
    k = hm.asarray([0, 1, 2, 3])

    def loss(given: Any, t: Any) -> Any:
        y, w, k = given
        return (y * (w + t) * k[:, None]).mean()

    def rank() -> Any:
        stage = dist.PipelineStage(models[dist.get_rank()], dist.get_rank(), 3, (x[:2], w[:2], k[:2]))
        schedule = dist.Schedule1F1B(stage, 2, loss)

        def step() -> Any:
            return schedule.step(x, w, k, target=x)

        return (hm.trace(step) if traced else step)()

    outputs = dist.run_threads(3, rank)[-1]
    parameters = [p for model in models for p in model.parameters()]
    ours = [p.grad.numpy().copy() for p in parameters]
    wanted: Any = x, w, k
    for model in models:
        model.zero_grad()
        wanted = model(*wanted)
    for output, of_whole in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(output.numpy(), of_whole.detach().numpy(), rtol=1e-5)
    loss(wanted, x).backward()
    for gradient, p in zip(ours, parameters, strict=True):
        np.testing.assert_allclose(gradient, p.grad.numpy(), rtol=1e-4, atol=1e-6)


@styles
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_stages_that_are_frozen(frozen: int, traced: bool) -> None:
    """Gradients go through a stage that trains nothing, and reach one that wants none."""
    _, wanted = whole()
    models = [blocks() for _ in range(3)]

    def rank() -> list[Any]:
        r = dist.get_rank()
        stage = stage_of(models[r], 3)
        if r == frozen:
            stage.submod.requires_grad_(False)
        schedule = dist.Schedule1F1B(stage, N, F.cross_entropy)

        def step(x: Any, y: Any) -> None:
            schedule.step(x, target=y)

        (hm.trace(step) if traced else step)(*batch())
        return [p.grad for p in stage.submod.parameters()]

    found = dist.run_threads(3, rank)
    assert all(g is None for g in found[frozen])
    places = [0, 2, 4, 8]
    for r in {0, 1, 2} - {frozen}:
        for ours, of_whole in zip(found[r], wanted[places[r] : places[r + 1]], strict=True):
            np.testing.assert_allclose(ours.numpy(), of_whole, atol=1e-6)


def test_a_stage_that_does_not_use_its_input() -> None:
    """The stage before gets zeros, and does not wait for ever."""

    class Constant(hm.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = hm.nn.Parameter(hm.ones((1, 2)))

        def forward(self, x: Any) -> Any:
            return self.value * 2

    def rank() -> float:
        module = hm.nn.Linear(2, 2) if dist.get_rank() == 0 else Constant()
        stage = dist.PipelineStage(module, dist.get_rank(), 2, hm.ones((1, 2)))
        dist.Schedule1F1B(stage, 2, lambda y, t: (y * t).sum()).step(hm.ones((2, 2)), target=hm.ones((2, 2)))
        return sum(p.grad.sum().item() for p in module.parameters())

    assert dist.run_threads(2, rank) == [0.0, 4.0]


@styles
@schedules
def test_two_pipelines_that_average_their_gradients(schedule: Any, traced: bool) -> None:
    """Two stages by two parts of the batch: gradients are averages of whole steps, and travel once."""
    _, wanted = whole()
    models = [blocks(seed=k) for k in (0, 0, 7, 7)]  # the second pipeline begins with the weights of the first
    x, y = batch()

    def rank() -> tuple[list[np.ndarray], int]:
        world, r = dist.init(), dist.get_rank()
        pipe, copies = world.split(r // 2), world.split(r % 2)
        part = hm.nn.Sequential(*(models[r][:1] if r % 2 == 0 else models[r][1:]))
        model = dist.DataParallel(part, group=copies)
        stage = dist.PipelineStage(model, pipe.rank, 2, example(pipe.rank, 2), group=pipe)
        runs = schedule(stage, BATCH // 4, F.cross_entropy)
        begun = 0
        begin = model._reducer.begin

        def counted() -> Any:
            nonlocal begun
            begun += 1
            return begin()

        model._reducer.begin = counted  # type: ignore[method-assign]

        def step(x: Any, y: Any) -> None:
            model.zero_grad()
            runs.step(x, target=y)

        run = hm.trace(step) if traced else step
        for _ in range(2):
            run(x[r // 2 :: 2], y[r // 2 :: 2])
        return arrays(model), begun

    found = dist.run_threads(4, rank)
    for first, second in ((0, 2), (1, 3)):
        assert all((a == b).all() for a, b in zip(found[first][0], found[second][0], strict=True))
    for ours, of_whole in zip([*found[0][0], *found[1][0]], wanted, strict=True):
        np.testing.assert_allclose(ours, of_whole, atol=1e-6)
    assert {begun for _, begun in found} == {1 if traced else 2}  # a program is captured once
