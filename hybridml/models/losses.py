"""The losses that the architectures train with: each takes a model and one batch, inputs first.

Like the models' files this one has only names that PyTorch has too, so that its text, with the library's name
replaced, is the same loss in PyTorch.
"""

from __future__ import annotations

import math

import hybridml as hm
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
    taken = hm.func.functional_call(player, constant, (made,))
    ones = hm.ones_like(real)
    judged = F.binary_cross_entropy_with_logits(real, ones)
    judged = judged + F.binary_cross_entropy_with_logits(generated, hm.zeros_like(generated))
    return judged + F.binary_cross_entropy_with_logits(taken, ones)


def variational(model: nn.Module, images: Tensor, noise: Tensor | None = None) -> Tensor:
    """The negative evidence lower bound of a VAE, summed over images (n, pixels) between 0 and 1.

    `noise` (n, latent) is that of the codes, which is drawn where none is given.
    """
    logits, mean, log_variance = model(images, noise)
    divergence = -0.5 * (1 + log_variance - mean**2 - hm.exp(log_variance)).sum()
    return F.binary_cross_entropy_with_logits(logits, images, reduction="sum") + divergence


def transcription(model: nn.Module, x: Tensor, lengths: Tensor, words: Tensor, word_lengths: Tensor) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006) of spectrograms (n, frequencies, t)."""
    logits, steps = model(x, lengths)
    return F.ctc_loss(F.log_softmax(logits, -1).transpose(0, 1), words, steps, word_lengths)


def spoken(model: nn.Module, text: Tensor, lengths: Tensor, mel: Tensor, frames: Tensor) -> Tensor:
    """Squares of differences before and after the postnet, and cross entropy of the ends, of what is no padding."""
    before, after, ends, _ = model(text, lengths, mel)
    place = hm.arange(mel.shape[2], device=mel.device)
    mask = (place < frames[:, None]).to(mel.dtype)
    last = (place >= frames[:, None] - 1).to(mel.dtype)
    real = mel * mask[:, None]
    squares = F.mse_loss(before * mask[:, None], real) + F.mse_loss(after * mask[:, None], real)
    return squares + F.binary_cross_entropy_with_logits(ends, last, weight=mask)


def samples(model: nn.Module, audio: Tensor, mel: Tensor) -> Tensor:
    """Minus the logarithm of the likelihood of samples (n, t), each of a normal distribution."""
    mean, log_deviation = model(audio, mel)
    return (log_deviation + 0.5 * ((audio - mean) * hm.exp(-log_deviation)) ** 2).mean() + 0.5 * math.log(2 * math.pi)


def translation(model: nn.Module, source: Tensor, lengths: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Cross entropy of the next tokens (n, t), a tenth of it spread over all tokens; token 0 is padding."""
    logits = model(source, lengths, before)
    return F.cross_entropy(logits.reshape(-1, logits.shape[2]), after.reshape(-1), ignore_index=0, label_smoothing=0.1)


def masked_language(
    model: nn.Module, tokens: Tensor, segments: Tensor, mask: Tensor, asked: Tensor, follows: Tensor
) -> Tensor:
    """Cross entropy of the tokens that are asked for, and of whether the second segment follows the first."""
    logits, next_logits = model(tokens, segments, mask)
    words = F.cross_entropy(logits.reshape(-1, logits.shape[2]), asked.reshape(-1))
    return words + F.cross_entropy(next_logits, follows)


def language(model: nn.Module, tokens: Tensor) -> Tensor:
    """Cross entropy of the tokens (n, t) after the first, each from those before it."""
    logits = model(tokens)[:, :-1]
    return F.cross_entropy(logits.reshape(-1, logits.shape[2]), tokens[:, 1:].reshape(-1))


def liked(model: nn.Module, users: Tensor, items: Tensor, likes: Tensor) -> Tensor:
    """Cross entropy of who likes what, all (n,)."""
    return F.binary_cross_entropy_with_logits(model(users, items), likes)
