"""Scaled dot-product attention (Vaswani et al. 2017) whose scores live in cache.

The backward of a softmax needs its result, which has a row of keys for every query. Here it is made again from what is
smaller: queries, keys, and the logarithm of the sum of each row (Dao et al. 2022, "FlashAttention"). Every array of
that size is then written and read by neighbouring operations alone, a part of it at a time in compiled code.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.sizes.dims import is_symbolic

from .. import arrays as xp
from ..autograd import Function
from ..core.context import at_place, placed
from ..core.library import compiled_for_lengths
from ..core.tensor import Tensor
from ..random import Generator, bernoulli, default_generator
from .activations import softmax

# Scores of one head up to which the gradients of queries, keys and values share them: they fit into the last level of
# cache. From more on the gradients of keys and values compute them once more (7 products instead of 5). A GPU's kernel
# has them in no memory, and computes them once more itself.
_SHARED = 512 * 512
# A causal mask leaves the upper half out, as far as blocks of queries can: (n + 1) / 2n of the work for n blocks. Each
# is kernels of its own, which take time to compile ([Note: Fusion]).
_LEAST_BLOCK = 128
_MOST_BLOCKS = 4


@compiled_for_lengths(query=(-2,), key=(-2,), value=(-2,), attn_mask=(-2, -1))
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
    Raises ArgumentError for a mask beside `is_causal`, DTypeError for one of integers, ShapeError for sizes that do not
    fit.

    >>> q = hm.ones((2, 4, 8))
    >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (2, 4, 8)
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: give attn_mask or is_causal=True, not both")
    if not 0 <= dropout_p <= 1:
        raise ArgumentError(f"scaled_dot_product_attention: dropout_p is a probability, got {dropout_p}")
    _check(query, key, value)
    bool_or_float("scaled_dot_product_attention", "attn_mask", attn_mask, "takes part")
    heads = query.shape[:-1]
    if enable_gqa:
        query, key, value = _grouped(query, key, value)
    scores = (query.shape[-2], key.shape[-2])
    masks = [] if attn_mask is None else [attn_mask.shape[:-2]]
    batch = xp.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2], *masks)
    query, key, value = (_stretched(t, (*batch, *t.shape[-2:])) for t in (query, key, value))
    if attn_mask is not None and attn_mask.requires_grad:
        attn_mask = _stretched(attn_mask, (*batch, *scores))
    how = _How(is_causal, 1 / math.sqrt(query.shape[-1]) if scale is None else scale, float(dropout_p))
    state = None
    if dropout_p > 0:  # to draw the same numbers in the backward
        state = default_generator.reserve((*batch, *scores))
    out, _ = _Attention.apply(query, key, value, attn_mask, state, how)
    return out.reshape((*heads, out.shape[-1])) if enable_gqa else out


def bool_or_float(what: str, name: str, mask: Tensor | None, true: str) -> None:
    """DTypeError for a mask of integers: it is not told whether its ones select or are added."""
    if mask is not None and mask.dtype != xp.bool and not dtypes.is_float(mask.dtype):
        raise DTypeError(
            f"{what}: {name} must be bool (True {true}) or float (added to the scores), got {mask.dtype.name}; "
            "cast it with astype"
        )


def attention_weights(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    """Softmax of (..., l, s) scores under a mask; a row that sees no column is NaN, as in PyTorch."""
    return softmax(_masked(scores, attn_mask, 0 if is_causal else None), -1)


class _How(NamedTuple):
    causal: bool
    scale: float
    dropout: float


class _Block(NamedTuple):
    """Queries and keys that meet. With `first`, query i sees the keys up to first + i, counted within the block."""

    queries: slice
    keys: slice
    first: int | None


class _Attention(Function):
    """(result, logarithm of the sum of each row of exponentials)."""

    is_composite = True

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: Tensor | None, how: _How
    ) -> tuple[Tensor, Tensor]:
        keep = _keep(state, query, (*query.shape[:-1], key.shape[-2]), how)
        # Scores are scaled once the largest is known, which costs nothing; where that is not the order, queries are.
        early, late = ctx.scales = (1.0, how.scale) if _scales_late(mask, how) else (how.scale, 1.0)
        results = []
        for block in _blocks(how, query, key.shape[-2]):
            scores = _product(_rows(query * early, block.queries), _rows(key, block.keys).mT)
            scores = _masked(scores, mask, block.first)
            highest = scores.max(axis=-1, keepdims=True)
            weights = xp.exp((scores - highest) * late).astype(query.dtype)
            total = weights.sum(axis=-1, keepdims=True, dtype=scores.dtype)
            weights = _dropped(weights, keep, block, 1.0)
            out = _product(weights, _rows(value, block.keys)) / (total * (1 - how.dropout))
            results.append((out.astype(value.dtype), highest * late + xp.log(total)))
        out, logsum = (_joined(parts) for parts in zip(*results, strict=True))
        ctx.how = how
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, mask, state, out, logsum)
        return out, logsum

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_logsum: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, mask, state, out, logsum = ctx.saved_tensors
        how, lengths = ctx.how, (query.shape[-2], key.shape[-2])
        # The other way round: the expression of the forward would be its array, kept in memory until now.
        late, early = ctx.scales
        query = query * early
        g = xp.zeros_like(out) if g is None else g
        # The mean of the gradients of a row's weights, weighted by these.
        mean = (_wide(g) * _wide(out)).sum(axis=-1, keepdims=True)
        mean = mean if g_logsum is None else mean - g_logsum
        keep = _keep(state, out, (*out.shape[:-1], lengths[1]), how)
        factor = 1 / (1 - how.dropout) if how.dropout < 1 else 0.0
        shared = is_symbolic(lengths) or math.prod(lengths) <= _SHARED or query.device.type != "cpu"
        g_queries, g_keys, g_values = [], [], []
        for block in _blocks(how, query, lengths[1]):
            q, k, v = _rows(query, block.queries), _rows(key, block.keys), _rows(value, block.keys)
            down, row_mean, row_sum = (_rows(t, block.queries) for t in (g, mean, logsum))
            weights = xp.exp(_masked(_product(q, k.mT) * late, mask, block.first) - row_sum).astype(q.dtype)
            back = (weights * (_dropped(_product(down, v.mT), keep, block, factor) - row_mean)).astype(q.dtype)
            g_queries.append(xp.matmul(back, k) * how.scale)
            if shared:
                g_keys.append(xp.matmul(back.mT, q))
                g_values.append(xp.matmul(_dropped(weights, keep, block, factor).mT, down))
        g_mask = back if ctx.needs_input_grad[3] else None
        if shared:
            g_key, g_value = _added(g_keys), _added(g_values)
        else:
            mask, keep = (None if t is None else _transposed(t) for t in (mask, keep))
            for block in _blocks(how, query, lengths[1], by_keys=True):  # all of it transposed: rows are keys
                q, k, v = _rows(query, block.queries), _rows(key, block.keys), _rows(value, block.keys)
                down, row_mean, row_sum = (_rows(t, block.queries) for t in (g, mean, logsum))
                scores = _masked(_product(k, q.mT) * late, mask, block.first, flip=True)
                weights = xp.exp(scores - row_sum.mT).astype(q.dtype)
                turned = _Block(block.keys, block.queries, None)
                back = (weights * (_dropped(_product(v, down.mT), keep, turned, factor) - row_mean.mT)).astype(q.dtype)
                g_keys.append(xp.matmul(back, q))
                g_values.append(xp.matmul(_dropped(weights, keep, turned, factor), down))
            g_key, g_value = _joined(g_keys), _joined(g_values)
        return _joined(g_queries), g_key * late, g_value, g_mask, None, None


def _wide(x: Tensor) -> Tensor:
    """Narrower numbers as float32, in which scores and sums over rows are."""
    return x.astype(dtypes.float32) if dtypes.is_narrow(x.dtype) else x


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The product with the precision that it is summed in."""
    return xp.matmul(_wide(a), _wide(b))


