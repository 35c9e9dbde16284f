"""The vision transformer (Dosovitskiy et al. 2021): layers are named as torchvision's, whose `state_dict` they load."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import hybridml
from hybridml import Tensor, nn


class EncoderBlock(nn.Module):
    """Self-attention and two linear layers, each after a normalisation and beside a shortcut: (n, length, hidden)."""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.mlp = nn.Sequential(
            *(nn.Linear(hidden_dim, mlp_dim), nn.GELU(), nn.Dropout(dropout)),
            *(nn.Linear(mlp_dim, hidden_dim), nn.Dropout(dropout)),
        )
        for layer in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Positions, blocks and a normalisation: (n, length, hidden) -> (n, length, hidden)."""

    def __init__(
        self,
        length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(hybridml.empty(1, length, hidden_dim))
        self.dropout = nn.Dropout(dropout)
        blocks = (EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout) for _ in range(num_layers))
        self.layers = nn.Sequential(OrderedDict((f"encoder_layer_{i}", block) for i, block in enumerate(blocks)))
        self.ln = nn.LayerNorm(hidden_dim, eps=1e-6)
        nn.init.normal_(self.pos_embedding, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Images (n, 3, image_size, image_size), of which each patch is a position, -> logits (n, num_classes)."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(hybridml.zeros(1, 1, hidden_dim))
        length = 1 + (image_size // patch_size) ** 2
        self.encoder = Encoder(length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(hidden_dim, num_classes)))
        nn.init.trunc_normal_(self.conv_proj.weight, std=(3 * patch_size**2) ** -0.5)
        nn.init.zeros_(self.conv_proj.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        return self.heads(self.encoder(hybridml.cat([token, patches], 1))[:, 0])


def vit_b_16(**options: Any) -> VisionTransformer:
    """ViT-B/16: 12 layers of 768 on patches of 16 x 16; options are those of `VisionTransformer`.

    >>> import hybridml as hm
    >>> vit_b_16(image_size=32, num_layers=2, hidden_dim=24, mlp_dim=48)(hm.zeros((2, 3, 32, 32))).shape
    (2, 1000)
    """
    published = {"image_size": 224, "patch_size": 16, "num_layers": 12, "num_heads": 12}
    return VisionTransformer(**{**published, "hidden_dim": 768, "mlp_dim": 3072, **options})
