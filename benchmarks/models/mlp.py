"""A multi-layer perceptron with ReLU."""

from __future__ import annotations

from itertools import pairwise

from hybridml import Tensor, nn


class MLP(nn.Module):
    """(n, widths[0]) -> (n, widths[-1]).

    >>> import hybridml as hm
    >>> MLP((784, 512, 512, 10))(hm.zeros((2, 784))).shape
    (2, 10)
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        *inner, last = self.layers
        for layer in inner:
            x = nn.functional.relu(layer(x))
        return last(x)