def _scales_late(mask: Tensor | None, how: _How) -> bool:
    return how.scale > 0 and (mask is None or mask.dtype == xp.bool)


def _blocks(how: _How, query: Tensor, keys: int, *, by_keys: bool = False) -> list[_Block]:
    """All queries and keys, or what a causal mask leaves of them: queries in blocks, each with the keys before its end,
    or keys in blocks, each with the queries after its start. A GPU's kernel leaves tiles out itself."""
    queries = query.shape[-2]
    if not how.causal:
        return [_Block(slice(0, queries), slice(0, keys), None)]
    if is_symbolic((queries, keys)) or queries != keys or queries < 2 * _LEAST_BLOCK or query.device.type != "cpu":
        return [_Block(slice(0, queries), slice(0, keys), 0)]
    size = -(-queries // min(_MOST_BLOCKS, queries // _LEAST_BLOCK))
    parts = [slice(k, min(k + size, queries)) for k in range(0, queries, size)]
    if by_keys:
        return [_Block(slice(part.start, queries), part, 0) for part in parts]
    return [_Block(part, slice(0, part.stop), part.start) for part in parts]


@placed
def _masked(scores: Tensor, mask: Tensor | None, first: int | None, *, flip: bool = False) -> Tensor:
    """Scores of what may not be seen are -inf. With `first`, row i is query first + i, which sees columns up to it;
    with `flip` columns are queries, and rows what they see."""
    if first is not None:
        queries, keys = scores.shape[-2:][:: -1 if flip else 1]
        seen = first + xp.arange(queries)[:, None] >= xp.arange(keys)
        mask = seen.mT if flip else seen
    if mask is None:
        return scores
    return xp.where(mask, scores, -math.inf) if mask.dtype == xp.bool else scores + mask


def _rows(x: Tensor, part: slice) -> Tensor:
    return x if part == slice(0, x.shape[-2]) else x[..., part, :]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-2)


def _added(parts: Sequence[Tensor]) -> Tensor:
    """The sum of arrays of more and more rows, each as if the missing ones were zero."""
    ends = [0, *(part.shape[-2] for part in parts)]
    pieces = []
    for k, (start, end) in enumerate(itertools.pairwise(ends)):
        pieces.append(functools.reduce(operator.add, [_rows(part, slice(start, end)) for part in parts[k:]]))
    return _joined(pieces)


def _keep(state: Tensor | None, beside: Tensor, shape: tuple[int, ...], how: _How) -> Tensor | None:
    """The weights that dropout leaves, drawn where a tensor is."""
    if state is None:
        return None
    generator = Generator.at(state)
    return at_place(beside.device.type, lambda: bernoulli(1 - how.dropout, shape, generator=generator))


def _dropped(x: Tensor, keep: Tensor | None, block: _Block, factor: float) -> Tensor:
    return x if keep is None else xp.where(keep[..., block.queries, block.keys], x * factor, 0)


def _transposed(x: Tensor) -> Tensor:
    return x.mT if x.ndim > 1 else x[:, None]


def _stretched(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else xp.broadcast_to(x, shape)


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


__all__ = ["scaled_dot_product_attention"]
