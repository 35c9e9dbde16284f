"""Layers where PyTorch has nothing to say: what is drawn, what does not fit, and what is at an edge."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn

F = hm.functional
STYLES = pytest.mark.parametrize("style", [lambda f: f, hm.trace])
IMAGE = (2, 4, 5, 6)


@STYLES
@pytest.mark.parametrize(
    ("call", "shape", "words"),
    [
        (lambda x: F.conv3d(x[0], x), IMAGE, "(n, c, d, h, w) or (c, d, h, w), got shape (4, 5, 6)"),
        (lambda x: F.conv1d(x, hm.ones((2, 4, 3)), padding=-1), IMAGE[:3], "must not be negative"),
        (lambda x: F.conv2d(x, hm.ones((2, 4, 3, 3)), stride=0), IMAGE, "stride must be 1 or more"),
        (lambda x: F.conv2d(x, hm.ones((2, 4, 3, 3)), stride=(1, 2, 3)), IMAGE, "an integer or a pair of integers"),
        (lambda x: F.conv_transpose1d(x, hm.ones((3, 4, 3))), IMAGE[:3], "(in, out / groups, k)"),
        (lambda x: F.conv_transpose2d(x, hm.ones((4, 2, 2, 2)), output_padding=2), IMAGE, "below the stride (1, 1)"),
        (lambda x: F.unfold(x, 9), IMAGE, "larger than the padded input (5, 6)"),
        (lambda x: F.fold(x, 4, 2), IMAGE[:3], "needs a multiple of 4 rows and 3 x 3 columns"),
        (lambda x: F.max_pool3d(x, 2), IMAGE[:2], "(n, c, d, h, w)"),
        (lambda x: F.max_pool2d(x, 2, padding=2), IMAGE, "half of the window"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), IMAGE, "must not be zero"),
        (lambda x: F.lp_pool2d(x, 0, 2), IMAGE, "norm_type must not be zero"),
        (lambda x: F.adaptive_max_pool2d(x, 0), IMAGE, "output_size must be positive or 2 of them"),
        (lambda x: F.max_unpool2d(x, x[:1], 2), IMAGE, "must have one shape"),
        (lambda x: F.max_unpool2d(x, hm.zeros(IMAGE), 2, output_size=(20, 20)), IMAGE, "within the stride (2, 2)"),
        (lambda x: F.interpolate(x, 3, mode="cubic"), IMAGE, "mode must be one of"),
        (lambda x: F.interpolate(x, 3, mode="linear"), IMAGE, "takes an input of 3 axes"),
        (lambda x: F.interpolate(x, 3, 2.0), IMAGE, "give size or scale_factor"),
        (lambda x: F.interpolate(x, scale_factor=0.1), IMAGE, "sizes must be positive"),
        (lambda x: F.interpolate(x, 3, align_corners=True), IMAGE, "align_corners is for linear"),
        (lambda x: F.interpolate(x, 3, antialias=True), IMAGE, "antialias is for modes"),
        (lambda x: F.pixel_shuffle(x, 3), IMAGE, "(..., c * 9, h, w)"),
        (lambda x: F.pixel_unshuffle(x, 2), IMAGE, "(..., c, h * 2, w * 2)"),
        (lambda x: F.channel_shuffle(x, 3), IMAGE, "c divisible by 3"),
        (lambda x: F.grid_sample(x, x), IMAGE, "a grid (n, h', w', 2)"),
        (lambda x: F.grid_sample(x, x, "cubic"), IMAGE, "mode must be one of"),
        (lambda x: F.affine_grid(x, (2, 1, 3, 3)), IMAGE, "theta must be (n, 2, 3)"),
        (lambda x: F.pad(x, (1, 2, 3)), IMAGE, "(before, after) for each of at most 4 axes, got 3 numbers"),
        (lambda x: F.pad(x, (6, 0), "reflect"), IMAGE, "at most 5 elements, got (6, 0)"),
        (lambda x: F.pad(x, (1, 1), "edge"), IMAGE, "'replicate' or 'circular', got 'edge'"),
        (lambda x: F.pad(x, (1, 1), "reflect", 2.0), IMAGE, "value is for mode 'constant'"),
        (lambda x: F.pad(x, (-9, 1)), IMAGE, "crops more than there is"),
        (lambda x: F.instance_norm(x), IMAGE[:2], "(n, c, ...) with positions"),
        (lambda x: F.local_response_norm(x, 0), IMAGE, "size 1 or more"),
        (lambda x: F.normalize(x, p=-1.0), IMAGE, "p must be a number, 0 or more"),
        (lambda x: F.cdist(x, hm.ones((3, 2))), IMAGE, "(..., n, k) and (..., m, k)"),
        (lambda x: F.pdist(x), IMAGE, "input must be (n, k)"),
        (lambda x: F.hardtanh(x, 1.0, -1.0), IMAGE, "min_val must not be above max_val"),
        (lambda x: F.softshrink(x, -1.0), IMAGE, "lambd must not be negative"),
        (lambda x: F.glu(x, 2), IMAGE, "an even number of elements"),
        (lambda x: F.prelu(x, hm.ones(3)), IMAGE, "one number or one a channel"),
        (lambda x: F.rrelu(x, 1.0, 0.0), IMAGE, "lower must not be above upper"),
        (lambda x: F.celu(x, 0.0), IMAGE, "alpha must not be 0"),
        (lambda x: F.gumbel_softmax(x, 0.0), IMAGE, "tau must be positive"),
        (lambda x: F.alpha_dropout(x, 1.5), IMAGE, "p is a probability"),
        (lambda x: F.dropout2d(x), IMAGE[:2], "(n, c, h, w) or (c, h, w)"),
        (lambda x: F.feature_alpha_dropout(x, training=True), (3,), "(n, c, ...)"),
        (lambda x: F.bilinear(x, x, hm.ones((2, 3, 3))), IMAGE, "weight must be (out, (6,), (6,))"),
        (lambda x: F.embedding_bag(hm.asarray([1]), x), (3, 2), "(n,) with offsets"),
        (lambda x: F.embedding_bag(hm.asarray([[1]]), x, mode="last"), (3, 2), "'mean', 'sum' or 'max'"),
        (lambda x: F.triplet_margin_loss(x, x, x, 0.0), IMAGE, "margin must be positive"),
        (lambda x: F.multi_margin_loss(x, hm.asarray([1])), (2, 3), "(n, c) with target (n,)"),
        (lambda x: F.gaussian_nll_loss(x, x, hm.ones(7)), (2, 3), "got (7,)"),
        (lambda x: F.gaussian_nll_loss(x, x, -1.0), (2, 3), "var must not be negative"),
        (lambda x: F.ctc_loss(x, hm.asarray([[1]]), (2,), (1,), blank=9), (2, 1, 3), "not one of 3 classes"),
        (lambda x: F.ctc_loss(x, hm.asarray([[1]]), (2, 2), (1,)), (2, 1, 3), "1 sequences have"),
        (lambda x: F.cosine_embedding_loss(x, x, hm.ones(5)), (2, 3), "(n, k) with target (n,)"),
    ],
)
def test_errors_are_the_same_in_both_styles(style: Any, call: Any, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        style(call)(hm.ones(shape))
    assert words in str(caught.value)


@STYLES
def test_errors_of_dtypes_and_of_indices(style: Any) -> None:
    with pytest.raises(TypeError, match=r"takes floats, got int64; cast it"):
        style(lambda x: F.interpolate(x, 3, mode="bilinear"))(hm.ones((1, 1, 2, 2), dtype=hm.int64))
    for call in (
        lambda x: F.multi_margin_loss(x, hm.ones(2)),
        lambda x: F.ctc_loss(x[:, None], hm.ones((1, 1)), (2,), (1,)),
    ):
        with pytest.raises(TypeError, match=r"astype\(hm.int64\)"):
            style(call)(hm.ones((2, 3)))
    with pytest.raises(IndexError, match="out of range"):
        style(lambda x: F.max_unpool1d(x, hm.asarray([[4], [0]]), 2))(hm.ones((2, 1)))
    with pytest.raises(IndexError, match="out of range"):
        style(lambda x: F.multi_margin_loss(x, hm.asarray([0, -1])))(hm.ones((2, 3)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="edge"), "padding_mode must be one of"),
        (lambda: nn.Conv3d(3, 4, 3, groups=2), "must divide by groups=2"),
        (lambda: nn.Conv1d(3, 4, 3, padding="all"), "'same' or 'valid', got 'all'"),
        (lambda: nn.Conv1d(3, 4, 3, 2, padding="same"), "needs stride 1"),
        (lambda: nn.ConvTranspose1d(3, 4, 3, padding_mode="reflect"), "must be 'zeros'"),
        (lambda: nn.ConvTranspose1d(1, 1, 2, 3)(hm.ones((1, 1, 4)), output_size=(20,)), "must be (11,) to (13,)"),
        (lambda: nn.ReflectionPad2d((1, 2)), "a number or 4 of them"),
        (lambda: nn.ZeroPad2d(1)(hm.ones((2, 3))), "(n, c, h, w) or (c, h, w)"),
        (lambda: nn.Dropout2d(2.0), "Dropout2d: p is a probability"),
        (lambda: nn.MSELoss(reduction="batchmean"), "must be one of"),
        (lambda: nn.InstanceNorm2d(3)(hm.ones((2, 4, 5, 5))), "3 channels"),
        (lambda: nn.Unflatten(1, (2, 3))(hm.ones((2, 5))), "is not (2, 3)"),
        (lambda: nn.Softmax2d()(hm.ones((2, 3))), "(n, c, h, w)"),
    ],
)
def test_errors_of_modules(make: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert words in str(caught.value)


@STYLES
@pytest.mark.parametrize(
    "call",
    [
        F.dropout1d,
        lambda x: F.feature_alpha_dropout(x, 0.3, True),
        lambda x: F.alpha_dropout(x, 0.3, True),
        lambda x: F.rrelu(-x, training=True),
        lambda x: F.gumbel_softmax(x, hard=True, dim=1),
    ],
)
def test_draws_are_the_same_eager_and_traced(style: Any, call: Any) -> None:
    x = hm.ones((3, 4, 5))
    hm.manual_seed(7)
    expected = call(x).numpy()
    hm.manual_seed(7)
    np.testing.assert_allclose(style(call)(x).numpy(), expected, rtol=1e-6)


def test_dropout_of_channels_takes_whole_channels() -> None:
    hm.manual_seed(0)
    for call, shape in ((F.dropout1d, (40, 10, 3)), (F.dropout2d, (40, 10, 3, 2)), (F.dropout3d, (400, 1, 2, 1, 3))):
        out = call(hm.ones(shape), 0.25).numpy()
        channels = out.reshape(400, -1)
        assert (channels == channels[:, :1]).all() and set(np.unique(out)) == {0, np.float32(1 / 0.75)}
        assert 240 < (channels[:, 0] > 0).sum() < 360
    assert not F.dropout2d(hm.ones((2, 3, 4)), 1.0).numpy().any()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    hm.manual_seed(1)
    x = hm.random.normal((40000,))
    out = F.alpha_dropout(x, 0.3, training=True).numpy()
    assert abs(out.mean()) < 0.02 and abs(out.std() - 1) < 0.02
    channels = F.feature_alpha_dropout(hm.ones((30, 4, 6)), 0.5, training=True).numpy()
    assert (channels == channels[:, :, :1]).all() and len(np.unique(channels)) == 2


def test_rrelu_draws_its_slopes_and_gumbel_softmax_its_classes() -> None:
    hm.manual_seed(2)
    slopes = -F.rrelu(-hm.ones((1000,)), 0.1, 0.5, training=True).numpy()
    assert 0.1 <= slopes.min() < 0.12 and 0.48 < slopes.max() <= 0.5
    logits = hm.log(hm.asarray([0.2, 0.3, 0.5])).broadcast_to((20000, 3))
    share = F.gumbel_softmax(logits, hard=True).numpy().mean(axis=0)
    np.testing.assert_allclose(share, [0.2, 0.3, 0.5], atol=0.015)
    x = hm.zeros((2, 3)).requires_grad_()
    (F.gumbel_softmax(x, 0.5, hard=True) * hm.asarray([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad is not None and np.abs(x.grad.numpy()).min() > 0


def test_indices_of_windows_without_a_number() -> None:
    x = hm.full((1, 3, 3), -math.inf)
    _, indices = F.max_pool2d(x, 2, 2, 1, return_indices=True)
    assert indices.tolist() == [[[0, 1], [3, 4]]]
    _, indices = F.max_pool2d(hm.asarray([[[1.0, math.nan], [math.nan, 5.0]]]), 2, return_indices=True)
    assert indices.item() == 1


def test_lengths_of_zero_have_gradients_of_zero() -> None:
    for call in (
        F.normalize,
        F.pdist,
        lambda x: F.cdist(x, x),
        lambda x: F.cosine_similarity(x, x),
        lambda x: F.normalize(x, 3.0),
    ):
        x = hm.zeros((2, 3)).requires_grad_()
        call(x).sum().backward()
        assert x.grad is not None and np.isfinite(x.grad.numpy()).all()


def test_ctc_of_what_cannot_be_is_infinite_without_a_gradient() -> None:
    x = hm.zeros((2, 1, 4)).requires_grad_()
    loss = F.ctc_loss(F.log_softmax(x, -1), hm.asarray([[1, 1]]), (2,), (2,))
    loss.backward()
    assert loss.item() == math.inf and x.grad is not None and not x.grad.numpy().any()


def test_ctc_is_the_sum_over_all_alignments() -> None:
    log_p = F.log_softmax(hm.asarray(np.random.default_rng(0).normal(size=(4, 1, 3))), -1)
    p = np.exp(log_p.numpy()[:, 0])
    total = 0.0
    for path in np.ndindex(3, 3, 3, 3):
        spelled = [c for k, c in enumerate(path) if c and (k == 0 or path[k - 1] != c)]
        total += math.prod(p[k, c] for k, c in enumerate(path)) if spelled == [1, 2] else 0.0
    got = F.ctc_loss(log_p, hm.asarray([[1, 2]]), (4,), (2,), reduction="sum").item()
    assert got == pytest.approx(-math.log(total), rel=1e-12)


def test_a_changed_option_of_a_module_is_seen_by_a_traced_function() -> None:
    layer = nn.LeakyReLU(0.5)
    traced = hm.trace(lambda x: layer(x))
    x = hm.asarray([-1.0])
    assert traced(x).item() == -0.5
    layer.negative_slope = 0.25
    assert traced(x).item() == -0.25


def test_dropout_layers_drop_in_training_alone() -> None:
    hm.manual_seed(0)
    for layer in (
        nn.Dropout1d(),
        nn.Dropout2d(),
        nn.Dropout3d(),
        nn.AlphaDropout(),
        nn.FeatureAlphaDropout(),
        nn.RReLU(),
    ):
        x = -hm.ones((2, 50, *(3,) * {"1": 1, "2": 2, "3": 3}.get(type(layer).__name__[-2], 1)))
        assert len(np.unique(layer(x).numpy())) > 1
        assert len(np.unique(layer.eval()(x).numpy())) == 1


def test_running_statistics_of_instance_norm() -> None:
    layer = nn.InstanceNorm1d(2, track_running_stats=True)
    x = np.random.default_rng(0).normal(size=(4, 2, 6)).astype("f4")
    layer(hm.asarray(x))
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * x.mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * x.var(2, ddof=1).mean(0), rtol=1e-5)


@pytest.mark.parametrize("how", ["weight_norm", "spectral_norm"])
def test_reparametrized_weights_copy_pickle_trace_and_come_back(how: str) -> None:
    hm.manual_seed(0)
    layer = getattr(nn.utils, how)(nn.Linear(3, 4)).eval()
    x = hm.asarray(np.random.default_rng(0).normal(size=(2, 3)).astype("f4"))
    expected = layer(x).detach().numpy()
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(twin) == repr(layer) and isinstance(twin, nn.Linear)
        np.testing.assert_array_equal(twin(x).detach().numpy(), expected)
    np.testing.assert_allclose(hm.trace(lambda x: layer(x))(x).detach().numpy(), expected, rtol=1e-6, atol=1e-7)
    getattr(nn.utils, f"remove_{how}")(layer)
    assert list(layer.state_dict()) == ["bias", "weight"] and type(layer) is nn.Linear
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=f"no {how} on top"):
        getattr(nn.utils, f"remove_{how}")(layer)
    with pytest.raises(ValueError, match=r"no parameter 'kernel'; it has \['bias', 'weight'\]"):
        getattr(nn.utils, how)(layer, "kernel")


def test_a_spectral_norm_is_the_largest_singular_value() -> None:
    hm.manual_seed(0)
    layer = nn.Linear(6, 5)
    weight = layer.weight.detach().numpy().copy()
    nn.utils.spectral_norm(layer)
    step = hm.trace(lambda x: layer(x))
    for _ in range(50):
        step(hm.ones((1, 6)))
    largest = np.linalg.svd(layer.weight.detach().numpy(), compute_uv=False)[0]
    assert largest == pytest.approx(1, rel=1e-3)
    np.testing.assert_allclose(
        layer.weight.detach().numpy(), weight / np.linalg.svd(weight)[1][0], rtol=1e-3, atol=1e-4
    )


def test_softmax_of_a_cast_input() -> None:
    x = hm.asarray([1.0, 2.0])
    for call in (F.softmax, F.softmin, F.log_softmax):
        assert call(x, 0, dtype=hm.float64).dtype == hm.float64


def test_weights_of_losses_have_the_shape_of_the_input() -> None:
    with pytest.raises(ValueError, match=r"weight \(3,\) must have the shape \(2, 3\)"):
        F.mse_loss(hm.ones((2, 3)), hm.ones((2, 3)), weight=hm.ones(3))


def test_a_transformer_with_a_hint_is_one_with_a_mask() -> None:
    hm.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 12, 0.0, batch_first=True)
    src, tgt = hm.random.normal((2, 5, 8)), hm.random.normal((2, 4, 8))
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    expected = model(src, tgt, tgt_mask=mask).detach().numpy()
    for got in (model(src, tgt, tgt_is_causal=True), hm.trace(lambda s, t: model(s, t, tgt_is_causal=True))(src, tgt)):
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="sequences of 8 features"):
        model(src, hm.ones((2, 4, 7)))


def test_a_dict_of_parameters() -> None:
    found = nn.ParameterDict({"a": nn.Parameter(hm.ones(2)), "b": nn.Parameter(hm.zeros(()))})
    found["c"] = nn.Parameter(hm.ones(1))
    del found["a"]
    assert list(found) == list(found.keys()) == ["b", "c"] and len(found) == 2 and "a" not in found
    assert [name for name, _ in found.items()] == ["b", "c"] and [p.size for p in found.values()] == [1, 1]
    assert found["c"] is found.c and len(list(found.parameters())) == 2
    with pytest.raises(KeyError):
        found["a"]


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}])
def test_a_causal_hint_is_the_causal_mask(options: dict[str, bool]) -> None:
    hm.manual_seed(0)
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True, **options), hm.random.normal((2, 4, 8))
    mask = hm.triu(hm.ones((4, 4), dtype=hm.bool), k=1)
    expected = attention(x, x, x, attn_mask=mask, need_weights=False)[0].detach().numpy()
    got = attention(x, x, x, is_causal=True, need_weights=False)[0].detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_errors_about_arguments_name_the_layer() -> None:
    layers = [getattr(nn, name) for name in nn.__all__]
    modules = [layer for layer in layers if isinstance(layer, type) and issubclass(layer, nn.Module)]
    assert len(modules) > 100
    for layer in {nn.MaxPool2d, nn.MSELoss, nn.ReLU, nn.LSTM, nn.TransformerEncoderLayer, *modules}:
        assert not layer.__init__.__qualname__.startswith("_"), layer
    with pytest.raises(TypeError, match=r"^MaxPool2d\.__init__\(\) missing 1 required .* 'kernel_size'"):
        nn.MaxPool2d()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^MSELoss\.__init__\(\) got an unexpected keyword argument 'size'"):
        nn.MSELoss(size=3)  # type: ignore[call-arg]

    class Mine(nn.Conv1d):
        def __init__(self) -> None:
            super().__init__(2, 3, kernel_size=1)

    assert Mine().weight.shape == (3, 2, 1) and nn.Conv1d(2, 3, 1, padding=1).padding == (1,)


@STYLES
def test_inputs_of_function_modules_go_by_name(style: Any) -> None:
    x, target = hm.tensor([1.0, 2.0]), hm.tensor([1.0, 4.0])
    loss = nn.MSELoss(reduction="sum")
    assert style(lambda a, b: loss(input=a, target=b))(x, target).item() == 4.0
    assert style(lambda a, b: loss(a, target=b))(x, target).item() == 4.0
    assert style(lambda a: nn.ReLU()(input=a))(-x).tolist() == [0.0, 0.0]
    with pytest.raises(TypeError, match=r"mse_loss.* 'goal'"):
        style(lambda a, b: loss(a, goal=b))(x, target)
    with pytest.raises(TypeError, match=r"mse_loss.* 'reduction'"):
        style(lambda a, b: loss(a, b, reduction="mean"))(x, target)


def test_embeddings_of_a_table() -> None:
    table = hm.arange(6.0).reshape(3, 2)
    state = hm.random.default_generator.get_state().tolist()
    layer = nn.Embedding.from_pretrained(table, padding_idx=-1)
    assert hm.random.default_generator.get_state().tolist() == state
    assert repr(layer) == "Embedding(3, 2, padding_idx=-1)" and not layer.weight.requires_grad
    table[1] = 7.0
    assert layer(hm.asarray([1, 2])).tolist() == [[7, 7], [4, 5]]  # the same memory, and no row becomes zero
    bag = nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum")
    bag(hm.asarray([[0, 2]])).sum().backward()
    assert bag.weight.grad.tolist() == [[1, 1], [0, 0], [1, 1]]
    with pytest.raises(hm.ShapeError, match="must be \\(rows, embedding_dim\\)"):
        nn.EmbeddingBag.from_pretrained(hm.ones(3))
