"""A sequence classifier: one LSTM layer and a linear map of its last state."""

from __future__ import annotations

from hybridml import Tensor, nn


class LSTMClassifier(nn.Module):
    """(n, steps, features) -> (n, classes).

    >>> import hybridml as hm
    >>> LSTMClassifier(8, 16, 10)(hm.zeros((2, 5, 8))).shape
    (2, 10)
    """

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        _, (h, _) = self.lstm(x)
        return self.head(h[-1])
