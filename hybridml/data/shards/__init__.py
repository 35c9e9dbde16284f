"""Data sets in shards, which processes and workers share among themselves, and which resume in the middle.

shard.py    files found and divided, their errors
rows.py     NumPy's files and Parquet
lines.py    CSV
tar.py      tar archives, in WebDataset's layout
"""

from .lines import CSVShards
from .rows import NumpyShards, ParquetShards
from .shard import ShardError
from .tar import TarDataset

__all__ = ["CSVShards", "NumpyShards", "ParquetShards", "ShardError", "TarDataset"]
