"""Tacotron 2 (Shen et al. 2018): mel frames of text. Layers have the names of NVIDIA's, but for the encoder's LSTM.

As there, the states of the decoder's LSTMs have dropout in place of the paper's zoneout, and its attention sees the
weights of the step before beside their sums. Here the encoder's convolutions see no padding.
"""

from __future__ import annotations

from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F

from .both_ways import BothWays

State = tuple[Tensor, ...]


class LinearNorm(nn.Module):
    """A linear layer: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False, gain: str = "linear") -> None:
        super().__init__()
        self.linear_layer = nn.Linear(inputs, outputs, bias=bias)
        nn.init.xavier_uniform_(self.linear_layer.weight, nn.init.calculate_gain(gain))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_layer(x)


class ConvNorm(nn.Module):
    """A convolution over steps: (n, inputs, t) -> (n, outputs, t)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, bias: bool = True, gain: str = "linear") -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2, bias=bias)
        nn.init.xavier_uniform_(self.conv.weight, nn.init.calculate_gain(gain))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def _normalised(inputs: int, outputs: int, gain: str) -> nn.Sequential:
    """A convolution of five steps, normalised."""
    return nn.Sequential(ConvNorm(inputs, outputs, 5, gain=gain), nn.BatchNorm1d(outputs))


