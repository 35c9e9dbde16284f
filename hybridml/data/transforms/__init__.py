"""Transforms of samples: images by torchvision's names, text by torchtext's.

Images are tensors (..., channels, height, width), NumPy arrays (height, width, channels) or (height, width), or
Pillow's; what comes out is of the kind that went in. Random ones draw from the default generator, in a worker process
from that of the batch: `hm.manual_seed` and the loader's `generator` decide.

pixels.py     one layout for all kinds of images; sizes; random numbers
values.py     conversions and colours
geometry.py   sizes, crops, flips, rotations
text.py       tokens, vocabularies, padding
"""

from ...core.spellings import advise as _advise
from .geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from .text import (
    CharTokenizer,
    PadCollate,
    RegexTokenizer,
    Truncate,
    Vocabulary,
    basic_english,
    build_vocab_from_iterator,
)
from .values import (
    ColorJitter,
    Compose,
    ConvertImageDtype,
    Grayscale,
    Lambda,
    Normalize,
    RandomApply,
    RandomChoice,
    RandomGrayscale,
    ToTensor,
)

__all__ = [
    "CenterCrop",
    "CharTokenizer",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "Grayscale",
    "Lambda",
    "Normalize",
    "Pad",
    "PadCollate",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "RegexTokenizer",
    "Resize",
    "ToTensor",
    "Truncate",
    "Vocabulary",
    "basic_english",
    "build_vocab_from_iterator",
]

_advise(globals())
