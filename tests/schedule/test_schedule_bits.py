"""What reads random bits element by element is computed with them: the same bits, and no memory for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
import hybridml.functional as F
from hybridml_compiler.schedule.lowering.lower import TURN

Fn = Callable[[hm.Tensor], object]
SHAPES = [(1,), (TURN - 1,), (TURN,), (TURN + 1,), (3, 5, 100), (2, TURN), (4, 1, 3 * TURN + 7)]


def _leaves(result: object) -> list[np.ndarray]:
    return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]


def _dropout(x: hm.Tensor) -> object:
    return F.dropout(x, 0.3)


def _bits_and_more(x: hm.Tensor) -> object:
    bits = hm.random.bits(x.shape)
    return bits, bits + 1, (bits.astype(hm.float32) * x).sum(-1)


def _in_place(x: hm.Tensor) -> object:
    y = x * 2
    y += hm.random.rand(x.shape)
    return y, hm.where(hm.random.bernoulli(0.3, x.shape), y, x[..., :1])


@pytest.mark.parametrize("fn", [_dropout, _bits_and_more, _in_place])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_eager(fn: Fn, shape: tuple[int, ...]) -> None:
    x = hm.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))

    def drawn(f: Fn) -> list[np.ndarray]:
        hm.manual_seed(3)
        return [array for _ in range(3) for array in _leaves(f(x))]

    for eager, traced in zip(drawn(fn), drawn(hm.trace(fn)), strict=True):
        assert np.allclose(eager, traced, rtol=1e-5) if traced.ndim < len(shape) else np.array_equal(eager, traced)


def test_dropout_is_one_kernel_without_memory_between() -> None:
    drop = hm.trace(lambda x: F.dropout(x, 0.5))
    drop(hm.ones((64, TURN)))
    executable = drop._shown().program.executable
    assert executable.arena_bytes == 0
    assert len(executable.launches) == 2  # and the counter of the generator


def test_gradients_go_through_the_same_mask() -> None:
    x = hm.ones((3, TURN), requires_grad=True)

    @hm.trace
    def step() -> hm.Tensor:
        x.grad = None
        y = F.dropout(x, 0.4)
        y.sum().backward()
        return y

    for _ in range(3):
        y = step().detach().numpy()
        assert np.array_equal(y, x.grad.numpy()) and 0.3 < (y == 0).mean() < 0.5
