"""Recurrent layers over sentences of several lengths, from the start and from the end."""

from __future__ import annotations

import hybridml as hm
from hybridml import Tensor, nn


class BothWays(nn.Module):
    """Two layers (`nn.LSTM`, `nn.GRU`), of which the second starts at the ends: (n, t, inputs) -> twice (n, t, width).

    In place of a packed sequence, whose lengths are numbers of Python's: tensors of lengths are one program for all of
    them. What comes after a sentence's end is of no use.
    """

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], inputs: int, width: int) -> None:
        super().__init__()
        self.onward = kind(inputs, width, batch_first=True)
        self.backward = kind(inputs, width, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        n, t, _ = x.shape
        # Turns each sentence around, and its padding, too: it is its own inverse.
        turned = ((lengths[:, None] - 1 - hm.arange(t, device=x.device)) % t)[:, :, None]
        y = self.backward(x.gather(1, turned.expand(n, t, x.shape[2])))[0]
        return self.onward(x)[0], y.gather(1, turned.expand(n, t, y.shape[2]))
