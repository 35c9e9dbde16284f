"""Attention of several heads, with its projections (Vaswani et al. 2017): what `nn.MultiheadAttention` computes."""

from __future__ import annotations

import math
from typing import NamedTuple

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.context import placed
from ..core.library import compiled_for_lengths
from ..core.tensor import Tensor
from .attention import attention_weights, bool_or_float, scaled_dot_product_attention
from .basics import linear
from .dropouts import dropout
from .padding import pad


class Projections(NamedTuple):
    """The parameters: of queries, keys and values in one matrix (3e, e) or three, and of the result."""

    in_weight: Tensor | None
    in_bias: Tensor | None
    q_weight: Tensor | None
    k_weight: Tensor | None
    v_weight: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    out_weight: Tensor
    out_bias: Tensor | None


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`nn.MultiheadAttention` with its parameters as arguments, in PyTorch's order: (output, weights).

    query (l, n, e) or (l, e); key and value (s, n, ...) or (s, ...). `static_k` and `static_v`
    (n * heads, s, e / heads) are in the place of projected keys and values. Masks are those of
    `nn.MultiheadAttention`. Raises ShapeError for sizes that do not fit, DTypeError for masks of integers,
    ArgumentError where a weight is missing.

    >>> x, w = hm.ones((3, 2, 4)), hm.ones((12, 4))
    >>> out, weights = multi_head_attention_forward(
    ...     x, x, x, 4, 2, w, None, None, None, False, 0.0, hm.ones((4, 4)), None)
    >>> out.shape, weights.shape
    ((3, 2, 4), (2, 3, 3))
    """
    if query.shape[-1] != embed_dim_to_check or embed_dim_to_check % num_heads:
        raise ShapeError(
            f"multi_head_attention_forward: query must have {embed_dim_to_check} features, a multiple of "
            f"num_heads={num_heads}, got shape {query.shape}"
        )
    given = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else (in_proj_weight,)
    if any(weight is None for weight in given):
        raise ArgumentError(
            "multi_head_attention_forward: needs in_proj_weight, or use_separate_proj_weight=True with q_proj_weight, "
            "k_proj_weight and v_proj_weight"
        )
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else (None, None, None)
    together = None if use_separate_proj_weight else in_proj_weight
    weights = Projections(together, in_proj_bias, *separate, bias_k, bias_v, out_proj_weight, out_proj_bias)
    return multi_head_attention(
        "multi_head_attention_forward", query, key, value, weights, num_heads, add_zero_attn=add_zero_attn,
        batch_first=False, dropout_p=dropout_p if training else 0.0, key_padding_mask=key_padding_mask,
        need_weights=need_weights, attn_mask=attn_mask, average_attn_weights=average_attn_weights,
        is_causal=is_causal, static=(static_k, static_v),
    )  # fmt: skip


@compiled_for_lengths(
    query=(-3, -2), key=(-3, -2), value=(-3, -2), key_padding_mask=(-2, -1), attn_mask=(-2, -1)
)  # fmt: skip
@placed
def multi_head_attention(
    what: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Projections,
    num_heads: int,
    *,
    add_zero_attn: bool,
    batch_first: bool,
    dropout_p: float,
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average_attn_weights: bool,
    is_causal: bool,
    static: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """The output and the weights of `nn.MultiheadAttention`, which says what the arguments are."""
    _check(what, query, key, value, weights, batch_first)
    single = query.ndim == 2
    q, k, v = _projected(query, key, value, weights)
    if single:
        q, k, v = q[None], k[None], v[None]
    elif not batch_first:
        q, k, v = (xp.permute_dims(t, (1, 0, 2)) for t in (q, k, v))
    size = query.shape[-1] // num_heads  # of a head: there may be the projections of some of them
    q, k, v = (_heads(t, size) for t in (q, k, v))  # (n, heads, l, size)
    k, v = (t if given is None else given.reshape((*q.shape[:2], *given.shape[1:]))
            for t, given in zip((k, v), static, strict=True))  # fmt: skip
    _check_masks(what, q, k, single, attn_mask, key_padding_mask)
    key_padding_mask = key_padding_mask[None] if single and key_padding_mask is not None else key_padding_mask
    if weights.bias_k is not None or add_zero_attn:
        length = k.shape[2]
        if is_causal and attn_mask is None:
            attn_mask = xp.triu(xp.ones((q.shape[2], length), dtype=xp.bool), k=1)
        k, v = (_longer(t, bias, add_zero_attn) for t, bias in ((k, weights.bias_k), (v, weights.bias_v)))
        masks = (attn_mask, key_padding_mask)  # which what is added passes by
        attn_mask, key_padding_mask = (None if mask is None else pad(mask, (0, k.shape[2] - length)) for mask in masks)
    mask = _mask(attn_mask, key_padding_mask, q.shape[1], weights.out_weight.dtype)
    if is_causal and mask is not None and attn_mask is not None:
        is_causal = False  # as in PyTorch, a hint that the mask given is the causal one
    if mask is not None and is_causal:
        raise ArgumentError(f"{what}: with a key_padding_mask give the causal mask as attn_mask")
    shares: Tensor | None = None
    if need_weights:
        scores = xp.matmul(q * (1 / math.sqrt(q.shape[-1])), k.mT)
        shares = dropout(attention_weights(scores, mask, is_causal), dropout_p, dropout_p > 0)
        heads = xp.matmul(shares, v)
        shares = shares.mean(axis=1) if average_attn_weights else shares
    else:
        heads = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    batch, _, length, _ = heads.shape
    joined = xp.permute_dims(heads, (0, 2, 1, 3)).reshape((batch, length, -1))
    output = linear(joined, weights.out_weight, weights.out_bias)
    if single:
        return output[0], None if shares is None else shares[0]
    return (output if batch_first else xp.permute_dims(output, (1, 0, 2))), shares


def _check(what: str, query: Tensor, key: Tensor, value: Tensor, weights: Projections, batch_first: bool) -> None:
    axis = 0 if batch_first else 1  # of the batch
    if query.ndim not in (2, 3) or query.ndim != key.ndim or key.shape[:-1] != value.shape[:-1] or (
        query.ndim == 3 and query.shape[axis] != key.shape[axis]
    ):  # fmt: skip
        raise ShapeError(
            f"{what}: query, key and value must be {'(n, l, e)' if batch_first else '(l, n, e)'} or (l, e), of one "
            f"batch size n, key and value of one length, got {query.shape}, {key.shape}, {value.shape}"
        )
    separate = (weights.q_weight, weights.k_weight, weights.v_weight)
    projections = separate if weights.in_weight is None else (weights.in_weight,) * 3
    for name, tensor, weight in zip(("query", "key", "value"), (query, key, value), projections, strict=True):
        if weight is not None and weight.shape[-1] != tensor.shape[-1]:
            raise ShapeError(f"{what}: {name} must have {weight.shape[-1]} features, got shape {tensor.shape}")
    if (weights.bias_k is None) != (weights.bias_v is None):
        raise ArgumentError(f"{what}: give both of bias_k and bias_v, or neither")


def _check_masks(
    what: str, q: Tensor, k: Tensor, single: bool, attn_mask: Tensor | None, key_padding_mask: Tensor | None
) -> None:
    (batch, heads, length, _), keys = q.shape, k.shape[2]
    for name, mask, shapes in (
        ("attn_mask", attn_mask, ((length, keys), (batch * heads, length, keys))),
        ("key_padding_mask", key_padding_mask, ((keys,) if single else (batch, keys),)),
    ):
        bool_or_float(what, name, mask, "is left out")
        if mask is not None and mask.shape not in shapes:
            raise ShapeError(f"{what}: {name} must have shape {' or '.join(map(str, shapes))}, got {mask.shape}")


def _projected(query: Tensor, key: Tensor, value: Tensor, weights: Projections) -> tuple[Tensor, Tensor, Tensor]:
    e = weights.out_weight.shape[1]
    if query is key and key is value and weights.in_weight is not None:  # one product for all three
        all_three = linear(query, weights.in_weight, weights.in_bias)
        return all_three[..., :e], all_three[..., e : 2 * e], all_three[..., 2 * e :]
    parts = []
    for number, tensor in enumerate((query, key, value)):
        rows = slice(number * e, (number + 1) * e)
        bias = None if weights.in_bias is None else weights.in_bias[rows]
        weight = weights[2 + number] if weights.in_weight is None else weights.in_weight[rows]
        assert weight is not None
        parts.append(linear(tensor, weight, bias))
    return parts[0], parts[1], parts[2]


def _heads(x: Tensor, size: int) -> Tensor:
    batch, length, _ = x.shape
    return xp.permute_dims(x.reshape((batch, length, -1, size)), (0, 2, 1, 3))


@placed
def _longer(x: Tensor, bias: Tensor | None, add_zero_attn: bool) -> Tensor:
    """(n, heads, s, e / heads) with what is added behind the sequence."""
    shape = (x.shape[0], x.shape[1], 1, x.shape[3])
    more = [] if bias is None else [xp.broadcast_to(_heads(bias.reshape((1, 1, -1)), x.shape[3]), shape)]
    if add_zero_attn:
        more.append(xp.zeros(shape, dtype=x.dtype))
    return xp.concat([x, *more], axis=2)


def _mask(attn_mask: Tensor | None, padding: Tensor | None, num_heads: int, dtype: object) -> Tensor | None:
    """Both masks as one that is added to (n, heads, l, s) scores."""
    parts = []
    if attn_mask is not None:
        # (n * heads, l, s) is PyTorch's form of a mask for each head.
        shaped = attn_mask if attn_mask.ndim == 2 else attn_mask.reshape((-1, num_heads, *attn_mask.shape[1:]))
        parts.append(_added(shaped, dtype))
    if padding is not None:
        parts.append(_added(padding[:, None, None, :], dtype))
    return sum(parts[1:], parts[0]) if parts else None


@placed
def _added(mask: Tensor, dtype: object) -> Tensor:
    return xp.where(mask, -math.inf, xp.zeros((), dtype=dtype)) if mask.dtype == xp.bool else mask


__all__ = ["multi_head_attention_forward"]
