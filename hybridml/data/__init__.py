"""Data sets, samplers and the loader that makes batches, with PyTorch's names."""

from ..core.spellings import advise as _advise
from .dataset import Dataset, IterableDataset, Subset, TensorDataset, random_split
from .loader import DataLoader, default_collate
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = [
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "TensorDataset",
    "default_collate",
    "random_split",
]

_advise(globals())
