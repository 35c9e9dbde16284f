"""Uses of trained models: functions of a model, its data, what the user gave (or none) and an output path.

They return lines to print.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hybridml as hm
from hybridml import nn

from . import images, ratings, speech, text, translation
from .made import Data, Missing, Unusable, padded
from .measures import error_rates, evaluating

GRID = 8  # images in a row


def _first(data: Data, most: int) -> tuple[hm.Tensor, ...]:
    """The first samples that test, in a batch."""
    return data.test.batch(np.arange(min(most, len(data.test))))


def save_grid(path: Path, pictures: np.ndarray) -> str:
    """Writes images (n, c, h, w) in 0..1 as a PNG, eight in a row; returns a line that says so."""
    try:
        from PIL import Image
    except ImportError:
        raise Missing("pictures are written by pillow: pip install 'hybridml[data]'") from None
    n, channels, height, width = pictures.shape
    rows = -(-n // GRID)
    sheet = np.zeros((rows * GRID, channels, height, width), np.float32)
    sheet[:n] = pictures
    sheet = sheet.reshape(rows, GRID, channels, height, width).transpose(0, 3, 1, 4, 2)
    sheet = (sheet.reshape(rows * height, GRID * width, channels).clip(0, 1) * 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.repeat(sheet, 3, 2) if channels == 1 else sheet).save(path)
    return f"{n} pictures of {height} x {width}: {path.resolve()}"


def classify(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Says the digit of an image file (dark paper, bright ink), or of the first eight that test."""
    side = data.test.batch(np.asarray([0]))[0].shape[-1]
    if given is None:
        pictures, labels = _first(data, 8)
        meant = [f", which is {label}" for label in labels.tolist()]
    else:
        grey = hm.asarray(hm.data.read_image(given)).to(hm.float32).mean(0, keepdims=True)[None] / 255
        pictures, meant = hm.asarray(2 * images.enlarged(grey.numpy(), side, 3) - 1), [""]
    with evaluating(model):
        shares = hm.functional.softmax(model(pictures), -1).numpy()
    return [f"{row.argmax()} ({row.max():.0%}){what}" for row, what in zip(shares, meant, strict=True)]


