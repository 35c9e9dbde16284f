"""Every function of `hybridml.functional` against recorded values of PyTorch, and where PyTorch has nothing to say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.torch_cases import FUNCTIONS, recorded
from tests.support.torch_checks import close_to_record, in_one_form

F = hm.functional


@pytest.fixture(scope="module")
def torch_values() -> dict[str, np.ndarray]:
    return recorded()[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_gradients_are_pytorchs(name: str, torch_values: dict[str, np.ndarray]) -> None:
    in_one_form(name, FUNCTIONS, lambda: close_to_record(name, FUNCTIONS[name], F, torch_values))


@pytest.mark.parametrize("name", ["relu", "elu", "gelu", "silu", "softplus", "logsigmoid", "leaky_relu"])
def test_activations_stay_finite_and_pass_nan(name: str) -> None:
    x = hm.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    getattr(F, name)(x).sum().backward()
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()
    assert math.isnan(getattr(F, name)(hm.tensor(math.nan)).item())


def test_losses_of_certain_predictions_are_finite() -> None:
    logits = hm.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    F.cross_entropy(logits, hm.asarray([1, 1])).backward()
    assert logits.grad is not None and np.isfinite(logits.grad.numpy()).all()
    p = hm.tensor([0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, hm.asarray([1.0, 0.0]))
    loss.backward()
    assert loss.item() == 100 and p.grad is not None and np.isfinite(p.grad.numpy()).all()


def test_the_first_of_equal_maxima_of_a_window_gets_the_gradient() -> None:
    x = hm.zeros((1, 1, 2, 2)).requires_grad_()
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[[[1.0, 0.0], [0.0, 0.0]]]]


def test_dropout_drops_scales_and_repeats() -> None:
    x = hm.ones((1000,))
    hm.manual_seed(3)
    first = F.dropout(x, 0.25).numpy()
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 650 < (first > 0).sum() < 850
    hm.manual_seed(3)
    assert (F.dropout(x, 0.25).numpy() == first).all()
    assert F.dropout(x, 0.25, training=False) is x
    assert not F.dropout(x, 1.0).numpy().any()


def test_dropout_of_a_gradient_uses_the_same_mask() -> None:
    x = hm.ones((100,)).requires_grad_()
    out = F.dropout(x)
    out.sum().backward()
    assert x.grad is not None and (x.grad.numpy() == out.detach().numpy()).all()


def test_batch_norm_moves_the_running_statistics() -> None:
    x = hm.asarray([[1.0], [2.0], [6.0]])
    mean, variance = hm.zeros((1,)), hm.ones((1,))
    F.batch_norm(x, mean, variance, training=True, momentum=0.5)
    np.testing.assert_allclose([mean.item(), variance.item()], [1.5, (1 + 7) / 2], rtol=1e-6)


def test_second_gradients() -> None:
    x = hm.tensor(np.linspace(-2, 2, 6, dtype=np.float64).reshape(2, 3), requires_grad=True)
    target = hm.asarray([2, 0])
    (g,) = hm.autograd.grad(F.cross_entropy(F.gelu(F.layer_norm(x, (3,))), target), x, create_graph=True)
    (h,) = hm.autograd.grad((g * g).sum(), x)
    step = 1e-5

    def squared(values: np.ndarray) -> float:
        t = hm.tensor(values, requires_grad=True)
        (d,) = hm.autograd.grad(F.cross_entropy(F.gelu(F.layer_norm(t, (3,))), target), t)
        return float((d * d).sum())

    base = x.detach().numpy().copy()
    for k in np.ndindex(base.shape):
        up, down = base.copy(), base.copy()
        up[k] += step
        down[k] -= step
        assert h[k].item() == pytest.approx((squared(up) - squared(down)) / (2 * step), rel=1e-4, abs=1e-8)


def test_one_hot() -> None:
    assert F.one_hot(hm.asarray([[0], [2]]), 4).tolist() == [[[1, 0, 0, 0]], [[0, 0, 1, 0]]]
    assert F.one_hot(hm.asarray([0, 2])).shape == (2, 3)
    assert F.one_hot(hm.asarray([0, 2])).dtype == hm.int64


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: F.gelu(hm.ones((1,)), "erf"), ValueError, "'none' or 'tanh'"),
        (lambda: F.dropout(hm.ones((1,)), 1.5), ValueError, "probability"),
        (lambda: F.conv2d(hm.ones((1, 3, 4, 4)), hm.ones((2, 2, 3, 3))), ValueError, "needs 2 channels"),
        (lambda: F.conv2d(hm.ones((3, 4)), hm.ones((2, 2, 3, 3))), ValueError, "(n, c, h, w)"),
        (lambda: F.conv2d(hm.ones((1, 2, 2, 2)), hm.ones((2, 2, 3, 3))), ValueError, "larger than the padded input"),
        (
            lambda: F.conv2d(hm.ones((1, 1, 4, 4)), hm.ones((1, 1, 3, 3)), stride=2, padding="same"),
            ValueError,
            "stride 1",
        ),
        (lambda: F.max_pool2d(hm.ones((1, 1, 4, 4)), 2, padding=2), ValueError, "half of the window"),
        (lambda: F.layer_norm(hm.ones((2, 3)), (4,)), ValueError, "last axes"),
        (lambda: F.batch_norm(hm.ones((1, 3)), None, None, training=True), ValueError, "more than one value"),
        (lambda: F.cross_entropy(hm.ones((2, 3)), hm.asarray([0, 1, 2])), ValueError, "class indices of shape (2,)"),
        (lambda: F.cross_entropy(hm.ones((2, 3)), hm.asarray([0, 3])), IndexError, "out of range"),
        (lambda: F.cross_entropy(hm.ones((2, 3)), hm.ones((2,))), TypeError, "must be integers, got f32[2]"),
        (lambda: F.mse_loss(hm.ones((2,)), hm.ones((2, 1))), ValueError, "must have one shape"),
        (lambda: F.mse_loss(hm.ones((2,)), hm.ones((2,)), reduction="avg"), ValueError, "'mean', 'sum' or 'none'"),
        (lambda: F.embedding(hm.asarray([5]), hm.ones((3, 2))), IndexError, "out of range"),
        (lambda: F.cdist(hm.ones((3, 2)), hm.ones((3, 2)), -1), ValueError, "cdist: p must be a number, 0 or more"),
        (lambda: F.pdist(hm.ones((3, 2)), p=math.nan), ValueError, "pdist: p must be a number, 0 or more, got nan"),
        (lambda: F.normalize(hm.ones((3, 2)), p=None), ValueError, "normalize: p must be a number, 0 or more"),
        (lambda: F.pairwise_distance(hm.ones(2), hm.ones(2), "a"), ValueError, "pairwise_distance: p must be a number"),
    ],
)
def test_errors_say_what_is_wrong(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace])
def test_a_negative_class_or_row_does_not_exist(style: Any) -> None:
    loss, rows = style(lambda x, y: F.cross_entropy(x, y)), style(lambda i, w: F.embedding(i, w))
    x = hm.zeros((2, 3))
    assert loss(x, hm.asarray([-100, 0])).item() == pytest.approx(np.log(3))
    with pytest.raises(hm.OutOfBoundsError, match="out of range"):
        loss(x, hm.asarray([-1, 0]))
    with pytest.raises(hm.OutOfBoundsError, match="out of range"):
        rows(hm.asarray([0, -1]), x)
    for dtype in (hm.uint8, hm.int8):
        assert rows(hm.asarray([0, 1], dtype=dtype), hm.ones((300, 3))).shape == (2, 3)


def test_linear_of_complex_numbers_has_the_gradients_of_its_product() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in ((2, 3, 4), (5, 4), (5,))]

    def loss(y: hm.Tensor) -> hm.Tensor:
        return (hm.abs(y) ** 3).sum() + hm.real(y * (1 + 2j)).sum()

    def by_product(x: hm.Tensor, w: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return loss(x @ w.T + b)

    def by_linear(x: hm.Tensor, w: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return loss(F.linear(x, w, b))

    tensors = [hm.tensor(array) for array in given]
    wanted = hm.grad(by_product, argnums=(0, 1, 2))(*tensors)
    for fn in (by_linear, hm.trace(by_linear)):
        for found, want in zip(hm.grad(fn, argnums=(0, 1, 2))(*tensors), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12)
