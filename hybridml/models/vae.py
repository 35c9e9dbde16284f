"""The variational autoencoder (Kingma and Welling 2014) of MNIST's digits, in the size of PyTorch's examples.

Layers are named as there, so its `state_dict` loads. The paper has 500 hidden units in place of 400.
"""

from __future__ import annotations

from typing import Any

import hybridml
from hybridml import Tensor, nn
from hybridml.nn import functional as F


class VAE(nn.Module):
    """Images (n, pixels) -> logits of their pixels (n, pixels), means and log variances of their codes (n, latent).

    Codes are random: the mean and standard deviations times `noise` (n, latent), which is drawn where none is given.
    """

    def __init__(self, pixels: int = 784, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.fc1 = nn.Linear(pixels, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, pixels)

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log variances of the codes: (n, pixels) -> (n, latent) each."""
        hidden = F.relu(self.fc1(images))
        return self.fc21(hidden), self.fc22(hidden)

    def decode(self, codes: Tensor) -> Tensor:
        """Logits of pixels: (n, latent) -> (n, pixels)."""
        return self.fc4(F.relu(self.fc3(codes)))

    def forward(self, images: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(images)
        noise = hybridml.randn_like(mean) if noise is None else noise
        return self.decode(mean + noise * hybridml.exp(0.5 * log_variance)), mean, log_variance


def vae(**options: Any) -> VAE:
    """A variational autoencoder; options are those of `VAE`.

    >>> import hybridml as hm
    >>> logits, mean, log_variance = vae(hidden=8)(hm.zeros((2, 784)))
    >>> logits.shape, mean.shape
    ((2, 784), (2, 20))
    """
    return VAE(**options)
