"""Neural collaborative filtering (He et al. 2017): products of factors of users and items, and a network over them.

Both parts start from random weights; the paper's best results are of parts that were trained alone before.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F


class NeuMF(nn.Module):
    """Users and items (n,) -> logits (n,) of whether the user likes the item.

    `hidden` are the widths of the network's layers, of which the first is both embeddings beside each other. The
    default is the size that MLPerf has for MovieLens-20M: the users and items of that set, 64 factors.
    """

    def __init__(
        self,
        users: int = 138493,
        items: int = 26744,
        factors: int = 64,
        hidden: tuple[int, ...] = (256, 256, 128, 64),
    ) -> None:
        super().__init__()
        self.mf_user_embed = nn.Embedding(users, factors)
        self.mf_item_embed = nn.Embedding(items, factors)
        self.mlp_user_embed = nn.Embedding(users, hidden[0] // 2)
        self.mlp_item_embed = nn.Embedding(items, hidden[0] // 2)
        self.mlp = nn.ModuleList([nn.Linear(inputs, outputs) for inputs, outputs in pairwise(hidden)])
        self.final = nn.Linear(factors + hidden[-1], 1)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, 0.0, 0.01)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.mf_user_embed(users) * self.mf_item_embed(items)
        x = hm.cat([self.mlp_user_embed(users), self.mlp_item_embed(items)], 1)
        for layer in self.mlp:
            x = F.relu(layer(x))
        return self.final(hm.cat([product, x], 1))[:, 0]

    @hm.no_grad()
    def recommend(self, user: int, count: int = 10) -> Tensor:
        """The `count` items (count,) that the user likes best, the best one first."""
        items = hm.arange(self.mf_item_embed.weight.shape[0], device=self.mf_item_embed.weight.device)
        return hm.topk(self(hm.full_like(items, user), items), count)[1]


def ncf(**options: Any) -> NeuMF:
    """NeuMF; options are those of `NeuMF`.

    >>> import hybridml as hm
    >>> model = ncf(users=30, items=20, factors=4, hidden=(16, 8))
    >>> model(hm.tensor([3, 7]), hm.tensor([0, 19])).shape
    (2,)
    >>> model.recommend(3, count=5).shape
    (5,)
    """
    return NeuMF(**options)
