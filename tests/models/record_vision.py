"""The image architectures of torchvision, and of our own text in PyTorch where it has none, recorded.

``python -m tests.models.record_vision`` (needs torch and torchvision) writes recorded/vision.json anew: names and
shapes of the published sizes' state dicts, and of the small sizes outputs, loss and gradients in float64. Both sides
make the weights from their names.
"""

from __future__ import annotations

import functools
import json
import math
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hybridml import models

RECORDED = Path(__file__).parent / "recorded" / "vision.json"
# The share of torchvision's channels that the small size has.
NARROWED = {"alexnet": 16, "vgg16": 16, "vgg19": 16, "inception_v3": 16, "resnet18": 8, "resnet50": 8}
OWN_TEXT = {"mobilenet_v1": "mobilenet", "unet": "unet", "dcgan": "dcgan", "vae": "vae"}
NAMES = (*NARROWED, "mobilenet_v2", "vit_b_16", *OWN_TEXT)


def value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A weight or running statistic of a name, float64, of about the size that keeps activations at 1."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) > 1:
        return noise * math.sqrt(2 / math.prod(shape[1:]))
    return 1 + 0.1 * abs(noise) if name.endswith(("var", "weight")) else 0.1 * noise


def values(state: dict[str, Any]) -> dict[str, np.ndarray]:
    """Those of a state dict, counts of batches left at none."""
    return {k: value(k, tuple(v.shape)) if v.ndim else np.asarray(0) for k, v in state.items()}


def without_dropout(model: Any) -> Any:
    """The model itself, of whose random layers none drops anything."""
    for layer in model.modules():
        if type(layer).__name__ == "Dropout":
            layer.p = 0.0
    return model


def batch(name: str) -> list[np.ndarray]:
    """Arrays of the loss: those of the table, float64, and for the autoencoder the noise of its codes."""
    arrays = [a.astype(np.float64) if a.dtype == np.float32 else a for a in models.example_batch(name, 4, tiny=True)]
    return [*arrays, value("noise", (4, 4))] if name == "vae" else arrays


def tree(state: dict[str, Any]) -> dict[str, Any]:
    """Shapes by the parts of their names, in order."""
    found: dict[str, Any] = {}
    for name, tensor in state.items():
        *path, last = name.split(".")
        at = found
        for part in path:
            at = at.setdefault(part, {})
        at[last] = " ".join(map(str, tensor.shape))
    return found


def numbers(outputs: Any) -> list[float]:
    """At most 20 numbers of each tensor that a model returns, from all of its places."""
    tensors = outputs if isinstance(outputs, tuple) else (outputs,)
    flat = [t.detach().numpy().reshape(-1) for t in tensors]
    return [rounded(number) for array in flat for number in array[:: -(-array.size // 20)]]


def projections(gradients: Iterable[tuple[str, np.ndarray]]) -> list[float]:
    """Each gradient times noise: its norm would not tell a turned gradient from the right one."""
    return [rounded((value(name, g.shape) * g).sum()) for name, g in gradients]


def rounded(number: float) -> float:
    """A number with the eleven digits that are recorded."""
    return float(f"{number:.10e}")


def observed(name: str, model: Any, loss: Callable[..., Any], tensor: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """Outputs in training and after it (of statistics that training moved), the loss and its gradients."""
    arrays = [tensor(array) for array in batch(name)]
    inputs = arrays if name == "vae" else arrays[: models.architecture(name).inputs]
    found = {"training": numbers(model(*inputs))}
    total = loss(model, *arrays)
    total.backward()
    gradients = projections((path, p.grad.numpy()) for path, p in model.named_parameters())
    model.eval()
    return {**found, "loss": rounded(total.item()), "gradients": gradients, "evaluation": numbers(model(*inputs))}


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


def _recorded(name: str) -> dict[str, Any]:
    import torch

    from hybridml_examples.in_torch import in_torch

    published, small = _peers(name)
    small = without_dropout(small.double())
    small.load_state_dict({k: torch.from_numpy(v) for k, v in values(small.state_dict()).items()})
    loss = getattr(in_torch("losses"), models.architecture(name).loss)
    return {"state_dict": tree(published.state_dict()), **observed(name, small, loss, torch.from_numpy)}


def main() -> None:
    """Writes the records, a line for each architecture."""
    lines = (f"{json.dumps(name)}: {json.dumps(_recorded(name), separators=(',', ':'))}" for name in NAMES)
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
