"""`DataParallel` and what belongs to it, beside one process with the whole batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.reducer import Reducer

F = hm.functional
SIZES = (7, 40, 30, 5)
BATCH = 12


def network(seed: int = 0) -> hm.nn.Module:
    hm.manual_seed(seed)
    layers = [hm.nn.Linear(n, m) for n, m in itertools.pairwise(SIZES)]
    return hm.nn.Sequential(layers[0], hm.nn.Tanh(), layers[1], hm.nn.Tanh(), layers[2])


def batch(rank: int = 0, size: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((BATCH, SIZES[0]), np.float32), rng.integers(0, SIZES[-1], BATCH)
    return hm.asarray(x[rank::size]), hm.asarray(y[rank::size])


def trained(model: Any, x: Any, y: Any, traced: bool, steps: int = 5) -> list[np.ndarray]:
    """Parameters after some steps of Adam."""
    optimizer = hm.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = hm.trace(step) if traced else step
    for _ in range(steps):
        run(x, y)
    return [p.detach().numpy().copy() for p in model.parameters()]


def in_ranks(size: int, traced: bool, bucket_mb: float = 2.0) -> list[list[np.ndarray]]:
    networks = [network(seed=r) for r in range(size)]  # all begin with the weights of rank 0

    def rank() -> list[np.ndarray]:
        r = dist.get_rank()
        return trained(dist.DataParallel(networks[r], bucket_mb=bucket_mb), *batch(r, size), traced)

    return dist.run_threads(size, rank)


@pytest.mark.parametrize("bucket_mb", [2.0, 4e-3, 1e-9], ids=["one bucket", "some", "one each"])
@pytest.mark.parametrize("size", [2, 3])
def test_training_is_that_of_one_process(size: int, bucket_mb: float) -> None:
    """To rounding; equal bits on all ranks, and in both styles."""
    alone = trained(network(), *batch(), traced=False)
    eager, traced = (in_ranks(size, style, bucket_mb) for style in (False, True))
    for ours, whole in zip(eager[0], alone, strict=True):
        np.testing.assert_allclose(ours, whole, atol=2e-5)
    for ranks in (eager, traced):
        for other in ranks[1:]:
            assert all((a == b).all() for a, b in zip(ranks[0], other, strict=True))
    for a, b in zip(eager[0], traced[0], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("traced", [False, True])
def test_the_same_bits_in_every_run(traced: bool) -> None:
    first, second = in_ranks(2, traced=traced), in_ranks(2, traced=traced)
    assert all((a == b).all() for a, b in zip(first[0], second[0], strict=True))


def test_buckets_are_begun_while_the_backward_goes_on() -> None:
    """In the program, a sum is begun as soon as its gradients are there: products of earlier layers follow."""

    def rank() -> list[str]:
        model = dist.DataParallel(network(), bucket_mb=1e-9)

        @hm.trace
        def step(x: Any, y: Any) -> Any:
            F.cross_entropy(model(x), y).backward()

        step(*batch())
        names = [n.op.name for launch in step._shown().program.executable.launches for n in launch.nodes if n.op]
        return [name for name in names if name in ("matmul", "all_reduce_start", "all_reduce_wait")]

    forward, bias, weight = ["matmul"] * 3, ["all_reduce_start"], ["matmul", "all_reduce_start"]
    earlier = ["matmul", *bias, *weight]  # first the gradient of what the later layer reads
    assert dist.run_threads(2, rank)[0] == [*forward, *bias, *weight, *earlier, *earlier, *["all_reduce_wait"] * 6]


def test_order_of_buckets_is_that_of_the_last_parameters_first() -> None:
    def rank() -> list[tuple[str, ...]]:
        reducer = Reducer(network().named_parameters(), dist.init(), 4e-3, False)
        return [bucket.names for bucket in reducer.buckets]

    found = dist.run_threads(2, rank)
    assert (
        found[0]
        == found[1]
        == [
            ("4.bias", "4.weight", "2.bias"),
            ("2.weight",),
            ("0.bias", "0.weight"),
        ]
    )


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_gradients_add_up_without_synchronisation(traced: bool) -> None:
    def rank() -> tuple[list[float], list[float]]:
        model = dist.DataParallel(hm.nn.Linear(1, 1, bias=False))
        weight = model.module.weight

        def step(x: Any) -> None:
            model(x).sum().backward()

        run = hm.trace(step) if traced else step
        x = hm.full((1, 1), 1.0 + dist.get_rank())
        with model.no_sync():
            run(x)
            run(x)
            here = weight.grad.item()
        run(x)
        return here, weight.grad.item()

    assert dist.run_threads(2, rank) == [(2.0, 4.5), (4.0, 4.5)]


def test_uneven_numbers_of_steps() -> None:
    def rank() -> list[float]:
        model = dist.DataParallel(hm.nn.Linear(1, 1, bias=False))
        found = []
        with model.join():
            for k in range(1 + 2 * dist.get_rank()):
                model.zero_grad()
                with model.no_sync():
                    model(hm.ones((1, 1)))
                model(hm.full((1, 1), 4.0 + k)).sum().backward()
                found.append(model.module.weight.grad.item())
        return found

    assert dist.run_threads(2, rank) == [[4.0], [4.0, 2.5, 3.0]]


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_parameters_that_the_loss_does_not_use(traced: bool) -> None:
    class Two(hm.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = hm.nn.Linear(1, 1), hm.nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    def rank() -> list[float]:
        def step(model: Any) -> Callable[..., None]:
            def run(x: Any) -> None:
                model(x).sum().backward()

            return hm.trace(run) if traced else run

        x = hm.full((1, 1), 2.0 * dist.get_rank())
        model = dist.DataParallel(Two(), find_unused_parameters=True)
        step(model)(x)
        assert model.module.spare.weight.grad.item() == 0.0
        model.zero_grad()
        with pytest.raises(
            hm.GradientError, match=r"no gradient came to spare.bias, spare.weight, for which the other"
        ):
            step(dist.DataParallel(Two()))(x)
        return model.module.used.weight.grad

    assert dist.run_threads(2, rank) == [None, None]


def test_buffers_are_those_of_rank_0() -> None:
    def rank() -> tuple[list[float], list[float]]:
        norm = hm.nn.BatchNorm1d(1)
        norm.running_mean.copy_(hm.full((1,), float(dist.get_rank())))
        both, apart = dist.DataParallel(norm), dist.DataParallel(hm.nn.BatchNorm1d(1), broadcast_buffers=False)
        assert norm.running_mean.item() == 0.0
        x = hm.asarray([[0.0], [2.0 + 2 * dist.get_rank()]])
        for model in (both, apart):
            for _ in range(2):
                model(x).sum()
        return both.module.running_mean.item(), apart.module.running_mean.item()

    (first, own), (second, other) = dist.run_threads(2, rank)
    assert own == pytest.approx(0.19) and other == pytest.approx(0.38)
    assert first == pytest.approx(0.19) and second == pytest.approx(0.1 * 0.9 + 0.2)


def test_second_derivatives_are_refused() -> None:
    def rank() -> None:
        model = dist.DataParallel(hm.nn.Linear(1, 1))
        with pytest.raises(hm.GradientError, match=r"create_graph=True .* averages without a history"):
            (model(hm.ones((1, 1))) ** 2).sum().backward(create_graph=True)
        gradient = hm.grad(lambda w: (w**2).sum())(model.module.weight.detach())
        assert gradient.shape == (1, 1)

    dist.run_threads(2, rank)


def test_alone_it_is_the_module() -> None:
    model, plain = dist.DataParallel(network()), network()
    with model.join(), model.no_sync():
        x, y = batch()
        for net in (model, plain):
            F.cross_entropy(net(x), y).backward()
    assert list(model.state_dict()) == [f"module.{name}" for name in plain.state_dict()]
    for (_, p), (_, q) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        assert (p.grad == q.grad).all()


# -- batch normalisation over all


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_normalisation_over_all_processes(momentum: float | None, traced: bool) -> None:
    """Result, gradients and running statistics are those of the whole batch, of which ranks have different parts."""
    rng = np.random.default_rng(1)
    x, slope = (rng.standard_normal((7, 3, 2)).astype(np.float32) * 3 + 1 for _ in range(2))
    parts = (slice(0, 2), slice(2, 7))
    plain = hm.nn.BatchNorm1d(3, momentum=momentum)
    whole = hm.asarray(x).requires_grad_()
    for _ in range(2):
        result = plain(whole)
    (result * hm.asarray(slope)).sum().backward()

    def rank() -> list[np.ndarray]:
        own = parts[dist.get_rank()]
        norm = dist.SyncBatchNorm(3, momentum=momentum)
        given = hm.asarray(x[own]).requires_grad_()

        def step(given: Any) -> Any:
            result = norm(given)
            (result * hm.asarray(slope[own])).sum().backward()
            return result.detach()

        run = hm.trace(step) if traced else step
        for _ in range(2):
            given.grad = norm.weight.grad = norm.bias.grad = None
            result = run(given)
        found = [result, given.grad, dist.all_reduce(norm.weight.grad), norm.running_mean, norm.running_var]
        norm.eval()
        return [t.numpy() for t in (*found, norm(given).detach(), norm.num_batches_tracked)]

    ranks = dist.run_threads(2, rank)
    expected = [plain.weight.grad, plain.running_mean, plain.running_var]
    for own, (result_of, gradient, *others, evaluated, batches) in zip(parts, ranks, strict=True):
        np.testing.assert_allclose(result_of, result.detach().numpy()[own], atol=1e-5)
        np.testing.assert_allclose(gradient, whole.grad.numpy()[own], atol=1e-5)
        for ours, theirs in zip(others, expected, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4)
        assert batches == 2
        plain.eval()
        np.testing.assert_allclose(evaluated, plain(hm.asarray(x[own])).detach().numpy(), atol=1e-5)


def test_conversion_keeps_the_tensors() -> None:
    net = hm.nn.Sequential(hm.nn.Conv2d(1, 2, 3), hm.nn.Sequential(hm.nn.BatchNorm2d(2), hm.nn.ReLU())).eval()
    weight, state = net[1][0].weight, list(net.state_dict())
    found = dist.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(found[1][0]) is dist.SyncBatchNorm and found[1][0].weight is weight and not found[1][0].training
    assert list(found.state_dict()) == state
    assert type(dist.SyncBatchNorm.convert_sync_batchnorm(hm.nn.BatchNorm1d(2))) is dist.SyncBatchNorm


# -- the part of a dataset


@given(st.integers(0, 40), st.integers(1, 6), st.booleans(), st.booleans(), st.integers(0, 3))
def test_every_index_is_of_one_process(size: int, ranks: int, shuffle: bool, drop_last: bool, epoch: int) -> None:
    samplers = [dist.DistributedSampler(range(size), ranks, r, shuffle, drop_last=drop_last) for r in range(ranks)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    parts = [list(sampler) for sampler in samplers]
    assert {len(part) for part in parts} == {len(samplers[0])} and samplers[0].epoch == epoch + 1
    whole = [index for together in zip(*parts, strict=True) for index in together]
    if drop_last:
        assert len(set(whole)) == len(whole) == size - size % ranks
    else:
        assert sorted(set(whole)) == list(range(size)) and len(whole) == size + -size % ranks
    if not shuffle:
        assert whole == [k % size for k in range(len(whole))]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def order(**given: Any) -> list[int]:
        return list(dist.DistributedSampler(range(100), 2, 1, **given))

    sampler = dist.DistributedSampler(range(100), 2, 1)
    first, second = list(sampler), list(sampler)
    assert first == order() == order(seed=0) != order(seed=1)
    assert second != first
    again = dist.DistributedSampler(range(100), 2, 1)
    again.load_state_dict({**sampler.state_dict(), "epoch": 1})
    assert list(again) == second


def test_a_loader_takes_the_part_of_its_process() -> None:
    data = hm.data.TensorDataset(hm.arange(10))

    def rank() -> list[int]:
        loader = hm.data.DataLoader(data, batch_size=2, sampler=dist.DistributedSampler(data))
        return [int(index) for (indices,) in loader for index in indices]

    first, second = dist.run_threads(2, rank)
    assert sorted(first + second) == list(range(10))


def test_a_rank_that_is_none() -> None:
    with pytest.raises(hm.ArgumentError, match="rank must be 0 to 1, as num_replicas is 2, got 2"):
        dist.DistributedSampler(range(4), 2, 2)


# -- what a review found


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_freezing_and_unfreezing(traced: bool) -> None:
    def rank() -> Any:
        net = hm.nn.Linear(2, 1)
        model = dist.DataParallel(net)
        x = hm.full((1, 2), 1.0 + dist.get_rank())

        def step(x: Any) -> None:
            model.zero_grad()
            model(x).sum().backward()

        run = hm.trace(step) if traced else step
        run(x)
        net.weight.requires_grad_(False)
        run(x)
        assert net.weight.grad is None and net.bias.grad.tolist() == [1.0]
        net.weight.requires_grad_(True)
        run(x)
        return net.weight.grad.tolist()

    assert dist.run_threads(2, rank) == [[[1.5, 1.5]]] * 2


def test_a_parameter_that_it_does_not_know_is_named() -> None:
    def rank() -> None:
        net = hm.nn.Sequential(hm.nn.Linear(2, 2), hm.nn.Linear(2, 1))
        net[0].requires_grad_(False)
        model = dist.DataParallel(net)
        net[0].requires_grad_(True)
        with pytest.raises(hm.GradientError, match=r"0.weight requires a gradient, and did not .* make it again"):
            model(hm.ones((1, 2)))

    dist.run_threads(2, rank)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("bucket_mb", [2.0, 1e-9])
def test_two_models_in_one_backward(bucket_mb: float, traced: bool) -> None:
    """In whatever order a rank uses them."""

    def rank() -> Any:
        one, other = (dist.DataParallel(hm.nn.Linear(2, 2), bucket_mb=bucket_mb) for _ in range(2))

        def step(x: Any) -> None:
            first, second = (one, other) if dist.get_rank() == 0 else (other, one)
            losses = {id(model): model(x).sum() * (1 if model is one else 100) for model in (first, second)}
            sum(losses.values()).backward()

        (hm.trace(step) if traced else step)(hm.ones((1, 2)))
        return one.module.weight.grad[0, 0].item(), other.module.weight.grad[0, 0].item()

    assert dist.run_threads(2, rank) == [(1.0, 100.0)] * 2


def test_models_that_differ() -> None:
    def rank() -> None:
        net = hm.nn.Sequential(hm.nn.Linear(2, 2), hm.nn.Linear(2, 2))
        net[dist.get_rank()].requires_grad_(False)
        with pytest.raises(
            dist.CollectiveError, match=r"DataParallel\(4 tensors of 12 elements, with names and shapes"
        ):
            dist.DataParallel(net)

    dist.run_threads(2, rank)


def test_all_processes_have_one_model_after_uneven_steps() -> None:
    """Buffers are those of a process that still had steps."""
    networks = [hm.nn.Sequential(hm.nn.Linear(2, 3), hm.nn.BatchNorm1d(3)) for _ in range(3)]

    def rank() -> Any:
        r = dist.get_rank()
        model = dist.DataParallel(networks[r])
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for k in range((1, 4, 2)[r]):
                optimizer.zero_grad()
                (model(hm.arange(8.0).reshape((4, 2)) * (k + r)) ** 3).sum().backward()
                optimizer.step()
        return [t.detach().numpy().tolist() for t in (*networks[r].parameters(), *networks[r].buffers())]

    first, second, third = dist.run_threads(3, rank)
    assert first == second == third and first[-1] == 4


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str, traced: bool) -> None:
    kind = getattr(hm, dtype)

    def rank() -> Any:
        model = dist.DataParallel(hm.nn.Linear(2, 1).to(kind))

        def step(x: Any) -> None:
            model(x).sum().backward()

        (hm.trace(step) if traced else step)(hm.full((1, 2), 1.0 + dist.get_rank(), dtype=kind))
        grad = model.module.weight.grad
        assert grad.dtype == kind
        dist.send(grad, 1 - dist.get_rank())
        return dist.recv(grad, 1 - dist.get_rank()).astype(hm.float32).tolist()

    assert dist.run_threads(2, rank) == [[[1.5, 1.5]]] * 2


def test_a_backward_that_fails_leaves_nothing_under_way() -> None:
    def rank() -> Any:
        net = hm.nn.Sequential(hm.nn.Linear(2, 2), hm.nn.Linear(2, 1))
        model = dist.DataParallel(net, bucket_mb=1e-9)
        fails = True

        def hook(g: Any) -> Any:
            if fails:
                raise ValueError("of a hook")
            return g

        net[0].bias.register_hook(hook)
        for _ in range(3):
            with pytest.raises(ValueError, match="of a hook"):
                model(hm.ones((1, 2))).sum().backward()
        assert not model.group.promised
        fails = False
        model(hm.full((1, 2), 1.0 + dist.get_rank())).sum().backward()
        return net[1].bias.grad.item()

    assert dist.run_threads(2, rank) == [1.0, 1.0]


def test_a_model_of_another_group_is_refused() -> None:
    model = dist.DataParallel(hm.nn.Linear(2, 1))

    def rank() -> None:
        with pytest.raises(hm.ArgumentError, match="make it inside of the function that run_threads runs"):
            model(hm.ones((1, 2)))

    dist.run_threads(2, rank)


def test_join_is_for_eager_steps() -> None:
    def rank() -> None:
        model = dist.DataParallel(hm.nn.Linear(2, 1))
        with pytest.raises(hm.TraceError, match="a traced step does not ask"):
            with model.join():
                hm.trace(lambda x: model(x))(hm.ones((1, 2)))

    dist.run_threads(2, rank)


def test_batch_normalisation_of_an_empty_part_and_of_halves() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 2, 3)).astype(np.float32)
    expected = hm.nn.BatchNorm1d(2)(hm.asarray(x)).detach().numpy()

    def rank() -> Any:
        norm = dist.SyncBatchNorm(2)
        found = norm(hm.asarray(x if dist.get_rank() else x[:0])).detach().numpy()
        half = dist.SyncBatchNorm(1, dtype=hm.float16)(hm.zeros((4, 1, 200, 200), dtype=hm.float16) + 1)
        return found, norm.running_mean.tolist(), half.dtype, half.astype(hm.float32).amax().item()

    (none, mean, dtype, most), (all_of, other, _, _) = dist.run_threads(2, rank)
    np.testing.assert_allclose(all_of, expected, atol=1e-5)
    assert none.shape == (0, 2, 3) and mean == other and np.isfinite(mean).all()
    assert dtype == hm.float16 and most == 0.0


def test_the_length_of_a_part() -> None:
    assert dist.DistributedSampler(range(5), 2, 0).num_samples == 3
