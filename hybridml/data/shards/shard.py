"""Data sets in shards: files that processes and workers share among themselves."""

from __future__ import annotations

import glob
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from zipfile import BadZipFile

import numpy as np

from hybridml_compiler.errors import ArgumentError, HybridmlError

from ..stages.parts import Opener, Parts
from ..stages.reading import Reading, hooks, shares
from ..stages.stage import Cursor

Name = str | os.PathLike[str]


class ShardError(HybridmlError, OSError):
    """A shard that is truncated or damaged; the message names the file, and the place in it.

    >>> issubclass(ShardError, OSError)
    True
    """


class Shards(Parts):
    """Base of data sets in files: subclasses write `shard`."""

    def __init__(self, paths: Name | Sequence[Name], num_replicas: int | None, rank: int | None) -> None:
        name = type(self).__name__
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self.paths = [path for pattern in given for path in found(name, os.fspath(pattern))]
        if not self.paths:
            raise ArgumentError(f"{name}: needs at least one file")
        self.whole, self.files = name, "\n".join(described(name, path) for path in self.paths)
        if (num_replicas is None) != (rank is None):
            raise ArgumentError(f"{name}: give num_replicas and rank, or neither, got {num_replicas} and {rank}")
        self._replica = hooks.processes() if num_replicas is None or rank is None else (rank, num_replicas)
        are_whole = all(isinstance(number, int | np.integer) for number in self._replica)
        if not are_whole or not 0 <= self._replica[0] < self._replica[1]:
            raise ArgumentError(f"{name}: rank must be 0 to num_replicas - 1, got {rank!r} of {num_replicas!r}")

    @property
    def replica(self) -> tuple[int, int]:
        return self._replica

    def parts(self, reading: Reading) -> Sequence[Opener]:
        return [
            partial(self.shard, self.paths[share.shard], share.first, share.step)
            for share in shares(len(self.paths), reading)
        ]

    def shard(self, path: str, first: int, step: int, place: object) -> Cursor:
        """The cursor of the samples `first`, `first + step`, and so on of a file."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.paths)} shards, rank={self._replica[0]} of {self._replica[1]})"


def found(name: str, pattern: str) -> list[str]:
    """The file of this name, or in alphabetical order those that it matches. Raises FileNotFoundError for none."""
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    if not paths:
        raise FileNotFoundError(f"{name}: there is no file {pattern!r}, and none that it matches")
    return paths


def described(name: str, path: str) -> str:
    """The name and the size of a file, without its folder, which may be another one when a state is loaded. Raises
    ArgumentError for a folder."""
    about = os.stat(path)
    if stat.S_ISDIR(about.st_mode):
        raise ArgumentError(f"{name}: {path} is a folder; give files, as {os.path.join(path, 'train-*')!r}")
    return f"{os.path.basename(path)!r} of {about.st_size} bytes"


@contextmanager
def reading_of(name: str, path: str, place: str) -> Iterator[None]:
    """Raises ShardError, with the file and the place in it, for what a library says of a damaged file; what a data set
    of this package says of its arguments with the file."""
    try:
        yield
    except ArgumentError as error:
        what = str(error).partition(": ")[2]  # behind the name of that data set
        raise ArgumentError(f"{name}: {what if what.startswith(path) else f'{path}: {what}'}") from error
    except (HybridmlError, FileNotFoundError):
        raise
    except (OSError, ValueError, EOFError, zlib.error, BadZipFile) as error:
        raise ShardError(
            f"{name}: {path}, {place}: {error}; the file is damaged or not complete, write it again"
        ) from error
