"""Parameters and state of optimizers in parts: the same training as without, and checkpoints for other numbers."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.placements import Flat
from hybridml.nn import functional as F
from hybridml_compiler.errors import ArgumentError, CollectiveError, ShapeError

ROWS = 12
X = np.random.default_rng(0).standard_normal((ROWS, 5)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, ROWS)
KINDS = ("optimizer", "gradients", "parameters")  # ZeRO's stages


@cache
def _made() -> hm.nn.Module:
    hm.manual_seed(0)  # threads share the generator
    blocks = [hm.nn.Sequential(hm.nn.Linear(n, 7), hm.nn.Tanh()) for n in (5, 7)]
    return hm.nn.Sequential(*blocks, hm.nn.Linear(7, 3))


def network() -> hm.nn.Module:
    """Some blocks whose parameters do not divide into equal parts."""
    return copy.deepcopy(_made())


def sharded(kind: str) -> tuple[hm.nn.Module, Any]:
    """The network and an optimizer, with parts as the kind says; whole without one."""
    model = network()
    if kind == "optimizer":
        model = dist.DataParallel(model)
        return model, dist.ZeroRedundancyOptimizer(model.parameters(), hm.optim.Adam, lr=0.05, weight_decay=0.1)
    if kind:
        for block in (model[0], model[1], model):
            dist.fully_shard(block, reshard_after_forward=None if kind == "parameters" else False)
    return model, hm.optim.Adam(model.parameters(), lr=0.05, weight_decay=0.1)


def losses(model: hm.nn.Module, optimizer: Any, steps: int, traced: bool = False) -> list[float]:
    """Losses of the whole batch, of which each process has its part."""

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, count, rank = hm.trace(step) if traced else step, ROWS // dist.get_world_size(), dist.get_rank()
    own = slice(rank * count, (rank + 1) * count)
    x, y = hm.tensor(X[own]), hm.tensor(Y[own])
    return [float(dist.all_reduce(run(x, y).detach(), "mean")) for _ in range(steps)]


@pytest.fixture(scope="module")
def wanted() -> list[float]:
    """Losses of one process."""
    return losses(*sharded(""), 6)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_of_one_process(kind: str, size: int, traced: bool, wanted: list[float]) -> None:
    for found in dist.run_threads(size, lambda: losses(*sharded(kind), 6, traced)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_parameters_gradients_and_state_are_parts(kind: str) -> None:
    whole = sum(p.numel() for p in network().parameters())

    def rank() -> list[int]:
        model, optimizer = sharded(kind)
        losses(model, optimizer, 1)
        parameters = list(model.parameters())
        state = [optimizer.state_dict()["state"][k]["exp_avg"] for k in range(len(parameters))]
        gradients = [p.grad for p in parameters if p.grad is not None]
        return [sum(t.numel() for t in tensors) for tensors in (parameters, gradients, state)]

    padded = sum(-(-p.numel() // 4) for p in network().parameters())
    assert dist.run_threads(4, rank) == [[padded] * 3] * 4
    assert padded < whole / 3


def test_a_whole_parameter_is_not_kept_for_the_backward() -> None:
    """Gathers: one for each block in the forward, and one more in the backward for those that are not kept."""

    def rank() -> list[int]:
        counts = []
        for kind in KINDS[1:]:
            model, _ = sharded(kind)
            traced = hm.trace(lambda x, model=model: model(x).sum().backward())
            traced(hm.tensor(X))
            counts.append(len(re.findall(r"= all_gather\(.*result=1", traced.ir)))
        return counts

    assert dist.run_threads(2, rank) == [[3, 5]] * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 3), (3, 1), (1, 4)])
def test_a_checkpoint_is_for_any_number_of_processes(
    kind: str, before: int, after: int, wanted: list[float], tmp_path: Path
) -> None:
    def first() -> None:
        model, optimizer = sharded(kind if dist.get_world_size() > 1 else "")
        losses(model, optimizer, 3)
        dist.CheckpointManager(tmp_path).save(3, {"model": _inner(model), "optimizer": optimizer, "at": {"step": 3}})

    def second() -> list[float]:
        model, optimizer = sharded(kind if dist.get_world_size() > 1 else "")
        losses(model, optimizer, 1)
        at: dict[str, Any] = {}
        state = {"model": _inner(model), "optimizer": optimizer, "at": at}
        assert dist.CheckpointManager(tmp_path).restore(state) == 3
        assert at == {"step": 3}
        return losses(model, optimizer, 3)

    dist.run_threads(before, first)
    for found in dist.run_threads(after, second):
        np.testing.assert_allclose(found, wanted[3:], rtol=1e-5)


def _inner(model: hm.nn.Module) -> hm.nn.Module:
    return model.module if isinstance(model, dist.DataParallel) else model


@pytest.mark.parametrize("kind", KINDS[1:])
def test_whole_state_dicts(kind: str) -> None:
    other = network()
    with hm.no_grad():
        for p in other.parameters():
            p.mul_(2)

    def rank() -> None:
        model, _ = sharded(kind)
        whole = dist.full_state_dict(model)
        assert list(whole) == list(network().state_dict())
        for name, value in network().state_dict().items():
            assert bool((whole[name] == value).all())
        dist.load_full_state_dict(model, other.state_dict())
        assert bool(hm.allclose(model(hm.tensor(X)), other(hm.tensor(X))))
        again = copy.deepcopy(model)
        assert bool(hm.allclose(again(hm.tensor(X)), other(hm.tensor(X))))
        with pytest.raises(ShapeError, match=r"load_full_state_dict: 2.bias has shape \(3,\), got \(4,\)"):
            dist.load_full_state_dict(model, {**whole, "2.bias": hm.ones((4,))})

    dist.run_threads(3, rank)


def test_weights_are_those_of_rank_0_and_shared_ones_stay_shared() -> None:
    class Tied(hm.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = hm.nn.Embedding(5, 4), hm.nn.Linear(4, 5, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.table(x))

    def rank() -> tuple[list[float], list[float]]:
        model = Tied()
        before = model(hm.tensor([1, 2])).flatten().tolist()
        found = dist.fully_shard(model)(hm.tensor([1, 2]))
        found.sum().backward()
        assert model.head.weight is model.table.weight and len(list(model.parameters())) == 1
        return before, found.flatten().tolist()

    (wanted, first), (_, second) = dist.run_threads(2, rank)
    assert first == second
    np.testing.assert_allclose(first, wanted, rtol=1e-6)


def test_an_optimizer_in_parts_keeps_no_gradients_of_them() -> None:
    def rank() -> None:
        model, optimizer = sharded("optimizer")
        losses(model, optimizer, 1)
        assert [p.grad for group in optimizer.param_groups for p in group["params"]] == [None] * 6

    dist.run_threads(2, rank)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_processes_that_choose_other_blocks_are_told(traced: bool) -> None:
    def step() -> None:
        blocks = [dist.fully_shard(hm.nn.Linear(4, 4)) for _ in range(2)]
        chosen = blocks[dist.get_rank()]
        (hm.trace(lambda x: chosen(x)) if traced else chosen)(hm.ones(1, 4))

    told = r"rank (\d) .*all_gather\(float32\[10\], Linear, module \1\).*rank (\d) .*float32\[10\], Linear, module \2\)"
    with pytest.raises(CollectiveError, match=told):
        dist.run_threads(2, step)


def test_parameters_are_whole_in_a_block() -> None:
    def rank() -> None:
        model, _ = sharded("parameters")
        parts = [id(p) for p in model.parameters()]
        with dist.summon_full_params(model):
            assert [p.shape for p in model.parameters()] == [p.shape for p in network().parameters()]
            found = model(hm.tensor(X))
        assert [id(p) for p in model.parameters()] == parts
        assert bool(hm.allclose(found, network()(hm.tensor(X))))

    dist.run_threads(2, rank)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_gradients_are_clipped_by_the_norm_of_all_parts(norm_type: float) -> None:
    whole = network()
    F.cross_entropy(whole(hm.tensor(X)), hm.tensor(Y)).backward()
    norm = hm.nn.utils.clip_grad_norm_(whole.parameters(), 0.1, norm_type)

    def rank() -> None:
        model, _ = sharded("parameters")
        F.cross_entropy(model(hm.tensor(X)), hm.tensor(Y)).backward()
        np.testing.assert_allclose(float(dist.clip_grad_norm_(model, 0.1, norm_type)), float(norm), rtol=1e-5)
        for own, p in zip(model.parameters(), whole.parameters(), strict=True):
            wanted = Flat(p.shape, p.numel(), 3).part(p.grad, dist.get_rank())
            np.testing.assert_allclose(own.grad.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-8)

    dist.run_threads(3, rank)


def test_what_cannot_be_sharded() -> None:
    def rank() -> None:
        with pytest.raises(ArgumentError, match="fully_shard: module must be a Module, got int"):
            dist.fully_shard(3)
        layer = dist.fully_shard(hm.nn.Linear(2, 2))
        with pytest.raises(ArgumentError, match="this Linear is sharded already"):
            dist.fully_shard(layer)
        pair = hm.nn.Sequential(hm.nn.Linear(2, 2), hm.nn.Linear(2, 2))
        pair[1].weight = pair[0].weight
        own = dist.init().split(0)
        layers = dist.parallelize_module(hm.nn.Sequential(hm.nn.Linear(2, 2)), own, {"0": dist.ColwiseParallel()})
        with pytest.raises(ArgumentError, match="weight of Linear is a part already, over Group"):
            dist.fully_shard(layers)
        dist.fully_shard(pair[0])
        with pytest.raises(ArgumentError, match="weight of Linear is shared with a module that is sharded"):
            dist.fully_shard(pair)

    dist.run_threads(2, rank)


def test_alone_nothing_changes() -> None:
    layer = hm.nn.Linear(2, 2)
    assert dist.fully_shard(layer).weight.shape == (2, 2) and "forward" not in vars(layer)


@given(shape=st.lists(st.integers(0, 5), max_size=3).map(tuple), size=st.integers(1, 6))
def test_parts_and_wholes(shape: tuple[int, ...], size: int) -> None:
    whole = hm.arange(int(np.prod(shape)), dtype="float32").reshape(shape)
    layout = Flat(shape, whole.numel(), size)
    parts = [layout.part(whole, rank) for rank in range(size)]
    assert {part.shape for part in parts} == {(layout.length,)}
    np.testing.assert_array_equal(layout.joined(hm.stack(parts)).numpy(), whole.numpy())


def test_over_mpi(job: Any) -> None:
    done = job(
        2,
        """
