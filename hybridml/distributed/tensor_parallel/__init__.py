"""Tensor parallel: layers of which each process has a part, and which they compute together.

redistribute.py  parts of an axis, and what moves between whole tensors, parts and terms of a sum
styles.py        styles of layers: which part of the parameters each process has, and what moves
headwise.py      `HeadwiseParallel`, the style of attention
parallelize.py   `parallelize_module`: such layers in a module, by a plan
"""

from .headwise import HeadwiseParallel
from .parallelize import parallelize_module
from .redistribute import Axis, Replicate, Shard
from .styles import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel

__all__ = [
    "Axis", "ColwiseParallel", "HeadwiseParallel", "ParallelStyle", "Replicate", "RowwiseParallel", "SequenceParallel",
    "Shard", "parallelize_module",
]  # fmt: skip
