"""Speech that espeak-ng speaks: words of Python's language reference, at 16 kHz. espeak-ng is a Debian package.

Spectrograms, mel spectrograms and waveforms out of them are by hybridml's own signal functions.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import wave
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hybridml as hm

from . import text
from .made import Arrays, Data, Missing, Samples, padded

RATE = 16_000
WINDOW, HOP = 320, 160  # 20 ms and 10 ms, as in Deep Speech 2: 161 frequencies
MEL_WINDOW, MEL_HOP, MELS = 1024, 256, 80  # as in Tacotron 2
LETTERS = "_ abcdefghijklmnopqrstuvwxyz'"  # the first is CTC's blank, and fills up
VOICES = ("en-us", "en-gb", "en-us+f2", "en-gb+m3", "en-us+m7", "en-gb+f4", "en-us+f5", "en-gb+m1")
UNHEARD = ("en-us+m4", "en-gb+f3")  # test alone
FRAMES, MEL_FRAMES, LONGEST_WORD = 128, 80, 8  # of a word: 1.28 s, or it is cut
SILENCE = float(np.log(1e-5))  # the least that a mel frame is
LOUDNESS = 0.1  # root of the mean square of a waveform


class Utterance(NamedTuple):
    """A text to speak, with the voice that speaks it."""

    words: str
    voice: str = "en-us"
    speed: int = 160  # words a minute
    pitch: int = 50


@cache
def waveform(utterance: Utterance) -> np.ndarray:
    """An utterance as numbers (length,) float32 at 16 kHz, of one loudness. Raises Missing without espeak-ng."""
    if shutil.which("espeak-ng") is None:
        raise Missing("speech is synthesised by espeak-ng, which is not here: apt-get install espeak-ng")
    words, voice, speed, pitch = utterance
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", words]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    rate = int.from_bytes(spoken[24:28], "little")  # the header has 44 bytes; its lengths are those of a stream
    found = resampled(np.frombuffer(spoken[44:], "<i2").astype(np.float32), rate)
    return found * np.float32(LOUDNESS / np.sqrt(np.mean(found**2) + 1e-9))


def resampled(signal: np.ndarray, rate: int) -> np.ndarray:
    """A signal at `rate` numbers a second -> the same at 16 kHz, by its spectrum."""
    part = rate // math.gcd(rate, RATE)  # numbers that come out as a whole count
    size = -(-len(signal) // (16 * part)) * 16 * part  # so lengths that are near each other have one transform
    count = size * RATE // rate
    spectrum = hm.fft.rfft(hm.asarray(np.pad(signal, (0, size - len(signal)))))
    found: np.ndarray = hm.fft.irfft(spectrum, n=count).numpy()[: len(signal) * RATE // rate]
    return found * np.float32(count / size)


def spoken(utterances: Sequence[Utterance]) -> list[np.ndarray]:
    """The waveforms of utterances."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(waveform, utterances))


def spectrogram(signal: np.ndarray) -> np.ndarray:
    """A waveform -> logarithms of magnitudes (frames, 161), of mean 0 and deviation 1."""
    found: np.ndarray = np.log(_magnitudes(signal, WINDOW, HOP) + 1e-4).T
    return np.asarray((found - found.mean()) / found.std(), np.float32)


def mel_spectrogram(signal: np.ndarray, mels: int = MELS) -> np.ndarray:
    """A waveform -> logarithms of mel magnitudes (mels, frames)."""
    found = mel_filters(mels) @ _magnitudes(signal, MEL_WINDOW, MEL_HOP)
    return np.asarray(np.log(np.maximum(found, np.exp(SILENCE))), np.float32)


def _magnitudes(signal: np.ndarray, window: int, hop: int) -> np.ndarray:
    """Magnitudes (frequencies, frames) of the windows about every `hop`-th number."""
    signal = np.pad(signal, (0, max(0, window - len(signal))))
    return hm.abs(hm.stft(hm.asarray(signal), window, hop, window=hm.hann_window(window))).numpy()


