"""Sequences of several lengths: padded, packed, and through the recurrent layers as one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval, rnn

LAYERS = [
    lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    lambda: nn.GRU(3, 4, batch_first=True),
    lambda: nn.RNN(3, 4, bidirectional=True),
]


def _sequences(lengths: list[int]) -> list[hm.Tensor]:
    rng = np.random.default_rng(0)
    return [hm.tensor(rng.normal(size=(n, 3)).astype("f")) for n in lengths]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [2, 5, 1, 4]])
@pytest.mark.parametrize("make", LAYERS)
def test_packed_sequences_are_run_as_each_alone(make: Any, lengths: list[int], traced: bool) -> None:
    hm.manual_seed(0)
    layer, sequences = make(), _sequences(lengths)
    is_sorted = lengths == sorted(lengths, reverse=True)
    count = layer.num_layers * layer.directions
    states = tuple(hm.randn((count, len(lengths), 4)) for _ in range(layer.states))

    def run(*given: hm.Tensor) -> Any:
        packed = rnn.pack_sequence(given[: len(lengths)], enforce_sorted=is_sorted)
        first = given[len(lengths) :]
        output, last = layer(packed, first if layer.states == 2 else first[0])
        padded, _ = rnn.pad_packed_sequence(output)
        return padded, last

    padded, last = (hm.trace(run) if traced else run)(*sequences, *states)
    for k, x in enumerate(sequences):
        own = tuple(state[:, k] for state in states)
        expected, ends = layer(x, own if layer.states == 2 else own[0])
        np.testing.assert_allclose(padded[: len(x), k].detach().numpy(), expected.detach().numpy(), atol=1e-6)
        assert not padded[len(x) :, k].detach().numpy().any()
        for a, b in zip(last if layer.states == 2 else (last,), ends if layer.states == 2 else (ends,), strict=True):
            np.testing.assert_allclose(a[:, k].detach().numpy(), b.detach().numpy(), atol=1e-6)


def test_gradients_are_those_of_each_alone() -> None:
    layer, sequences = nn.LSTM(3, 4, bidirectional=True), _sequences([2, 5, 1])
    output, _ = layer(rnn.pack_sequence(sequences, enforce_sorted=False))
    output.data.sum().backward()
    found = [p.grad.numpy() for p in layer.parameters()]
    layer.zero_grad()
    hm.concat([layer(x)[0] for x in sequences]).sum().backward()
    for a, p in zip(found, layer.parameters(), strict=True):
        np.testing.assert_allclose(a, p.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [False, True])
def test_packing_and_padding_are_inverse(batch_first: bool) -> None:
    sequences = _sequences([2, 5, 1])
    padded = rnn.pad_sequence(sequences, batch_first, padding_value=9.0)
    assert padded.shape == ((3, 5, 3) if batch_first else (5, 3, 3))
    packed = rnn.pack_padded_sequence(padded, hm.tensor([2, 5, 1]), batch_first, enforce_sorted=False)
    assert packed.data.shape == (8, 3) and packed.batch_sizes.tolist() == [3, 2, 1, 1, 1]
    again, lengths = rnn.pad_packed_sequence(packed, batch_first, padding_value=9.0, total_length=5)
    assert again.tolist() == padded.tolist() and lengths.tolist() == [2, 5, 1]
    for a, b in zip(rnn.unpad_sequence(padded, lengths, batch_first), sequences, strict=True):
        assert a.tolist() == b.tolist()
    left = rnn.pad_sequence(sequences, True, padding_side="left")
    assert left[2, :4].tolist() == [[0.0] * 3] * 4 and left[2, 4].tolist() == sequences[2][0].tolist()


def test_what_is_refused() -> None:
    x = hm.zeros((3, 2, 4))
    for lengths in ([3], [3, 4], [0, 1]):
        with pytest.raises(hm.ArgumentError, match="2 lengths from 1 to 3"):
            rnn.pack_padded_sequence(x, lengths)
    with pytest.raises(hm.ArgumentError, match="enforce_sorted=False"):
        rnn.pack_padded_sequence(x, [1, 3])
    with pytest.raises(hm.ArgumentError, match="total_length=2"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 1]), total_length=2)
    with pytest.raises(hm.ShapeError, match="input_size=3"):
        nn.GRU(3, 4)(rnn.pack_padded_sequence(x, [3, 1]))
    with pytest.raises(hm.ShapeError, match="only the first axes"):
        rnn.pad_sequence([hm.zeros((2, 3)), hm.zeros((2, 4))])
    with pytest.raises(hm.ArgumentError, match="padding_side"):
        rnn.pad_sequence([])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv2d(3, 4, 3, groups=1), nn.BatchNorm2d(4), (2, 3, 6, 6)),
        (nn.Conv1d(4, 4, 3, groups=2), nn.BatchNorm1d(4, affine=False), (2, 4, 9)),
        (nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 4, 4)),
        (nn.ConvTranspose2d(4, 4, 3, groups=2), nn.BatchNorm2d(4), (2, 4, 4, 4)),
        (nn.utils.parametrizations.spectral_norm(nn.Conv1d(4, 4, 3)), nn.BatchNorm1d(4), (2, 4, 9)),
        (nn.Linear(3, 4), nn.BatchNorm1d(4), (5, 3)),
    ],
)
def test_normalisation_is_folded_into_weights(layer: Any, norm: Any, shape: tuple[int, ...], bias: bool) -> None:
    hm.manual_seed(1)
    if not bias:
        layer = type(layer)(*shape[1:2], 4, *[3] * (len(shape) > 2), bias=False)
    for _ in range(3):
        norm(layer(hm.randn(shape)) * 2 + 1)
    if norm.weight is not None:
        nn.init.normal_(norm.weight)
    fuse = fuse_linear_bn_eval if len(shape) == 2 else fuse_conv_bn_eval
    with pytest.raises(hm.ArgumentError, match=r"call \.eval\(\)"):
        fuse(layer, norm)
    more = {"transpose": True} if isinstance(layer, nn.ConvTranspose2d) else {}
    fused = fuse(layer.eval(), norm.eval(), **more)
    x = hm.randn(shape)
    np.testing.assert_allclose(fused(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-3, atol=1e-5)
    assert fused is not layer
    norm.train()
    layer.train()


def test_folded_weights_keep_the_dtype_and_whether_they_are_trained() -> None:
    frozen = nn.Linear(2, 3).bfloat16().requires_grad_(False)
    norm = [hm.tensor([1.0, 2.0, 3.0]), hm.tensor([3.0, 8.0, 15.0]), 1.0, hm.ones(3), None]
    weight, bias = nn.utils.fuse_linear_bn_weights(frozen.weight, frozen.bias, *norm)
    assert weight.dtype == bias.dtype == hm.bfloat16 and not weight.requires_grad and isinstance(weight, nn.Parameter)
    expected = (frozen.weight.float().numpy() / [[2.0], [3.0], [4.0]]).astype("f4")
    np.testing.assert_allclose(weight.float().numpy(), expected, rtol=1e-2)


def test_layers_without_initial_values_and_unpacked_sequences() -> None:
    layer = nn.utils.skip_init(nn.Conv2d, 2, 3, kernel_size=3, bias=False)
    assert layer.weight.shape == (3, 2, 3, 3) and layer.weight.device == "cpu" and layer.weight.requires_grad
    assert nn.utils.skip_init(nn.Linear, 2, 3, device="meta").weight.device == "meta"
    given = [hm.tensor([1.0]), hm.tensor([2.0, 3.0, 4.0]), hm.tensor([5.0, 6.0])]
    found = rnn.unpack_sequence(rnn.pack_sequence(given, enforce_sorted=False))
    assert [x.tolist() for x in found] == [x.tolist() for x in given]
