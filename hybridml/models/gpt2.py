"""GPT-2 (Radford et al. 2019): layers are named as transformers' `GPT2LMHeadModel`, whose `state_dict` they load."""

from __future__ import annotations

from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F


class Conv1D(nn.Module):
    """A linear layer whose weight is (inputs, outputs), as GPT-2's are stored: (..., inputs) -> (..., outputs)."""

    output_axis = 1

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(hm.empty((inputs, outputs)))
        self.bias = nn.Parameter(hm.zeros((outputs,)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    """(n, t, width) -> (n, t, width): each position looks at itself and those before it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)
        self.resid_dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (n, heads, t, width / heads) of x."""
        n, t, width = x.shape
        y = self.c_attn(x).reshape(n, t, 3, -1, width // self.heads).permute(2, 0, 3, 1, 4)
        return y[0], y[1], y[2]

    def join(self, y: Tensor) -> Tensor:
        """Joins what the heads found, (n, heads, t, width / heads) -> (n, t, width)."""
        n, _, t, _ = y.shape
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(n, t, -1)))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(x)
        dropout = self.dropout if self.training else 0.0
        return self.join(F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True))

    def step(self, x: Tensor, keys: Tensor, values: Tensor, t: int, seen: Tensor) -> Tensor:
        """Position t alone, (n, 1, width); keys and values (n, heads, length, width / heads) get those of t."""
        query, key, value = self.split(x)
        keys[:, :, t] = key[:, :, 0]
        values[:, :, t] = value[:, :, 0]
        return self.join(F.scaled_dot_product_attention(query, keys, values, attn_mask=seen))


class GPT2MLP(nn.Module):
    """Two layers over each position: (n, t, width) -> (n, t, width)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class GPT2Block(nn.Module):
    """A layer: (n, t, width) -> (n, t, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = GPT2Attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = GPT2MLP(width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))

    def step(self, x: Tensor, *state: Any) -> Tensor:
        """One position, (n, 1, width): `state` is that of `GPT2Attention.step`."""
        x = x + self.attn.step(self.ln_1(x), *state)
        return x + self.mlp(self.ln_2(x))


class GPT2Model(nn.Module):
    """Tokens (n, t) -> features (n, t, width)."""

    def __init__(self, vocab_size: int, width: int, layers: int, heads: int, positions: int, dropout: float) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocab_size, width)
        self.wpe = nn.Embedding(positions, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([GPT2Block(width, heads, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        for block in self.h:
            x = block(x)
        return self.ln_f(x)

    def step(self, token: Tensor, keys: list[Tensor], values: list[Tensor], t: int, seen: Tensor) -> Tensor:
        """The features (n, width) of position t, where tokens (n,) are: keys and values are those of the layers."""
        x = (self.wte(token) + self.wpe.weight[t])[:, None]
        for block, *kept in zip(self.h, keys, values, strict=True):
            x = block.step(x, *kept, t, seen)
        return self.ln_f(x)[:, 0]


class GPT2LMHeadModel(nn.Module):
    """Tokens (n, t) -> logits of the next one at each position (n, t, vocab_size)."""

    def __init__(
        self,
        vocab_size: int = 50257,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        positions: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.transformer = GPT2Model(vocab_size, width, layers, heads, positions, dropout)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # The layers that add to the residual are scaled by their number, as in the paper.
                nn.init.normal_(parameter, 0.0, 0.02 / (2 * layers) ** 0.5 if "c_proj" in name else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.lm_head(self.transformer(tokens))

    @hm.no_grad()
    def generate(self, tokens: Tensor, length: int, temperature: float = 1.0) -> Tensor:
        """The start (n, t) with `length` tokens after it, each drawn from its distribution: (n, t + length).

        With temperature 0 they are the most likely ones. Call `eval()` before. Keys and values of what has been read
        are kept, so that a step computes one position.
        """
        n, start = tokens.shape
        written = hm.cat([tokens, hm.zeros((n, length), dtype=tokens.dtype, device=tokens.device)], 1)
        attn, table = self.transformer.h[0].attn, self.transformer.wpe.weight
        size = table.shape[1] // attn.heads
        shape = (n, attn.c_attn.weight.shape[1] // (3 * size), start + length, size)
        keys = [table.new_zeros(shape) for _ in self.transformer.h]
        values = [table.new_zeros(shape) for _ in self.transformer.h]
        places = hm.arange(start + length, device=tokens.device)
        for t in range(start + length - 1):
            x = self.transformer.step(written[:, t], keys, values, t, places <= t)
            if t >= start - 1:
                logits = self.lm_head(x)
                if temperature:
                    drawn = hm.multinomial(F.softmax(logits / temperature, -1), 1)[:, 0]
                else:
                    drawn = logits.argmax(-1)
                written[:, t + 1] = drawn
        return written


def gpt2(**options: Any) -> GPT2LMHeadModel:
    """GPT-2 small; options are those of `GPT2LMHeadModel`.

    >>> import hybridml as hm
    >>> model = gpt2(vocab_size=100, width=16, layers=2, heads=2, positions=32).eval()
    >>> model(hm.ones((2, 8), dtype="int64")).shape
    (2, 8, 100)
    >>> model.generate(hm.ones((2, 3), dtype="int64"), 5).shape
    (2, 8)
    """
    return GPT2LMHeadModel(**options)
