"""Optimizers and learning-rate schedules with PyTorch's names, arguments, defaults and numbers.

What changes from step to step (rates, step counts, betas) is held in tensors: a traced step is never compiled again
for it.
"""

from ..core.spellings import advise as _advise
from ..nn.utils import clip_grad_norm_, clip_grad_value_
from . import lr_scheduler
from .adafactor import Adafactor
from .adagrad import Adadelta, Adagrad
from .adam import Adam, AdamW
from .adam_family import Adamax, NAdam, RAdam
from .asgd import ASGD
from .group import ParameterGroup
from .lamb import LAMB
from .lr_scheduler import (
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
from .muon import Muon
from .optimizer import Optimizer
from .per_parameter import PerParameter
from .rmsprop import RMSprop
from .sgd import SGD
from .sparse_adam import SparseAdam
from .signs import Lion, Rprop

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
    "SparseAdam",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]

_advise(globals())
