"""The task of each architecture here: its data, a size that learns in a minute or two on two cores, measure and use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hybridml import models, nn

from . import images, measures, ratings, speech, text, translation, uses
from .made import Data, Samples


class Size(NamedTuple):
    """How large a model and its data are, and how it trains: AdamW with a rate that rises and falls (OneCycleLR)."""

    model: dict[str, Any]  # options of the architecture's function
    data: dict[str, Any]  # options of the data
    steps: int = 200
    batch: int = 32
    rate: float = 3e-3


class Task(NamedTuple):
    """A row of the table."""

    paper: str  # what the paper trained on
    here: str  # what there is here
    data: Callable[..., Data]
    measure: Callable[[nn.Module, Samples], measures.Figures]
    use: Callable[[nn.Module, Data, str | None, Path], list[str]]
    small: Size
    tiny: Size  # `model` are options beside those of the size for tests in `hybridml.models`


def _digits(
    *, side: int = 32, tiny: int = 32, steps: int = 200, batch: int = 32, rate: float = 3e-3, **options: Any
) -> Task:
    """A network of ImageNet's classes learns the digits, enlarged to the side that it needs."""
    size = Size({"num_classes": 10, **options}, {"side": side}, steps, batch, rate)
    return Task(
        "ImageNet", "scanned digits", images.digits, measures.accuracy, uses.classify, size, Size({}, {"side": tiny})
    )


_VIT = {"image_size": 32, "patch_size": 4, "num_layers": 4, "num_heads": 4, "hidden_dim": 64, "mlp_dim": 128}

# fmt: off
TASKS: dict[str, Task] = {
    # Vision
    "alexnet": _digits(side=64, tiny=64, width=16, rate=1e-3),
    "vgg16": _digits(width=16, rate=1e-3),
    "vgg19": _digits(width=16, rate=1e-3, steps=400),
    "inception_v3": _digits(side=299, tiny=299, width=4, steps=100, batch=16),
    "resnet18": _digits(width=16, tiny=64, steps=100),
    "resnet50": _digits(width=16, tiny=64, steps=100),
    "mobilenet_v1": _digits(width_mult=0.5),
    "mobilenet_v2": _digits(width_mult=0.5),
    "vit_b_16": _digits(**_VIT, rate=1e-3, steps=300),
    "unet": Task("cells under a microscope (ISBI)", "photographs", images.patches, measures.overlap, uses.segment,
                 Size({"width": 16, "depth": 2}, {"side": 92, "depth": 2}, 150, 8), Size({}, {"side": 44, "depth": 2})),
    "dcgan": Task("LSUN's bedrooms, faces", "scanned digits", images.digits_and_noise, measures.frechet, uses.draw,
                  Size({"latent": 32, "width": 16, "channels": 1}, {"latent": 32, "channels": 1}, 400, 32, 1e-3),
                  Size({}, {"latent": 8})),
    "vae": Task("MNIST, Frey's faces", "scanned digits",
                images.flat_digits, measures.evidence, uses.draw_codes,
                Size({"pixels": 256, "hidden": 200, "latent": 10}, {"side": 16}, 1000, 64, 2e-3),
                Size({}, {"side": 8})),
    # Speech, text and ratings
    "deep_speech2": Task("11,940 hours of English, read and spoken", "speech of espeak-ng",
                         speech.transcripts, measures.transcribed, uses.transcribe,
                         Size({"width": 96, "layers": 2, "channels": 8}, {}, 400, 16, 2e-3),
                         Size({"frequencies": 161}, {"count": 16, "test": 4})),
    "tacotron2": Task("24.6 hours of one speaker", "speech of espeak-ng",
                      speech.frames_of_words, measures.frame_errors, uses.speak,
                      Size({"symbols": 29, "features": 64, "width": 128, "prenet": 64, "attention": 32, "postnet": 64},
                           {}, 200, 16, 3e-3),
                      Size({"symbols": 29}, {"count": 16, "test": 4, "mels": 6})),
    "wavenet": Task("24.6 hours of one speaker", "speech of espeak-ng",
                    speech.waves, measures.sample_likelihood, uses.vocode,
                    Size({"width": 32, "layers": 12, "cycle": 6}, {}, 150, 4, 3e-3),
                    Size({"upsample": (16, 16)}, {"count": 8, "test": 2, "frames": 4, "mels": 5})),
    "gnmt": Task("WMT'16 English-German", "dates and numbers in words",
                 translation.pairs, measures.translated, uses.translate,
                 Size({"vocab_size": translation.VOCABULARY, "width": 128, "layers": 2, "dropout": 0.0},
                      {}, 800, 64),
                 Size({"vocab_size": translation.VOCABULARY}, {})),
    "transformer_base": Task("WMT'14 English-German", "dates and numbers in words",
                             translation.pairs, measures.translated, uses.translate,
                             Size({"vocab_size": translation.VOCABULARY, "width": 96, "layers": 2, "heads": 4,
                                   "hidden": 192, "dropout": 0.0}, {}, 600, 64, 2e-3),
                             Size({"vocab_size": translation.VOCABULARY}, {})),
    "bert_base": Task("BooksCorpus and Wikipedia", "Python's language reference",
                      text.masked_characters, measures.answers, uses.fill_in,
                      Size({"vocab_size": text.VOCABULARY, "width": 96, "layers": 3, "heads": 4, "hidden": 192,
                            "positions": 64, "dropout": 0.0}, {"length": 64}, 600, 32, 2e-3),
                      Size({"vocab_size": text.VOCABULARY}, {"length": 12})),
    "gpt2": Task("WebText", "Python's language reference", text.characters, measures.bits, uses.write,
                 Size({"vocab_size": text.VOCABULARY, "width": 96, "layers": 3, "heads": 4, "positions": 128},
                      {"length": 128}, 400, 16),
                 Size({"vocab_size": text.VOCABULARY}, {"length": 12})),
    "ncf": Task("MovieLens-1M and 20M", "ratings drawn from a law", ratings.implicit, measures.ranking, uses.rank,
                Size({"users": 400, "items": 300, "factors": 16, "hidden": (64, 32, 16)},
                     {"users": 400, "items": 300}, 2000, 256),
                Size({"items": 120}, {"users": 30, "items": 120})),
}
# fmt: on


def size_of(name: str, size: str) -> Size:
    """The size of an architecture's task: "small", or "tiny", that of `hybridml.models` for tests."""
    task = TASKS[name]
    if size == "small":
        return task.small
    options = {**models.architecture(name).tiny, **task.tiny.model}
    return Size(options, task.tiny.data, 4, 4, task.small.rate)
