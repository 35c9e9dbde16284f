"""Residual networks (He et al. 2016): layers are named as torchvision's, whose `state_dict` they load."""

from __future__ import annotations

from typing import Any

from hybridml import Tensor, nn
from hybridml.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (n, inputs, h, w) -> (n, width, h / stride, w / stride)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, beside a shortcut.

    (n, inputs, h, w) -> (n, 4 width, h / stride, w / stride).

    The 3x3 convolution has the stride, as in torchvision ("ResNet v1.5"); in the paper the first one has it.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(inputs, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The shortcut of a block: the input, or a 1x1 convolution of it where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Images (n, 3, h, w) -> logits (n, num_classes). The published size takes 224 x 224."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: tuple[int, int, int, int],
        num_classes: int = 1000,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(block, width, width, layers[0], 1)
        self.layer2 = _stage(block, width * block.expansion, 2 * width, layers[1], 2)
        self.layer3 = _stage(block, 2 * width * block.expansion, 4 * width, layers[2], 2)
        self.layer4 = _stage(block, 4 * width * block.expansion, 8 * width, layers[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _stage(block: type[BasicBlock | Bottleneck], inputs: int, width: int, count: int, stride: int) -> nn.Sequential:
    """Blocks of one width, of which the first has the stride."""
    first = block(inputs, width, stride)
    return nn.Sequential(first, *(block(width * block.expansion, width) for _ in range(count - 1)))


def resnet18(**options: Any) -> ResNet:
    """ResNet-18; options are those of `ResNet`.

    >>> import hybridml as hm
    >>> resnet18(num_classes=10, width=8)(hm.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), **options)


def resnet50(**options: Any) -> ResNet:
    """ResNet-50; options are those of `ResNet`.

    >>> import hybridml as hm
    >>> resnet50(num_classes=10, width=8)(hm.zeros((2, 3, 32, 32))).shape
    (2, 10)
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), **options)
