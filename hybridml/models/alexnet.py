"""AlexNet (Krizhevsky 2014, "One weird trick"): layers are named as torchvision's, whose `state_dict` they load."""

from __future__ import annotations

from typing import Any

from hybridml import Tensor, nn


class AlexNet(nn.Module):
    """Images (n, 3, h, w) -> logits (n, num_classes). The published size takes 224 x 224; 63 x 63 is the least.

    All other widths are in proportion to `width`, the channels of the first convolution.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, width: int = 64) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, width, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            *(nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            *(nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(4 * width * 6 * 6, 64 * width), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(64 * width, 64 * width), nn.ReLU()),
            nn.Linear(64 * width, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(**options: Any) -> AlexNet:
    """AlexNet; options are those of `AlexNet`.

    >>> import hybridml as hm
    >>> alexnet(num_classes=10, width=8)(hm.zeros((2, 3, 64, 64))).shape
    (2, 10)
    """
    return AlexNet(**options)
