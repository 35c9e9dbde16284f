"""Attention against its formula: values, gradients of any order, masks, dropout, shared heads; and its memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml.functional import attention
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from tests.support.examples import every

RNG = np.random.default_rng(0)
SEEN = RNG.random((7, 9)) > 0.3
SEEN[:, 0] = True

CASES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "plain": (((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)), {}),
    "scale": (((7, 4), (9, 4), (9, 5)), {"scale": 0.7}),
    "causal": (((2, 7, 4), (2, 7, 4), (2, 7, 5)), {"is_causal": True}),
    "causal, more keys": (((2, 7, 4), (2, 9, 4), (2, 9, 5)), {"is_causal": True}),
    "causal, fewer keys": (((2, 9, 4), (2, 7, 4), (2, 7, 5)), {"is_causal": True}),
    "bool mask": (((2, 7, 4), (2, 9, 4), (2, 9, 5)), {"attn_mask": SEEN}),
    "mask of keys": (((2, 7, 4), (2, 9, 4), (2, 9, 5)), {"attn_mask": SEEN[0]}),
    "added mask": (((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)), {"attn_mask": RNG.standard_normal((3, 7, 9))}),
    "one head of keys": (((2, 3, 7, 4), (2, 1, 9, 4), (1, 9, 5)), {}),
    "mask of a batch": (((7, 4), (9, 4), (9, 5)), {"attn_mask": RNG.standard_normal((2, 7, 9))}),
    "shared heads": (((2, 6, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)), {"enable_gqa": True}),
    "dropout": (((2, 7, 4), (2, 9, 4), (2, 9, 5)), {"dropout_p": 0.4}),
}


def formula(q: hm.Tensor, k: hm.Tensor, v: hm.Tensor, **how: Any) -> hm.Tensor:
    """The definition, differentiated operation by operation."""
    if how.get("enable_gqa"):
        k, v = (hm.repeat(t, q.shape[-3] // t.shape[-3], axis=-3) for t in (k, v))
    scores = hm.matmul(q, k.mT) * how.get("scale", 1 / math.sqrt(q.shape[-1]))
    mask = how.get("attn_mask")
    if how.get("is_causal"):
        mask = hm.asarray(np.tril(np.ones(scores.shape[-2:], bool)))
    if mask is not None:
        scores = hm.where(mask, scores, -math.inf) if mask.dtype == hm.bool else scores + mask
    weights = F.dropout(F.softmax(scores, -1), how.get("dropout_p", 0.0), training="dropout_p" in how)
    return hm.matmul(weights, v)


def tensors(name: str) -> tuple[list[hm.Tensor], dict[str, Any], list[hm.Tensor]]:
    """Queries, keys and values; the other arguments; all that has a gradient."""
    shapes, how = CASES[name]
    rng = np.random.default_rng(1)
    qkv = [hm.tensor(rng.standard_normal(shape), dtype=hm.float64, requires_grad=True) for shape in shapes]
    mask = how.get("attn_mask")
    if mask is None:
        return qkv, how, qkv
    given = hm.tensor(mask, requires_grad=mask.dtype != bool)
    return qkv, {**how, "attn_mask": given}, [*qkv, given] if given.requires_grad else qkv


def derivatives(fn: Callable[..., hm.Tensor], name: str) -> list[np.ndarray]:
    """Result, gradients, and gradients of a function of the gradients."""
    qkv, how, leaves = tensors(name)
    hm.manual_seed(3)
    out = fn(*qkv, **how)
    weight = hm.cos(hm.arange(out.size, dtype=hm.float64)).reshape(out.shape)
    first = hm.autograd.grad((out * weight).sum(), leaves, create_graph=True)
    again = sum(((g * g * g).sum() for g in first if g is not None), hm.zeros((), dtype=hm.float64))
    second = hm.autograd.grad(again, leaves)
    return [t.detach().numpy() for t in (out, *first, *second) if t is not None]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", every(2, CASES))
def test_values_and_gradients_of_two_orders(name: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_LEAST_BLOCK", 2)  # a causal mask is blocks, of which the last is shorter
    if not shared:
        monkeypatch.setattr(attention, "_SHARED", 0)
    got, expected = (derivatives(fn, name) for fn in (F.scaled_dot_product_attention, formula))
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, 1e-9, 1e-9)


@pytest.mark.parametrize("name", every(2, CASES))
def test_traced(name: str) -> None:
    qkv, how, leaves = tensors(name)

    def step(qkv: list[hm.Tensor], how: Mapping[str, Any]) -> tuple[hm.Tensor, ...]:
        out = F.scaled_dot_product_attention(*qkv, **how)
        wanted = [*qkv, how["attn_mask"]] if len(leaves) > len(qkv) else qkv
        return out.detach(), *hm.autograd.grad((out * out).sum(), wanted)

    hm.manual_seed(5)
    eager = step(qkv, how)
    hm.manual_seed(5)
    for got, expected in zip(hm.trace(step)(qkv, how), eager, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), 1e-9, 1e-9)


@pytest.mark.parametrize("causal", [True, False])
def test_no_array_of_all_scores(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_MOST_BLOCKS", 2)  # fewer kernels to compile
    heads, length, width = 8, 1024, 16
    q = hm.tensor(RNG.standard_normal((heads, length, width)), dtype=hm.float32, requires_grad=True)

    @hm.trace
    def step(q: hm.Tensor, g: hm.Tensor) -> tuple[hm.Tensor, ...]:
        out = F.scaled_dot_product_attention(q, q * 2, q * 3, is_causal=causal)
        return out.detach(), *hm.autograd.grad(out, [q], g)

    step(q, hm.ones(q.shape))
    assert step._shown().program.executable.arena_bytes < heads * length * length * 4 / 4


@pytest.mark.parametrize(("dtype", "unit"), [("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
def test_narrow_gradients_add_up_rows_in_float32(dtype: str, unit: float) -> None:
    """Their error is that of rounded products, 1.6 to 2.2 units, and was 3.2 to 3.8 by sums that were rounded."""
    rng = np.random.default_rng(0)
    given = [hm.tensor(rng.standard_normal((2, 64, 32)).astype("f4")).astype(dtype) for _ in range(4)]

    def gradients(q: Any, k: Any, v: Any, g: Any) -> Any:
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        return hm.autograd.grad([attention.scaled_dot_product_attention(q, k, v)], [q, k, v], [g])

    for found, exact in zip(gradients(*given), gradients(*(x.astype("float32") for x in given)), strict=True):
        assert found.dtype.name == dtype
        error = np.square(found.astype("float32").numpy() - exact.numpy()).mean()
        assert error < (2.5 * unit) ** 2 * np.square(exact.numpy()).mean()


def test_a_row_that_sees_nothing_is_nan() -> None:
    out = F.scaled_dot_product_attention(*[hm.ones((2, 3))] * 3, hm.asarray([[True, True], [False, False]]))
    assert out.tolist()[0] == [1.0, 1.0, 1.0] and np.isnan(out.numpy()[1]).all()


def test_errors() -> None:
    x, attend = hm.ones((2, 4, 3)), F.scaled_dot_product_attention
    with pytest.raises(ArgumentError, match="attn_mask or is_causal"):
        attend(x, x, x, hm.ones((4, 4)), is_causal=True)
    with pytest.raises(ArgumentError, match="dropout_p is a probability, got 2"):
        attend(x, x, x, dropout_p=2)
    with pytest.raises(ShapeError, match=r"must be \(\.\.\., l, e\), \(\.\.\., s, e\) and \(\.\.\., s, v\)"):
        attend(x, hm.ones((2, 4, 5)), x)
    with pytest.raises(ShapeError, match="must be a multiple"):
        attend(hm.ones((3, 4, 3)), x, x, enable_gqa=True)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_a_mask_of_integers_is_refused(style: Any) -> None:
    """Ones of `tril(ones)` would be added to the scores, where they were meant to select."""
    q, ones = hm.ones((3, 4)), hm.tril(hm.ones((3, 3), dtype=hm.int64))
    with pytest.raises(DTypeError, match=r"attn_mask must be bool \(True takes part\) .* got int64; cast it"):
        style(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m))(q, ones)
    layer = hm.nn.MultiheadAttention(4, 2)
    for name, mask in (("attn_mask", ones), ("key_padding_mask", ones[0])):
        with pytest.raises(DTypeError, match=rf"MultiheadAttention: {name} must be bool \(True is left out\)"):
            style(lambda q, m, name=name: layer(q, q, q, **{name: m}))(q, mask)


def test_errors_of_several_heads() -> None:
    q, k, w = hm.ones((5, 3, 8)), hm.ones((6, 3, 8)), hm.ones((24, 8))
    given = (w, None, None, None, False, 0.0, hm.ones((8, 8)), None)
    boolean, bias = hm.zeros((6, 3), dtype=hm.bool), hm.ones((1, 1, 8))

    def forward(q: hm.Tensor, k: hm.Tensor, given: Any = given, **how: Any) -> Any:
        return F.multi_head_attention_forward(q, k, k, 8, 2, *given, **how)

    for call, error, words in (
        (lambda: forward(q, k[:, :2]), ShapeError, r"\(l, n, e\) or \(l, e\), of one batch size n.*\(6, 2, 8\)"),
        (lambda: forward(q, k[..., :7]), ShapeError, r"key must have 8 features, got shape \(6, 3, 7\)"),
        (lambda: forward(q, k, key_padding_mask=boolean), ShapeError, r"key_padding_mask must have shape \(3, 6\)"),
        (lambda: forward(q[:, 0], k[:, 0], key_padding_mask=boolean.mT), ShapeError, r"must have shape \(6,\)"),
        (lambda: forward(q, k, attn_mask=boolean), ShapeError, r"attn_mask must have shape \(5, 6\) or \(6, 5, 6\)"),
        (lambda: forward(q, k, (None, *given[1:])), ArgumentError, "needs in_proj_weight, or use_separate_proj_weight"),
        (
            lambda: forward(q, k, use_separate_proj_weight=True),
            ArgumentError,
            "q_proj_weight, k_proj_weight and",
        ),
        (lambda: forward(q, k, (w, None, bias, *given[3:])), ArgumentError, "both of bias_k and bias_v, or neither"),
    ):
        with pytest.raises(error, match=f"^multi_head_attention_forward: .*{words}"):
            call()
    static = hm.ones((6, 4, 4))  # its length is that of the keys
    masked = forward(q, k, static_k=static, static_v=static, attn_mask=hm.zeros((5, 4)))
    assert masked[1].shape == (3, 5, 4)
