"""MultiheadAttention (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from typing import Any

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import functional as F
from ..functional.attention import attention_weights
from ..tensor import Tensor
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter


class MultiheadAttention(Module):
    """Attention of `num_heads` heads; PyTorch's parameters, names and start.

    ``attn(query, key, value)`` gives (output, weights). Sequences are (l, n, e), or (n, l, e) with `batch_first=True`,
    or (l, e) without a batch. Boolean masks are True where attention is *not* allowed, as in PyTorch's layer;
    floating masks are added. Weights are averaged over the heads, or None with `need_weights=False`. Keys and values
    may have `kdim` and `vdim` features; `add_bias_kv` puts a learned key and value behind them, `add_zero_attn` zeros.

    >>> attn = MultiheadAttention(8, 2, batch_first=True)
    >>> x = hm.ones((3, 5, 8))
    >>> output, weights = attn(x, x, x)
    >>> output.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: embed_dim={embed_dim} must divide by num_heads={num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.add_zero_attn = add_zero_attn
        one = self.kdim == self.vdim == embed_dim  # matrix for all three, which is one product of self-attention
        sizes = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        for name, size in sizes.items():
            self.register_parameter(f"{name}_proj_weight", None if one else Parameter(hm.empty((embed_dim, size))))
        self.register_parameter("in_proj_weight", Parameter(hm.empty((3 * embed_dim, embed_dim))) if one else None)
        self.register_parameter("in_proj_bias", Parameter(hm.zeros((3 * embed_dim,))) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(hm.empty((1, 1, embed_dim))) if add_bias_kv else None)
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)
        if bias:
            init.zeros_(self.out_proj.bias)
        self._draw_in(dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.ndim not in (2, 3) or query.ndim != key.ndim or key.shape[:-1] != value.shape[:-1]:
            raise ShapeError(
                f"MultiheadAttention: query, key and value must be (n, l, e) or (l, e), key and value of one length, "
                f"got {query.shape}, {key.shape}, {value.shape}"
            )
        single = query.ndim == 2
        q, k, v = self._project(query, key, value)
        if single:
            q, k, v = q[None], k[None], v[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            q, k, v = (hm.permute_dims(t, (1, 0, 2)) for t in (q, k, v))
        if self.bias_k is not None or self.add_zero_attn:
            if is_causal and attn_mask is None:
                attn_mask = hm.triu(hm.ones((q.shape[1], k.shape[1]), dtype=hm.bool), k=1)
            length = k.shape[1]
            k, v = self._longer(k, self.bias_k), self._longer(v, self.bias_v)
            masks = (attn_mask, key_padding_mask)  # which what is added passes by
            attn_mask, key_padding_mask = (
                None if mask is None else F.pad(mask, (0, k.shape[1] - length)) for mask in masks
            )
        q, k, v = (self._split(t) for t in (q, k, v))  # (n, heads, l, e / heads)
        mask = self._mask(attn_mask, key_padding_mask)
        if is_causal and mask is not None and attn_mask is not None:
            is_causal = False  # as in PyTorch, a hint that the mask given is the causal one
        rate = self.dropout if self.training else 0.0
        if mask is not None and is_causal:
            raise ArgumentError("MultiheadAttention: with a key_padding_mask give the causal mask as attn_mask")
        weights: Tensor | None = None
        if need_weights:
            scores = hm.matmul(q * (1 / math.sqrt(q.shape[-1])), k.mT)
            weights = F.dropout(attention_weights(scores, mask, is_causal), rate, self.training)
            heads = hm.matmul(weights, v)
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            heads = F.scaled_dot_product_attention(q, k, v, mask, rate, is_causal)
        batch, _, length, _ = heads.shape
        joined = hm.permute_dims(heads, (0, 2, 1, 3)).reshape((batch, length, self.embed_dim))
        output = self.out_proj(joined)
        if single:
            return output[0], None if weights is None else weights[0]
        return (output if self.batch_first else hm.permute_dims(output, (1, 0, 2))), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        e = self.embed_dim
        if query is key and key is value and self.in_proj_weight is not None:  # one product for all three
            all_three = F.linear(query, self.in_proj_weight, self.in_proj_bias)
            return all_three[..., :e], all_three[..., e : 2 * e], all_three[..., 2 * e :]
        parts = []
        for number, tensor in enumerate((query, key, value)):
            rows = slice(number * e, (number + 1) * e)
            bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
            if self.in_proj_weight is None:
                weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[number]
            else:
                weight = self.in_proj_weight[rows]
            parts.append(F.linear(tensor, weight, bias))
        return parts[0], parts[1], parts[2]

    def _longer(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """(n, s, e) with what is added behind the sequence."""
        shape = (x.shape[0], 1, self.embed_dim)
        more = [] if bias is None else [hm.broadcast_to(bias, shape)]
        if self.add_zero_attn:
            more.append(hm.zeros(shape, dtype=x.dtype))
        return hm.concat([x, *more], axis=1)

    def _split(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return hm.permute_dims(x.reshape((batch, length, self.num_heads, -1)), (0, 2, 1, 3))

    def _mask(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
        """Both masks as one that is added to (n, heads, l, s) scores."""
        parts = []
        if attn_mask is not None:
            # (n * heads, l, s) is PyTorch's form of a mask for each head.
            shaped = attn_mask if attn_mask.ndim == 2 else attn_mask.reshape((-1, self.num_heads, *attn_mask.shape[1:]))
            parts.append(self._added(shaped))
        if key_padding_mask is not None:
            parts.append(self._added(key_padding_mask[:, None, None, :]))
        return sum(parts[1:], parts[0]) if parts else None

    def _added(self, mask: Tensor) -> Tensor:
        return (
            hm.where(mask, -math.inf, hm.zeros((), dtype=self.out_proj.weight.dtype)) if mask.dtype == hm.bool else mask
        )

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


MultiHeadAttention = MultiheadAttention  # the other common spelling
