"""The Transformer (Vaswani et al. 2017): layers are named as those of PyTorch's `nn.Transformer`.

As there, weights of attention and the inner layers have dropout, too; the paper has it on embeddings and residuals.
"""

from __future__ import annotations

import math
from typing import Any

import hybridml as hm
from hybridml import Tensor, nn

from .decoding import Translator


class Transformer(Translator):
    """Sentences (n, s), their lengths (n,), and translations (n, t) -> logits of the next tokens (n, t, vocab_size).

    One table of tokens serves both languages and the logits. Layers are normalised after their residual, as there.
    """

    def __init__(
        self,
        vocab_size: int = 37000,
        width: int = 512,
        layers: int = 6,
        heads: int = 8,
        hidden: int = 2048,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.dropout = nn.Dropout(dropout)
        sizes: dict[str, Any] = {"dim_feedforward": hidden, "dropout": dropout, "batch_first": True}
        layer = nn.TransformerEncoderLayer(width, heads, **sizes)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, heads, **sizes), layers)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, 0.0, width**-0.5)

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens (n, t) -> their embeddings with sines and cosines of the positions added, (n, t, width)."""
        weight = self.embedding.weight
        width = weight.shape[1]
        places = hm.arange(tokens.shape[1], device=weight.device)[:, None].to(weight.dtype)
        rates = hm.exp(hm.arange(0, width, 2, device=weight.device).to(weight.dtype) * (-math.log(10000.0) / width))
        waves = hm.stack([hm.sin(places * rates), hm.cos(places * rates)], 2).reshape(tokens.shape[1], width)
        return self.dropout(self.embedding(tokens) * math.sqrt(width) + waves)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The features of the source that the decoder looks at, (n, s, width), and which are padding (n, s)."""
        padding = hm.arange(source.shape[1], device=source.device) >= lengths[:, None]
        return self.encoder(self.embed(source), src_key_padding_mask=padding), padding

    def decode(self, target: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Features (n, t, width) of translations (n, t) of which each position sees itself and those before it."""
        places = hm.arange(target.shape[1], device=target.device)
        later = places > places[:, None]
        x = self.embed(target)
        return self.decoder(x, memory, tgt_mask=later, memory_key_padding_mask=padding, tgt_is_causal=True)

    def logits(self, x: Tensor) -> Tensor:
        """Logits (..., vocab_size) of features (..., width)."""
        return x @ self.embedding.weight.T

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        return self.logits(self.decode(target, *self.encode(source, lengths)))

    def searched(self, source: Tensor, lengths: Tensor, copies: int) -> tuple[Any, Tensor]:
        """The step of `decoding`, and a first state: it has none."""
        memory, padding = (x.repeat_interleave(copies, 0) for x in self.encode(source, lengths))

        def step(written: Tensor, t: int, state: Tensor) -> tuple[Tensor, Tensor]:
            # Computes all positions: those after t are padding, which t does not see.
            return self.logits(self.decode(written[:, :-1], memory, padding)[:, t]), state

        return step, memory.new_zeros((0, memory.shape[0]))


def transformer_base(**options: Any) -> Transformer:
    """The Transformer (base); options are those of `Transformer`.

    >>> import hybridml as hm
    >>> model = transformer_base(vocab_size=20, width=16, layers=2, heads=2, hidden=32).eval()
    >>> source, lengths = hm.ones((2, 6), dtype="int64"), hm.tensor([6, 3])
    >>> model(source, lengths, source[:, :5]).shape
    (2, 5, 20)
    >>> model.beam(source, lengths, 7).shape
    (2, 7)
    """
    return Transformer(**options)
