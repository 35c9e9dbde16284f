"""BERT (Devlin et al. 2019) with the heads of its pre-training: layers have the names of `BertForPreTraining`."""

from __future__ import annotations

from typing import Any

from hybridml import Tensor, nn
from hybridml.nn import functional as F


class BertEmbeddings(nn.Module):
    """Tokens and their segments (n, t) -> the sum of three embeddings (n, t, width), normalised."""

    def __init__(self, vocab_size: int, width: int, positions: int, dropout: float) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, width, padding_idx=0)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, token_types: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: tokens.shape[1]]
        x = self.word_embeddings(tokens) + self.token_type_embeddings(token_types) + positions
        return self.dropout(self.LayerNorm(x))


class BertSelfAttention(nn.Module):
    """(n, t, width) -> (n, t, width): each position looks at those that the mask (n, 1, 1, t) allows."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        n, t, width = x.shape

        def per_head(y: Tensor) -> Tensor:
            return y.reshape(n, t, -1, width // self.heads).transpose(1, 2)

        query, key, value = per_head(self.query(x)), per_head(self.key(x)), per_head(self.value(x))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return y.transpose(1, 2).reshape(n, t, -1)


class BertOutput(nn.Module):
    """A linear layer of y and the residual x beside it, normalised: (n, t, inputs), (n, t, width) -> (n, t, width)."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(y)) + x)


class BertAttention(nn.Module):
    """Self-attention and what follows it: (n, t, width) -> (n, t, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.self = BertSelfAttention(width, heads, dropout)
        self.output = BertOutput(width, width, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.self(x, mask), x)


class BertIntermediate(nn.Module):
    """The wide layer: (n, t, width) -> (n, t, hidden)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.dense(x))


class BertLayer(nn.Module):
    """A layer of the encoder: (n, t, width) -> (n, t, width)."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = BertAttention(width, heads, dropout)
        self.intermediate = BertIntermediate(width, hidden)
        self.output = BertOutput(hidden, width, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class BertEncoder(nn.Module):
    """The layers, one after the other."""

    def __init__(self, layers: int, *sizes: Any) -> None:
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(*sizes) for _ in range(layers)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class BertPooler(nn.Module):
    """A layer over the first position, which stands for the whole sequence: (n, t, width) -> (n, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(self.dense(x[:, 0]))


class BertModel(nn.Module):
    """Tokens, segments and the mask (n, t) -> features (n, t, width), pooled (n, width)."""

    def __init__(
        self, vocab_size: int, width: int, layers: int, heads: int, hidden: int, positions: int, dropout: float
    ) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(vocab_size, width, positions, dropout)
        self.encoder = BertEncoder(layers, width, heads, hidden, dropout)
        self.pooler = BertPooler(width)

    def forward(self, tokens: Tensor, token_types: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(self.embeddings(tokens, token_types), mask.bool()[:, None, None, :])
        return x, self.pooler(x)


class BertTransform(nn.Module):
    """The layer of the head for masked tokens before its table: (n, t, width) -> (n, t, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(F.gelu(self.dense(x)))


class BertPredictions(nn.Module):
    """Features (n, t, width) -> logits (n, t, vocab_size), by the table of the embeddings."""

    def __init__(self, embeddings: nn.Embedding) -> None:
        super().__init__()
        vocab_size, width = embeddings.weight.shape
        self.transform = BertTransform(width)
        self.decoder = nn.Linear(width, vocab_size)
        self.decoder.weight = embeddings.weight
        self.bias = self.decoder.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform(x))


class BertHeads(nn.Module):
    """Logits of the masked tokens (n, t, vocab_size), and of whether the second segment follows the first (n, 2)."""

    def __init__(self, embeddings: nn.Embedding) -> None:
        super().__init__()
        self.predictions = BertPredictions(embeddings)
        self.seq_relationship = nn.Linear(embeddings.weight.shape[1], 2)

    def forward(self, x: Tensor, pooled: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictions(x), self.seq_relationship(pooled)


class BertForPreTraining(nn.Module):
    """Tokens, segments and the mask of what is no padding (n, t) -> logits (n, t, vocab_size) and (n, 2)."""

    def __init__(
        self,
        vocab_size: int = 30522,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        hidden: int = 3072,
        positions: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.bert = BertModel(vocab_size, width, layers, heads, hidden, positions, dropout)
        self.cls = BertHeads(self.bert.embeddings.word_embeddings)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0.0, 0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, token_types: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x, pooled = self.bert(tokens, token_types, mask)
        return self.cls(x, pooled)


def bert_base(**options: Any) -> BertForPreTraining:
    """BERT-base; options are those of `BertForPreTraining`.

    >>> import hybridml as hm
    >>> model = bert_base(vocab_size=100, width=16, layers=2, heads=2, hidden=32, positions=32)
    >>> tokens = hm.ones((2, 8), dtype="int64")
    >>> words, follows = model(tokens, hm.zeros_like(tokens), hm.ones_like(tokens))
    >>> words.shape, follows.shape
    ((2, 8, 100), (2, 2))
    """
    return BertForPreTraining(**options)
