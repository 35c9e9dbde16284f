"""Neural collaborative filtering (He et al. 2017): a network over the embeddings of a user and an item."""

from __future__ import annotations

from hybridml import Tensor, cat, nn
from hybridml.nn import functional as F


class NCF(nn.Module):
    """Users (n,) and items (n,) -> logit of an interaction (n,).

    >>> import hybridml as hm
    >>> NCF(10, 20, 8)(hm.zeros((3,), dtype=hm.int64), hm.zeros((3,), dtype=hm.int64)).shape
    (3,)
    """

    def __init__(self, users: int, items: int, width: int = 64) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.layer1, self.layer2 = nn.Linear(2 * width, width), nn.Linear(width, width // 2)
        self.head = nn.Linear(width + width // 2, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        u, i = self.users(users), self.items(items)
        x = F.relu(self.layer2(F.relu(self.layer1(cat([u, i], -1)))))
        return self.head(cat([u * i, x], -1)).reshape((-1,))
