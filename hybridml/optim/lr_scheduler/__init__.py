"""Learning-rate schedules: they write into the tensor that the optimizer reads, also inside a traced function.

The values are PyTorch's for the same arguments. A schedule that multiplies goes on from the rate that is set, so that
several may step one after the other, and a rate that was changed by hand stays changed.

base.py       LRScheduler, and schedules that multiply the rate
factors.py    steps, powers, lines, functions of the epoch
cycles.py     cosines and triangles, with their momentum
plateau.py    rates that fall where a metric stays
combined.py   schedules after each other, and all at once
"""

from ...core.spellings import advise as _advise
from .base import FactorLR, LRScheduler
from .combined import ChainedScheduler, SequentialLR
from .cycles import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from .factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from .plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "FactorLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_advise(globals())