def segment(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Draws eight patches that test, the masks that the network finds in them, and the true ones."""
    patches, masks = _first(data, GRID)
    with evaluating(model):
        found = hm.argmax(model(patches), 1).numpy()
    edge = (patches.shape[-1] - found.shape[-1]) // 2
    middle = patches.numpy()[..., edge : edge + found.shape[-2], edge : edge + found.shape[-1]]
    sheet = np.concatenate([middle, found[:, None], masks.numpy()[:, None]])
    return [save_grid(output.with_suffix(".png"), sheet), "from above: patches, what is found in them, what is true"]


def draw(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Draws 64 pictures that a generator makes of noise."""
    noise = _first(data, 64)[0]
    with evaluating(model):
        made = model(noise).numpy()
    return [save_grid(output.with_suffix(".png"), (made + 1) / 2)]


def draw_codes(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Draws eight digits that test, what a VAE makes of their codes, and 48 of codes that are drawn."""
    images = _first(data, GRID)[0]
    side = round(images.shape[1] ** 0.5)
    with evaluating(model):
        codes = model.encode(images)[0]
        drawn = np.random.default_rng(0).standard_normal((48, codes.shape[1]), np.float32)
        made = hm.sigmoid(model.decode(hm.cat([codes, hm.asarray(drawn)]))).numpy()
    sheet = np.concatenate([images.numpy(), made]).reshape(-1, 1, side, side)
    return [save_grid(output.with_suffix(".png"), sheet), "from above: digits, the same from their codes, codes drawn"]


def write(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Goes on with a text, character by character, drawn from what the network finds likely."""
    positions = model.transformer.wpe.weight.shape[0]
    start = text.encode(given or "The ")[-positions // 2 :]
    hm.manual_seed(0)
    with evaluating(model):
        written = model.generate(hm.asarray(start[None]), positions - len(start), 0.7)
    return [text.decode(written[0].numpy())]


def fill_in(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Fills in the characters that are "_" in a text, or those that are hidden in the first four texts that test."""
    if given is None:
        tokens, segments, mask, *_ = _first(data, 4)
    else:
        codes = text.encode(given.replace("_", "\0"))[None, : model.bert.embeddings.position_embeddings.weight.shape[0]]
        tokens, segments, mask = (hm.asarray(x) for x in (codes, np.zeros_like(codes), np.ones_like(codes)))
    with evaluating(model):
        found = hm.argmax(model(tokens, segments, mask)[0], -1).numpy()
    filled = np.where(tokens.numpy() == text.MASK, found, tokens.numpy())
    return [f"{text.decode(a)!r}\n-> {text.decode(b)!r}" for a, b in zip(tokens.numpy(), filled, strict=True)]


def translate(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Translates a date or a number in words, or the first eight that test, by a search that keeps the five best."""
    if given is None:
        source, lengths, _, after = _first(data, 8)
        meant = [f", which is {translation.decode(codes)}" for codes in after.numpy()]
    else:
        codes = translation.source(given)
        source, lengths, meant = hm.asarray(codes[None]), hm.asarray([len(codes)]), [""]
    with evaluating(model):
        found = model.beam(source, lengths, 12).numpy()
    said = [" ".join(translation.TOKENS[k] for k in row if k > translation.END) for row in source.tolist()]
    return [f"{a} -> {translation.decode(b)}{c}" for a, b, c in zip(said, found, meant, strict=True)]


def transcribe(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Says what is spoken: words of a text, each spoken by a voice that training did not hear, or those that test."""
    if given is None:
        spectra, lengths, letters, _ = _first(data, 8)
        meant = [speech.decode(codes) for codes in letters.numpy()]
    else:
        meant = given.lower().split()
        found = [speech.spectrogram(x) for x in speech.spoken([speech.Utterance(w, speech.UNHEARD[0]) for w in meant])]
        spectra = hm.asarray(np.ascontiguousarray(padded(found).transpose(0, 2, 1)))
        lengths = hm.asarray([len(x) for x in found])
    with evaluating(model):
        heard = [speech.decode(codes) for codes in model.transcribe(spectra, lengths)[0].numpy()]
    rates = ", ".join(f"{name} {value:.2f}" for name, value in error_rates(heard, meant).items())
    return [*(f"{a!r}, which is {b!r}" for a, b in zip(heard, meant, strict=True)), rates]


def speak(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Speaks the words of a text, one after the other: frames of the network, a waveform by Griffin and Lim."""
    words = (given or "python is an object").lower().split()
    codes = [speech.encode(word) for word in words]
    hm.manual_seed(0)
    with evaluating(model):
        lengths = hm.asarray([len(code) for code in codes])
        frames, counts = model.infer(hm.asarray(padded(codes)), lengths, speech.MEL_FRAMES)
    spoken = [speech.griffin_lim(mel[:, :count]) for mel, count in zip(frames.numpy(), counts.tolist(), strict=True)]
    return [speech.write_wav(output.with_suffix(".wav"), np.concatenate(spoken))]


def vocode(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """Draws the samples of a part of a word that tests, one after the other, from its mel frames."""
    _, mel = data.test.batch(np.asarray([1]))
    hm.manual_seed(0)
    with evaluating(model):
        drawn = model.sample(mel)[0].numpy()
    return [speech.write_wav(output.with_suffix(".wav"), drawn)]


def rank(model: nn.Module, data: Data, given: str | None, output: Path) -> list[str]:
    """The ten items that a user (0 where none is given) likes best of a hundred that training did not show."""
    users_here = len(data.test) // ratings.CANDIDATES
    if given is not None and not (given.isdecimal() and int(given) < users_here):
        raise Unusable(f"users are 0 to {users_here - 1}, not {given!r}")
    user = int(given or 0)
    first = user * ratings.CANDIDATES
    users, items, _ = data.test.batch(np.arange(first, first + ratings.CANDIDATES))
    with evaluating(model):
        order = np.argsort(-model(users, items).numpy(), kind="stable")
    best = [items.tolist()[place] for place in order[:10]]
    return [f"user {user}: items {best}; {items.tolist()[0]} was seen, in place {order.tolist().index(0) + 1} of 100"]
