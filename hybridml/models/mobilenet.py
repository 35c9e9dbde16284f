"""MobileNet v1 (Howard et al. 2017) and v2 (Sandler et al. 2018).

Layers of v2 are named as torchvision's, whose `state_dict` they load; those of v1, which torchvision has not, alike.
"""

from __future__ import annotations

from typing import Any

from hybridml import Tensor, nn


def _convolution(
    inputs: int, outputs: int, size: int, stride: int, activation: type[nn.Module], groups: int = 1
) -> nn.Sequential:
    """A convolution that keeps the shape but for its stride, normalisation and an activation."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), activation())


def _initialize(model: nn.Module) -> None:
    """Gives weights the random values of torchvision's MobileNet v2."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 0.01)
            nn.init.zeros_(module.bias)


class MobileNetV1(nn.Module):
    """Images (n, 3, h, w) -> logits (n, num_classes). The published size takes 224 x 224.

    `width_mult` is the paper's width multiplier: the share of the published channels that each layer has. Dropout has
    the rate of the authors' code; the paper has none.
    """

    # (channels, stride) of each depthwise separable convolution
    BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.001) -> None:
        super().__init__()
        inputs = int(32 * width_mult)
        features = [_convolution(3, inputs, 3, 2, nn.ReLU)]
        for channels, stride in self.BLOCKS:
            outputs = int(channels * width_mult)
            depthwise = _convolution(inputs, inputs, 3, stride, nn.ReLU, groups=inputs)
            features.append(nn.Sequential(depthwise, _convolution(inputs, outputs, 1, 1, nn.ReLU)))
            inputs = outputs
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(inputs, num_classes))
        _initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class InvertedResidual(nn.Module):
    """A depthwise convolution in `expansion` times the channels, beside a shortcut where the shape stays.

    (n, inputs, h, w) -> (n, outputs, h / stride, w / stride).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        widened = [_convolution(inputs, hidden, 1, 1, nn.ReLU6)] if expansion != 1 else []
        self.conv = nn.Sequential(
            *widened,
            _convolution(hidden, hidden, 3, stride, nn.ReLU6, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """Images (n, 3, h, w) -> logits (n, num_classes). The published size takes 224 x 224.

    `width_mult` is the share of the published channels that each layer has, in multiples of eight.
    """

    # (expansion, channels, blocks, stride of the first) of each stage
    STAGES = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        inputs, last = _multiple_of_eight(32 * width_mult), _multiple_of_eight(1280 * max(1.0, width_mult))
        features: list[nn.Module] = [_convolution(3, inputs, 3, 2, nn.ReLU6)]
        for expansion, channels, count, stride in self.STAGES:
            outputs = _multiple_of_eight(channels * width_mult)
            for block in range(count):
                features.append(InvertedResidual(inputs, outputs, stride if block == 0 else 1, expansion))
                inputs = outputs
        self.features = nn.Sequential(*features, _convolution(inputs, last, 1, 1, nn.ReLU6))
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        _initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def _multiple_of_eight(channels: float) -> int:
    """The nearest multiple of eight that is no more than a tenth below."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def mobilenet_v1(**options: Any) -> MobileNetV1:
    """MobileNet v1; options are those of `MobileNetV1`.

    >>> import hybridml as hm
    >>> mobilenet_v1(num_classes=10, width_mult=0.25)(hm.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """
    return MobileNetV1(**options)


def mobilenet_v2(**options: Any) -> MobileNetV2:
    """MobileNet v2; options are those of `MobileNetV2`.

    >>> import hybridml as hm
    >>> mobilenet_v2(num_classes=10, width_mult=0.25)(hm.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """
    return MobileNetV2(**options)
