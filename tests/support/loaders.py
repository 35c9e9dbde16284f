"""A data set and what a process has, for tests of loaders with worker processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml.data import DataLoader, Dataset


class Rows(Dataset[Any]):
    """Row k is k, `size` times."""

    def __init__(self, count: int, size: int = 3) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return np.full(self.size, index, np.float32), index


def lists(loader: DataLoader) -> list[Any]:
    return [hm.tree_map(lambda t: t.tolist() if isinstance(t, hm.Tensor) else t, batch) for batch in loader]


def children() -> list[int]:
    """Processes of this one that are there, dead ones too."""
    folder = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if folder.exists():
        return [int(number) for number in folder.read_text().split()]
    return [process.pid or 0 for process in multiprocessing.active_children()]


def handles() -> int:
    return len(os.listdir("/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd"))
