"""The losses that the architectures train with: each takes a model and one batch, inputs first.

Like the models' files this one has only names that PyTorch has too, so that its text, with the library's name
replaced, is the same loss in PyTorch.
"""

from __future__ import annotations

from hybridml import Tensor, nn
from hybridml.nn import functional as F


def classification(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of the logits: images (n, c, h, w), labels (n,)."""
    return F.cross_entropy(model(images), labels)
