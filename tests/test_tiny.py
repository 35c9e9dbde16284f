"""The smallest proof that everything is connected: import, eager, gradients, trace, training. Under 5 s."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)


def chain(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
    return hm.exp(x * 0.5 + y) * hm.tanh(y) - x


def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    wide, tall = x.astype(np.float64), y.astype(np.float64)
    return np.exp(wide * 0.5 + tall) * np.tanh(tall) - wide


def test_eager_is_numpy() -> None:
    x = hm.asarray(X)
    assert np.array_equal((x + 1).numpy(), X + 1)
    assert np.array_equal((x @ x.mT).numpy(), X @ X.T)
    np.testing.assert_allclose(chain(x, x).numpy(), reference(X, X), rtol=1e-6, atol=1e-6)


def test_gradient() -> None:
    x = hm.tensor(X, requires_grad=True)
    ((x * x) + x).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * X + 1, rtol=1e-6, atol=1e-6)
    assert hm.grad(hm.grad(lambda t: t**3))(hm.tensor(2.0)).item() == 12.0


def test_traced_is_eager() -> None:
    traced = hm.trace(chain)
    x, y = hm.asarray(X), hm.asarray(X[::-1].copy())
    for _ in range(2):
        assert np.array_equal(traced(x, y).numpy(), chain(x, y).numpy())
    assert traced.cache_info().compiles == 1
    assert traced.cache_info().hits == 1


def test_training_step_traced_is_eager() -> None:
    def train(style: str) -> tuple[list[float], np.ndarray]:
        hm.manual_seed(0)
        model = hm.nn.Linear(6, 3)
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

        def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = hm.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = hm.trace(step) if style == "traced" else step
        y = hm.asarray(np.array([0, 1, 2, 1]))
        losses = [run(hm.asarray(X), y).item() for _ in range(3)]
        return losses, model.weight.detach().numpy().copy()

    (eager, weight), (traced, other) = train("eager"), train("traced")
    assert eager[0] > eager[-1]
    np.testing.assert_allclose(traced, eager, rtol=1e-5)
    np.testing.assert_allclose(other, weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("style", ["eager", "traced"])
def test_an_error_names_the_operation_and_both_shapes(style: str) -> None:
    run = hm.trace(chain) if style == "traced" else chain
    with pytest.raises(hm.ShapeError, match=r"add: .*f32\[4,6\].*f32\[5\]"):
        run(hm.asarray(X), hm.ones((5,)))
