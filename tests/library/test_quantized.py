"""Products in 16 and 8 bits for users: `@` on bfloat16, and linear layers in int8."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn.quantized import QuantizedLinear, quantize, quantize_linear
from hybridml_compiler.errors import DTypeError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "shapes",
    [((300, 70), (70, 500)), ((4, 128, 300), (300, 60)), ((3, 2, 90, 200), (2, 200, 77)), ((200, 300), (300,))],
)
def test_products_of_bfloat16_eager_and_traced(shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = (hm.asarray(RNG.standard_normal(shape), dtype=hm.bfloat16) for shape in shapes)
    eager, traced = x @ y, hm.trace(lambda x, y: x @ y)(x, y)
    assert eager.dtype == hm.bfloat16
    np.testing.assert_array_equal(eager.numpy(), traced.numpy())
    left, right = x.numpy().astype("f8"), y.numpy().astype("f8")
    scale = np.abs(left) @ np.abs(right)
    assert (
        np.abs(eager.numpy().astype("f8") - left @ right) <= 2.0**-8 * np.abs(left @ right) + 2.0**-18 * scale
    ).all()


def test_gradients_of_products_of_bfloat16() -> None:
    x, w = (hm.asarray(RNG.integers(-2, 3, shape), dtype=hm.bfloat16) for shape in ((200, 180), (180, 190)))
    g = hm.asarray(RNG.integers(-1, 2, (200, 190)), dtype=hm.bfloat16)
    for product in (hm.matmul, hm.trace(hm.matmul)):
        x, w = (t.detach().requires_grad_() for t in (x, w))
        (product(x, w) * g).sum(dtype=hm.float32).backward()
        for got, left, right in ((x.grad, g, w.mT), (w.grad, x.mT, g)):
            assert got is not None and got.dtype == hm.bfloat16
            exact = left.detach().numpy().astype("f4") @ right.detach().numpy().astype("f4")
            np.testing.assert_array_equal(got.numpy(), exact.astype(got.numpy().dtype))


def test_convolutions_of_bfloat16() -> None:
    x, w = (hm.asarray(RNG.integers(-2, 3, shape), dtype=hm.bfloat16) for shape in ((2, 8, 20, 20), (16, 8, 3, 3)))
    expected = hm.nn.functional.conv2d(x.astype("f4"), w.astype("f4"), padding=1).astype(hm.bfloat16).numpy()
    for conv in (hm.nn.functional.conv2d, hm.trace(lambda x, w, padding: hm.nn.functional.conv2d(x, w, padding=1))):
        np.testing.assert_array_equal(conv(x, w, padding=1).numpy(), expected)


def test_rows_are_scaled_so_that_their_largest_is_127() -> None:
    x = hm.asarray(np.array([[1, -2, 0.5], [0, 0, 0], [300, 0, 1]]), dtype="f4")
    values, scale = quantize(x)
    assert values.dtype == hm.int8 and scale.shape == (3, 1)
    assert values.tolist() == [[64, -127, 32], [0, 0, 0], [127, 0, 0]]
    big = hm.asarray(RNG.standard_normal((50, 300)) * RNG.uniform(1e-3, 1e3, (50, 1)), dtype="f4")
    values, scale = quantize(big)
    assert (abs(values * scale - big) <= scale * 0.5001).all().item()
    with pytest.raises(DTypeError, match="quantize: input must be of a float dtype, got int32"):
        quantize(hm.arange(3, dtype=hm.int32))


def test_a_quantised_model_is_close_and_the_same_eager_and_traced() -> None:
    hm.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(200, 300), nn.GELU(), nn.Sequential(nn.Linear(300, 100, bias=False)), nn.Linear(100, 10)
    )
    x = hm.asarray(RNG.standard_normal((200, 200)), dtype="f4")
    exact = model(x).detach().numpy()
    small = quantize_linear(model)
    assert small is model and [type(m) for m in model.modules()].count(QuantizedLinear) == 3
    assert not list(small.parameters()) and small.state_dict()["0.weight"].dtype == hm.int8
    eager, traced = small(x), hm.trace(lambda x: small(x))(x)
    np.testing.assert_array_equal(eager.numpy(), traced.numpy())
    error = eager.numpy() - exact
    assert np.sqrt((error**2).mean()) < 0.02 * exact.std()


def test_a_quantised_layer_is_what_its_integers_say() -> None:
    layer = QuantizedLinear.from_linear(nn.Linear(300, 70))
    x = hm.asarray(RNG.standard_normal((5, 40, 300)), dtype="f4")
    values, scale = (t.numpy().astype("f8") for t in quantize(x))
    exact = values @ layer.weight.numpy().astype("f8").T * scale * layer.scale.numpy() + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), exact, rtol=1e-5, atol=1e-6)


def test_state_of_a_quantised_layer() -> None:
    trained = QuantizedLinear.from_linear(nn.Linear(16, 8))
    other = QuantizedLinear(16, 8)
    other.load_state_dict(trained.state_dict())
    x = hm.ones((3, 16))
    np.testing.assert_array_equal(other(x).numpy(), trained(x).numpy())
