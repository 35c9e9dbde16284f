"""Shards that are tar archives, in WebDataset's layout: files of one sample stand together and share a name."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from typing import Any

from ..stages.stage import Cursor
from .shard import Name, ShardError, Shards, reading_of

BLOCK = tarfile.BLOCKSIZE


class TarDataset(Shards):
    """Stream of the samples of tar archives: dicts of "__key__", "__url__" (the archive) and bytes by file extension.

    The files of a sample stand together and have one name up to the first dot: `0001.jpg` and `0001.cls.txt` are
    `{"__key__": "0001", "jpg": ..., "cls.txt": ...}`. `map` decodes them. Archives may be compressed (`.tar.gz`);
    those that are not are gone on with at once, in the middle.

    paths: a file, a pattern ("train-*.tar", in alphabetical order) or a list of them. Each process (`rank` of
    `num_replicas`, by default those of `hm.distributed`) and each worker of a loader reads files of its own, or every
    so-many-th sample where files are fewer than readers: each sample is one reader's.

    Raises FileNotFoundError where nothing matches; ShardError, with the file, the member and its place, for a damaged
    or truncated archive, and for members that are no part of a sample. Nothing is left out.

    >>> import io, tarfile
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with tarfile.open(f"{folder}/train-0.tar", "w") as archive:
    ...         for name in ("a.txt", "a.cls", "b.txt", "b.cls"):
    ...             info = tarfile.TarInfo(name)
    ...             info.size = 3
    ...             archive.addfile(info, io.BytesIO(f"<{name[0]}>".encode()))
    ...     [(sample["__key__"], sample["txt"]) for sample in TarDataset(f"{folder}/train-*.tar")]
    [('a', b'<a>'), ('b', b'<b>')]
    """

    def __init__(
        self, paths: Name | Sequence[Name], *, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        super().__init__(paths, num_replicas, rank)

    def shard(self, path: str, first: int, step: int, place: Any) -> Cursor:
        return Samples(path, first, step, *(place or (0, 0)))


class Samples(Cursor):
    """Every `step`-th sample of an archive. The place is the byte where the next one begins, and its number."""

    def __init__(self, path: str, first: int, step: int, offset: int, number: int) -> None:
        self.at = [offset, number]
        self.samples = _samples(path, first, step, offset, number)  # does not know the cursor: its file is closed

    def __next__(self) -> Any:
        sample, self.at = next(self.samples)
        return sample

    def place(self) -> list[int]:
        return self.at


def _samples(path: str, first: int, step: int, offset: int, number: int) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Samples, and the places behind them."""
    with _archive(path) as archive:
        for group, end in _groups(path, archive, offset):
            number += 1
            if (number - 1) % step == first:
                yield _read(path, archive, group), [end, number]


def _archive(path: str) -> tarfile.TarFile:
    with reading_of("TarDataset", path, "at its beginning"):
        try:
            return tarfile.open(path, "r:*")
        except tarfile.TarError:
            raise ValueError("there is no tar archive, compressed or not, whose first member is whole") from None


def _groups(path: str, archive: tarfile.TarFile, offset: int) -> Iterator[tuple[list[tarfile.TarInfo], int]]:
    """The members of each sample, and the byte behind them."""
    group: list[tarfile.TarInfo] = []
    for member, begin in _members(path, archive, offset):
        if group and (member is None or _parted(member.name)[0] != _parted(group[0].name)[0]):
            yield group, begin
            group = []
        if member is not None:
            group.append(member)


def _members(path: str, archive: tarfile.TarFile, offset: int) -> Iterator[tuple[tarfile.TarInfo | None, int]]:
    """The files of the archive and the bytes where they begin, then None and the byte of the end.

    Not by `TarFile.next`, which takes damage behind the first member for the end.
    """
    where = f"at byte {offset}"
    while True:
        with reading_of("TarDataset", path, where):
            member = _member(archive, offset)
        if member is None:
            break
        if member.isreg():
            stem, extension = _parted(member.name)
            if not os.path.basename(stem):
                raise _error(path, member, "has no name before its first dot, by which a sample knows it; leave it out")
            if not extension:
                raise _error(path, member, "has no extension, by which a sample knows it; name it sample.extension")
            yield member, offset
        elif not member.isdir():
            raise _error(path, member, "is a link or a device; write files")
        offset = archive.offset
        where = f"behind member {member.name!r}, at byte {offset}"
    yield None, offset


def _read(path: str, archive: tarfile.TarFile, group: list[tarfile.TarInfo]) -> dict[str, Any]:
    sample: dict[str, Any] = {"__key__": _parted(group[0].name)[0], "__url__": path}
    for member in group:
        extension = _parted(member.name)[1]
        if extension in sample:
            raise _error(path, member, f"is the second one with extension {extension!r}; give samples other names")
        with reading_of("TarDataset", path, f"member {member.name!r} at byte {member.offset}"):
            sample[extension] = _content(archive, member)
    return sample


def _error(path: str, member: tarfile.TarInfo, what: str) -> ShardError:
    return ShardError(f"TarDataset: {path}, member {member.name!r} at byte {member.offset} {what}")


def _parted(name: str) -> tuple[str, str]:
    """The name of the sample (with its folder) and the extension of a file."""
    folder, file = os.path.split(name)
    stem, _, extension = file.partition(".")
    return os.path.join(folder, stem), extension.lower()


def _member(archive: tarfile.TarFile, offset: int) -> tarfile.TarInfo | None:
    """The member at a byte; None where the archive ends as it should. Raises ValueError otherwise."""
    file: Any = archive.fileobj
    file.seek(offset)
    block = file.read(BLOCK)
    if len(block) < BLOCK:
        raise ValueError(f"the file has {file.seek(0, os.SEEK_END)} bytes, and no mark of an archive's end")
    if not block.strip(b"\0"):
        rest = file.read()
        if rest.strip(b"\0"):
            raise ValueError("there is more behind the mark of the archive's end")
        return None
    file.seek(offset)
    try:
        return tarfile.TarInfo.fromtarfile(archive)
    except tarfile.TarError as error:
        raise ValueError(error) from None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file: Any = archive.extractfile(member)
    try:
        content: bytes = file.read()
    except tarfile.TarError as error:
        raise ValueError(error) from None
    if len(content) < member.size:
        raise ValueError(f"has {member.size} bytes, and the file ends after {len(content)}")
    return content
