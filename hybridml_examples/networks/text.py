"""Text that Python carries: the topics of its language reference (`pydoc_data.topics`), character by character."""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from .. import char_lm
from .made import Arrays, Data, Samples

ABOUT = "characters of Python's language reference (pydoc_data.topics), of which the last tenth tests"
# Code 0 is padding, which no character is; the last one stands for a character that is hidden.
MASK = 1 + len(char_lm.ALPHABET)
VOCABULARY = MASK + 1
NOT_ASKED = -100
ASKED = 0.15  # of the characters, as in BERT


def encode(words: str) -> np.ndarray:
    """Printable ASCII -> codes; "\\0" is a hidden character, and anything else a space."""
    codes = 1 + char_lm.encode(re.sub(r"[^\n -~]", " ", words))
    return np.where(np.asarray([letter == "\0" for letter in words]), MASK, codes)


def decode(codes: np.ndarray) -> str:
    """Codes -> characters; hidden ones are "_"."""
    letters = "\0" + char_lm.ALPHABET + "_"
    return "".join(letters[code] for code in np.asarray(codes).tolist() if code)


@cache
def _parts() -> tuple[np.ndarray, np.ndarray]:
    codes = encode(char_lm.text())
    cut = len(codes) * 9 // 10
    return codes[:cut], codes[cut:]


def characters(length: int = 64) -> Data:
    """Batches (characters (n, length),): windows from anywhere, those that test one after the other."""

    def samples(codes: np.ndarray, stride: int) -> Samples:
        return Samples(1 + (len(codes) - length) // stride, lambda k: (_windows(codes, k * stride, length),))

    training, test = _parts()
    return Data(ABOUT, samples(training, 1), samples(test, length))


def masked_characters(length: int = 64) -> Data:
    """Batches of two segments: characters, 15 % of them hidden, segments, masks of padding, what is hidden, next.

    All are (n, length) but the last one (n,): whether the second segment follows the first one in the text, which half
    of them do. What is not hidden is -100 in the fourth.
    """
    half = length // 2

    def samples(codes: np.ndarray, stride: int) -> Samples:
        def make(k: np.ndarray) -> Arrays:
            rng = np.random.default_rng(k)  # other batches, also of the same windows, hide others
            follows = rng.integers(0, 2, len(k))
            second = np.where(follows, k * stride + half, rng.integers(len(codes) - half, size=len(k)))
            windows = np.concatenate([_windows(codes, k * stride, half), _windows(codes, second, half)], 1)
            asked = rng.random(windows.shape) < ASKED
            asked[:, 0] = True  # a batch in which nothing is asked for has no loss
            segments = np.broadcast_to((np.arange(2 * half) >= half).astype(np.int64), windows.shape)
            tokens, answers = np.where(asked, MASK, windows), np.where(asked, windows, NOT_ASKED)
            return tokens, segments, np.ones_like(windows), answers, follows

        return Samples(1 + (len(codes) - 2 * half) // stride, make)

    training, test = _parts()
    return Data(ABOUT + "; 15 % of them are hidden", samples(training, 1), samples(test, length))


def _windows(codes: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    return codes[starts[:, None] + np.arange(length)]


@cache
def words(shortest: int = 2, longest: int = 8) -> tuple[str, ...]:
    """The words of the text of such lengths, the most frequent ones first."""
    found: dict[str, int] = {}
    for word in re.findall(r"\b[a-z]+\b", char_lm.text()):
        if shortest <= len(word) <= longest:
            found[word] = found.get(word, 0) + 1
    return tuple(sorted(found, key=lambda word: (-found[word], word)))
