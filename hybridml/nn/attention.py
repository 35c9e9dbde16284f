"""MultiheadAttention (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from ..functional.multi_head import Projections, multi_head_attention
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter


class MultiheadAttention(Module):
    """Attention with `num_heads` heads (Vaswani et al. 2017); parameters and initial values are PyTorch's.

    ``attn(query, key, value)`` returns (output, weights). Sequences are (l, n, e), or (n, l, e) with
    `batch_first=True`, or (l, e) without a batch. Boolean masks are True where attention is *not* allowed, as in
    PyTorch's layer; floating masks are added. `attn_mask` is (l, s) or, one per head, (n * heads, l, s);
    `key_padding_mask` is (n, s), without a batch (s,). Weights are averaged over the heads, or None with
    `need_weights=False`. Keys and values may have `kdim` and `vdim` features; `add_bias_kv` appends a learned key and
    value, `add_zero_attn` zeros. Raises ArgumentError unless `num_heads` divides `embed_dim`, ShapeError for sequences
    or masks that do not fit.

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
            self.register_parameter(f"{name}_proj_weight", None if one else Parameter(xp.empty((embed_dim, size))))
        self.register_parameter("in_proj_weight", Parameter(xp.empty((3 * embed_dim, embed_dim))) if one else None)
        self.register_parameter("in_proj_bias", Parameter(xp.zeros((3 * embed_dim,))) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(xp.empty((1, 1, embed_dim))) if add_bias_kv else None)
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
        weights = Projections(
            self.in_proj_weight, self.in_proj_bias, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
            self.bias_k, self.bias_v, self.out_proj.weight, self.out_proj.bias,
        )  # fmt: skip
        return multi_head_attention(
            "MultiheadAttention", query, key, value, weights, self.num_heads, add_zero_attn=self.add_zero_attn,
            batch_first=self.batch_first, dropout_p=self.dropout if self.training else 0.0,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


MultiHeadAttention = MultiheadAttention  # the other common spelling


__all__ = ["MultiHeadAttention", "MultiheadAttention"]
