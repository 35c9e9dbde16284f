"""Inception-v3 (Szegedy et al. 2016): layers are named as torchvision's, whose `state_dict` they load."""

from __future__ import annotations

from typing import Any, NamedTuple

import hybridml
from hybridml import Tensor, nn
from hybridml.nn import functional as F


class InceptionOutputs(NamedTuple):
    """The results of the network in training: logits (n, num_classes) of its head, and of the auxiliary one."""

    logits: Tensor
    aux_logits: Tensor


class BasicConv2d(nn.Module):
    """A convolution, normalisation and relu: (n, inputs, h, w) -> (n, outputs, h', w')."""

    def __init__(self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, pad: bool = False):
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        padding = (height // 2, width // 2) if pad else 0
        self.conv = nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class InceptionA(nn.Module):
    """Branches of 1x1, 5x5, two 3x3 and a pooling, side by side: (n, inputs, h, w) -> (n, outputs, h, w)."""

    def __init__(self, inputs: int, pool: int, width: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(inputs, 2 * width, 1)
        self.branch5x5_1 = BasicConv2d(inputs, 3 * width // 2, 1)
        self.branch5x5_2 = BasicConv2d(3 * width // 2, 2 * width, 5, pad=True)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 2 * width, 1)
        self.branch3x3dbl_2 = BasicConv2d(2 * width, 3 * width, 3, pad=True)
        self.branch3x3dbl_3 = BasicConv2d(3 * width, 3 * width, 3, pad=True)
        self.branch_pool = BasicConv2d(inputs, pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        five = self.branch5x5_2(self.branch5x5_1(x))
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        pooled = self.branch_pool(F.avg_pool2d(x, 3, stride=1, padding=1))
        return hybridml.cat([self.branch1x1(x), five, double, pooled], 1)


class InceptionB(nn.Module):
    """Branches of 3x3, two 3x3 and a pooling, of stride 2: (n, inputs, h, w) -> (n, outputs, h / 2, w / 2)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.branch3x3 = BasicConv2d(inputs, 12 * width, 3, stride=2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 2 * width, 1)
        self.branch3x3dbl_2 = BasicConv2d(2 * width, 3 * width, 3, pad=True)
        self.branch3x3dbl_3 = BasicConv2d(3 * width, 3 * width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return hybridml.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, stride=2)], 1)


class InceptionC(nn.Module):
    """Branches of 7x7 as rows and columns, and a pooling: (n, inputs, h, w) -> (n, 24 width, h, w)."""

    def __init__(self, inputs: int, inner: int, width: int) -> None:
        super().__init__()
        outputs, row, column = 6 * width, (1, 7), (7, 1)
        self.branch1x1 = BasicConv2d(inputs, outputs, 1)
        self.branch7x7_1 = BasicConv2d(inputs, inner, 1)
        self.branch7x7_2 = BasicConv2d(inner, inner, row, pad=True)
        self.branch7x7_3 = BasicConv2d(inner, outputs, column, pad=True)
        self.branch7x7dbl_1 = BasicConv2d(inputs, inner, 1)
        self.branch7x7dbl_2 = BasicConv2d(inner, inner, column, pad=True)
        self.branch7x7dbl_3 = BasicConv2d(inner, inner, row, pad=True)
        self.branch7x7dbl_4 = BasicConv2d(inner, inner, column, pad=True)
        self.branch7x7dbl_5 = BasicConv2d(inner, outputs, row, pad=True)
        self.branch_pool = BasicConv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        pooled = self.branch_pool(F.avg_pool2d(x, 3, stride=1, padding=1))
        return hybridml.cat([self.branch1x1(x), seven, double, pooled], 1)


class InceptionD(nn.Module):
    """Branches of 3x3, 7x7 and a pooling, of stride 2: (n, inputs, h, w) -> (n, outputs, h / 2, w / 2)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.branch3x3_1 = BasicConv2d(inputs, 6 * width, 1)
        self.branch3x3_2 = BasicConv2d(6 * width, 10 * width, 3, stride=2)
        self.branch7x7x3_1 = BasicConv2d(inputs, 6 * width, 1)
        self.branch7x7x3_2 = BasicConv2d(6 * width, 6 * width, (1, 7), pad=True)
        self.branch7x7x3_3 = BasicConv2d(6 * width, 6 * width, (7, 1), pad=True)
        self.branch7x7x3_4 = BasicConv2d(6 * width, 6 * width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return hybridml.cat([three, seven, F.max_pool2d(x, 3, stride=2)], 1)


class InceptionE(nn.Module):
    """Branches that end in a row and a column side by side, and a pooling: (n, inputs, h, w) -> (n, 64 width, h, w)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        inner, row, column = 12 * width, (1, 3), (3, 1)
        self.branch1x1 = BasicConv2d(inputs, 10 * width, 1)
        self.branch3x3_1 = BasicConv2d(inputs, inner, 1)
        self.branch3x3_2a = BasicConv2d(inner, inner, row, pad=True)
        self.branch3x3_2b = BasicConv2d(inner, inner, column, pad=True)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 14 * width, 1)
        self.branch3x3dbl_2 = BasicConv2d(14 * width, inner, 3, pad=True)
        self.branch3x3dbl_3a = BasicConv2d(inner, inner, row, pad=True)
        self.branch3x3dbl_3b = BasicConv2d(inner, inner, column, pad=True)
        self.branch_pool = BasicConv2d(inputs, 6 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = self.branch_pool(F.avg_pool2d(x, 3, stride=1, padding=1))
        ends = [self.branch3x3_2a(three), self.branch3x3_2b(three)]
        ends += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)]
        return hybridml.cat([self.branch1x1(x), *ends, pooled], 1)


class InceptionAux(nn.Module):
    """The auxiliary head, with gradients for the middle of the network: (n, inputs, 17, 17) -> (n, num_classes)."""

    def __init__(self, inputs: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.conv0 = BasicConv2d(inputs, 4 * width, 1)
        self.conv1 = BasicConv2d(4 * width, 24 * width, 5)
        self.fc = nn.Linear(24 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.conv0(F.avg_pool2d(x, 5, stride=3)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Inception3(nn.Module):
    """Images (n, 3, 299, 299) -> logits (n, num_classes), and in training those of the auxiliary head beside them.

    Larger images do too, and without the auxiliary head those of 75 x 75 and more. All other widths are in proportion
    to `width`, the channels of the first convolution, an even number.
    """

    def __init__(self, num_classes: int = 1000, aux_logits: bool = True, dropout: float = 0.5, width: int = 32) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv2d(3, width, 3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv2d(width, width, 3)
        self.Conv2d_2b_3x3 = BasicConv2d(width, 2 * width, 3, pad=True)
        self.maxpool1 = nn.MaxPool2d(3, stride=2)
        self.Conv2d_3b_1x1 = BasicConv2d(2 * width, 5 * width // 2, 1)
        self.Conv2d_4a_3x3 = BasicConv2d(5 * width // 2, 6 * width, 3)
        self.maxpool2 = nn.MaxPool2d(3, stride=2)
        self.Mixed_5b = InceptionA(6 * width, width, width)
        self.Mixed_5c = InceptionA(8 * width, 2 * width, width)
        self.Mixed_5d = InceptionA(9 * width, 2 * width, width)
        self.Mixed_6a = InceptionB(9 * width, width)
        self.Mixed_6b = InceptionC(24 * width, 4 * width, width)
        self.Mixed_6c = InceptionC(24 * width, 5 * width, width)
        self.Mixed_6d = InceptionC(24 * width, 5 * width, width)
        self.Mixed_6e = InceptionC(24 * width, 6 * width, width)
        self.AuxLogits = InceptionAux(24 * width, num_classes, width) if aux_logits else None
        self.Mixed_7a = InceptionD(24 * width, width)
        self.Mixed_7b = InceptionE(40 * width, width)
        self.Mixed_7c = InceptionE(64 * width, width)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(64 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.1)
        if self.AuxLogits is not None:
            nn.init.trunc_normal_(self.AuxLogits.conv1.conv.weight, std=0.01)
            nn.init.trunc_normal_(self.AuxLogits.fc.weight, std=0.001)

    def forward(self, x: Tensor) -> Tensor | InceptionOutputs:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        aux = self.AuxLogits(x) if self.training and self.AuxLogits is not None else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        logits = self.fc(self.dropout(self.avgpool(x)).flatten(1))
        return logits if aux is None else InceptionOutputs(logits, aux)


def inception_v3(**options: Any) -> Inception3:
    """Inception-v3 with its auxiliary head; options are those of `Inception3`.

    >>> import hybridml as hm
    >>> inception_v3(num_classes=10, width=4).eval()(hm.zeros((2, 3, 75, 75))).shape
    (2, 10)
    """
    return Inception3(**options)
