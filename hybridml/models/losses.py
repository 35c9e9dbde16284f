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
    """Cross entropy of the logits: images (n, c, h, w), labels (n,)."""
    return F.cross_entropy(model(images), labels)


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
