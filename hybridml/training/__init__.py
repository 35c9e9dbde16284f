"""The training loop: `fit`, what may be called in it, and a search for a learning rate.

fit.py        the loop
callbacks.py  progress, checkpoints, early stopping, logs
lr_finder.py  losses over rising learning rates
"""

from ..core.spellings import advise as _advise
from .callbacks import Checkpoint, CSVLogger, EarlyStopping, Progress, TensorBoard
from .fit import Callback, Fit, fit
from .lr_finder import LRFinder, lr_finder

__all__ = [
    "CSVLogger", "Callback", "Checkpoint", "EarlyStopping", "Fit", "LRFinder", "Progress", "TensorBoard", "fit",
    "lr_finder",
]  # fmt: skip

_advise(globals())
