"""Optimizers and learning-rate schedules with PyTorch's names, arguments, defaults and numbers.

What changes from step to step (rates, step counts, betas) is held in tensors: a traced step is never compiled again
for it.
"""

from ..core.spellings import advise as _advise
from ..nn.utils import clip_grad_norm_, clip_grad_value_
from . import schedulers as lr_scheduler
from .adam import Adam, AdamW
from .group import ParameterGroup
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .schedulers import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from .sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "ParameterGroup",
    "RMSprop",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]

_advise(globals())
