"""Networks as JAX functions of weights, options of the architecture and inputs; losses of outputs and batch.

layers.py  layers that read their weights by name, attention, cross entropy
images.py  networks of images
text.py    networks of text and of ratings
speech.py  networks of speech
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import images, speech, text
from .layers import Weights as Weights

NETWORKS: dict[str, Callable[..., Any]] = images.NETWORKS | text.NETWORKS | speech.NETWORKS
LOSSES: dict[str, Callable[..., Any]] = images.LOSSES | text.LOSSES | speech.LOSSES
