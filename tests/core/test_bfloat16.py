"""bfloat16: stored in 16 bits, computed in float32, rounded after each row; the same eager and traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn import functional as F

RNG = np.random.default_rng(0)
BITS = RNG.integers(0, 2**32, 1 << 16, dtype=np.uint32)


def bits(x: hm.Tensor) -> np.ndarray:
    return x.detach().numpy().view(np.uint16)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("source", ["float32", "float64", "int32", "uint8", "bool"])
def test_casts_are_those_of_ml_dtypes(source: str, style: object) -> None:
    values = BITS.view(np.float32) if source.startswith("float") else BITS
    with np.errstate(all="ignore"):
        values = values.astype(source)
        expected = values.astype(np.float32).astype(ml_dtypes.bfloat16)
    got = style(lambda x: x.astype(hm.bfloat16))(hm.asarray(values))  # type: ignore[operator]
    np.testing.assert_array_equal(bits(got), expected.view(np.uint16))
    back = style(lambda x: x.astype(hm.float32))(hm.asarray(expected))  # type: ignore[operator]
    np.testing.assert_array_equal(back.numpy(), expected.astype(np.float32))


def test_every_row_is_rounded_once_eager_and_traced() -> None:
    x = hm.asarray(RNG.standard_normal((33, 17)), dtype=hm.bfloat16)
    y = hm.asarray(RNG.standard_normal((17,)), dtype=hm.bfloat16)

    def program(x: hm.Tensor, y: hm.Tensor) -> list[hm.Tensor]:
        z = hm.pad(hm.exp(x) * y + 1.5, ((1, 0), (0, 2)))
        return [z, hm.where(z > 1, z, -z), z.T[::2], z.sum(0), z.max(), hm.concat([x, x]), x @ y, (x / y).astype("f4")]

    for eager, traced in zip(program(x, y), hm.trace(program)(x, y), strict=True):
        assert eager.dtype == traced.dtype
        if eager.ndim == 2:
            np.testing.assert_array_equal(eager.numpy(), traced.numpy())
        else:  # sums may be taken in another order before they are rounded
            np.testing.assert_allclose(eager.numpy().astype("f4"), traced.numpy().astype("f4"), rtol=2**-7)
    expected = (np.exp(x.numpy().astype("f4")).astype(ml_dtypes.bfloat16) * y.numpy()).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal((hm.exp(x) * y).numpy(), expected)


def test_dtypes_of_mixed_operands() -> None:
    x = hm.ones(3, dtype=hm.bfloat16)
    assert (x + 1).dtype == (x * 2.5).dtype == (x + hm.arange(3)).dtype == hm.bfloat16
    assert (x + hm.ones(3)).dtype == hm.float32
    assert x.sum(dtype=hm.float64).dtype == hm.float64
    assert hm.result_type(hm.bfloat16, hm.float32) == hm.float32
    assert (x > 0).dtype == hm.bool
    assert hm.finfo(hm.bfloat16).bits == 16
    assert hm.asarray([1.5], dtype="bfloat16").tolist() == [1.5]
    assert hm.random.normal((4,), dtype=hm.bfloat16).dtype == hm.bfloat16


LAYERS = {
    "Linear": lambda dtype: nn.Linear(4, 3, dtype=dtype),
    "Embedding": lambda dtype: nn.Embedding(5, 4, dtype=dtype),
    "Conv1d": lambda dtype: nn.Conv1d(2, 3, 3, dtype=dtype),
    "Conv2d": lambda dtype: nn.Conv2d(2, 3, 3, dtype=dtype),
    "ConvTranspose2d": lambda dtype: nn.ConvTranspose2d(2, 3, 3, dtype=dtype),
    "BatchNorm2d": lambda dtype: nn.BatchNorm2d(3, dtype=dtype),
    "LayerNorm": lambda dtype: nn.LayerNorm(3, dtype=dtype),
    "RMSNorm": lambda dtype: nn.RMSNorm(3, dtype=dtype),
    "GroupNorm": lambda dtype: nn.GroupNorm(2, 4, dtype=dtype),
    "LSTM": lambda dtype: nn.LSTM(3, 4, dtype=dtype),
    "GRUCell": lambda dtype: nn.GRUCell(3, 4, dtype=dtype),
    "MultiheadAttention": lambda dtype: nn.MultiheadAttention(8, 2, dtype=dtype),
    "TransformerEncoderLayer": lambda dtype: nn.TransformerEncoderLayer(8, 2, 16, dtype=dtype),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_in_a_dtype(name: str) -> None:
    """A seed gives the same layer in every dtype, rounded; integer buffers stay."""
    made = []
    for dtype in (None, hm.bfloat16, "float64"):
        hm.manual_seed(3)
        made.append(dict(LAYERS[name](dtype).state_dict()))
    plain, narrow, wide = made
    for key, value in plain.items():
        if value.dtype == hm.float32:
            assert narrow[key].dtype == hm.bfloat16 and wide[key].dtype == hm.float64
            np.testing.assert_array_equal(narrow[key].numpy(), value.astype(hm.bfloat16).numpy())
            np.testing.assert_array_equal(wide[key].numpy(), value.numpy())
        else:
            assert narrow[key].dtype == value.dtype


def test_converting_a_module() -> None:
    layer = nn.Linear(2, 2)
    assert layer.bfloat16() is layer and layer.weight.dtype == hm.bfloat16
    assert layer.to("cpu", hm.float32).weight.dtype == layer.to(device="cpu").bias.dtype == hm.float32
    assert layer.to(dtype=hm.bfloat16).weight.dtype == layer.to("cpu").weight.dtype == hm.bfloat16
    with pytest.raises(hm.DTypeError, match="Linear: dtype must be a floating one, got int8"):
        layer.to(hm.int8)
    with pytest.raises(hm.DTypeError, match="Conv2d: dtype must be a floating one, got int32"):
        nn.Conv2d(1, 1, 1, dtype=hm.int32)
    with pytest.raises(hm.ArgumentError, match="device 'mps' is not available"):
        layer.to("mps", hm.float32)


def test_training_a_convolution_in_bfloat16() -> None:
    """The losses of float32, to the digits that bfloat16 has."""
    x = hm.asarray(RNG.standard_normal((8, 3, 12, 12)), dtype=hm.bfloat16)
    target = hm.asarray(np.arange(8) % 2)
    losses = []
    for dtype in (hm.float32, hm.bfloat16):
        hm.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
        ).to(dtype)  # fmt: skip
        optimizer = hm.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)

        @hm.trace
        def step(x: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()  # noqa: B023  # called in this round of the loop alone
            loss = nn.functional.cross_entropy(model(x), target)  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss

        losses.append([step(x.astype(dtype)).item() for _ in range(11)])
        assert all(p.grad is not None and p.grad.dtype == p.dtype == dtype for p in model.parameters())
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.02)
    assert losses[1][-1] < 0.9 * losses[1][0]


def test_training_in_bfloat16() -> None:
    hm.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)).to(hm.bfloat16)
    x = hm.asarray(RNG.standard_normal((64, 8)), dtype=hm.bfloat16)
    target = x[:, :1] * 0.5
    opt = hm.optim.SGD(model.parameters(), lr=0.1)

    def step() -> hm.Tensor:
        opt.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        opt.step()
        return loss

    losses = [float(step()) for _ in range(5)]
    traced = hm.trace(step)
    losses += [float(traced()) for _ in range(15)]
    assert all(
        p.dtype == hm.bfloat16 and p.grad is not None and p.grad.dtype == hm.bfloat16 for p in model.parameters()
    )
    assert losses[-1] < losses[0] / 2


def test_gradients_are_rounded_gradients_of_float32() -> None:
    a = RNG.standard_normal((16, 16)).astype(ml_dtypes.bfloat16)

    def loss(x: hm.Tensor) -> hm.Tensor:
        return (hm.tanh(x) * x).sum()

    narrow, wide = hm.grad(loss)(hm.asarray(a)), hm.grad(loss)(hm.asarray(a.astype("f4")))
    assert narrow.dtype == hm.bfloat16
    np.testing.assert_allclose(narrow.numpy().astype("f4"), wide.numpy(), rtol=2**-6, atol=2**-6)


def test_importing_the_library_does_not_need_ml_dtypes() -> None:
    import subprocess
    import sys

    loaded = "'ml_dtypes' in sys.modules"
    code = f"import sys, hybridml; assert not {loaded}; hybridml.bfloat16; assert {loaded}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    model = nn.Linear(4, 3).to(hm.bfloat16)
    hm.save(model.state_dict(), tmp_path / "model.safetensors")
    hm.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "run.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes().count(b"BF16") == 2
    for found in (hm.load(tmp_path / "model.safetensors"), hm.load(tmp_path / "run.safetensors")["model"]):
        assert found["weight"].dtype is hm.bfloat16
        assert found["weight"].tolist() == model.weight.tolist()


def test_other_libraries_share_their_memory_and_read_ours() -> None:
    class Theirs:
        """As a tensor of PyTorch or JAX: DLPack of a kind that NumPy does not read."""

        def __dlpack__(self, **asked: Any) -> Any:
            return x.__dlpack__(**asked)

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    x = hm.tensor([1.5, -2.0], dtype="bfloat16")
    for found in (hm.asarray(Theirs()), hm.from_dlpack(Theirs()), hm.from_dlpack(x), hm.from_dlpack(x.numpy())):
        assert found.dtype is hm.bfloat16 and found.tolist() == [1.5, -2.0]
        assert np.shares_memory(found.numpy().view("i2"), x.numpy().view("i2"))
    for copied in (hm.tensor(Theirs()), hm.from_dlpack(Theirs(), copy=True), hm.from_dlpack(x, copy=True)):
        assert copied.tolist() == [1.5, -2.0]
        assert not np.shares_memory(copied.numpy().view("i2"), x.numpy().view("i2"))
    # NumPy's own words, as it has no such dtype; from 2.4 on they are a BufferError.
    with pytest.raises((RuntimeError, BufferError), match="Unsupported dtype"):
        np.from_dlpack(x)


def test_a_module_keeps_its_tensors() -> None:
    """An optimizer that was made before, and a weight that two layers share, go on."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = hm.optim.Adam(model.parameters(), lr=1.0)
    step = hm.trace(lambda x: model(x).sum())
    step(hm.ones((2, 3))).backward()
    first = model[0].weight
    model.to(hm.bfloat16)
    assert model[0].weight is first and model[1].weight is first
    assert first.grad is not None and first.grad.dtype is hm.bfloat16
    optimizer.zero_grad()
    out = step(hm.ones((2, 3), dtype="bfloat16"))
    out.backward()
    before = first.tolist()
    optimizer.step()
    assert out.dtype is hm.bfloat16 and first.grad.dtype is hm.bfloat16 and first.tolist() != before
    assert optimizer.state[first]["exp_avg_sq"].dtype == hm.float32
    with pytest.raises(hm.TraceError, match="cannot change the dtype or device of a captured module"):
        hm.trace(lambda x: model.to(hm.float32)(x))(hm.ones((2, 3)))


def test_messages_name_it() -> None:
    with pytest.raises(hm.DTypeError, match="float16, bfloat16"):
        hm.ones((2,), dtype="bf16")


def test_composites_widen_what_is_passed_by_keyword() -> None:
    x = hm.full((4,), 300.0, dtype=hm.float16)  # its square overflows
    assert hm.functional.rms_norm(input=x, normalized_shape=(4,)).tolist() == [1.0] * 4
    assert hm.functional.normalize(input=x, dim=0).tolist() == [0.5] * 4
