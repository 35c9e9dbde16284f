"""Checkpoints: the same gradients from less memory, eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml.nn import Dropout
from hybridml_compiler import pipeline
from hybridml_compiler.errors import DTypeError, GradientError

Step = Callable[[hm.Tensor], tuple[hm.Tensor, ...]]


def deep(checkpointed: bool, blocks: int = 6, layers: int = 3) -> Step:
    """Loss and gradients of a deep network, block by block."""
    rng = np.random.default_rng(0)
    weights = [
        [hm.tensor(rng.standard_normal((64, 64), np.float32) / 8, requires_grad=True) for _ in range(layers)]
        for _ in range(blocks)
    ]

    def block(x: hm.Tensor, number: int) -> hm.Tensor:
        for w in weights[number]:
            x = F.gelu(x @ w, approximate="tanh")
        return x

    def step(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        for number in range(blocks):
            x = hm.checkpoint(block, x, number) if checkpointed else block(x, number)
        loss = (x * x).mean()
        every = [w for several in weights for w in several]
        return (loss.detach(), *(g for g in hm.autograd.grad(loss, every) if g is not None))

    return step


def data() -> hm.Tensor:
    return hm.tensor(np.random.default_rng(1).standard_normal((256, 64), np.float32))


def test_gradients_are_those_without() -> None:
    expected = deep(False)(data())
    for style in (deep(True), hm.trace(deep(True))):
        for got, want in zip(style(data()), expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-9)


def test_a_traced_program_keeps_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal nodes are one: if the second run were the first one again, nothing would be gained."""
    arenas: list[int] = []
    compile_ = pipeline.compile

    def watched(*args: object, **kwargs: object) -> object:
        executable = compile_(*args, **kwargs)  # type: ignore[arg-type]
        arenas.append(executable.stats.arena_bytes)
        return executable

    monkeypatch.setattr(pipeline, "compile", watched)
    sizes = []
    for checkpointed in (False, True):
        arenas.clear()
        hm.trace(deep(checkpointed))(data())
        sizes.append(max(arenas))
    assert sizes[1] < 0.4 * sizes[0]


@pytest.mark.parametrize("style", ["eager", "traced"])
def test_random_numbers_are_drawn_again(style: str) -> None:
    drop = Dropout(0.5)

    def step(x: hm.Tensor, checkpointed: bool) -> tuple[hm.Tensor, hm.Tensor, hm.Tensor]:
        y = hm.checkpoint(lambda x: drop(hm.exp(x)), x) if checkpointed else drop(hm.exp(x))
        (g,) = hm.autograd.grad(y.sum(), x)
        assert g is not None
        return y.detach(), g, hm.random.uniform((4,))

    results = []
    for checkpointed in (False, True):
        hm.manual_seed(3)
        x = hm.tensor(np.linspace(-1, 1, 64, dtype="f4"), requires_grad=True)
        run = hm.trace(step) if style == "traced" else step
        results.append([t.numpy() for t in run(x, checkpointed)])
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("style", ["eager", "traced", "traced inside", "traced loop inside"])
def test_numbers_are_drawn_again_from_any_generator_whoever_else_draws(style: str) -> None:
    """Other threads draw from the same generators in the first run, before the second one and in it."""
    mine = hm.random.Generator(5)

    def noise(x: hm.Tensor) -> hm.Tensor:
        y = x * hm.random.uniform(x.shape)
        others()
        return y * mine.normal(x.shape) + hm.random.gamma(2.0, shape=x.shape) * x

    def others() -> None:
        if style == "traced":
            return
        thread = Thread(target=lambda: (hm.random.uniform((8,)), mine.uniform((3,))))
        thread.start()
        thread.join()

    inner = {"traced inside": hm.trace(lambda x: x * hm.random.uniform(x.shape) + hm.random.normal(x.shape) * x)}
    inner["traced loop inside"] = hm.trace(lambda x: x * hm.random.gamma(0.7, shape=x.shape))  # it rejects: a loop
    body = inner.get(style, noise)

    def twice(x: hm.Tensor) -> hm.Tensor:
        y = body(x)
        others()
        return y * body(x)

    def step(x: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor | None]:
        y = hm.checkpoint(twice, x)
        others()
        return y.detach(), hm.autograd.grad(y.sum(), x)[0]

    x = hm.tensor(np.linspace(1, 2, 6), requires_grad=True)
    y, g = (hm.trace(step) if style == "traced" else step)(x)
    assert g is not None
    np.testing.assert_allclose(
        g.numpy(), 2 * y.numpy() / x.detach().numpy(), rtol=1e-12
    )  # y is a multiple of x squared


