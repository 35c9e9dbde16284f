"""Composites compiled at the granularity of one call: the numbers of the operations, gradients included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml.tracing import compiled
from tests.support.torch_layers import FUNCTIONS as LAYERS

X = np.random.default_rng(0).standard_normal((6, 4, 8, 8)).astype("f4")
W = np.random.default_rng(1).standard_normal((5, 4, 3, 3)).astype("f4")

CALLS: dict[str, Callable[[hm.Tensor], hm.Tensor]] = {
    "relu": F.relu,
    "logsigmoid": F.logsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "elu": lambda x: F.elu(x, 0.7),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (8, 8)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, hm.zeros((4,)), hm.ones((4,)), hm.ones((4,)), training=True),
    "conv2d": lambda x: F.conv2d(x, hm.asarray(W), stride=2, padding=1),
    "conv1d": lambda x: F.conv1d(x.reshape((6, 4, 64)), hm.asarray(W[:, :, 0]), dilation=2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, hm.asarray(W[:4]), stride=2, output_padding=1),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2),
    "embedding": lambda x: F.embedding(hm.asarray([[0, 5], [5, 23]]), x.reshape((24, 64)), padding_idx=0),
    "linear": lambda x: F.linear(x, hm.asarray(W[:, 0, 0, :].repeat(3, axis=1)[:, :8]), hm.asarray(W[:, 0, 0, 0])),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=True),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape((24, 64)), hm.arange(24)),
}


def value_and_gradient(call: Callable[[hm.Tensor], hm.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    x = hm.tensor(X, requires_grad=True)
    out = call(x)
    (out * hm.cos(hm.arange(out.size, dtype=hm.float32).reshape(out.shape))).sum().backward()
    assert x.grad is not None
    return out.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("name", CALLS)
def test_compiled_and_plain_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = value_and_gradient(CALLS[name])
    monkeypatch.setattr(compiled, "LARGE", 0)
    for got, expected in zip(value_and_gradient(CALLS[name]), plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_move_in_a_compiled_call(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[np.ndarray]:
        mean, variance = hm.zeros((4,)), hm.ones((4,))
        outs = [
            F.batch_norm(hm.asarray(X), mean, variance, training=training, momentum=m) for m in (0.1, 0.1, 0.3, 0.1)
        ]
        return [np.asarray(t) for t in (*outs, mean, variance)]

    plain = run()
    monkeypatch.setattr(compiled, "LARGE", 0)
    for got, expected in zip(run(), plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_every_composite_is_tried() -> None:
    named = {name for name in dir(F) if getattr(getattr(F, name), "__globals__", None) is vars(compiled)}
    assert named <= CALLS.keys() | {"relu6"} | {case.split()[0] for case in LAYERS}  # those are traced in test_layers


def test_large_arrays_are_compiled_and_errors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError) as plain:
        F.softmax(hm.ones((2, 3)), 5)
    monkeypatch.setattr(compiled, "LARGE", 0)
    with pytest.raises(ValueError) as traced:
        F.softmax(hm.ones((2, 3)), 5)
    assert str(plain.value).splitlines()[0] == str(traced.value).splitlines()[0]


def test_composites_of_pairs_and_of_steps_are_compiled_for_smaller_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def noted(fn: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
        made.append(fn.__name__)
        return fn

    monkeypatch.setattr(compiled, "_traced", noted)
    decorators = {
        compiled.compiled: 1,
        compiled.compiled_for_all_sizes: compiled.STEPS,
        compiled.compiled_for_pairs: compiled.PAIRS,
    }
    for decorate, work in decorators.items():
        fn = decorate(lambda x: x + 1)
        fn(hm.ones(compiled.LARGE // work - 1))
        assert not made
        fn(hm.ones(compiled.LARGE // work))
        assert made.pop() == "<lambda>"


def test_many_signatures_go_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "LARGE", 0)
    monkeypatch.setattr(compiled, "MOST", 2)
    made: list[hm.TracedFunction] = []

    traced = compiled._traced

    def noted(fn: Callable[..., Any], dynamic: bool) -> hm.TracedFunction:
        made.append(traced(fn, dynamic))
        return made[0]

    monkeypatch.setattr(compiled, "_traced", noted)
    double = compiled.compiled(lambda x: x * 2)
    for n in (3, 4, 5, 6, 6, 3, 4):
        assert double(hm.ones(n)).tolist() == [2.0] * n
    assert made[0].cache_info().compiles == 2
    assert made[0].cache_info().hits == 2, "what has been compiled is used, however many came after it"


def test_the_gradient_of_a_traced_function_of_a_float() -> None:
    @hm.trace
    def scaled(x: hm.Tensor, a: float) -> hm.Tensor:
        return hm.exp(x * a)

    for a in (0.5, 0.7):
        x = hm.tensor([1.0, 2.0], requires_grad=True)
        scaled(x, a).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), a * np.exp(np.array([1.0, 2.0]) * a), rtol=1e-6)
    assert scaled.cache_info().compiles == 1
