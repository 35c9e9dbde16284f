"""Random numbers of a GPU: drawn there, in eager code and by graphs that are replayed, with the bits of the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.cuda import needs_nvrtc
from tests.support.gpus import Gpu, array, there

__all__ = ["there"]
pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]


def test_each_replay_draws_new_numbers(there: Gpu) -> None:
    """The state of the generator is an argument of the one graph, and moves on with each call."""

    def program(x: Any) -> Any:
        return hm.functional.dropout(hm.exp(x).sum(1, keepdims=True) + x, 0.5), hm.randn(7, device=x.device) + 1

    runs = []
    for device in ("cpu", there.name):
        hm.manual_seed(5)
        traced, x, found = hm.trace(program), array(4, 40).to(device), []
        for _ in range(8):
            if there.runtime is not None:
                there.runtime.calls.clear()
            found.append([out.cpu().numpy() for out in traced(x)])
        runs.append(found)
    if there.runtime is not None:
        assert there.runtime.calls.count("graph") == 1 and "launch" not in there.runtime.calls
    for here, on_device in zip(*runs, strict=True):
        np.testing.assert_array_equal(here[0] == 0, on_device[0] == 0)
        np.testing.assert_array_equal(here[1], on_device[1])
    assert len({found[1].tobytes() for found in runs[1]}) == 8


def test_eager_numbers_are_drawn_on_the_device(there: Gpu) -> None:
    """With the bits of the CPU's, and the generator goes on as there. The state is all that is moved."""

    def numbers(device: str) -> list[Any]:
        x = hm.ones(50).to(device)
        drawn = [
            hm.randn(3, 5, device=device),
            hm.rand_like(x),
            hm.random.normal((50,), x * 2, 0.5),
            hm.random.randint(0, 10, (40,), device=device),
            hm.functional.dropout(x, 0.3),
            hm.random.gamma(2.0, shape=(5,), device=device),
        ]
        with hm.device(device):
            drawn += [hm.random.permutation(20), hm.random.bits((5,)), hm.nn.Linear(3, 4).weight.detach()]
            drawn.append(hm.random.default_generator.spawn(2)[1].normal((3,)))
        assert all(t.device == device for t in drawn)
        return [t.cpu().numpy() for t in drawn] + [hm.random.default_generator.get_state().tolist()]

    hm.manual_seed(7)
    expected = numbers("cpu")
    hm.manual_seed(7)
    for a, b in zip(numbers(there.name), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    if there.runtime is not None:
        before = there.runtime.uploaded
        hm.randn(100, 30, device=there.name)
        assert there.runtime.uploaded - before <= 64


def test_attention_with_dropout_is_traced_and_draws_the_same_weights(there: Gpu) -> None:
    """The state that its gradient draws from again stays on the CPU, the weights are drawn where the scores are."""

    def gradient(x: Any) -> Any:
        attend = hm.functional.scaled_dot_product_attention
        return hm.grad(lambda x: (attend(x, x, x, dropout_p=0.3) ** 2).sum())(x)

    x = hm.tensor(np.random.default_rng(0).standard_normal((2, 10, 4)).astype("f4"))
    found = []
    for device in ("cpu", there.name):
        traced = hm.trace(gradient, strict=True)
        hm.manual_seed(5)
        found.append([traced(x.to(device)).cpu().numpy() for _ in range(3)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found[0][0], found[0][1])
