"""Deep Speech 2 (Amodei et al. 2016): convolutions over spectrograms, recurrent layers both ways, and CTC.

The default is the size that implementations share; the paper's best network for English has 3 convolutions and 7
recurrent layers. Padding counts in the statistics of normalisation, as zeros.
"""

from __future__ import annotations

from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F

from .both_ways import BothWays


class BatchRNN(nn.Module):
    """A layer of GRUs both ways, its input normalised over steps and sentences: (n, t, inputs) -> (n, t, width).

    Both ways are added. Steps after a sentence's end are 0.
    """

    def __init__(self, inputs: int, width: int, normalised: bool) -> None:
        super().__init__()
        self.batch_norm = nn.BatchNorm1d(inputs) if normalised else nn.Identity()
        self.rnn = BothWays(nn.GRU, inputs, width)

    def forward(self, x: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        n, t, inputs = x.shape
        x = self.batch_norm(x.reshape(n * t, inputs)).reshape(n, t, inputs)
        onward, backward = self.rnn(x, lengths)
        return (onward + backward) * mask


class DeepSpeech2(nn.Module):
    """Spectrograms (n, frequencies, t), their lengths (n,) -> logits (n, t / 2, classes), and their lengths (n,).

    Class 0 is CTC's blank. The default is 2 convolutions, 5 layers of 800 GRUs and the 29 classes of English.
    """

    def __init__(
        self, classes: int = 29, width: int = 800, layers: int = 5, frequencies: int = 161, channels: int = 32
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, (41, 11), stride=(2, 2), padding=(20, 5))
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, (21, 11), stride=(2, 1), padding=(10, 5))
        self.bn2 = nn.BatchNorm2d(channels)
        inputs = channels * ((frequencies + 3) // 4)
        sizes = [inputs, *[width] * (layers - 1)]
        self.rnns = nn.ModuleList([BatchRNN(size, width, i > 0) for i, size in enumerate(sizes)])
        self.batch_norm = nn.BatchNorm1d(width)
        self.fc = nn.Linear(width, classes, bias=False)

    def forward(self, spectrograms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        inside = hm.arange(spectrograms.shape[2], device=spectrograms.device) < lengths[:, None]
        x = self.conv1((spectrograms * inside[:, None])[:, None])
        lengths = (lengths + 1) // 2
        n, _, _, t = x.shape
        inside = hm.arange(t, device=x.device) < lengths[:, None]
        mask = inside[:, None, None]
        x = F.hardtanh(self.bn1(x * mask), 0.0, 20.0) * mask
        x = F.hardtanh(self.bn2(self.conv2(x) * mask), 0.0, 20.0) * mask
        x = x.permute(0, 3, 1, 2).reshape(n, t, -1)
        for layer in self.rnns:
            x = layer(x, lengths, inside[:, :, None])
        x = self.batch_norm(x.reshape(n * t, -1)).reshape(n, t, -1)
        return self.fc(x), lengths

    @hm.no_grad()
    def transcribe(self, spectrograms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The most likely class of each step, without repetitions and blanks: classes (n, t / 2), how many (n,).

        Call `eval()` before. After the last class of a sentence come zeros.
        """
        logits, lengths = self(spectrograms, lengths)
        best = logits.argmax(-1)
        n, t = best.shape
        before = hm.cat([hm.zeros_like(best[:, :1]), best[:, :-1]], 1)
        inside = hm.arange(t, device=best.device) < lengths[:, None]
        kept = (best != before) & (best != 0) & inside
        # The k-th that is kept goes to column k, all others to a column that is dropped.
        places = hm.where(kept, kept.cumsum(1) - 1, t)
        found = best.new_zeros((n, t + 1)).scatter(1, places, best)
        return found[:, :t], kept.sum(1)


def deep_speech2(**options: Any) -> DeepSpeech2:
    """Deep Speech 2; options are those of `DeepSpeech2`.

    >>> import hybridml as hm
    >>> model = deep_speech2(width=8, layers=2, frequencies=17, channels=2).eval()
    >>> logits, lengths = model(hm.zeros((2, 17, 20)), hm.tensor([20, 9]))
    >>> logits.shape, lengths.tolist()
    ((2, 10, 29), [10, 5])
    """
    return DeepSpeech2(**options)
