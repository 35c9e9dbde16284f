"""Scaled dot-product attention (Vaswani et al. 2017)."""

from __future__ import annotations

import math

import hybridml as hm
from hybridml_compiler.errors import ArgumentError

from ..tensor import Tensor
from .activations import softmax
from .basics import dropout


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``: (..., l, e), (..., s, e), (..., s, v) -> (..., l, v).

    `attn_mask` broadcasts to (..., l, s): bool (True takes part) or float (added). `is_causal` lets row i see columns
    0..i. `scale` is ``1 / sqrt(e)`` if not given. As in PyTorch, dropout is applied whenever `dropout_p > 0`.

    >>> q = hm.ones((2, 4, 8))
    >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (2, 4, 8)
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: give attn_mask or is_causal=True, not both")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    # The smaller operand is scaled: l x e numbers instead of l x s.
    weights = attention_weights(hm.matmul(query * factor, key.mT), attn_mask, is_causal)
    return hm.matmul(dropout(weights, dropout_p, training=dropout_p > 0), value)


def attention_weights(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    """Softmax of (..., l, s) scores under a mask; a row that sees no column is NaN, as in PyTorch."""
    if is_causal:
        rows, columns = scores.shape[-2:]
        attn_mask = hm.arange(rows)[:, None] >= hm.arange(columns)
    if attn_mask is None:
        return softmax(scores, -1)
    if attn_mask.dtype == hm.bool:
        return softmax(hm.where(attn_mask, scores, -math.inf), -1)
    return softmax(scores + attn_mask, -1)
