"""Blocks of `device_of`: the placed program beside the one that is not, what is sent, and where values are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from tests.support.placed import (
    MODELS,
    SGD,
    Block,
    batch,
    everywhere,
    forward_of_mlp,
    messages,
    mlp,
    same,
    towers,
    trained,
    values,
)

F = hm.functional


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_training_has_the_bits_of_one_process(kind: str, size: int, traced: bool) -> None:
    wanted = trained(kind, MODELS[kind][0](), everywhere, size, traced)
    models = [MODELS[kind][0]() for _ in range(size)]
    found = dist.run_threads(size, lambda: trained(kind, models[dist.get_rank()], dist.device_of, size, traced))
    for losses, state, text in found:
        assert losses == wanted[0]
        assert same(state, wanted[1])
        assert ("receive_from(" in text) == traced


def test_adam_has_the_bits_of_one_process() -> None:
    def make(parameters: Any) -> Any:
        return hm.optim.AdamW(parameters, lr=0.01)

    wanted = trained("towers", towers(), everywhere, 2, True, make)
    models = [towers() for _ in range(2)]
    for found in dist.run_threads(2, lambda: trained("towers", models[dist.get_rank()], dist.device_of, 2, True, make)):
        assert found[0] == wanted[0] and same(found[1], wanted[1])


def test_each_rank_computes_its_part() -> None:
    """Products of a layer, forward and backward, and the update of its weight are in the program of its rank alone."""
    models = [mlp() for _ in range(3)]
    texts = [
        text
        for *_, text in dist.run_threads(3, lambda: trained("mlp", models[dist.get_rank()], dist.device_of, 3, True))
    ]
    assert [text.count("matmul(") for text in texts] == [2, 3, 3]  # nobody needs a gradient of x
    assert [text.count("tanh(") for text in texts] == [1, 1, 1]
    alone = trained("mlp", mlp(), everywhere, 3, True)[2]
    assert alone.count("matmul(") == 8


def test_a_value_is_sent_once_to_each_rank_that_needs_it() -> None:
    def rank() -> str:
        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(0):
                h, unused = hm.exp(x), hm.log(x)
            with dist.device_of(1):
                a = hm.sin(h) + hm.cos(h) + hm.tanh(h) * h
                unused = unused + a
            with dist.device_of(2):
                b = (h * h).sum()
            return a.sum() + b

        step(hm.ones((10, 20)))
        return step.ir

    first, second, third = map(messages, dist.run_threads(3, rank))
    # The sums meet on rank 1, which has one of the two; the result goes to all.
    assert first == [("s", 1), ("s", 2), ("r", 1)]
    assert second == [("r", 0), ("r", 2), ("s", 0), ("s", 2)]
    assert third == [("r", 0), ("s", 1), ("r", 1)]


def test_what_all_have_is_not_sent() -> None:
    """Arguments, constants, and what is outside of blocks and made of such."""

    def rank() -> list[tuple[str, int]]:
        scale, other = hm.ones((10, 20)), hm.ones((20, 10))

        @hm.trace
        def step(x: Any) -> None:
            y = x * scale + hm.arange(20)
            with dist.device_of(0):
                z = hm.exp(x.reshape(20, 10))
            with dist.device_of(1):
                scale.add_(hm.sin(y.T.reshape(10, 20)) + hm.cos(x.reshape(20, 10).reshape(10, 20)))
            with dist.device_of(0):
                other.add_(z)

        step(hm.ones((10, 20)))
        return messages(step.ir)

    assert dist.run_threads(2, rank) == [[], []]


def test_an_operation_in_two_blocks_is_computed_in_the_first() -> None:
    def rank() -> tuple[int, list[tuple[str, int]]]:
        kept = hm.zeros((10, 20))

        @hm.trace
        def step(x: Any) -> None:
            for r in range(2):
                with dist.device_of(r):
                    kept.copy_(hm.exp(x) * r)

        step(hm.ones((10, 20)))
        return step.ir.count("exp("), messages(step.ir)

    assert dist.run_threads(2, rank) == [(1, [("s", 1)]), (0, [("r", 0)])]


def test_branches_run_side_by_side() -> None:
    """Each rank computes its tower before it waits for the other one's."""

    def rank() -> str:
        model = towers()

        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(0):
                u = model[0](x)
            with dist.device_of(1):
                v = model[1](x)
            with dist.device_of(0):
                return (u * v).sum()

        step(batch()[0])
        launches = step._shown().program.executable.launches
        names = [n.op.name for one in launches for n in one.nodes if n.op and n.params.get("result", 0) == 0]
        short = {"matmul": "m", "send_to": "s", "receive_from": "r"}
        return "".join(short[name] for name in names if name in short)

    assert dist.run_threads(2, rank) == ["mmrs", "mmsr"]


