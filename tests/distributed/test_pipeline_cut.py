"""Models that are cut into stages, pipelines of processes, and what is refused."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.pipelining.cut import Link, balanced
from hybridml.distributed.pipelining.stage import types_of
from tests.support.pipelines import N, batch, blocks, stage_of

F = hm.functional
Mpi = Callable[..., subprocess.CompletedProcess[str]]
styles = pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])


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
        schedule.eval(x) if dist.get_rank() == 0 else schedule.step(target=y)

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
    assert (
        done.returncode != 0
        and "stage 0 of 2 (rank 0) gives float32[1,5], and stage 1 takes float32[1,4]" in done.stderr
    )
