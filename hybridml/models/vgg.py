"""VGG (Simonyan and Zisserman 2015): layers are named as torchvision's, whose `state_dict` they load."""

from __future__ import annotations

from typing import Any

from hybridml import Tensor, nn


class VGG(nn.Module):
    """Images (n, 3, h, w) -> logits (n, num_classes). The published size takes 224 x 224; 32 x 32 is the least.

    `layers` are the convolutions of the five stages, each of which ends in a pooling. All other widths are in
    proportion to `width`, the channels of the first stage.
    """

    def __init__(
        self,
        layers: tuple[int, int, int, int, int],
        num_classes: int = 1000,
        dropout: float = 0.5,
        width: int = 64,
    ) -> None:
        super().__init__()
        features: list[nn.Module] = []
        inputs = 3
        for count, outputs in zip(layers, (width, 2 * width, 4 * width, 8 * width, 8 * width), strict=True):
            for _ in range(count):
                features += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
                inputs = outputs
            features.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            *(nn.Linear(8 * width * 7 * 7, 64 * width), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(64 * width, 64 * width), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(64 * width, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def vgg16(**options: Any) -> VGG:
    """VGG-16 (the paper's D); options are those of `VGG`.

    >>> import hybridml as hm
    >>> vgg16(num_classes=10, width=4)(hm.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """
    return VGG((2, 2, 3, 3, 3), **options)


def vgg19(**options: Any) -> VGG:
    """VGG-19 (the paper's E); options are those of `VGG`.

    >>> import hybridml as hm
    >>> vgg19(num_classes=10, width=4)(hm.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """
    return VGG((2, 2, 4, 4, 4), **options)
