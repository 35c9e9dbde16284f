"""Random batches of the shapes that the architectures train on: NumPy arrays, a model's inputs first, then targets."""

from __future__ import annotations

import numpy as np

Batch = tuple[np.ndarray, ...]


def labelled_images(rng: np.random.Generator, n: int, side: int = 224, classes: int = 1000, channels: int = 3) -> Batch:
    """Images (n, channels, side, side) float32, labels (n,) int64."""
    images = rng.standard_normal((n, channels, side, side), np.float32)
    return images, rng.integers(0, classes, n)


def large_images(rng: np.random.Generator, n: int, side: int = 299, classes: int = 1000) -> Batch:
    """Images (n, 3, side, side) float32, labels (n,) int64."""
    return labelled_images(rng, n, side, classes)


def labelled_pixels(
    rng: np.random.Generator, n: int, side: int = 572, classes: int = 2, channels: int = 1, depth: int = 4
) -> Batch:
    """Images (n, channels, side, side) float32, labels (n, inside, inside) int64 of the pixels that a U-Net keeps."""
    inside = side - 4 * (3 * 2**depth - 2)  # each of two convolutions takes 2 pixels, on the way down and on that up
    images = rng.standard_normal((n, channels, side, side), np.float32)
    return images, rng.integers(0, classes, (n, inside, inside))


def noise_and_images(rng: np.random.Generator, n: int, latent: int = 100, channels: int = 3) -> Batch:
    """Normal noise (n, latent, 1, 1) float32, images (n, channels, 64, 64) float32 between -1 and 1."""
    noise = rng.standard_normal((n, latent, 1, 1), np.float32)
    return noise, rng.uniform(-1, 1, (n, channels, 64, 64)).astype(np.float32)


def digits(rng: np.random.Generator, n: int, pixels: int = 784) -> Batch:
    """Flat images (n, pixels) float32 between 0 and 1."""
    return (rng.random((n, pixels), np.float32),)


def spectrograms(
    rng: np.random.Generator, n: int, length: int = 400, frequencies: int = 161, classes: int = 29, words: int = 40
) -> Batch:
    """Spectrograms (n, frequencies, length), their lengths; transcripts (n, words) without class 0, their lengths."""
    x = rng.standard_normal((n, frequencies, length), np.float32)
    return x, _lengths(rng, n, length), rng.integers(1, classes, (n, words)), _lengths(rng, n, words)


def spoken_text(
    rng: np.random.Generator, n: int, length: int = 80, frames: int = 400, symbols: int = 148, mels: int = 80
) -> Batch:
    """Text (n, length), its lengths, mel frames (n, mels, frames), their lengths."""
    mel = rng.standard_normal((n, mels, frames), np.float32)
    return rng.integers(1, symbols, (n, length)), _lengths(rng, n, length), mel, _lengths(rng, n, frames)


def speech(rng: np.random.Generator, n: int, frames: int = 32, hop: int = 256, mels: int = 80) -> Batch:
    """Samples (n, frames * hop) between -1 and 1, mel frames (n, mels, frames)."""
    return np.tanh(rng.standard_normal((n, frames * hop), np.float32)), rng.standard_normal(
        (n, mels, frames), np.float32
    )


def sentence_pairs(rng: np.random.Generator, n: int, length: int = 32, vocab_size: int = 32000) -> Batch:
    """Sentences (n, length), their lengths, translations from their start on, and the same moved on by one (n, length).

    Token 0 is padding, 1 the start, 2 the end.
    """
    lengths, place = _lengths(rng, n, length), np.arange(length)
    source = np.where(place < lengths[:, None], rng.integers(3, vocab_size, (n, length)), 0)
    ends = _lengths(rng, n, length)[:, None] - 1
    after = np.where(place < ends, rng.integers(3, vocab_size, (n, length)), np.where(place == ends, 2, 0))
    return source, lengths, np.concatenate([np.ones((n, 1), np.int64), after[:, :-1]], 1), after


def masked_sentences(rng: np.random.Generator, n: int, length: int = 128, vocab_size: int = 30522) -> Batch:
    """Tokens, segments, masks of padding, tokens where masked, elsewhere -100, (n, length); which pairs follow (n,).

    As in BERT's training 15 % of the tokens are asked for, which are token 3 here.
    """
    place = np.arange(length)
    mask = (place < _lengths(rng, n, length)[:, None]).astype(np.int64)
    tokens = rng.integers(4, vocab_size, (n, length)) * mask
    asked = (rng.random((n, length)) < 0.15) & (mask > 0)
    asked[:, 0] = True  # a batch in which nothing is asked for has no loss
    segments = np.broadcast_to(place >= length // 2, (n, length)) * mask
    return np.where(asked, 3, tokens), segments, mask, np.where(asked, tokens, -100), rng.integers(0, 2, n)


def text(rng: np.random.Generator, n: int, length: int = 256, vocab_size: int = 50257) -> Batch:
    """Draws tokens (n, length)."""
    return (rng.integers(0, vocab_size, (n, length)),)


def ratings(rng: np.random.Generator, n: int, users: int = 138493, items: int = 26744) -> Batch:
    """Users and items (n,), and whether the one likes the other: float32, 0 or 1 (n,)."""
    return rng.integers(0, users, n), rng.integers(0, items, n), (rng.random(n) < 0.5).astype(np.float32)


def _lengths(rng: np.random.Generator, n: int, longest: int) -> np.ndarray:
    """Lengths (n,) between half of the longest and the longest, which the first one is."""
    lengths = rng.integers((longest + 1) // 2, longest + 1, n)
    lengths[0] = longest
    return lengths
