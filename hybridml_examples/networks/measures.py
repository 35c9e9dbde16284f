"""How good a model is on the data that test: each takes a model and the samples, and returns figures by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

import hybridml as hm
from hybridml import models, nn

from . import ratings, speech, translation
from .made import Samples

Figures = dict[str, float]
BATCH = 64


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and no gradients."""
    model.eval()
    try:
        with hm.no_grad():
            yield
    finally:
        model.train()


def batches(samples: Samples, size: int = BATCH, most: int | None = None) -> Iterator[tuple[hm.Tensor, ...]]:
    """The samples in order, the first `most` of them."""
    count = min(len(samples), most or len(samples))
    for start in range(0, count, size):
        yield samples.batch(np.arange(start, min(start + size, count)))


def accuracy(model: nn.Module, samples: Samples) -> Figures:
    """The share of images whose most likely class is the label."""
    right = 0
    with evaluating(model):
        for images, labels in batches(samples):
            right += int((hm.argmax(model(images), -1) == labels).sum())
    return {"accuracy": right / len(samples)}


def overlap(model: nn.Module, samples: Samples) -> Figures:
    """The share of pixels that are right, and the intersection over the union of the masks found with the true ones."""
    right, total, both, either = 0, 0, 0, 0
    with evaluating(model):
        for images, masks in batches(samples):
            found, true = hm.argmax(model(images), 1).numpy(), masks.numpy()
            right, total = right + (found == true).sum(), total + true.size
            both, either = both + (found & true).sum(), either + (found | true).sum()
    return {"accuracy of pixels": right / total, "intersection over union": both / max(either, 1)}


def evidence(model: nn.Module, samples: Samples) -> Figures:
    """The negative evidence lower bound of an image, in nats."""
    loss_of, total = models.loss_of("vae"), 0.0
    hm.manual_seed(0)
    with evaluating(model):
        for batch in batches(samples):
            total += loss_of(model, *batch).item()
    return {"nats an image": total / len(samples)}


def frechet(model: nn.Module, samples: Samples) -> Figures:
    """The Fréchet distance of what a generator draws from the images that test, and that of images which are noise.

    As in FID, but of the pixels (8 x 8, means of the channels) in place of a network's features: there is no such here.
    """
    drawn, real = [], []
    with evaluating(model):
        for noise, images in batches(samples):
            drawn.append(_small(model(noise).numpy()))
            real.append(_small(images.numpy()))
    true = np.concatenate(real)
    return {
        "Fréchet distance": _distance(np.concatenate(drawn), true),
        "that of noise": _distance(np.random.default_rng(0).uniform(-1, 1, true.shape), true),
    }


def _small(images: np.ndarray) -> np.ndarray:
    """Images (n, c, side, side) -> means (n, 64) of 8 x 8 squares."""
    n, c, side, _ = images.shape
    return np.asarray(images.reshape(n, c, 8, side // 8, 8, side // 8).mean((1, 3, 5)).reshape(n, 64))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """The Fréchet distance of normal distributions that have the means and covariances of two sets of rows."""
    a, b = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    values, vectors = np.linalg.eigh(a)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ b @ root).clip(0)).sum()
    return float(((one.mean(0) - other.mean(0)) ** 2).sum() + np.trace(a) + np.trace(b) - 2 * shared)


def edits(one: Sequence[object], other: Sequence[object]) -> int:
    """The fewest insertions, deletions and replacements that make one sequence the other.

    >>> edits("kitten", "sitting")
    3
    """
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def error_rates(found: Sequence[str], meant: Sequence[str]) -> Figures:
    """Edits per word and per character that was meant: the word and the character error rate.

    >>> error_rates(["the cat sat"], ["the hat sat"])
    {'word error rate': 0.3333333333333333, 'character error rate': 0.09090909090909091}
    """
    pairs = list(zip(found, meant, strict=True))
    words = sum(edits(a.split(), b.split()) for a, b in pairs) / sum(len(b.split()) for b in meant)
    return {"word error rate": words, "character error rate": sum(edits(a, b) for a, b in pairs) / sum(map(len, meant))}


