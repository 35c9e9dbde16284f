"""AlexNet (Krizhevsky 2014, "one weird trick"), as in torchvision: parameters have the same names and shapes."""

from __future__ import annotations

from hybridml import Tensor, nn


class AlexNet(nn.Module):
    """Images (n, 3, 224, 224) -> logits (n, classes).

    >>> import hybridml as hm
    >>> AlexNet(10, hidden=64)(hm.zeros((1, 3, 64, 64))).shape
    (1, 10)
    """

    def __init__(self, classes: int = 1000, dropout: float = 0.5, hidden: int = 4096) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(256 * 6 * 6, hidden), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU()),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        return self.classifier(x.reshape((x.shape[0], -1)))
