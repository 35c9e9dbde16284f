"""Products and convolutions in 16 and 8 bits for users: on bfloat16, and layers in int8."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn.quantized import QuantizedConv2d, QuantizedLinear, quantize, quantize_layers, quantize_linear
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

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


def test_gradients_of_convolutions_of_bfloat16() -> None:
    """Values that no order of sums rounds: eager and traced have those of float32, rounded once."""
    x, w = (hm.asarray(RNG.integers(-2, 3, shape), dtype=hm.bfloat16) for shape in ((2, 16, 20, 20), (24, 16, 3, 3)))
    g = hm.asarray(RNG.integers(-1, 2, (2, 24, 10, 10)), dtype=hm.bfloat16)

    def gradients(x: hm.Tensor, w: hm.Tensor, g: hm.Tensor) -> list[np.ndarray]:
        x, w = (t.detach().requires_grad_() for t in (x, w))
        out = nn.functional.conv2d(x, w, padding=1, stride=2)
        (out * g).sum(dtype=hm.float32).backward()
        assert x.grad is not None and w.grad is not None
        return [out.detach(), x.grad, w.grad]

    exact = gradients(*(t.astype(hm.float32) for t in (x, w, g)))
    for got in (gradients(x, w, g), hm.trace(gradients)(x, w, g)):
        for value, expected in zip(got, exact, strict=True):
            assert value.dtype == hm.bfloat16
            np.testing.assert_array_equal(value.numpy(), expected.astype(hm.bfloat16).numpy())


def test_convolutions_of_integers() -> None:
    x, w = RNG.integers(-128, 128, (2, 12, 20, 20), dtype="i1"), RNG.integers(-128, 128, (16, 12, 3, 3), dtype="i1")
    expected = nn.functional.conv2d(hm.asarray(x, dtype="f8"), hm.asarray(w, dtype="f8"), padding=1).numpy()

    def conv(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
        return nn.functional.conv2d(x.astype(hm.int32), w.astype(hm.int32), padding=1)

    for style in (conv, hm.trace(conv)):
        got = style(hm.asarray(x), hm.asarray(w))
        assert got.dtype == hm.int32
        np.testing.assert_array_equal(got.numpy(), expected)


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


CONVOLUTIONS = {
    "3x3": {"padding": 1},
    "strided, without bias": {"stride": 2, "padding": (1, 2), "bias": False},
    "same": {"padding": "same", "dilation": 2},
    "groups": {"groups": 4},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_quantised_convolution_is_what_its_integers_say(name: str) -> None:
    hm.manual_seed(0)
    conv = nn.Conv2d(16, 24, 3, **CONVOLUTIONS[name])
    layer = QuantizedConv2d.from_conv(conv)
    x = hm.asarray(RNG.standard_normal((3, 16, 30, 28)) * np.array([1, 5, 1e-3]).reshape(3, 1, 1, 1), dtype="f4")
    values, scale = (t.numpy().astype("f8") for t in quantize(x, axis=(1, 2, 3)))
    assert scale.shape == (3, 1, 1, 1) and abs(values).max() == 127
    weight = layer.weight.numpy() * layer.scale.numpy().astype("f8").reshape(-1, 1, 1, 1)
    bias = None if layer.bias is None else layer.bias.astype("f8")
    exact = nn.functional.conv2d(
        hm.asarray(values * scale), hm.asarray(weight), bias, conv.stride, conv.padding, conv.dilation, conv.groups
    ).numpy()
    eager, traced = layer(x), hm.trace(lambda x: layer(x))(x)
    np.testing.assert_allclose(eager.numpy(), exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(eager.numpy(), traced.numpy())
    np.testing.assert_array_equal(layer(x[0]).numpy(), eager[0].numpy())
    wanted = conv(x).detach().numpy()
    assert np.sqrt(((eager.numpy() - wanted) ** 2).mean()) < 0.02 * wanted.std()


def test_layers_of_a_model_in_8_bits() -> None:
    hm.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Sequential(nn.Conv2d(8, 8, 1)), nn.Flatten(), nn.Linear(288, 4)
    )
    x = hm.asarray(RNG.standard_normal((2, 3, 8, 8)), dtype="f4")
    exact = model(x).detach().numpy()
    small = quantize_layers(model)
    kinds = [type(m) for m in small.modules()]
    assert small is model and kinds.count(QuantizedConv2d) == 2 and kinds.count(QuantizedLinear) == 1
    assert not list(small.parameters()) and small.state_dict()["0.weight"].dtype == hm.int8
    assert np.abs(small(x).numpy() - exact).max() < 0.05 * np.abs(exact).max()
    other = QuantizedConv2d(3, 8, 3)
    other.load_state_dict(small[0].state_dict())
    np.testing.assert_array_equal(other(x).numpy(), small[0](x).numpy())


def test_errors_of_quantised_layers() -> None:
    layer = QuantizedConv2d(3, 8, 3)
    with pytest.raises(ShapeError, match=r"the input needs 3 channels"):
        layer(hm.ones((1, 4, 8, 8)))
    with pytest.raises(DTypeError, match="quantize: input must be of a float dtype, got int8"):
        layer(hm.ones((1, 3, 8, 8), dtype=hm.int8))
    with pytest.raises(ArgumentError, match="no 8-bit form of ReLU; kinds may be Linear and Conv2d"):
        quantize_layers(nn.ReLU(), (nn.ReLU,))
    with pytest.raises(ArgumentError, match="in_channels=3 and out_channels=8 must divide by groups=2"):
        QuantizedConv2d(3, 8, 3, groups=2)
