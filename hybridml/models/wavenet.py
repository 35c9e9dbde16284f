"""WaveNet (van den Oord et al. 2016) as a vocoder: samples of speech, each from those before it and from mel frames.

As in ClariNet (Ping et al. 2019) a sample's distribution is one normal one, and frames are brought to the rate of
samples by transposed convolutions.
"""

from __future__ import annotations

import math
from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F


class Layer(nn.Module):
    """A gated convolution of samples that are `dilation` apart, and of the frames beside them.

    (n, width, t), (n, mels, t) -> the input of the next layer, and what goes to the output, both (n, width, t).
    """

    def __init__(self, width: int, mels: int, kernel: int, dilation: int, last: bool) -> None:
        super().__init__()
        self.reach = (kernel - 1) * dilation
        self.dilated = nn.Conv1d(width, 2 * width, kernel, dilation=dilation)
        self.condition = nn.Conv1d(mels, 2 * width, 1)
        self.residual = nn.Identity() if last else nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        return self.step(x, F.pad(x, (self.reach, 0)), frames)

    def step(self, x: Tensor, past: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """The last steps, (n, width, t), of which `past` has those `reach` before them as well."""
        filtered, gate = (self.dilated(past) + self.condition(frames)).chunk(2, 1)
        y = F.tanh(filtered) * F.sigmoid(gate)
        return (x + self.residual(y)) * math.sqrt(0.5), self.skip(y)


class WaveNet(nn.Module):
    """Samples (n, t), mel frames (n, mels, t / hop) -> means and logarithms of deviations of the samples, both (n, t).

    Those of a sample are computed from the samples before it. `hop` is the product of `upsample`.
    """

    def __init__(
        self,
        width: int = 128,
        layers: int = 30,
        cycle: int = 10,
        kernel: int = 3,
        mels: int = 80,
        upsample: tuple[int, ...] = (16, 16),
    ) -> None:
        super().__init__()
        self.upsample = nn.ModuleList(
            [nn.ConvTranspose2d(1, 1, (3, 2 * s), stride=(1, s), padding=(1, s // 2)) for s in upsample]
        )
        self.first = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(
            [Layer(width, mels, kernel, 2 ** (i % cycle), i == layers - 1) for i in range(layers)]
        )
        self.hidden = nn.Conv1d(width, width, 1)
        self.output = nn.Conv1d(width, 2, 1)

    def frames(self, mel: Tensor) -> Tensor:
        """Mel frames (n, mels, t / hop) at the rate of samples, (n, mels, t)."""
        x = mel[:, None]
        for layer in self.upsample:
            x = F.leaky_relu(layer(x), 0.4)
        return x[:, 0]

    def distribution(self, skips: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of deviations (n, t) of what the layers have added up, (n, width, t)."""
        y = self.output(F.relu(self.hidden(F.relu(skips / math.sqrt(len(self.layers))))))
        return y[:, 0], y[:, 1].clamp(min=-7.0)

    def forward(self, audio: Tensor, mel: Tensor) -> tuple[Tensor, Tensor]:
        frames = self.frames(mel)
        x = self.first(F.pad(audio[:, None, :-1], (1, 0)))
        skips = hm.zeros_like(x)
        for layer in self.layers:
            x, skip = layer(x, frames)
            skips = skips + skip
        return self.distribution(skips)

    @hm.no_grad()
    def sample(self, mel: Tensor) -> Tensor:
        """Draws the samples (n, t) of mel frames (n, mels, t / hop), one after the other.

        The inputs of all layers are kept, so that a step computes one sample.
        """
        frames = self.frames(mel)
        n, _, length = frames.shape
        audio = frames.new_zeros((n, length + 1))
        width = self.first.weight.shape[0]
        kept = [frames.new_zeros((n, width, layer.reach + length)) for layer in self.layers]
        for t in range(length):
            x = self.first(audio[:, None, t : t + 1])
            skips = hm.zeros_like(x)
            for layer, past in zip(self.layers, kept, strict=True):
                past[:, :, layer.reach + t] = x[:, :, 0]
                x, skip = layer.step(x, past[:, :, t : t + layer.reach + 1], frames[:, :, t : t + 1])
                skips = skips + skip
            mean, deviation = self.distribution(skips)
            audio[:, t + 1] = (mean + deviation.exp() * hm.randn_like(mean)).clamp(-1.0, 1.0)[:, 0]
        return audio[:, 1:]


def wavenet(**options: Any) -> WaveNet:
    """WaveNet; options are those of `WaveNet`.

    >>> import hybridml as hm
    >>> model = wavenet(width=8, layers=4, cycle=2, mels=5, upsample=(2, 4))
    >>> mean, log_deviation = model(hm.zeros((2, 24)), hm.zeros((2, 5, 3)))
    >>> mean.shape, model.sample(hm.zeros((2, 5, 3))).shape
    ((2, 24), (2, 24))
    """
    return WaveNet(**options)
