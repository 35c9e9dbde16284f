"""The transformer: layers of encoders and decoders, stacks of them, and both together (Vaswani et al. 2017).

Sequences are (l, n, e), or (n, l, e) with `batch_first=True`, or (l, e) without a batch. Masks are those of
`MultiheadAttention`: boolean ones are True where attention is not allowed, floating ones are added.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import ShapeError

from .. import arrays as xp
from ..core.tensor import Tensor
from . import init
from .activations import activation as named_activation
from .attention import MultiheadAttention
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

Activation = str | Callable[[Tensor], Tensor]


class _Layer(Module):
    """Attentions and a two-layer network, each with a residual path, dropout and layer normalisation.

    `norm_first=True` normalises before each part (more stable), False after it (the original).
    """

    attentions: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias)
        parts = range(1, len(self.attentions) + 2)
        for k in parts:
            setattr(self, f"norm{k}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for k in parts:
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.norm_first = norm_first
        self.activation = named_activation(activation)
        self._draw_in(dtype)

    def _residual(self, k: int, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = getattr(self, f"norm{k}"), getattr(self, f"dropout{k}")
        found: Tensor = x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))
        return found

    def _network(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return found


class TransformerEncoderLayer(_Layer):
    """Self-attention and a two-layer network, each with a residual path, dropout and layer normalisation.

    Shapes (l, n, d_model), with `batch_first` (n, l, d_model), or (l, d_model), -> the same shape. `norm_first=True`
    normalises before each part (more stable), False after it (the original). `activation` is a function, "relu",
    "gelu", "silu" or "tanh". Raises ArgumentError for another name or unless `nhead` divides `d_model`, ShapeError for
    an input or masks that do not fit.

    >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(hm.ones((3, 5, 8))).shape
    (3, 5, 8)
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        return self._residual(2, self._residual(1, src, attend), self._network)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory and a two-layer network, each with a residual path.

    Called with (tgt, memory) of shapes (l, n, d_model) and (s, n, d_model), with `batch_first` n first, or without n,
    -> the shape of tgt. Options and errors are those of `TransformerEncoderLayer`.

    >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(hm.ones((3, 5, 8)), hm.ones((3, 7, 8)), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def remember(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]

        return self._residual(3, self._residual(2, self._residual(1, tgt, attend), remember), self._network)


class TransformerEncoder(Module):
    """Stack of `num_layers` copies of an encoder layer, and a final `norm` if one is given.

    Shapes as of the layer: (l, n, d_model) -> (l, n, d_model). Each copy starts with the layer's values, as in
    PyTorch. `enable_nested_tensor` is accepted for PyTorch's sake and has no effect.

    >>> TransformerEncoder(TransformerEncoderLayer(8, 2, 16), 2)(hm.ones((5, 3, 8))).shape
    (5, 3, 8)
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Stack of `num_layers` copies of a decoder layer, and a final `norm` if one is given.

    Called with (tgt, memory) as the layer is: (l, n, d_model) and (s, n, d_model) -> (l, n, d_model). Each copy starts
    with the layer's values, as in PyTorch.

    >>> TransformerDecoder(TransformerDecoderLayer(8, 2, 16), 2)(hm.ones((5, 3, 8)), hm.ones((7, 3, 8))).shape
    (5, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                bool(tgt_is_causal), memory_is_causal,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder of `src` and a decoder of `tgt` that attends to its result (Vaswani et al. 2017).

    Called with (src, tgt) of shapes (s, n, d_model) and (l, n, d_model), with `batch_first` n first, or without n, ->
    the shape of tgt. Both stacks end in a `LayerNorm`; `custom_encoder` and `custom_decoder` replace them. Matrices
    start by Glorot's rule. Raises ShapeError for other features or numbers of axes, otherwise as its layers do.

    >>> model = Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(hm.ones((3, 7, 8)), hm.ones((3, 5, 8)), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers, norm()
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self._draw_in(dtype)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model or src.ndim != tgt.ndim:
            raise ShapeError(
                f"Transformer: src and tgt must be sequences of {self.d_model} features with as many axes, got "
                f"{src.shape} and {tgt.shape}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        found: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )  # fmt: skip
        return found

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: Any = None) -> Tensor:
        """Causal mask (sz, sz) to be added: 0 up to the diagonal, minus infinity after it.

        >>> Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return xp.triu(xp.full((sz, sz), -xp.inf, dtype=dtype), k=1)


__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip
