"""GPT-2 (Radford et al. 2019): a decoder of pre-normalised transformer blocks."""

from __future__ import annotations

from hybridml import Tensor, arange, nn
from hybridml.nn import functional as F


class Block(nn.Module):
    """Causal self-attention and a two-layer network, each with a residual path: (n, t, width) -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        qkv = self.qkv(x).reshape((n, t, 3, self.heads, width // self.heads)).permute((2, 0, 3, 1, 4))
        heads = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        return self.out(heads.permute((0, 2, 1, 3)).reshape((n, t, width)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Tokens (n, t) -> logits (n, t, vocabulary).

    >>> import hybridml as hm
    >>> GPT(vocabulary=65, context=16, width=32, heads=4, layers=2)(hm.zeros((2, 16), dtype=hm.int64)).shape
    (2, 16, 65)
    """

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
