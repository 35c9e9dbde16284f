"""Shards whose samples have numbers: NumPy's files and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..readers import NumpyDataset, ParquetDataset
from ..stages.stage import Cursor
from .shard import Name, Shards, reading_of

TRIES = 100  # of a disturbance that takes microseconds


class Rows(Cursor):
    """Every `step`-th row of a file, whose place is the number of the next one."""

    def __init__(self, name: str, path: str, opened: Callable[[str], Any], step: int, row: int) -> None:
        self.name, self.path, self.step, self.row = name, path, step, row
        with reading_of(name, path, "at its beginning"):
            self.rows = opened(path)
        with reading_of(name, path, f"row {row}"):
            if row >= len(self.rows) + step:
                raise ValueError(f"the file has {len(self.rows)} rows")

    def __next__(self) -> Any:
        if self.row >= len(self.rows):
            raise StopIteration
        with reading_of(self.name, self.path, f"row {self.row}"):
            sample = self.rows[self.row]
        self.row += self.step
        return sample

    def place(self) -> int:
        return self.row


class NumpyShards(Shards):
    """Stream of the rows of many `.npy` files, or of `.npz` files: dicts of rows by name.

    paths: a file, a pattern ("train-*.npy", in alphabetical order) or a list of them. Each process (`rank` of
    `num_replicas`, by default those of `hm.distributed`) and each worker of a loader reads files of its own, or every
    so-many-th row where files are fewer than readers: each row is one reader's. Files `.npy` are mapped.

    Raises FileNotFoundError where nothing matches, ShardError with the file and the row for a damaged one.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for k in range(3):
    ...         np.save(f"{folder}/part-{k}.npy", np.arange(2) + 10 * k)
    ...     [int(row) for row in NumpyShards(f"{folder}/part-*.npy")]
    [0, 1, 10, 11, 20, 21]
    """

    def __init__(
        self, paths: Name | Sequence[Name], *, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        super().__init__(paths, num_replicas, rank)

    def shard(self, path: str, first: int, step: int, place: Any) -> Cursor:
        return Rows(type(self).__name__, path, _numpy, step, first if place is None else place)


def _numpy(path: str) -> Any:
    for left in reversed(range(TRIES)):
        try:
            rows = NumpyDataset(path)
            break
        except SystemError:  # of Python 3.11, whose parsers in two threads disturb each other: NumPy parses the header
            if not left:
                raise
    return rows if rows.names else Column(rows)


class Column:
    """The rows of the only array of a data set."""

    def __init__(self, rows: NumpyDataset) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Any:
        return self.rows[row][0]


class ParquetShards(Shards):
    """Stream of the rows of many Parquet files: dicts of columns, or with a `target` pairs as those of `CSVDataset`.

    Needs pyarrow. Files are divided as those of `NumpyShards` are, and read by row groups. Raises FileNotFoundError
    where nothing matches, ArgumentError for names of columns that are not there, ShardError with the file and the row
    for a damaged one.

    >>> ParquetShards("train-*.parquet", columns=["size"], target="price")  # doctest: +SKIP
    ParquetShards(16 shards, rank=0 of 1)
    """

    def __init__(
        self,
        paths: Name | Sequence[Name],
        columns: Sequence[str] | None = None,
        target: str | None = None,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(paths, num_replicas, rank)
        self.columns, self.target = columns, target

    def shard(self, path: str, first: int, step: int, place: Any) -> Cursor:
        row = first if place is None else place
        return Rows(type(self).__name__, path, self._table, step, row)

    def _table(self, path: str) -> ParquetDataset:
        return ParquetDataset(path, self.columns, self.target)