def test_micro_batches_overlap() -> None:
    """All of them have left the first rank before it waits for a gradient: messages go by levels."""

    def rank() -> list[tuple[str, int]]:
        model = mlp()

        @hm.trace
        def step(x: Any) -> None:
            for k in range(3):
                forward_of_mlp(model, x[8 * k : 8 * k + 8], dist.device_of, 3).sum().backward()

        step(batch()[0])
        return messages(step.ir)

    first, second, third = dist.run_threads(3, rank)
    assert first == [("s", 1)] * 3 + [("r", 1)] * 3
    assert second == [("r", 0)] * 3 + [("s", 2)] * 3 + [("r", 2)] * 3 + [("s", 0)] * 3
    assert third == [("r", 1)] * 3 + [("s", 1)] * 3


def test_the_inner_of_two_blocks_decides() -> None:
    def rank() -> tuple[float, str]:
        @hm.trace
        def step(x: Any) -> Any:
            with dist.device_of(1):
                x = hm.sin(x)
                with dist.device_of(0):
                    x = hm.cos(x)
                return hm.tanh(x).sum()

        return step(hm.ones((10, 20))).item(), step.ir

    (ours, first), (theirs, second) = dist.run_threads(2, rank)
    assert ours == theirs == pytest.approx(200 * np.tanh(np.cos(np.sin(1.0))), rel=1e-5)
    assert ["cos(" in first, "sin(" in first, "tanh(" in first] == [True, False, False]
    assert ["cos(" in second, "sin(" in second, "tanh(" in second] == [False, True, True]


def test_text_of_the_programs() -> None:
    def rank() -> str:
        @hm.trace
        def step(x: Any) -> Any:
            with hm.device_of(0):
                y = hm.exp(x)
            with hm.device_of(1):
                return y.sum()

        step(hm.ones((10, 20)))
        return re.sub("step [0-9a-f]{16}", "step", step.ir)

    first, second = dist.run_threads(2, rank)
    assert (
        first
        == """\
graph step(%0 "x": f32[10,20], %1 "captured1": i64[]) {
  %2 = exp(%0) : f32[10,20]
  %3 = placed(%1) {group="world", plan="step"} : i64[]
  %4 = send_to(%2, %3) {group="world", peer=1, tag=16010} : i64[]
  %5 = receive_from(%4) {dtype=f32, group="world", peer=1, result=0, shape=(), tag=16010} : f32[]
  %6 = receive_from(%4) {dtype=f32, group="world", peer=1, result=1, shape=(), tag=16010} : i64[]
  return %5, %6
}"""
    )
    assert (
        second
        == """\
graph step(%0 "x": f32[10,20], %1 "captured1": i64[]) {
  %2 = placed(%1) {group="world", plan="step"} : i64[]
  %3 = receive_from(%2) {dtype=f32, group="world", peer=0, result=0, shape=(10, 20), tag=16010} : f32[10,20]
  %4 = sum(%3) {axis=(0, 1), dtype=f32, keepdims=False} : f32[]
  %5 = receive_from(%2) {dtype=f32, group="world", peer=0, result=1, shape=(10, 20), tag=16010} : i64[]
  %6 = send_to(%4, %5) {group="world", peer=0, tag=16010} : i64[]
  return %4, %6
}"""
    )


def test_collectives_are_in_the_order_of_the_program() -> None:
    def rank(on: Block) -> list[float]:
        @hm.trace
        def step(x: Any) -> Any:
            x = dist.all_reduce(x)
            with on(1):
                y = hm.exp(x * 0.01)
            z = dist.all_reduce(y)
            with on(0):
                w = hm.sin(z + y)
            return dist.all_gather(w).sum()

        return [step(hm.ones((100,)) * n).item() for n in range(3)]

    assert dist.run_threads(2, lambda: rank(dist.device_of)) == dist.run_threads(2, lambda: rank(everywhere))


def test_transforms_and_second_derivatives() -> None:
    def rank(on: Block) -> tuple[float, ...]:
        @hm.trace
        def step(x: Any) -> Any:
            with on(1):
                y = hm.vmap(lambda row: hm.exp(row).cumsum(0))(x)

            def energy(t: Any) -> Any:
                with on(1):
                    s = hm.sin(t) * y
                with on(0):
                    return (s * s).sum()

            slope = hm.grad(energy)
            return slope(x).sum(), hm.grad(lambda t: slope(t).sum())(x).sum()

        return tuple(v.item() for v in step(hm.asarray(np.linspace(0, 1, 1000, dtype=np.float32)).reshape(100, 10)))

    wanted = rank(everywhere)
    assert dist.run_threads(2, lambda: rank(dist.device_of)) == [pytest.approx(wanted, rel=1e-6)] * 2


