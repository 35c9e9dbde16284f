"""The image architectures of torchvision, and of our own text in PyTorch where it has none, recorded.

``python -m tests.models.record_vision`` (needs torch and torchvision) writes recorded/vision.json anew: names and
shapes of the published sizes' state dicts, and of the small sizes outputs, loss and gradients in float64. Both sides
make the weights from their names.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from hybridml import models

from .recording import record, recorded

RECORDED = Path(__file__).parent / "recorded" / "vision.json"
# The share of torchvision's channels that the small size has.
NARROWED = {"alexnet": 16, "vgg16": 16, "vgg19": 16, "inception_v3": 16, "resnet18": 8, "resnet50": 8}
OWN_TEXT = {"mobilenet_v1": "mobilenet", "unet": "unet", "dcgan": "dcgan", "vae": "vae"}
NAMES = (*NARROWED, "mobilenet_v2", "vit_b_16", *OWN_TEXT)


def _narrowed(model: Any, share: int, classes: int) -> Any:
    """A model of torchvision with a share of the channels, but for those of images and classes."""
    import torch

    def less(size: int, *kept: int) -> int:
        return size if size in kept else size // share

    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            outputs, inputs, *window = layer.weight.shape
            sizes = {"weight": (less(outputs), less(inputs, 3), *window), "bias": (less(outputs),)}
        elif isinstance(layer, torch.nn.Linear):
            outputs, inputs = (less(size, classes) for size in layer.weight.shape)
            sizes = {"weight": (outputs, inputs), "bias": (outputs,)}
        elif isinstance(layer, torch.nn.BatchNorm2d):
            names = ("weight", "bias", "running_mean", "running_var")
            sizes = dict.fromkeys(names, (less(layer.num_features),))
        else:
            continue
        for name, size in sizes.items():
            old = getattr(layer, name)
            if old is not None:
                new = torch.empty(size)
                setattr(layer, name, torch.nn.Parameter(new) if isinstance(old, torch.nn.Parameter) else new)
    return model


def _peers(name: str) -> tuple[Any, Any]:
    """An architecture in PyTorch: of the published size on device "meta", and of the small size."""
    import torch
    import torchvision

    from hybridml_examples.in_torch import in_torch

    tiny = models.architecture(name).tiny
    if name in OWN_TEXT:
        build = getattr(in_torch(OWN_TEXT[name]), name)
    elif name == "inception_v3":
        build = functools.partial(torchvision.models.inception_v3, init_weights=False)
    else:
        build = getattr(torchvision.models, name)
    with torch.device("meta"):
        published = build()
    if name == "vit_b_16":
        return published, torchvision.models.VisionTransformer(**tiny)
    if name in NARROWED:
        return published, _narrowed(build(num_classes=tiny["num_classes"]), NARROWED[name], tiny["num_classes"])
    return published, build(**tiny)


if __name__ == "__main__":
    record(RECORDED, {name: recorded(name, *_peers(name)) for name in NAMES})