@cache
def mel_filters(mels: int = MELS) -> np.ndarray:
    """Triangles (mels, frequencies) that are evenly apart on the mel scale, 2595 log10(1 + f / 700), up to 8 kHz."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), mels + 2) / 2595) - 1)
    frequencies = np.linspace(0, RATE / 2, MEL_WINDOW // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    found = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(found / found.sum(1, keepdims=True).clip(1e-3), np.float32)


def griffin_lim(mel: np.ndarray, steps: int = 30) -> np.ndarray:
    """Logarithms of mel magnitudes (mels, frames) -> a waveform with such (Griffin and Lim 1984), phases drawn."""
    magnitudes = np.maximum(np.linalg.pinv(mel_filters(len(mel))) @ np.exp(mel), 0).astype(np.float32)
    window = hm.hann_window(MEL_WINDOW)
    phases = np.exp(2j * np.pi * np.random.default_rng(0).random(magnitudes.shape)).astype(np.complex64)
    for _ in range(steps):
        signal = hm.istft(hm.asarray(magnitudes * phases), MEL_WINDOW, MEL_HOP, window=window)
        found = hm.stft(signal, MEL_WINDOW, MEL_HOP, window=window).numpy()
        phases = found / np.maximum(np.abs(found), 1e-8)
    return hm.istft(hm.asarray(magnitudes * phases), MEL_WINDOW, MEL_HOP, window=window).numpy()


def encode(words: str) -> np.ndarray:
    """Letters -> codes above 0. Others than letters, spaces and apostrophes are left out."""
    return np.asarray([LETTERS.index(letter) for letter in words.lower() if letter in LETTERS[1:]])


def decode(codes: np.ndarray) -> str:
    """Codes -> letters; zeros are left out."""
    return "".join(LETTERS[code] for code in np.asarray(codes).tolist() if code)


def utterances(count: int, test: bool, vocabulary: int = 60) -> list[Utterance]:
    """Utterances of a word, drawn from the most frequent ones, by voices of training or of testing, drawn too."""
    rng = np.random.default_rng(test)
    words, voices = text.words()[:vocabulary], UNHEARD if test else VOICES

    def one(of: Sequence[str]) -> str:
        return of[int(rng.integers(len(of)))]

    return [
        Utterance(one(words), one(voices), int(rng.integers(140, 190)), int(rng.integers(40, 61))) for _ in range(count)
    ]


def transcripts(count: int = 600, test: int = 60, vocabulary: int = 60) -> Data:
    """Batches (spectrograms (n, 161, frames), lengths (n,), letters (n, 8), lengths (n,)) of words that are spoken."""

    def samples(said: list[Utterance]) -> Samples:
        spectra = [spectrogram(signal) for signal in spoken(said)]
        letters = [encode(utterance.words) for utterance in said]
        frames = padded(spectra, FRAMES).transpose(0, 2, 1)
        lengths = np.asarray([min(len(x), FRAMES) for x in spectra])
        arrays = frames, lengths, padded(letters, LONGEST_WORD), np.asarray([len(x) for x in letters])
        return Samples(len(said), lambda k: tuple(array[k] for array in arrays))

    about = (
        f"the {vocabulary} most frequent words of Python's language reference, spoken by espeak-ng in {len(VOICES)} "
        f"voices; {len(UNHEARD)} others test"
    )
    return Data(about, samples(utterances(count, False, vocabulary)), samples(utterances(test, True, vocabulary)))


def frames_of_words(count: int = 300, test: int = 30, mels: int = MELS) -> Data:
    """Batches (letters (n, 8), lengths (n,), mel frames (n, mels, frames), lengths (n,)) of words in one voice."""

    def samples(words: Sequence[str]) -> Samples:
        found = [mel_spectrogram(signal, mels).T for signal in spoken([Utterance(word) for word in words])]
        letters = [encode(word) for word in words]
        frames = padded(found, MEL_FRAMES, SILENCE).transpose(0, 2, 1)
        arrays = padded(letters, LONGEST_WORD), np.asarray([len(x) for x in letters]), frames
        lengths = np.asarray([min(len(x), MEL_FRAMES) for x in found])
        return Samples(len(words), lambda k: (*(array[k] for array in arrays), lengths[k]))

    words = text.words()
    about = f"the {count} most frequent words of Python's language reference, spoken by espeak-ng; {test} others test"
    return Data(about, samples(words[:count]), samples(words[count : count + test]))


def waves(count: int = 100, test: int = 10, frames: int = 16, mels: int = MELS) -> Data:
    """Batches (samples (n, 256 frames), mel frames (n, mels, frames)): parts of words in one voice."""

    def samples(words: Sequence[str]) -> Samples:
        signals = spoken([Utterance(word) for word in words])
        found = [mel_spectrogram(signal, mels) for signal in signals]
        parts = [(i, j) for i, mel in enumerate(found) for j in range(0, mel.shape[1] - frames, frames)]

        def make(k: np.ndarray) -> Arrays:
            chosen = [parts[int(one)] for one in k]
            cut = [signals[i][j * MEL_HOP : (j + frames) * MEL_HOP] for i, j in chosen]
            return padded(cut, frames * MEL_HOP), np.stack([found[i][:, j : j + frames] for i, j in chosen])

        return Samples(len(parts), make)

    words = text.words()
    about = f"parts of {count} words of Python's language reference, spoken by espeak-ng; {test} other words test"
    return Data(about, samples(words[:count]), samples(words[count : count + test]))


def write_wav(path: Path, signal: np.ndarray) -> str:
    """Writes a waveform as 16 bit WAV, its loudest number at 0.9; returns a line that says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((signal / max(float(np.abs(signal).max()), 1e-6) * 0.9 * 32767).astype("<i2").tobytes())
    return f"{len(signal) / RATE:.2f} s of speech: {path.resolve()}"
