"""U-Net (Ronneberger et al. 2015), as in the paper: convolutions without padding, and cropped shortcuts."""

from __future__ import annotations

from typing import Any

import hybridml
from hybridml import Tensor, nn


def _double(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions, which take two rows and two columns off each side."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU())


def _cropped(x: Tensor, height: int, width: int) -> Tensor:
    """The middle of images (n, c, h, w): (n, c, height, width)."""
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    return x[:, :, top : top + height, left : left + width]


class UNet(nn.Module):
    """Images (n, in_channels, h, w) -> logits (n, num_classes, h', w') of each pixel of their middle.

    The published size takes 572 x 572 to 388 x 388. `depth` is how often the image is halved, which has to come out
    even; the next stage has twice the channels, the first one `width`. Dropout ends the last two stages of the way
    down, as in the authors' code; the paper gives no rate.
    """

    def __init__(
        self, in_channels: int = 1, num_classes: int = 2, width: int = 64, depth: int = 4, dropout: float = 0.5
    ) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([in_channels, *widths[:-1]], widths, strict=True))
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(dropout)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, num_classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        shortcuts: list[Tensor] = []
        for level, stage in enumerate(self.down):
            x = stage(self.pool(x) if level else x)
            x = self.dropout(x) if level >= len(self.up) - 1 else x
            shortcuts.append(x)
        shortcuts.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = up(x)
            x = merge(hybridml.cat([_cropped(shortcuts.pop(), x.shape[2], x.shape[3]), x], 1))
        return self.head(x)


def unet(**options: Any) -> UNet:
    """U-Net; options are those of `UNet`.

    >>> import hybridml as hm
    >>> unet(width=4)(hm.zeros((2, 1, 188, 188))).shape
    (2, 2, 4, 4)
    """
    return UNet(**options)