def test_loops_of_layers_sizes_and_the_interpreter() -> None:
    def rank(backend: str) -> list[float]:
        w = hm.ones((20, 20)) * 0.1

        @hm.trace(backend=backend)
        def step(x: Any) -> Any:
            for _ in range(40):
                with dist.device_of(1):
                    x = hm.tanh(x @ w)
            with dist.device_of(0):
                for _ in range(3):
                    x = hm.tanh(x @ w)
            return x.sum()

        return [step(hm.ones((n, 20))).item() for n in (5, 6, 7, 5)]

    found = dist.run_threads(2, lambda: rank("llvm"))
    assert found[0] == found[1] == pytest.approx(dist.run_threads(2, lambda: rank("interpret"))[0], rel=1e-6)
    assert found[0] == pytest.approx(rank("llvm"), rel=1e-6)


def test_groups_place_side_by_side() -> None:
    """Two pairs of ranks, each with its model over a group of its own, and a collective of all behind."""
    wanted = trained("mlp", mlp(), everywhere, 2, True)
    models = [mlp() for _ in range(4)]

    def rank() -> tuple[Any, Any, float]:
        pair = dist.init().split(dist.get_rank() // 2)
        found = trained("mlp", models[dist.get_rank()], lambda r: dist.device_of(r, pair), 2, True)
        return found[0], found[1], dist.all_reduce(hm.ones(())).item()

    for losses, state, ranks in dist.run_threads(4, rank):
        assert losses == wanted[0] and same(state, wanted[1]) and ranks == 4


# -- by cost


def big(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model[2](model[0](x) + model[1](x)), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def by_cost(model: Any, capture: Any, rows: int) -> tuple[list[float], Any, str]:
    run = capture(big(model, hm.optim.SGD(model.parameters(), **SGD)))
    return [run(*batch(rows)).item() for _ in range(2)], values(model), run.ir


def test_the_compiler_places_towers_side_by_side() -> None:
    """Each rank has some of the products. The cut may part what one kernel would compute, and round otherwise."""
    wanted = by_cost(towers(1000), hm.trace, 512)
    models = [towers(1000) for _ in range(2)]
    found = dist.run_threads(2, lambda: by_cost(models[dist.get_rank()], dist.place, 512))
    for losses, state, text in found:
        np.testing.assert_allclose(losses, wanted[0], rtol=1e-6)
        for name, value in state.items():
            np.testing.assert_allclose(value, wanted[1][name], rtol=1e-4, atol=1e-6)
        assert 2 <= text.count("matmul(") <= 11
        moved = set(re.findall(r"receive_from.*result=0.*: (f32.*)", text))
        assert not moved & {f"f32[{n},{m}]" for n, m in ((1000, 8), (30, 1000), (4, 30))}, "weights stay where they are"
    assert sum(text.count("matmul(") for *_, text in found) == wanted[2].count("matmul(")


def test_the_compiler_leaves_small_work_to_one_rank() -> None:
    models = [towers(40) for _ in range(2)]
    first, second = dist.run_threads(2, lambda: by_cost(models[dist.get_rank()], dist.place, 24))
    assert first[0] == second[0]
    assert "matmul(" in first[2] and "matmul(" not in second[2]


def test_stages_of_a_pipeline_are_blocks() -> None:
    """The stages that `pipeline` cuts are blocks of `device_of`."""
    pipe = dist.pipeline(mlp(), hm.ShapeDtypeStruct((24, 8), hm.float32), 2)
    wanted = mlp()(batch()[0]).sum().item()

    def rank() -> float:
        @hm.trace
        def step(x: Any) -> Any:
            for k in range(pipe.num_stages):
                with dist.device_of(k):
                    x = pipe.get_stage_module(k)(x)
            return x.sum()

        return step(batch()[0]).item()

    assert dist.run_threads(2, rank) == [pytest.approx(wanted, rel=1e-5)] * 2


# -- processes

PROCESSES = """
import hybridml as hm
from contextlib import nullcontext
from hybridml import distributed as dist
from tests.support.placed import batch, same, values

def model():
    hm.manual_seed(0)
    def block(n):
        return hm.nn.Sequential(hm.nn.Linear(n, 40), hm.nn.Dropout(0.3), hm.nn.BatchNorm1d(40), hm.nn.ReLU())
    return hm.nn.ModuleList([block(8), block(40), hm.nn.Linear(40, 4)])

def train(on):
    net = model()
    hm.manual_seed(3)
    optimizer = hm.optim.Adam(net.parameters())
    @hm.trace
    def step(x, y):
        optimizer.zero_grad()
        for k, block in enumerate(net):
            with on(k % dist.get_world_size()):
                x = block(x)
        loss = hm.functional.cross_entropy(x, y)
        loss.backward()
        optimizer.step()
        return loss
    return [step(*batch()).item() for _ in range(4)], values(net), hm.rand((2,)).tolist()

wanted, found = train(lambda rank: nullcontext()), train(dist.device_of)
assert wanted[0] == found[0] and same(wanted[1], found[1]) and wanted[2] == found[2]
print("same bits")
"""


def test_processes_draw_the_same_numbers(mpi: Any) -> None:
    """Dropout, batch normalisation and Adam over MPI: bits of one process, and of what is drawn behind."""
    done = mpi(2, PROCESSES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same bits") == 2
