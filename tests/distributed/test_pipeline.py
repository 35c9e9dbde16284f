"""Pipelines beside the model that is not cut: gradients, losses, what is kept, what is refused."""

from __future__ import annotations

import itertools
import json
import subprocess
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.pipelining.actions import actions, timeline
from hybridml.distributed.pipelining.cut import Link, balanced
from hybridml.distributed.pipelining.stage import types_of

F = hm.functional
Mpi = Callable[..., subprocess.CompletedProcess[str]]
SIZES = (6, 9, 7, 8, 5)  # of the tensors between four blocks
BATCH, N = 12, 4
SCHEDULES = [dist.ScheduleGPipe, dist.Schedule1F1B]
styles = pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def blocks(seed: int = 0) -> list[hm.nn.Module]:
    hm.manual_seed(seed)
    return [hm.nn.Sequential(hm.nn.Linear(n, m), hm.nn.Tanh()) for n, m in itertools.pairwise(SIZES)]


def batch(rows: int = BATCH) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return hm.asarray(rng.standard_normal((rows, SIZES[0]), np.float32)), hm.asarray(rng.integers(0, SIZES[-1], rows))


def example(k: int, rows: int = BATCH // N) -> hm.ShapeDtypeStruct:
    return hm.ShapeDtypeStruct((rows, SIZES[k]), hm.float32)


def stage_of(model: list[hm.nn.Module], size: int, group: Any = None) -> dist.PipelineStage:
    """The stage of this process: the first ones have one block, the last one the rest."""
    r = dist.get_rank(group)
    part = model[r : r + 1] if r < size - 1 else model[r:]
    return dist.PipelineStage(hm.nn.Sequential(*part), r, size, input_args=example(r), group=group)


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
    def rank() -> list[Any]:
        stage = stage_of(blocks(), 2)
        dist.Schedule1F1B(stage, N, F.cross_entropy).eval(*batch()[:1])
        return [p.grad for p in stage.submod.parameters()]

    assert all(g is None for gradients in dist.run_threads(2, rank) for g in gradients)


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
    """Of all micro-batches by GPipe; by 1F1B of as many as there are stages from here."""
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


class Two(hm.nn.Module):
    """A stage of two results, one of them of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = hm.nn.Linear(3, 3)

    def forward(self, x: Any, k: Any) -> Any:
        return self.layer(x), k + 1


@styles
def test_stages_that_exchange_several_tensors(traced: bool) -> None:
    hm.manual_seed(0)
    models = [Two() for _ in range(3)]
    x, k = hm.asarray(np.arange(12.0, dtype=np.float32).reshape(4, 3)), hm.asarray([0, 1, 2, 3])

    def loss(y: Any, t: Any) -> Any:
        return (y[0] * y[1][:, None]).mean() + 0 * t.sum()

    def rank() -> Any:
        stage = dist.PipelineStage(models[dist.get_rank()], dist.get_rank(), 3, (x[:2], k[:2]))
        schedule = dist.Schedule1F1B(stage, 2, loss)
        step = lambda: schedule.step(x, k, target=x)  # noqa: E731
        return (hm.trace(step) if traced else step)()

    y, numbers = dist.run_threads(3, rank)[-1]
    assert numbers.tolist() == [3, 4, 5, 6]
    ours = [p.grad.numpy().copy() for model in models for p in model.parameters()]
    wanted = x
    for model in models:
        model.zero_grad()
        wanted = model.layer(wanted)
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-5)
    (wanted * (k + 3)[:, None]).mean().backward()
    for a, p in zip(ours, (p for model in models for p in model.parameters()), strict=True):
        np.testing.assert_allclose(a, p.grad.numpy(), rtol=1e-5)


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
    assert {begun for _, begun in found} == ({1, 2} & {1 if traced else 2})


# --- the cut --------------------------------------------------------------------------------------------------------


def chain(seconds: list[float], rows: list[int]) -> list[Link]:
    types = [types_of(hm.ShapeDtypeStruct((n,), hm.float32)) for n in rows]
    return [Link(str(k), hm.nn.Identity(), types[k], types[k + 1], s) for k, s in enumerate(seconds)]


def test_stages_are_as_equal_as_they_can_be() -> None:
    """Beside all cuts that there are."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        seconds = rng.integers(1, 20, 7).astype(float).tolist()
        links = chain(seconds, [1] * 8)
        for stages in (1, 2, 3, 7):
            cuts = [[0, *at] for at in itertools.combinations(range(1, 7), stages - 1)]
            slowest = [max(sum(seconds[i:j]) for i, j in itertools.pairwise([*cut, 7])) for cut in cuts]
            starts = balanced(links, stages)
            assert max(sum(seconds[i:j]) for i, j in itertools.pairwise([*starts, 7])) == min(slowest)


def test_stages_are_cut_where_little_is_sent() -> None:
    links = chain([1e-3, 1e-3, 1e-3, 1e-3], [1, 10, 1 << 24, 1, 1])
    assert balanced(links, 2) == [0, 3]
    assert balanced(chain([1e-3, 1e-3, 1e-3, 1e-3], [1, 10, 10, 1, 1]), 2) == [0, 2]


@pytest.mark.parametrize("size", [2, 3])
def test_a_model_that_is_cut_is_the_model(size: int) -> None:
    """Names of its parameters are those of the whole, and costly layers are alone."""
    hm.manual_seed(0)
    layers = [hm.nn.Linear(32, 512), hm.nn.ReLU(), hm.nn.Linear(512, 512), hm.nn.Linear(512, 8), hm.nn.Tanh()]
    model = hm.nn.Sequential(*layers)
    x = hm.randn((8, 32))
    pipe = dist.pipeline(model, x[:4], size)
    assert pipe.num_stages == size
    names = [name for k in range(size) for name in pipe.get_stage_module(k).state_dict()]
    assert names == list(model.state_dict())
    assert [line.split(":")[0] for line in str(pipe).splitlines()] == [f"stage {k}" for k in range(size)]

    def rank() -> Any:
        return dist.Schedule1F1B(pipe.build_stage(dist.get_rank()), 2).eval(x)

    np.testing.assert_allclose(dist.run_threads(size, rank)[-1].numpy(), model(x).detach().numpy(), atol=1e-5)


def test_cuts_that_cannot_be() -> None:
    layer = hm.nn.Linear(4, 4)
    with pytest.raises(hm.ArgumentError, match="2 modules make 1 to 2 stages, got num_stages=3"):
        dist.pipeline([layer, hm.nn.ReLU()], hm.ones((1, 4)), 3)
    with pytest.raises(hm.ArgumentError, match=r"0.weight of stage 0 and 1.weight of stage 1 are one parameter"):
        dist.pipeline([layer, layer], hm.ones((1, 4)), 2)


def test_processes_that_cut_otherwise() -> None:
    layers = [hm.nn.Linear(4, 4) for _ in range(4)]

    def rank() -> None:
        pipe = dist.pipeline(layers[dist.get_rank() :], hm.ones((1, 4)), 2)
        pipe.starts = (0, 2 - dist.get_rank())
        pipe.build_stage(dist.get_rank())

    with pytest.raises(dist.CollectiveError, match=r"build_stage\(stages from \(0, 2\)\)"):
        dist.run_threads(2, rank)


# --- errors ---------------------------------------------------------------------------------------------------------


def refused(size: int, error: type[Exception], match: str, rank: Callable[[], Any]) -> None:
    with pytest.raises(error, match=match):
        dist.run_threads(size, rank, timeout=0.5)


@styles
def test_what_does_not_fit_is_named(traced: bool) -> None:
    def with_batch(rows: int, targets: int) -> Callable[[], None]:
        def rank() -> None:
            schedule = dist.Schedule1F1B(stage_of(blocks(), 2), N, F.cross_entropy)

            def step(x: Any, y: Any) -> None:
                schedule.step(x, target=y)

            (hm.trace(step) if traced else step)(batch(rows)[0], batch(targets)[1])

        return rank

    uneven = r"1F1B.step: args must be tensors whose first axis divides into 4 micro-batches, got shape \(10, 6\)"
    refused(2, hm.ArgumentError, uneven, with_batch(10, 12))
    larger = r"stage 0 of 2 \(rank 0\) takes micro-batches of float32\[3,6\], got float32\[4,6\]"
    refused(2, hm.ShapeError, larger, with_batch(16, 16))
    refused(2, hm.ArgumentError, r"target must be tensors .* got shape \(10,\)", with_batch(12, 10))


def test_neighbours_that_do_not_fit_are_named() -> None:
    def rank() -> None:
        r = dist.get_rank()
        stage = dist.PipelineStage(hm.nn.Linear(4, 5), r, 2, hm.ones((1, 4)))
        dist.Schedule1F1B(stage, 2, F.mse_loss).step(hm.ones((2, 4)), target=hm.ones((2, 5)))

    refused(2, hm.ShapeError, r"stage 0 of 2 \(rank 0\) gives float32\[1,5\], and stage 1 takes float32\[1,4\]", rank)


def test_arguments_that_are_refused() -> None:
    def make(**given: Any) -> dist.PipelineStage:
        defaults = {"submodule": hm.nn.Linear(2, 2), "stage_index": dist.get_rank(), "num_stages": 2}
        return dist.PipelineStage(**{**defaults, "input_args": hm.ones((1, 2)), **given})

    refused(2, hm.ArgumentError, "num_stages must be 2", lambda: make(num_stages=3))
    refused(2, hm.ArgumentError, "stage_index must be 0 to 1, got 2", lambda: make(stage_index=2))
    refused(2, hm.ArgumentError, "submodule must be a Module", lambda: make(submodule=abs))
    refused(2, hm.ArgumentError, "stages exchange tensors, got str", lambda: make(input_args="x"))
    refused(2, dist.CollectiveError, "have stages 1, 0;", lambda: make(stage_index=1 - dist.get_rank()))
    refused(2, hm.ArgumentError, "n_microbatches must be 1 or more", lambda: dist.Schedule1F1B(make(), 0))
    refused(2, hm.ArgumentError, "must be a PipelineStage", lambda: dist.Schedule1F1B(hm.nn.Linear(1, 1), 2))
    refused(2, hm.ArgumentError, "loss_fn", lambda: dist.ScheduleGPipe(make(), 2).step(hm.ones((2, 2))))
    refused(2, hm.ArgumentError, "gives target=", lambda: dist.ScheduleGPipe(make(), 2, abs).step(hm.ones((2, 2))))
    refused(2, hm.ArgumentError, "gives the batch", lambda: dist.ScheduleGPipe(make(), 2).eval())


def test_processes_that_run_something_else() -> None:
    """Ends with an error on each of them."""

    def schedules_differ() -> None:
        dist.Schedule1F1B(stage_of(blocks(), 2), 2 + dist.get_rank(), F.cross_entropy)

    def calls_differ() -> None:
        schedule = dist.Schedule1F1B(stage_of(blocks(), 2), N, F.cross_entropy)
        x, y = batch()
        schedule.step(x, target=y) if dist.get_rank() == 0 else schedule.eval(x)

    def none_comes() -> None:
        schedule = dist.Schedule1F1B(stage_of(blocks(), 2), N, F.cross_entropy)
        if dist.get_rank() == 1:
            schedule.step(target=batch()[1])

    refused(2, dist.CollectiveError, r"has called Schedule1F1B\([23] micro-batches.*; rank . has", schedules_differ)
    refused(2, dist.CollectiveError, "which did not come within 0.5 s", calls_differ)
    refused(2, dist.CollectiveError, r"rank 1 of 2 waits for float32\[3,9\] from rank 0", none_comes)


# --- processes ------------------------------------------------------------------------------------------------------

PROCESSES = """
import json
import numpy as np
import hybridml as hm
from hybridml import distributed as dist

F = hm.functional

def trained(schedule, traced, dropout):
    hm.manual_seed(0)
    model = [hm.nn.Sequential(hm.nn.Linear(8, 8), hm.nn.Dropout(dropout)) for _ in range(4)]
    pipe = dist.pipeline(model, hm.ShapeDtypeStruct((2, 8), hm.float32), dist.get_world_size())
    stage = pipe.build_stage(dist.get_rank())
    optimizer = hm.optim.Adam(stage.submod.parameters(), lr=0.05)
    runs = schedule(stage, 3, F.mse_loss)
    def step(x, y):
        optimizer.zero_grad()
        losses = []
        runs.step(x, target=y, losses=losses)
        optimizer.step()
        return losses
    run = hm.trace(step) if traced else step
    x = hm.asarray(np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32))
    found = []
    for _ in range(4):
        found += [float(loss) for loss in run(x, x * 0.5)]
    return found
"""
MAIN = """
for dropout in (0.0, 0.5):
    found = [trained(dist.ScheduleGPipe, False, dropout), trained(dist.Schedule1F1B, True, dropout)]
    if dist.get_rank() == dist.get_world_size() - 1:
        print(json.dumps(found))
"""


@pytest.mark.parametrize("size", [2, 3])
def test_pipelines_of_processes(mpi: Mpi, size: int) -> None:
    """Losses are those of one process; with dropout, which each process draws, those of the other style."""
    done = mpi(size, PROCESSES + MAIN)
    assert done.returncode == 0, done.stderr
    space: dict[str, Any] = {}
    exec(PROCESSES, space)  # the text that the processes run
    plain, dropped = (json.loads(line) for line in done.stdout.splitlines())
    alone = dist.run_threads(1, lambda: space["trained"](dist.ScheduleGPipe, False, 0.0))
    for losses in plain:
        np.testing.assert_allclose(losses, alone[0], rtol=1e-4)
    for losses in dropped[1:]:
        np.testing.assert_allclose(losses, dropped[0], rtol=1e-4)


def test_a_process_that_fails_ends_the_others(mpi: Mpi) -> None:
    done = mpi(
        2,
        """
import hybridml as hm
from hybridml import distributed as dist

stage = dist.PipelineStage(hm.nn.Linear(4, 5), dist.get_rank(), 2, hm.ones((1, 4)))
dist.Schedule1F1B(stage, 2, hm.functional.mse_loss).step(hm.ones((2, 4)), target=hm.ones((2, 5)))
""",
    )
    assert done.returncode != 0 and "stage 0 of 2 (rank 0) gives float32[1,5], and stage 1 takes float32[1,4]" in done.stderr
