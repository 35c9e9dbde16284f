"""GNMT v2: Google's translation system (Wu et al. 2016) as NVIDIA and MLPerf train it.

There are 4 + 4 layers of LSTMs in place of the paper's 8 + 8, residuals start at the third, and what the first decoder
layer attends to, in the same step, goes to all that follow. Layers have NVIDIA's names but for the encoder's first one,
which runs both ways without packing (`BothWays`).
"""

from __future__ import annotations

import math
from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F

from .both_ways import BothWays
from .decoding import Translator


class BahdanauAttention(nn.Module):
    """Queries (n, t, width), keys (n, s, width) and padding (n, s) -> contexts (n, t, width).

    Attention by sums (Bahdanau et al. 2015), its vector normalised (Salimans and Kingma 2016).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_q = nn.Linear(width, width, bias=False)
        self.linear_k = nn.Linear(width, width, bias=False)
        self.linear_att = nn.Parameter(hm.empty((width,)))
        self.normalize_scalar = nn.Parameter(hm.full((1,), width**-0.5))
        self.normalize_bias = nn.Parameter(hm.zeros((width,)))

    def forward(self, query: Tensor, keys: Tensor, padding: Tensor) -> Tensor:
        sums = self.linear_q(query)[:, :, None] + self.linear_k(keys)[:, None] + self.normalize_bias
        direction = self.linear_att / self.linear_att.norm() * self.normalize_scalar
        scores = F.tanh(sums) @ direction
        return F.softmax(scores.masked_fill(padding[:, None], -65504.0), -1) @ keys


class Encoder(nn.Module):
    """Sentences (n, s), their lengths (n,) -> features (n, s, width)."""

    def __init__(self, embedder: nn.Embedding, layers: int, dropout: float) -> None:
        super().__init__()
        width = embedder.weight.shape[1]
        self.embedder = embedder
        self.rnn_layers = nn.ModuleList([BothWays(nn.LSTM, width, width)])
        for i in range(1, layers):
            self.rnn_layers.append(nn.LSTM(2 * width if i == 1 else width, width, batch_first=True))
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        x = hm.cat(self.rnn_layers[0](self.dropout(self.embedder(source)), lengths), 2)
        x, _ = self.rnn_layers[1](self.dropout(x))
        for layer in self.rnn_layers[2:]:
            x = layer(self.dropout(x))[0] + x
        return x


class RecurrentAttention(nn.Module):
    """The decoder's first layer, and what its states attend to: (n, t, width) -> twice (n, t, width), and its state."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.attn = BahdanauAttention(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: Any, keys: Tensor, padding: Tensor) -> tuple[Tensor, Tensor, Any]:
        x, state = self.rnn(self.dropout(x), state)
        return x, self.attn(x, keys, padding), state


class Decoder(nn.Module):
    """Translations (n, t) and the encoder's features (n, s, width) -> logits of the next tokens (n, t, vocab_size)."""

    def __init__(self, embedder: nn.Embedding, layers: int, dropout: float) -> None:
        super().__init__()
        vocab_size, width = embedder.weight.shape
        self.embedder = embedder
        self.att_rnn = RecurrentAttention(width, dropout)
        self.rnn_layers = nn.ModuleList([nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1)])
        self.classifier = nn.Linear(width, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, target: Tensor, keys: Tensor, padding: Tensor, states: Any) -> tuple[Tensor, list[Any]]:
        """Logits, and the states (h, c) of the layers to go on from."""
        x, context, first = self.att_rnn(self.embedder(target), states[0], keys, padding)
        ends = [first]
        for i, layer in enumerate(self.rnn_layers):
            y, end = layer(self.dropout(hm.cat([x, context], 2)), states[i + 1])
            x = y if i == 0 else y + x
            ends.append(end)
        return self.classifier(x), ends


class GNMT(Translator):
    """Sentences (n, s), their lengths (n,), and translations (n, t) -> logits of the next tokens (n, t, vocab_size).

    One table of tokens serves both languages. The default vocabulary is that of MLPerf.
    """

    def __init__(self, vocab_size: int = 32320, width: int = 1024, layers: int = 4, dropout: float = 0.2) -> None:
        super().__init__()
        embedder = nn.Embedding(vocab_size, width, padding_idx=0)
        self.encoder = Encoder(embedder, layers, dropout)
        self.decoder = Decoder(embedder, layers, dropout)
        # NVIDIA's range, 0.1, is that of the published width. In a narrow model it would leave so little of the source
        # after some layers that the decoder learns the language and never to look: sums keep their size by this one.
        bound = 0.1 * math.sqrt(1024 / width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "embedder" not in name:
                nn.init.uniform_(parameter, -bound, bound)
            elif "bias_hh" in name:
                nn.init.zeros_(parameter)
            elif "normalize" not in name:
                nn.init.uniform_(parameter, -0.1, 0.1)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The features of the source that the decoder looks at, (n, s, width), and which are padding (n, s)."""
        padding = hm.arange(source.shape[1], device=source.device) >= lengths[:, None]
        return self.encoder(source, lengths), padding

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        states = [None] * (1 + len(self.decoder.rnn_layers))
        return self.decoder(target, *self.encode(source, lengths), states)[0]

    def searched(self, source: Tensor, lengths: Tensor, copies: int) -> tuple[Any, Tensor]:
        """The step of `decoding` and its first state: h and c of the decoder's layers, (2 layers, n copies, width)."""
        keys, padding = (x.repeat_interleave(copies, 0) for x in self.encode(source, lengths))

        def step(written: Tensor, t: int, state: Tensor) -> tuple[Tensor, Tensor]:
            states = [(state[i : i + 1], state[i + 1 : i + 2]) for i in range(0, state.shape[0], 2)]
            logits, ends = self.decoder(written[:, t : t + 1], keys, padding, states)
            return logits[:, 0], hm.cat([x for end in ends for x in end])

        layers = 1 + len(self.decoder.rnn_layers)
        return step, keys.new_zeros((2 * layers, keys.shape[0], keys.shape[2]))


def gnmt(**options: Any) -> GNMT:
    """GNMT v2; options are those of `GNMT`.

    >>> import hybridml as hm
    >>> model = gnmt(vocab_size=20, width=16).eval()
    >>> source, lengths = hm.ones((2, 6), dtype="int64"), hm.tensor([6, 3])
    >>> model(source, lengths, source[:, :5]).shape
    (2, 5, 20)
    >>> model.beam(source, lengths, 7).shape
    (2, 7)
    """
    return GNMT(**options)
