"""The losses that the architectures train with: each takes a model and one batch, inputs first.

Like the models' files this one has only names that PyTorch has too, so that its text, with the library's name
replaced, is the same loss in PyTorch.
"""

from __future__ import annotations

import hybridml
from hybridml import Tensor, nn
from hybridml.nn import functional as F


def classification(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of the logits: images (n, c, h, w), labels (n,), or (n, h', w') of pixels."""
    return F.cross_entropy(model(images), labels)


def with_auxiliary(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of the logits, and in training 0.4 times that of the auxiliary head's."""
    outputs = model(images)
    if not isinstance(outputs, tuple):
        return F.cross_entropy(outputs, labels)
    logits, auxiliary = outputs
    return F.cross_entropy(logits, labels) + 0.4 * F.cross_entropy(auxiliary, labels)


def both_players(model: nn.Module, noise: Tensor, images: Tensor) -> Tensor:
    """The sum of both losses of a DCGAN, whose gradients are each player's own: noise (n, latent, 1, 1), images.

    The discriminator's is the cross entropy on images and generated ones, which are constant to it; the generator's is
    that of its images taken for real, by a discriminator whose weights are constant. So one step moves both players
    from the same weights, where the paper moves the discriminator first, and one optimizer has both.
    """
    player = model.discriminator
    made = model(noise)
    constant = {name: weight.detach() for name, weight in player.named_parameters()}
    real, generated = player(images), player(made.detach())
    taken = hybridml.func.functional_call(player, constant, (made,))
    ones = hybridml.ones_like(real)
    judged = F.binary_cross_entropy_with_logits(real, ones)
    judged = judged + F.binary_cross_entropy_with_logits(generated, hybridml.zeros_like(generated))
    return judged + F.binary_cross_entropy_with_logits(taken, ones)


def variational(model: nn.Module, images: Tensor, noise: Tensor | None = None) -> Tensor:
    """The negative evidence lower bound of a VAE, summed over images (n, pixels) between 0 and 1.

    `noise` (n, latent) is that of the codes, which is drawn where none is given.
    """
    logits, mean, log_variance = model(images, noise)
    divergence = -0.5 * (1 + log_variance - mean**2 - hybridml.exp(log_variance)).sum()
    return F.binary_cross_entropy_with_logits(logits, images, reduction="sum") + divergence
