"""Collectives of thread groups in both styles: values and gradients beside the same written for all ranks at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml_compiler.errors import OutOfBoundsError

Ranks = Sequence[Any]  # an array or a tensor of each rank


def total(xs: Ranks) -> Any:
    found = xs[0]
    for x in xs[1:]:
        found = found + x
    return found


def product(xs: Ranks) -> Any:
    found = xs[0]
    for x in xs[1:]:
        found = found * x
    return found


def part(x: Any, rank: int, size: int) -> Any:
    rows = x.shape[0] // size
    return x[rank * rows : (rank + 1) * rows]


# What a rank calls, and what all of them get, of the tensors of all.
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Ranks], list[Any]]]] = {
    "sum": (dist.all_reduce, lambda xs: [total(xs)] * len(xs)),
    "mean": (lambda x: dist.all_reduce(x, "mean"), lambda xs: [total(xs) / len(xs)] * len(xs)),
    "prod": (lambda x: dist.all_reduce(x, "prod"), lambda xs: [product(xs)] * len(xs)),
    "max": (lambda x: dist.all_reduce(x, "max"), lambda xs: [hm.stack(xs).amax(0)] * len(xs)),
    "min": (lambda x: dist.all_reduce(x, op="min"), lambda xs: [hm.stack(xs).amin(0)] * len(xs)),
    "broadcast": (lambda x: dist.broadcast(x, src=1), lambda xs: [xs[1]] * len(xs)),
    "all_gather": (dist.all_gather, lambda xs: [hm.concat(xs)] * len(xs)),
    "reduce_scatter": (dist.reduce_scatter, lambda xs: [part(total(xs), r, len(xs)) for r in range(len(xs))]),
    "all_to_all": (
        dist.all_to_all,
        lambda xs: [hm.concat([part(x, r, len(xs)) for x in xs]) for r in range(len(xs))],
    ),
}


def inputs(size: int, dtype: Any = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    return [(rng.standard_normal((2 * size, 3)) * 4).astype(dtype) for _ in range(size)]


def in_style(fn: Any, traced: bool) -> Any:
    return hm.trace(fn) if traced else fn


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, size: int, traced: bool) -> None:
    """Each rank's loss weighs what it has got by its own number; gradients are those of the sum of the losses."""
    collective, of_all = CASES[name]
    given = inputs(size)

    def loss_of(rank: int, result: Any) -> Any:
        return ((rank + 2.0) * result * result).sum()

    def rank() -> tuple[np.ndarray, np.ndarray]:
        r = dist.get_rank()

        def step(x: Any) -> tuple[Any, Any]:
            result = collective(x)
            return loss_of(r, result), result

        run = in_style(hm.value_and_grad(step, has_aux=True), traced)
        for _ in range(3):
            (_, result), gradient = run(hm.asarray(given[r]))
        return result.numpy(), gradient.numpy()

    def whole(*xs: Any) -> Any:
        return sum(loss_of(r, result) for r, result in enumerate(of_all(xs)))

    found = dist.run_threads(size, rank)
    tensors = [hm.asarray(x) for x in given]
    values = [value.numpy() for value in of_all(tensors)]
    gradients = hm.grad(whole, argnums=tuple(range(size)))(*tensors)
    for (value, gradient), expected, slope in zip(found, values, gradients, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(gradient, slope.numpy(), rtol=1e-5)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_gradients_of_gradients(traced: bool) -> None:
    def rank() -> list[float]:
        def loss(x: Any) -> Any:
            return (dist.all_reduce(x) ** 3).sum()

        slope = hm.grad(lambda x: (hm.grad(loss)(x) ** 2).sum())
        x = hm.tensor([1.0 + dist.get_rank()])
        return in_style(slope, traced)(x).tolist()

    # The slope of the sum of both losses s^3 is 6 s^2 at each rank, and that of 2 (6 s^2)^2 is 288 s^3.
    assert dist.run_threads(2, rank) == [[288.0 * 27], [288.0 * 27]]


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_sends_and_their_gradients(traced: bool) -> None:
    """A ring: each rank sends to the next one, and gets the gradient back."""

    def rank() -> tuple[list[float], list[float]]:
        r = dist.get_rank()

        def step(x: Any) -> Any:
            zero = dist.send(x * 2, (r + 1) % 3)
            got = dist.recv(x, (r - 1) % 3)
            return ((r + 1.0) * got).sum() + zero, got

        (_, got), gradient = in_style(hm.value_and_grad(step, has_aux=True), traced)(hm.full((2,), 1.0 + r))
        return got.tolist(), gradient.tolist()

    assert dist.run_threads(3, rank) == [
        ([6.0, 6.0], [4.0, 4.0]),
        ([2.0, 2.0], [6.0, 6.0]),
        ([4.0, 4.0], [2.0, 2.0]),
    ]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_dtypes(dtype: str) -> None:
    kind = getattr(hm, dtype)

    def rank() -> Any:
        x = hm.asarray([[dist.get_rank(), 1], [1, 0]], dtype=kind)
        op = "max" if dtype in ("bool",) else "sum"
        results = [dist.all_reduce(x, op), dist.all_gather(x), dist.broadcast(x), dist.all_to_all(x)]
        assert all(result.dtype == kind for result in results)
        return [np.asarray(result.astype(hm.complex64).numpy()).real.tolist() for result in results]

    reduced, gathered, sent, exchanged = dist.run_threads(2, rank)[1]
    assert reduced == ([[1, 1], [1, 0]] if dtype == "bool" else [[1, 2], [2, 0]])
    assert gathered == [[0, 1], [1, 0], [1, 1], [1, 0]]
    assert sent == [[0, 1], [1, 0]]
    assert exchanged == [[1, 0], [1, 0]]


def test_collectives_are_nodes_behind_each_other() -> None:
    def rank() -> str:
        @hm.trace
        def step(x: Any) -> Any:
            dist.barrier()
            return dist.all_reduce(dist.all_gather(x * 2) + 1)

        step(hm.ones(2))
        return step.ir

    text = dist.run_threads(2, rank)[0]
    names = [
        name for line in text.splitlines() for name in ("barrier", "all_gather", "all_reduce") if f"= {name}(" in line
    ]
    assert list(dict.fromkeys(names)) == ["barrier", "all_gather", "all_reduce"]
    assert 'group="world"' in text


def test_a_collective_whose_result_nobody_reads_is_called() -> None:
    """The other ranks wait for it."""

    def rank() -> float:
        @hm.trace
        def step(x: Any) -> Any:
            dist.all_reduce(x)
            return x.sum()

        return [step(hm.ones(2)).item() for _ in range(3)][-1] + dist.all_reduce(hm.ones(1)).item()

    assert dist.run_threads(2, rank) == [4.0, 4.0]


def test_collectives_in_loops_of_a_trace() -> None:
    def rank() -> float:
        @hm.trace
        def step(x: Any) -> Any:
            for _ in range(50):
                x = dist.all_reduce(x) / dist.get_world_size() + 1
            return x

        return step(hm.asarray(float(dist.get_rank()))).item()

    assert dist.run_threads(2, rank) == [50.5, 50.5]


def test_a_group_of_one_needs_nobody() -> None:
    x = hm.asarray([[1.0, 2.0]])
    for collective, _ in (CASES[name] for name in CASES if name != "broadcast"):
        assert collective(x).tolist() == x.tolist()
    assert dist.broadcast(x).tolist() == x.tolist()
    dist.barrier()
    assert hm.trace(lambda x: dist.all_reduce(x) + 1)(x).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: dist.all_reduce(x, "median"), hm.ArgumentError, "op is one of sum, mean, prod, max, min, got"),
        (lambda x: dist.all_reduce((x > 0).astype(hm.int32), "mean"), hm.DTypeError, "use astype"),
        (lambda x: dist.all_reduce(x > 0), hm.DTypeError, "booleans have no sum"),
        (lambda x: dist.all_gather(x.sum()), hm.ShapeError, "all_gather: x needs an axis"),
        (lambda x: dist.reduce_scatter(x), hm.ShapeError, "must divide into 2 parts"),
        (lambda x: dist.all_to_all(x), hm.ShapeError, "must divide into 2 parts"),
        (lambda x: dist.broadcast(x, 2), hm.ArgumentError, "src must be a rank of .*0 to 1, got 2"),
        (lambda x: dist.send(x, dist.get_rank()), hm.ArgumentError, "the rank of another process"),
        (lambda x: dist.recv(x, -1), hm.ArgumentError, "src must be a rank"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_wrong_calls(call: Any, error: type[Exception], text: str, traced: bool) -> None:
    def rank() -> None:
        with pytest.raises(error, match=text):
            in_style(call, traced)(hm.ones(3))

    dist.run_threads(2, rank)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("name", CASES)
def test_a_collective_of_each_element_of_a_batch_is_one_call(name: str, traced: bool) -> None:
    """Values and gradients are those of the elements one after the other."""
    collective, _ = CASES[name]

    def rank() -> None:
        x = hm.asarray(np.random.default_rng(dist.get_rank()).standard_normal((3, 4, 2)).astype(np.float32))

        def slope(x: Any) -> Any:
            return hm.grad(lambda x: (collective(x) ** 2).sum())(x)

        for fn in (collective, slope):
            found = in_style(hm.vmap(fn), traced)(x)
            for k in range(3):
                np.testing.assert_allclose(found[k].numpy(), fn(x[k]).numpy(), rtol=1e-6)

    dist.run_threads(2, rank)


def test_the_gradient_of_a_product_has_zeros_and_complex_numbers() -> None:
    def rank() -> Any:
        r = dist.get_rank()
        gradient = hm.grad(lambda x: dist.all_reduce(x, "prod").sum())(hm.tensor([0.0, 2.0, 3.0]) * (1 + r))
        x = hm.tensor((1 + 2j, 3 - 1j)[r], requires_grad=True)
        hm.real(dist.all_reduce(x, "prod")).backward()
        return gradient.tolist(), x.grad.item()

    product = hm.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (2 * hm.real(product[0] * product[1])).backward()  # the losses of both
    first, second = dist.run_threads(2, rank)
    assert first == ([0.0, 8.0, 12.0], product.grad[0].item())
    assert second == ([0.0, 4.0, 6.0], product.grad[1].item())


def test_second_derivatives_and_forward_mode() -> None:
    """Forward mode goes along a direction in all ranks at once: the slope 4 s of both losses grows with both parts of
    the sum s."""

    def rank() -> tuple[Any, Any]:
        x = hm.tensor([1.0, 2.0])
        hessian = hm.hessian(lambda x: (dist.all_reduce(x) ** 2).sum())(x)
        return hessian.tolist(), hm.jvp(dist.all_reduce, (x,), (x,))[1].tolist()

    assert dist.run_threads(2, rank)[0] == ([[8.0, 0.0], [0.0, 8.0]], [2.0, 4.0])


def test_an_element_of_a_batch_is_checked_like_any_tensor() -> None:
    def rank() -> None:
        with pytest.raises(hm.ShapeError, match="x needs an axis"):
            hm.vmap(dist.all_gather)(hm.ones(3))
        assert hm.vmap(lambda x: dist.all_reduce(hm.ones(2)) + x)(hm.zeros((3, 2))).tolist() == [[2.0, 2.0]] * 3

    dist.run_threads(2, rank)


@pytest.mark.parametrize("size", [3, 40_000])
def test_a_program_that_fails_behind_a_collective_calls_the_next_time_anew(size: int) -> None:
    """Its error is found without the others; results that are too large to be kept for that are said to be."""

    def rank() -> list[Any]:
        def step(x: Any, t: Any) -> Any:
            total = dist.all_reduce(x)
            return hm.take(t, total[:1].astype("int64")), total[0]

        run, rows = hm.trace(step), hm.arange(3.0)
        kind, text = (OutOfBoundsError, "index 4") if size == 3 else (dist.CollectiveError, "are not kept for that")
        with pytest.raises(kind, match=text):
            run(hm.full((size,), 2.0), rows)
        return [float(found.sum()) for found in run(hm.full((size,), 0.5), rows)]

    assert dist.run_threads(2, rank) == [[1.0, 1.0]] * 2


def test_collectives_of_two_groups_have_one_order_in_a_program() -> None:
    """Whatever a rank makes of the results: all call in the order of the text."""

    def rank() -> Any:
        world = dist.init()
        part = world.split(0)

        @hm.trace
        def step(x: Any) -> Any:
            first = dist.all_reduce(x, group=world)
            second = dist.all_reduce(x * 2, group=part)
            return (second.sum(), first + second) if world.rank == 0 else (first + second, first)

        return [found.numpy().tolist() for found in step(hm.ones((2,)))]

    assert dist.run_threads(2, rank) == [[8.0, [6.0, 6.0]], [[6.0, 6.0], [2.0, 2.0]]]
