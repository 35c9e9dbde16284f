"""Published architectures, one file each, under the names that torchvision and transformers have for them.

Weights are random. Layers have the names of those libraries' models, whose `state_dict` therefore loads.

registry.py            the table: parameters, sources, what each trains on, a size for tests
batches.py             random batches of the right shapes
losses.py              the losses that they train with
alexnet.py             AlexNet
vgg.py                 VGG-16 and VGG-19
inception.py           Inception-v3
resnet.py              ResNet-18 and ResNet-50
mobilenet.py           MobileNet v1 and v2
vision_transformer.py  ViT-B/16
unet.py                U-Net
dcgan.py               DCGAN: both players
vae.py                 a variational autoencoder
deep_speech2.py        Deep Speech 2
tacotron2.py           Tacotron 2
wavenet.py             WaveNet, as a vocoder
gnmt.py                GNMT v2
transformer.py         the Transformer (base)
bert.py                BERT-base
gpt2.py                GPT-2 small
ncf.py                 NeuMF
both_ways.py           recurrent layers from both ends of sentences
decoding.py            greedy and beam search
"""

from difflib import get_close_matches as _near
from importlib import import_module as _import_module
from typing import Any as _Any

from .registry import ARCHITECTURES as _ARCHITECTURES
from .registry import Architecture, architecture, example_batch, get_model, list_models, loss_of

__all__ = ["Architecture", "architecture", "example_batch", "get_model", "list_models", "loss_of"]


# Before anyone asks: the first import of alexnet.py would make `models.alexnet` the file, which has to be the function.
for _name, _row in _ARCHITECTURES.items():
    globals()[_name] = getattr(_import_module(f"{__name__}.{_row.module}"), _name)


def __getattr__(name: str) -> _Any:
    near = " or ".join(map(repr, _near(name, [*__all__, *_ARCHITECTURES], 3, 0.75)))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{f'; did you mean {near}?' * bool(near)}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ARCHITECTURES])