import hybridml as hm
from hybridml import distributed as dist
model = hm.nn.Sequential(hm.nn.Linear(6, 5), hm.nn.Tanh(), hm.nn.Linear(5, 1))
dist.fully_shard(model[0])
dist.fully_shard(model)
optimizer = hm.optim.Adam(model.parameters(), lr=0.01)
@hm.trace
def step(x):
    optimizer.zero_grad()
    loss = ((model(x) - 3) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss
losses = [float(step(hm.ones((3, 6)))) for _ in range(5)]
assert losses == sorted(losses, reverse=True)
digest = hm.tensor([float(w.sum()) for w in dist.full_state_dict(model).values()])
assert bool((dist.all_reduce(digest, "max") == digest).all())
""",
    )
    assert done.returncode == 0, done.stderr


class Recomputing(hm.nn.Module):
    """A module whose forward calls another traced function, a checkpoint, and moves a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.w = hm.nn.Parameter(hm.tensor([2.0, 3.0]))
        self.register_buffer("calls", hm.tensor(0.0))
        self.traced = hm.trace(lambda x: x * self.w)

    def forward(self, x: Any) -> Any:
        with hm.no_grad():
            self.calls += 1
        return hm.checkpoint(lambda x: (x * self.w) ** 2, x) * self.calls + self.traced(x)


@pytest.mark.parametrize("reshard", [True, False])
def test_what_a_forward_computes_again_finds_whole_parameters_and_its_buffers(reshard: bool) -> None:
    def found(module: hm.nn.Module) -> tuple[float, list[float], float]:
        optimizer = hm.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            module.zero_grad()
            loss = module(hm.tensor([1.0, 2.0])).sum()
            loss.backward()
            optimizer.step()
        return loss.item(), [float(p) for p in dist.full_state_dict(module)["w"]], module.calls.item()

    wanted = found(Recomputing())

    def rank() -> None:
        loss, weights, calls = found(dist.fully_shard(Recomputing(), reshard_after_forward=reshard))
        np.testing.assert_allclose([loss, *weights], [wanted[0], *wanted[1]], rtol=1e-6)
        assert calls == wanted[2] == 2

    dist.run_threads(2, rank)


def test_parts_are_made_once_and_from_the_inside() -> None:
    def rank() -> None:
        model, _ = sharded("parameters")
        with pytest.raises(ArgumentError, match=r"DataParallel: the processes of Group.* have parts of 0\.0\.weight"):
            dist.DataParallel(model)
        with pytest.raises(ArgumentError, match="a parameter is a part already"):
            dist.ZeroRedundancyOptimizer(model.parameters(), hm.optim.SGD, lr=0.1)
        outer = dist.fully_shard(network())
        with pytest.raises(ArgumentError, match="shard blocks first"):
            dist.fully_shard(outer[0])
        with pytest.raises(ArgumentError, match="ModuleList has no forward"):
            dist.fully_shard(hm.nn.ModuleList([hm.nn.Linear(2, 2)]))

    dist.run_threads(2, rank)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    def rank() -> None:
        manager = dist.CheckpointManager(tmp_path)
        manager.save(1, {"model": dist.fully_shard(hm.nn.Linear(3, 5))})
        with pytest.raises(ShapeError, match=r"model/weight has shape \(3, 5\), the checkpoint \(5, 3\)"):
            manager.restore({"model": dist.fully_shard(hm.nn.Linear(5, 3))})

    dist.run_threads(2, rank)


def test_a_rank_without_gradients_takes_part_in_their_norm() -> None:
    def rank() -> float:
        model, _ = sharded("gradients")
        if dist.get_rank() == 0:
            for p in model.parameters():
                p.grad = hm.ones_like(p)
        return float(dist.clip_grad_norm_(model, 1.0))

    first, second = dist.run_threads(2, rank)
    assert first == second > 0
