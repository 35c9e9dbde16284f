"""Scaled dot-product attention (Vaswani et al. 2017) whose scores live in cache.

The backward of a softmax needs its result, which has a row of keys for every query. Here it is made again from what is
smaller: queries, keys, and the logarithm of the sum of each row (Dao et al. 2022, "FlashAttention"). Every array of
that size is then written and read by neighbouring operations alone, a part of it at a time in compiled code.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, ShapeError

from ..autograd import Function
from ..random import Generator, bernoulli, default_generator
from ..tensor import Tensor
from .activations import softmax
from .compiled import compiled

# Scores of one head up to which the gradients of queries, keys and values share them: they fit into the last level of
# cache. From more on the gradients of keys and values compute them once more (7 products instead of 5).
_SHARED = 512 * 512


@compiled
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``: (..., l, e), (..., s, e), (..., s, v) -> (..., l, v).

    `attn_mask` broadcasts to (..., l, s): bool (True takes part) or float (added). `is_causal` lets row i see columns
    0..i. `scale` is ``1 / sqrt(e)`` if not given. As in PyTorch, dropout is applied whenever `dropout_p > 0`.
    With `enable_gqa` keys and values (..., h, s, e) serve a multiple of h heads of queries, neighbours together.
    Raises ArgumentError for a mask beside `is_causal`, ShapeError for sizes that do not fit.

    >>> q = hm.ones((2, 4, 8))
    >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (2, 4, 8)
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: give attn_mask or is_causal=True, not both")
    if not 0 <= dropout_p <= 1:
        raise ArgumentError(f"scaled_dot_product_attention: dropout_p is a probability, got {dropout_p}")
    _check(query, key, value)
    heads = query.shape[:-1]
    if enable_gqa:
        query, key, value = _grouped(query, key, value)
    scores = (query.shape[-2], key.shape[-2])
    masks = [] if attn_mask is None else [attn_mask.shape[:-2]]
    batch = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2], *masks)
    query, key, value = (_stretched(t, (*batch, *t.shape[-2:])) for t in (query, key, value))
    if attn_mask is not None and attn_mask.requires_grad:
        attn_mask = _stretched(attn_mask, (*batch, *scores))
    how = _How(is_causal, 1 / math.sqrt(query.shape[-1]) if scale is None else scale, float(dropout_p))
    state = None
    if dropout_p > 0:  # to draw the same numbers in the backward
        state = default_generator.get_state()
        default_generator.bits((*batch, *scores))
    out, _ = _Attention.apply(query, key, value, attn_mask, state, how)
    return out.reshape((*heads, out.shape[-1])) if enable_gqa else out


def attention_weights(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    """Softmax of (..., l, s) scores under a mask; a row that sees no column is NaN, as in PyTorch."""
    return softmax(_masked(scores, attn_mask, 0 if is_causal else None), -1)


class _How(NamedTuple):
    causal: bool
    scale: float
    dropout: float


class _Attention(Function):
    """(result, logarithm of the sum of each row of exponentials)."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: Tensor | None, how: _How
    ) -> tuple[Tensor, Tensor]:
        # Queries are scaled, not scores: they are fewer.
        scores = _masked(hm.matmul(query * how.scale, key.mT), mask, 0 if how.causal else None)
        highest = scores.max(axis=-1, keepdims=True)
        weights = hm.exp(scores - highest)
        total = weights.sum(axis=-1, keepdims=True)
        kept = _dropped(weights, _keep(state, weights.shape, how), 1.0)
        out = hm.matmul(kept, value) / (total * (1 - how.dropout))
        logsum = highest + hm.log(total)
        ctx.how = how
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, mask, state, out, logsum)
        return out, logsum

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_logsum: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, mask, state, out, logsum = ctx.saved_tensors
        how = ctx.how
        g = hm.zeros_like(out) if g is None else g
        mean = (g * out).sum(axis=-1, keepdims=True)  # of the gradients of a row's weights, weighted by them
        mean = mean if g_logsum is None else mean - g_logsum
        keep = _keep(state, (*out.shape[:-1], key.shape[-2]), how)
        factor = 1 / (1 - how.dropout) if how.dropout < 1 else 0.0
        # Scores are scaled here: the expression of the forward would be its array, kept in memory until now.
        scores = hm.matmul(query, key.mT) * how.scale
        weights = hm.exp(_masked(scores, mask, 0 if how.causal else None) - logsum)
        g_scores = weights * (_dropped(hm.matmul(g, value.mT), keep, factor) - mean)
        g_query = hm.matmul(g_scores, key) * how.scale
        if query.shape[-2] * key.shape[-2] <= _SHARED:
            g_key, g_value = hm.matmul(g_scores.mT, query), hm.matmul(_dropped(weights, keep, factor).mT, g)
        else:  # the same transposed: a part of the keys after the other, each against all queries
            mask, keep = (None if t is None else _transposed(t) for t in (mask, keep))
            scores = hm.matmul(key, query.mT) * how.scale
            weights = hm.exp(_masked(scores, mask, 0 if how.causal else None, flip=True) - logsum.mT)
            back = weights * (_dropped(hm.matmul(value, g.mT), keep, factor) - mean.mT)
            g_key, g_value = hm.matmul(back, query), hm.matmul(_dropped(weights, keep, factor), g)
        g_mask = g_scores if ctx.needs_input_grad[3] else None
        return g_query, g_key * how.scale, g_value, g_mask, None, None


def _masked(scores: Tensor, mask: Tensor | None, first: int | None, *, flip: bool = False) -> Tensor:
    """Scores of what may not be seen are -inf. With `first`, row i is query first + i, which sees columns up to it;
    with `flip` columns are queries, and rows what they see."""
    if first is not None:
        queries, keys = scores.shape[-2:][:: -1 if flip else 1]
        seen = first + hm.arange(queries)[:, None] >= hm.arange(keys)
        mask = seen.mT if flip else seen
    if mask is None:
        return scores
    return hm.where(mask, scores, -math.inf) if mask.dtype == hm.bool else scores + mask


def _keep(state: Tensor | None, shape: tuple[int, ...], how: _How) -> Tensor | None:
    return None if state is None else bernoulli(1 - how.dropout, shape, generator=Generator.at(state))


def _dropped(x: Tensor, keep: Tensor | None, factor: float) -> Tensor:
    return x if keep is None else hm.where(keep, x * factor, 0)


def _transposed(x: Tensor) -> Tensor:
    return x.mT if x.ndim > 1 else x[:, None]


def _stretched(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else hm.broadcast_to(x, shape)


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads of queries as (heads of keys, queries of each), and keys and values with an axis of one for them."""
    *batch, heads, length, width = query.shape
    shared = key.shape[-3] if key.ndim > 2 else 1
    if query.ndim < 3 or key.shape[:-2] != value.shape[:-2] or heads % shared:
        raise ShapeError(
            f"scaled_dot_product_attention: with enable_gqa the heads of {query.shape} must be a multiple of those of "
            f"{key.shape} and {value.shape}; axis -3 counts heads"
        )
    return query.reshape((*batch, shared, heads // shared, length, width)), key[..., None, :, :], value[..., None, :, :]


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = [t.shape for t in (query, key, value)]
    fit = all(len(s) > 1 for s in shapes) and shapes[0][-1] == shapes[1][-1] and shapes[1][-2] == shapes[2][-2]
    if not fit:
        raise ShapeError(
            "scaled_dot_product_attention: query, key and value must be (..., l, e), (..., s, e) and (..., s, v), "
            f"got {', '.join(map(str, shapes))}"
        )
