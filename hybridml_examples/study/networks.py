"""The networks of the study: architectures of `hybridml.models`, their sizes here, and how they grow."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybridml import models


class Size(NamedTuple):
    """What is built and fed: `options` are the architecture's, `sizes` those of its batches."""

    batch: int
    options: dict[str, Any] = {}  # noqa: RUF012 (of a named tuple, never changed)
    sizes: dict[str, int] = {}  # noqa: RUF012
    tiny: bool = False


class Network(NamedTuple):
    """A row of the study.

    `depth` names the option that says how many blocks there are, `length` the size that says how long a sequence is,
    or how wide an image. `growth` has the values of each axis. `drift` is the largest relative difference of losses
    after updates that the check lets pass: normalisation of few numbers makes much of rounding, and two styles of one
    library are 2.5 % apart after two updates of a ResNet-50 whose last images are 2 x 2.
    """

    kind: str  # the figure's heading
    full: Size
    quick: Size
    optimizer: str = "sgd"
    length: str = "side"
    depth: str = ""
    growth: dict[str, tuple[int, ...]] = {}  # noqa: RUF012
    drift: float = 1e-3


OPTIMIZERS = {"sgd": {"lr": 1e-3, "momentum": 0.9}, "adam": {"lr": 1e-4}}
_BATCHES = (1, 2, 4, 8)
_QUICK = Size(8, tiny=True)
_SHARP = Size(8, sizes={"side": 128}, tiny=True)  # of images that are small in the end

# fmt: off
NETWORKS: dict[str, Network] = {
    "alexnet": Network("vision", Size(16), _QUICK),
    "vgg19": Network("vision", Size(2), _QUICK),
    "inception_v3": Network("vision", Size(4), _QUICK, drift=0.05),
    "resnet18": Network("vision", Size(8), _QUICK),
    "resnet50": Network("vision", Size(4), _SHARP, drift=0.01,
                        growth={"batch": _BATCHES, "length": (64, 128, 224), "threads": (1, 2)}),
    "mobilenet_v2": Network("vision", Size(8), _SHARP, drift=0.01, growth={"batch": _BATCHES}),
    "vit_b_16": Network("vision", Size(2), _QUICK, "adam", depth="num_layers", growth={"depth": (1, 2, 4, 8)}),
    "unet": Network("vision", Size(1, sizes={"side": 220}), _QUICK),
    "deep_speech2": Network("speech", Size(2, sizes={"length": 200, "words": 20}), _QUICK, "adam", "length"),
    "gnmt": Network("text", Size(4, sizes={"length": 24}), _QUICK, "adam", "length",
                    growth={"length": (8, 16, 32)}),
    "transformer_base": Network("text", Size(4), _QUICK, "adam", "length"),
    "bert_base": Network("text", Size(2), _QUICK, "adam", "length", "layers",
                         growth={"length": (32, 64, 128, 256), "depth": (1, 2, 4, 8), "threads": (1, 2)}),
    "gpt2": Network("text", Size(1, sizes={"length": 128}), _QUICK, "adam", "length", "layers",
                    growth={"length": (32, 64, 128, 256)}),
    "ncf": Network("ratings", Size(1024), Size(256, tiny=True), "adam"),
}
# fmt: on
QUICK = ("resnet18", "mobilenet_v2", "gpt2", "ncf")  # of `--quick`, whose sizes are those of tests


def known() -> list[str]:
    """The networks whose architectures there are, in the order of the table."""
    return [name for name in NETWORKS if name in models.list_models()]


def grown(network: Network, size: Size, axis: str, value: int) -> Size:
    """The size with another value along an axis: "batch", "length" or "depth"; "threads" leaves it as it is."""
    if axis == "batch":
        return size._replace(batch=value)
    if axis == "length":
        return size._replace(sizes={**size.sizes, network.length: value})
    if axis == "depth":
        return size._replace(options={**size.options, network.depth: value})
    return size
