"""Data sets, samplers and the loader that makes batches, with PyTorch's names.

dataset.py     data sets, of tensors and of other data sets: parts, one after the other, side by side
sampler.py     the order of samples, and their groups
collate.py     samples made one batch
fetching.py    batches of a data set, in whichever process
loader.py      the loader: epochs, threads, states
queue.py       queues of elements between threads, also within traced functions
stored.py      their elements, and waiting for them
readers.py     data sets of files: NumPy, CSV, images, Parquet
stages/        streams in stages that know their place: shuffled, mapped, in batches, kept, read ahead
shards/        streams of many files, which processes and workers share among themselves
transforms/    transforms of images and text
workers/       worker processes: shared memory, seeds, deaths
"""

from hybridml_compiler.errors import CancelledError, OutOfRangeError

from ..core.spellings import advise as _advise
from . import transforms
from .collate import default_collate, default_convert
from .dataset import (
    ConcatDataset,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .loader import DataLoader
from .queue import Queue
from .readers import CSVDataset, ImageFolder, NumpyDataset, ParquetDataset, read_csv, read_image, read_parquet
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .shards import CSVShards, NumpyShards, ParquetShards, ShardError, TarDataset
from .stages import ChainDataset, IterableDataset
from .workers import WorkerError, WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "CSVDataset",
    "CSVShards",
    "CancelledError",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "ImageFolder",
    "IterableDataset",
    "NumpyDataset",
    "NumpyShards",
    "OutOfRangeError",
    "ParquetDataset",
    "ParquetShards",
    "Queue",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "ShardError",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TarDataset",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerError",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
    "read_csv",
    "read_image",
    "read_parquet",
    "transforms",
]

_advise(globals())
