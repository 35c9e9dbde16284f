"""Figures that say how good a model is: of one batch by functions, of many by modules that add counts up.

Predictions are scores (floats) or classes (integers), in any shape with axes for samples. Everything is made of
operations, so it traces: a step may update a metric, whose counts are buffers.

functional.py  of one batch
modules.py     of all batches since the last `reset()`
"""

from ..core.spellings import advise as _advise
from .functional import accuracy, auroc, confusion_matrix, f1_score, perplexity, precision, recall
from .modules import AUROC, Accuracy, ConfusionMatrix, F1Score, Mean, Metric, Perplexity, Precision, Recall

__all__ = [
    "AUROC", "Accuracy", "ConfusionMatrix", "F1Score", "Mean", "Metric", "Perplexity", "Precision", "Recall",
    "accuracy", "auroc", "confusion_matrix", "f1_score", "perplexity", "precision", "recall",
]  # fmt: skip

_advise(globals())