def test_the_second_run_moves_no_generator_and_sees_the_states_of_the_first() -> None:
    generator = hm.random.Generator(1)

    def seeded(x: hm.Tensor) -> hm.Tensor:
        again = hm.random.Generator.at(generator.get_state())
        a = generator.uniform(x.shape) * again.uniform(x.shape)  # the same number squared
        generator.manual_seed(9)
        return x * a * generator.uniform(x.shape)

    x = hm.tensor(np.ones(3), requires_grad=True)
    y = hm.checkpoint(seeded, x)
    generator.uniform((5,))
    after = generator.get_state()
    y.sum().backward()
    assert generator.get_state().tolist() == after.tolist()
    assert x.grad is not None and x.grad.tolist() == y.tolist()


def test_checkpoints_within_checkpoints_draw_the_same_again() -> None:
    def inner(x: hm.Tensor) -> hm.Tensor:
        return x * hm.random.uniform(x.shape)

    x = hm.tensor(np.ones(4), requires_grad=True)
    y = hm.checkpoint(lambda x: inner(hm.checkpoint(inner, inner(x))), x)
    hm.random.uniform((64,))
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == y.tolist()


def test_a_second_run_that_draws_more_is_an_error() -> None:
    counts = iter([4, 400])
    x = hm.tensor(np.ones(4), requires_grad=True)
    y = hm.checkpoint(lambda x: x * hm.random.uniform((next(counts),)).sum(), x)
    with pytest.raises(GradientError, match="drew other random numbers when it was computed again"):
        y.sum().backward()


def test_several_results_and_arguments_without_gradient() -> None:
    x, c = hm.tensor([1.0, 2.0], requires_grad=True), hm.tensor([3.0, 4.0])
    a, b, n = hm.checkpoint(lambda x, c, scale: (x * c, hm.exp(x) * scale, (c > 3).sum()), x, c, scale=2.0)
    assert not n.requires_grad and n.item() == 1
    (a.sum() + (b * b).sum()).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), c.numpy() + 8 * np.exp(2 * np.array([1.0, 2.0])), rtol=1e-6)


def test_gradients_of_gradients() -> None:
    x = hm.tensor(0.5, requires_grad=True)
    (g,) = hm.autograd.grad(hm.checkpoint(hm.sin, x * x), x, create_graph=True)
    assert g is not None
    (gg,) = hm.autograd.grad(g, x)
    assert gg is not None
    np.testing.assert_allclose(gg.item(), 2 * np.cos(0.25) - 4 * 0.25 * np.sin(0.25), rtol=1e-6)


def test_without_gradients_it_is_a_call() -> None:
    with hm.no_grad():
        assert hm.checkpoint(lambda x: x + 1, 1) == 2
    assert not hm.checkpoint(hm.exp, hm.tensor([1.0])).requires_grad


def test_an_argument_that_was_written_to_is_an_error() -> None:
    x, c = hm.tensor([1.0], requires_grad=True), hm.tensor([2.0])
    y = hm.checkpoint(lambda x, c: x * c, x, c)
    c += 1
    with pytest.raises(GradientError, match="checkpoint: its argument 1 was overwritten"):
        y.backward()


def test_the_result_must_be_tensors() -> None:
    with pytest.raises(DTypeError, match="must return a tensor or a tuple of tensors, got list"):
        hm.checkpoint(lambda x: [x], hm.tensor([1.0], requires_grad=True))


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
def test_a_gradient_through_a_checkpoint_can_be_differentiated_in_what_lies_around(style: Callable[..., Any]) -> None:
    """The history of a checkpoint leads to what its function reads from outside, not to its arguments alone."""
    w, x = hm.tensor([2.0, 3.0], requires_grad=True), hm.tensor([1.0, 5.0])

    def inner(x: hm.Tensor) -> hm.Tensor:
        return (x * x * w).sum()

    def outer(x: hm.Tensor) -> hm.Tensor:
        value, g = hm.value_and_grad(lambda x: hm.checkpoint(inner, x))(x)
        return value + g.sum()

    found = style(outer)(x)
    found.backward()
    assert w.grad is not None and w.grad.tolist() == [3.0, 35.0]
