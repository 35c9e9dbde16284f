"""The architectures by name: where each is, how many parameters its published size has, and what it trains on."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from hybridml import nn
from hybridml_compiler.errors import ArgumentError

from . import batches

_Batch = Callable[..., batches.Batch]


class Architecture(NamedTuple):
    """An architecture: a row of the table.

    `tiny` are the options of a size for tests, `tiny_batch` those of `batch` that fit it.

    >>> architecture("resnet18").parameters
    11689512
    """

    module: str  # file of this folder, which has a function of the architecture's name
    parameters: int  # of the published size
    source: str  # where that figure is from
    batch: _Batch  # (generator, batch size, **sizes) -> arrays
    loss: str  # name in losses.py, called with the model and a batch
    inputs: int  # how many arrays of a batch the model takes
    tiny: dict[str, Any]
    tiny_batch: dict[str, Any]


_SMALL_IMAGES = {"side": 64, "classes": 10}
_SMALLEST_IMAGES = {"side": 32, "classes": 10}

# fmt: off
ARCHITECTURES: dict[str, Architecture] = {
    # Vision
    "alexnet": Architecture("alexnet", 61_100_840, "torchvision", batches.labelled_images, "classification", 1,
                            {"num_classes": 10, "width": 4}, _SMALL_IMAGES),
    "vgg16": Architecture("vgg", 138_357_544, "torchvision", batches.labelled_images, "classification", 1,
                          {"num_classes": 10, "width": 4}, _SMALLEST_IMAGES),
    "vgg19": Architecture("vgg", 143_667_240, "torchvision", batches.labelled_images, "classification", 1,
                          {"num_classes": 10, "width": 4}, _SMALLEST_IMAGES),
    "inception_v3": Architecture("inception", 27_161_264, "torchvision", batches.large_images, "with_auxiliary", 1,
                                 {"num_classes": 10, "width": 2}, {"classes": 10}),
    "resnet18": Architecture("resnet", 11_689_512, "torchvision", batches.labelled_images, "classification", 1,
                             {"num_classes": 10, "width": 8}, _SMALL_IMAGES),
    "resnet50": Architecture("resnet", 25_557_032, "torchvision", batches.labelled_images, "classification", 1,
                             {"num_classes": 10, "width": 8}, _SMALL_IMAGES),
    "mobilenet_v1": Architecture("mobilenet", 4_231_976, "Keras, trainable ones (paper: 4.2 million)",
                                 batches.labelled_images, "classification", 1,
                                 {"num_classes": 10, "width_mult": 0.25}, _SMALLEST_IMAGES),
    "mobilenet_v2": Architecture("mobilenet", 3_504_872, "torchvision", batches.labelled_images, "classification", 1,
                                 {"num_classes": 10, "width_mult": 0.25}, _SMALLEST_IMAGES),
    "vit_b_16": Architecture("vision_transformer", 86_567_656, "torchvision", batches.labelled_images,
                             "classification", 1,
                             {"num_classes": 10, "image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2,
                              "hidden_dim": 32, "mlp_dim": 64}, _SMALLEST_IMAGES),
    "unet": Architecture("unet", 31_030_658, "its layers in the paper, which gives no count", batches.labelled_pixels,
                         "classification", 1, {"width": 4, "depth": 2}, {"side": 44, "depth": 2}),
    "dcgan": Architecture("dcgan", 6_342_272, "PyTorch's examples: 3,576,704 and 2,765,568", batches.noise_and_images,
                          "both_players", 1, {"latent": 8, "width": 4}, {"latent": 8}),
    "vae": Architecture("vae", 652_824, "PyTorch's examples", batches.digits, "variational", 1,
                        {"pixels": 64, "hidden": 16, "latent": 4}, {"pixels": 64}),
    # Speech, text and ratings
    "deep_speech2": Architecture("deep_speech2", 41_187_968, "computed: 2 convolutions, 5 GRU layers of 800",
                                 batches.spectrograms, "transcription", 2,
                                 {"width": 8, "layers": 2, "frequencies": 17, "channels": 2},
                                 {"length": 40, "frequencies": 17, "words": 5}),
    "tacotron2": Architecture("tacotron2", 28_193_153, "NVIDIA's implementation", batches.spoken_text, "spoken", 3,
                              {"mels": 6, "features": 8, "width": 8, "prenet": 8, "attention": 4, "postnet": 8},
                              {"length": 8, "frames": 20, "mels": 6}),
    "wavenet": Architecture("wavenet", 4_570_308, "computed: 30 layers of width 128", batches.speech, "samples", 2,
                            {"width": 8, "layers": 4, "cycle": 2, "mels": 5, "upsample": (2, 4)},
                            {"frames": 4, "hop": 8, "mels": 5}),
    "gnmt": Architecture("gnmt", 160_671_297, "MLPerf's GNMT v2 (4 + 4 layers)",
                         batches.sentence_pairs, "translation", 3,
                         {"vocab_size": 30, "width": 8}, {"length": 8, "vocab_size": 30}),
    "transformer_base": Architecture("transformer", 63_082_496, "computed; the paper says 65 M",
                                     batches.sentence_pairs, "translation", 3,
                                     {"vocab_size": 30, "width": 16, "layers": 2, "heads": 2, "hidden": 32},
                                     {"length": 8, "vocab_size": 30}),
    "bert_base": Architecture("bert", 110_106_428, "transformers' BertForPreTraining",
                              batches.masked_sentences, "masked_language", 3,
                              {"vocab_size": 50, "width": 16, "layers": 2, "heads": 2, "hidden": 32, "positions": 16},
                              {"length": 12, "vocab_size": 50}),
    "gpt2": Architecture("gpt2", 124_439_808, "transformers' GPT2LMHeadModel", batches.text, "language", 1,
                         {"vocab_size": 50, "width": 16, "layers": 2, "heads": 2, "positions": 32},
                         {"length": 12, "vocab_size": 50}),
    "ncf": Architecture("ncf", 31_832_577, "MLPerf's NCF on MovieLens-20M", batches.ratings, "liked", 2,
                        {"users": 30, "items": 20, "factors": 4, "hidden": (16, 8)}, {"users": 30, "items": 20}),
}
# fmt: on


def list_models() -> list[str]:
    """The names of all architectures, in alphabetical order.

    >>> "resnet50" in list_models()
    True
    """
    return sorted(ARCHITECTURES)


def architecture(name: str) -> Architecture:
    """The row of an architecture. Raises ArgumentError for a name that there is not.

    >>> architecture("resnet50").source
    'torchvision'
    """
    if name not in ARCHITECTURES:
        raise ArgumentError(f"models: there is no {name!r}; there are {', '.join(list_models())}")
    return ARCHITECTURES[name]


def get_model(name: str, *, tiny: bool = False, **options: Any) -> nn.Module:
    """A model of an architecture with random weights: of the published size, or with `tiny` of a size for tests.

    `options` are keyword arguments of the architecture's function, `hybridml.models.<name>`. Raises ArgumentError for a
    name that there is not.

    >>> model = get_model("resnet18", tiny=True)
    >>> sum(p.numel() for p in model.parameters()) < 11_689_512
    True
    """
    row = architecture(name)
    build = getattr(import_module(f"{__package__}.{row.module}"), name)
    model: nn.Module = build(**({**row.tiny, **options} if tiny else options))
    return model


def example_batch(name: str, n: int = 1, *, tiny: bool = False, seed: int = 0, **sizes: int) -> batches.Batch:
    """Random arrays of the shapes that an architecture trains on: a model's inputs, then what the loss compares with.

    `sizes` are keyword arguments of the row's function in `batches`.

    >>> images, labels = example_batch("resnet18", 2)
    >>> images.shape, labels.shape
    ((2, 3, 224, 224), (2,))
    """
    row = architecture(name)
    given = {**row.tiny_batch, **sizes} if tiny else sizes
    return row.batch(np.random.default_rng(seed), n, **given)


def loss_of(name: str) -> Callable[..., Any]:
    """The loss that an architecture trains with, called with a model and the tensors of a batch.

    >>> loss_of("resnet18").__name__
    'classification'
    """
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.losses"), architecture(name).loss)
    return found