class Encoder(nn.Module):
    """Embedded text (n, width, t), lengths (n,) -> features (n, t, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([_normalised(width, width, "relu") for _ in range(3)])
        self.lstm = BothWays(nn.LSTM, width, width // 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        inside = (hm.arange(x.shape[2], device=x.device) < lengths[:, None])[:, None]
        for layer in self.convolutions:
            x = self.dropout(F.relu(layer(x * inside)))
        return hm.cat(self.lstm(x.transpose(1, 2), lengths), 2)


class Prenet(nn.Module):
    """Frames (..., mels) -> (..., width). It drops half of its values in evaluation as well: speech varies by that."""

    def __init__(self, mels: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([LinearNorm(inputs, width) for inputs in (mels, width)])
        self.dropout = 0.5

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.dropout(F.relu(layer(x)), self.dropout, True)
        return x


class LocationLayer(nn.Module):
    """Features of what has been attended to, last and in sum: (n, 2, t) -> (n, t, width)."""

    def __init__(self, filters: int, kernel: int, width: int) -> None:
        super().__init__()
        self.location_conv = ConvNorm(2, filters, kernel, bias=False)
        self.location_dense = LinearNorm(filters, width, gain="tanh")

    def forward(self, weights: Tensor) -> Tensor:
        return self.location_dense(self.location_conv(weights).transpose(1, 2))


class Attention(nn.Module):
    """Location-sensitive attention (Chorowski et al. 2015): -> the context (n, features), and its weights (n, t).

    `attended` are the weights of the step before, and the sums of all, (n, 2, t).
    """

    def __init__(self, query: int, features: int, width: int, filters: int = 32, kernel: int = 31) -> None:
        super().__init__()
        self.query_layer = LinearNorm(query, width, gain="tanh")
        self.memory_layer = LinearNorm(features, width, gain="tanh")
        self.v = LinearNorm(width, 1)
        self.location_layer = LocationLayer(filters, kernel, width)

    def forward(
        self, query: Tensor, attended: Tensor, memory: Tensor, keys: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor]:
        places = self.location_layer(attended)
        energies = self.v(F.tanh(self.query_layer(query)[:, None] + keys + places))[:, :, 0]
        weights = F.softmax(energies.masked_fill(padding, -1e9), 1)
        return (weights[:, None] @ memory)[:, 0], weights


class Decoder(nn.Module):
    """Features of the text (n, t, features), frames (n, mels, steps) -> frames, logits of the end, weights."""

    def __init__(self, mels: int, features: int, width: int, prenet: int, attention: int) -> None:
        super().__init__()
        self.prenet = Prenet(mels, prenet)
        self.attention_rnn = nn.LSTMCell(prenet + features, width)
        self.attention_layer = Attention(width, features, attention)
        self.decoder_rnn = nn.LSTMCell(width + features, width)
        self.linear_projection = LinearNorm(width + features, mels, bias=True)
        self.gate_layer = LinearNorm(width + features, 1, bias=True, gain="sigmoid")
        self.dropout = nn.Dropout(0.1)

    def start(self, memory: Tensor) -> State:
        """Hidden and cell states of both cells, the context, and what has been attended to."""
        n, t, features = memory.shape
        zeros = memory.new_zeros((n, self.decoder_rnn.hidden_size))
        return zeros, zeros, zeros, zeros, memory.new_zeros((n, features)), memory.new_zeros((n, 2, t))

    def step(
        self,
        x: Tensor,
        query: Tensor,
        query_cell: Tensor,
        hidden: Tensor,
        cell: Tensor,
        context: Tensor,
        attended: Tensor,
        *looked_at: Tensor,
    ) -> State:
        """The state after a step, of what the prenet made of a frame, x (n, prenet)."""
        query, query_cell = self.attention_rnn(hm.cat([x, context], 1), (query, query_cell))
        query = self.dropout(query)
        context, weights = self.attention_layer(query, attended, *looked_at)
        hidden, cell = self.decoder_rnn(hm.cat([query, context], 1), (hidden, cell))
        attended = hm.stack([weights, attended[:, 1] + weights], 1)
        return query, query_cell, self.dropout(hidden), cell, context, attended

    def forward(self, memory: Tensor, padding: Tensor, mel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """With the right frame before each step ("teacher forcing")."""
        before = self.prenet(F.pad(mel[:, :, :-1], (1, 0)).permute(2, 0, 1))
        keys = self.attention_layer.memory_layer(memory)
        query, query_cell, hidden, cell, context, attended = self.start(memory)
        outputs, weights = [], []
        for x in before:
            query, query_cell, hidden, cell, context, attended = self.step(
                x, query, query_cell, hidden, cell, context, attended, memory, keys, padding
            )
            outputs.append(hm.cat([hidden, context], 1))
            weights.append(attended)
        y = hm.stack(outputs, 1)
        frames = self.linear_projection(y).transpose(1, 2)
        return frames, self.gate_layer(y)[:, :, 0], hm.stack(weights, 1)[:, :, 0]

    def infer(self, memory: Tensor, padding: Tensor, most: int, threshold: float) -> tuple[Tensor, Tensor]:
        """Frames (n, mels, most), each made from the one before, until all texts have ended; their lengths (n,)."""
        keys = self.attention_layer.memory_layer(memory)
        query, query_cell, hidden, cell, context, attended = self.start(memory)
        n = memory.shape[0]
        frames = memory.new_zeros((most + 1, n, self.linear_projection.linear_layer.weight.shape[0]))
        going = hm.ones((n,), dtype=hm.int64, device=memory.device)
        lengths = hm.zeros_like(going)
        for t in range(most):
            x = self.prenet(frames[t])
            query, query_cell, hidden, cell, context, attended = self.step(
                x, query, query_cell, hidden, cell, context, attended, memory, keys, padding
            )
            y = hm.cat([hidden, context], 1)
            frames[t + 1] = self.linear_projection(y)
            lengths = lengths + going
            going = going * (F.sigmoid(self.gate_layer(y)[:, 0]) <= threshold)
            if not going.any():
                break
        return frames[1:].permute(1, 2, 0), lengths


class Postnet(nn.Module):
    """Corrections that are added to all frames: (n, mels, steps) -> (n, mels, steps)."""

    def __init__(self, mels: int, width: int) -> None:
        super().__init__()
        sizes = [mels, width, width, width, width, mels]
        self.convolutions = nn.ModuleList(
            [_normalised(sizes[i], sizes[i + 1], "linear" if i == 4 else "tanh") for i in range(5)]
        )
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.convolutions):
            y = layer(x)
            x = self.dropout(y if i == 4 else F.tanh(y))
        return x


class Tacotron2(nn.Module):
    """Text (n, t), lengths (n,), mel frames (n, mels, steps) -> frames before and after the postnet, logits of the end.

    The logits (n, steps) are of a frame's being the last one (the "stop token"); after them come the weights of the
    attention, (n, steps, t).
    """

    def __init__(
        self,
        symbols: int = 148,
        mels: int = 80,
        features: int = 512,
        width: int = 1024,
        prenet: int = 256,
        attention: int = 128,
        postnet: int = 512,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, features)
        nn.init.xavier_uniform_(self.embedding.weight)
        self.encoder = Encoder(features)
        self.decoder = Decoder(mels, features, width, prenet, attention)
        self.postnet = Postnet(mels, postnet)

    def encode(self, text: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features of the text (n, t, features), and what of it is padding (n, t)."""
        padding = hm.arange(text.shape[1], device=text.device) >= lengths[:, None]
        return self.encoder(self.embedding(text).transpose(1, 2), lengths), padding

    def forward(self, text: Tensor, lengths: Tensor, mel: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        frames, ends, weights = self.decoder(*self.encode(text, lengths), mel)
        return frames, frames + self.postnet(frames), ends, weights

    @hm.no_grad()
    def infer(self, text: Tensor, lengths: Tensor, most: int = 1000, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
        """Mel frames (n, mels, most) of text (n, t), and how many there are of each, (n,). Call `eval()` before."""
        frames, counts = self.decoder.infer(*self.encode(text, lengths), most, threshold)
        return frames + self.postnet(frames), counts


def tacotron2(**options: Any) -> Tacotron2:
    """Tacotron 2; options are those of `Tacotron2`.

    >>> import hybridml as hm
    >>> model = tacotron2(mels=5, features=8, width=16, prenet=8, attention=4, postnet=8).eval()
    >>> text, lengths = hm.ones((2, 6), dtype="int64"), hm.tensor([6, 4])
    >>> frames, better, ends, weights = model(text, lengths, hm.zeros((2, 5, 7)))
    >>> better.shape, ends.shape, weights.shape
    ((2, 5, 7), (2, 7), (2, 7, 6))
    """
    return Tacotron2(**options)
