"""Published architectures, one file each, under the names that torchvision and transformers have for them.

Weights are random. Layers have the names of those libraries' models, whose `state_dict` therefore loads.

registry.py  the table: parameters, sources, what each trains on, a size for tests
batches.py   random batches of the right shapes
losses.py    the losses that they train with
resnet.py    ResNet-18 and ResNet-50
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from .registry import ARCHITECTURES as _ARCHITECTURES
from .registry import Architecture, architecture, example_batch, get_model, list_models, loss_of

__all__ = ["Architecture", "architecture", "example_batch", "get_model", "list_models", "loss_of"]


def __getattr__(name: str) -> _Any:
    if name in _ARCHITECTURES:
        return getattr(_import_module(f"{__name__}.{_ARCHITECTURES[name].module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ARCHITECTURES])