def bits(model: nn.Module, samples: Samples) -> Figures:
    """Bits that a character costs, each predicted from those before it in its window."""
    loss_of, total, count = models.loss_of("gpt2"), 0.0, 0
    with evaluating(model):
        for (tokens,) in batches(samples):
            total += loss_of(model, tokens).item() * len(tokens)
            count += len(tokens)
    return {"bits a character": total / count / math.log(2)}


def answers(model: nn.Module, samples: Samples) -> Figures:
    """The shares of hidden characters, and of "does the second segment follow?", that are answered right."""
    right, asked_for, told, count = 0, 0, 0, 0
    with evaluating(model):
        for *given, asked, follows in batches(samples):
            characters, following = (hm.argmax(logits, -1).numpy() for logits in model(*given))
            hidden = asked.numpy() >= 0
            right, asked_for = right + (characters == asked.numpy())[hidden].sum(), asked_for + hidden.sum()
            told, count = told + (following == follows.numpy()).sum(), count + len(following)
    return {"accuracy": right / asked_for, "of next": told / count}


def translated(model: nn.Module, samples: Samples) -> Figures:
    """The share of sentences whose translation, by the most likely token each time, is right to the last digit."""
    right, errors = 0, []
    with evaluating(model):
        for source, lengths, _, after in batches(samples):
            found = model.greedy(source, lengths, after.shape[1])
            pairs = [
                (translation.decode(a), translation.decode(b))
                for a, b in zip(found.numpy(), after.numpy(), strict=True)
            ]
            right += sum(a == b for a, b in pairs)
            errors += pairs
    return {
        "exact": right / len(samples),
        "character error rate": error_rates(*zip(*errors, strict=True))["character error rate"],
    }


def transcribed(model: nn.Module, samples: Samples) -> Figures:
    """The word and the character error rate of speech."""
    found: list[str] = []
    meant: list[str] = []
    with evaluating(model):
        for spectra, lengths, letters, _ in batches(samples):
            found += map(speech.decode, model.transcribe(spectra, lengths)[0].numpy())
            meant += map(speech.decode, letters.numpy())
    return error_rates(found, meant)


def frame_errors(model: nn.Module, samples: Samples) -> Figures:
    """Mean squares of errors of mel frames (logarithms), each from the right ones before it; those of the mean."""
    errors, frames = [], []
    with evaluating(model):
        for letters, lengths, mel, counts in batches(samples):
            inside = np.arange(mel.shape[2]) < counts.numpy()[:, None]
            true, found = (
                mel.numpy().transpose(0, 2, 1)[inside],
                model(letters, lengths, mel)[1].numpy().transpose(0, 2, 1)[inside],
            )
            errors.append((found - true) ** 2)
            frames.append(true)
    return {
        "squared error": float(np.concatenate(errors).mean()),
        "of the mean": float(np.concatenate(frames).var(0).mean()),
    }


def sample_likelihood(model: nn.Module, samples: Samples) -> Figures:
    """Nats that a sample costs, and those that it costs with one normal distribution for all."""
    loss_of, total, deviation = models.loss_of("wavenet"), [], []
    with evaluating(model):
        for audio, mel in batches(samples, 8):
            total.append(loss_of(model, audio, mel).item() * len(audio))
            deviation.append(audio.numpy())
    spread = float(np.concatenate(deviation).std())
    return {
        "nats a sample": sum(total) / len(samples),
        "by one normal": math.log(spread) + 0.5 * math.log(2 * math.pi * math.e),
    }


def ranking(model: nn.Module, samples: Samples) -> Figures:
    """How often what was left out is among the ten best of 100 items, of which chance finds a tenth, and its gain."""
    with evaluating(model):
        scores = np.concatenate([model(users, items).numpy() for users, items, _ in batches(samples, 2000)])
    scores = scores.reshape(-1, ratings.CANDIDATES)
    places = (scores[:, 1:] >= scores[:, :1]).sum(1)
    return {
        "hit rate at 10": float((places < 10).mean()),
        "NDCG at 10": float(((places < 10) / np.log2(places + 2)).mean()),
    }
