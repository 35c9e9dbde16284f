"""Checkpoints: the same gradients from less memory, eager and traced."""

from __future__ import annotations

from collections.abc import Callable

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
