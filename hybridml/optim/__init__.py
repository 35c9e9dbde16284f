"""Optimizers and learning-rate schedules with PyTorch's names, arguments, defaults and numbers.

What changes from step to step (rates, step counts, betas) is held in tensors: a traced step is never compiled again
for it.

optimizer.py      parameter groups, state, a step that commits all of its writes at once
group.py          a group: parameters and their hyper-parameters
checks.py         bounds of hyper-parameters
per_parameter.py  optimizers that are a rule of each parameter and its numbers
scalars.py        numbers of an update in each dtype
parts.py          complex parameters as pairs of real ones
formulas.py       formulas of updates, one operation of a trace each
sgd.py            stochastic gradient descent
rmsprop.py        RMSprop
adam.py           Adam and AdamW, dense and lazy, and the running means of their relatives
adam_family.py    Adamax, NAdam, RAdam, LAMB
adagrad.py        Adagrad and Adadelta
asgd.py           averaged stochastic gradient descent
signs.py          Rprop and Lion
adafactor.py      Adafactor
muon.py           Muon
lbfgs.py          L-BFGS and its line search
rows.py           updates of the rows of sparse gradients
sparse_adam.py    Adam of such rows
swa_utils.py      averages of weights
lr_scheduler/     schedules
"""

from ..core.spellings import advise as _advise
from ..nn.utils import clip_grad_norm_, clip_grad_value_
from . import lr_scheduler, swa_utils
from .adafactor import Adafactor
from .adagrad import Adadelta, Adagrad
from .adam import Adam, AdamW
from .adam_family import LAMB, Adamax, NAdam, RAdam
from .asgd import ASGD
from .group import ParameterGroup
from .lbfgs import LBFGS
from .lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from .muon import Muon
from .optimizer import Optimizer
from .per_parameter import PerParameter
from .rmsprop import RMSprop
from .sgd import SGD
from .signs import Lion, Rprop
from .sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "Lion",
    "MultiStepLR",
    "MultiplicativeLR",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "ParameterGroup",
    "PerParameter",
    "PolynomialLR",
    "RAdam",
    "RMSprop",
    "ReduceLROnPlateau",
    "Rprop",
    "SequentialLR",
    "SparseAdam",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
    "swa_utils",
]

_advise(globals())
