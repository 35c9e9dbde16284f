"""Products whose results are worked on where they are computed: traced and eager agree, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn

Model = Callable[[hm.Tensor], hm.Tensor]


def two_layers(activation: Callable[[hm.Tensor], hm.Tensor]) -> nn.Module:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(24, 40), nn.Linear(40, 24)

        def forward(self, x: hm.Tensor) -> hm.Tensor:
            return x + self.down(activation(self.up(x)))

    return Layers()


def gradients(
    model: nn.Module, x: hm.Tensor, style: Callable[[Callable[..., hm.Tensor]], Callable[..., hm.Tensor]]
) -> list[np.ndarray]:
    """The loss, and the gradients of all parameters and of x."""
    hm.manual_seed(0)

    @style
    def loss(x: hm.Tensor) -> hm.Tensor:
        return (model(x) ** 2).mean()

    x = x.detach().requires_grad_()
    for parameter in model.parameters():
        parameter.grad = None
    value = loss(x)
    value.backward()
    tensors = [x, *model.parameters()]
    return [value.detach().numpy(), *(t.grad.numpy() for t in tensors if t.grad is not None)]


ACTIVATIONS: dict[str, Callable[[hm.Tensor], hm.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "dropout": lambda x: F.dropout(F.relu(x), 0.3, training=True),
    "residual": lambda x: F.relu(x) + x * 0.5,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (3, 33, 24)])
def test_a_network_of_two_layers(name: str, shape: tuple[int, ...]) -> None:
    hm.manual_seed(1)
    model = two_layers(ACTIVATIONS[name])
    x = hm.asarray(np.random.default_rng(0).standard_normal(shape).astype("f4"))
    eager, traced = gradients(model, x, lambda f: f), gradients(model, x, hm.trace)
    assert len(eager) == len(traced) == 6
    for e, t in zip(eager, traced, strict=True):
        np.testing.assert_allclose(t, e, rtol=2e-4, atol=2e-6)


def test_masked_scores_of_a_batch() -> None:
    q, k, v = (hm.asarray(np.random.default_rng(s).standard_normal((2, 3, 20, 8)).astype("f4")) for s in range(3))
    mask = hm.asarray(np.tril(np.ones((20, 20), bool)))

    def attention(q: hm.Tensor, k: hm.Tensor, v: hm.Tensor) -> hm.Tensor:
        scores = hm.where(mask, q @ k.permute((0, 1, 3, 2)) * 8**-0.5, float("-inf"))
        return F.softmax(scores, -1) @ v

    np.testing.assert_allclose(hm.trace(attention)(q, k, v).numpy(), attention(q, k, v).numpy(), rtol=1e-5, atol=1e-6)


def test_an_update_is_part_of_the_product_that_makes_the_gradient() -> None:
    hm.manual_seed(2)
    eager, traced = nn.Linear(16, 12), nn.Linear(16, 12)
    traced.load_state_dict(eager.state_dict())
    x = hm.asarray(np.random.default_rng(3).standard_normal((20, 16)).astype("f4"))

    def training(model: nn.Module) -> Callable[[hm.Tensor], hm.Tensor]:
        optimizer = hm.optim.Adam(model.parameters(), lr=0.1)

        def step(x: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    one, other = training(eager), hm.trace(training(traced))
    for _ in range(4):
        np.testing.assert_allclose(other(x).detach().numpy(), one(x).detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(traced.weight.detach().numpy(), eager.weight.detach().numpy(), rtol=1e-4, atol=1e-5)
