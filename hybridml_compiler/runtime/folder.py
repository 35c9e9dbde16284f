"""Private folders: opened once, checked as opened, and used through the open handle.

A path is looked up at every use, so the folder checked under a name need not be the one opened under it: whoever can
write a parent can rename the folder and put another in its place. A handle stays with the folder that was checked.
Links are not followed, and files are checked through their open handle: regular, this user's, written by nobody else.

Windows has no handles of folders and no owners in `stat`; names are looked up below the path there, and the access
lists of the user's profile, where caches are, keep others out.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Self

from ..record import record

HANDLES = {os.open, os.mkdir, os.rename, os.unlink, os.utime} <= os.supports_dir_fd and os.scandir in os.supports_fd
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# Without O_NONBLOCK, opening a FIFO waits for a writer.
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_LINK_OR_DEVICE = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV})


class Unsafe(OSError):
    """A folder or file that is not this user's alone, or not a regular file."""


class File(NamedTuple):
    """A file as `Folder.files` lists it; `stamp` is the time of its last change."""

    name: str
    size: int
    stamp: float


@record
class Folder:
    """An open folder that nobody but this user can write. Names are relative to it; leave it by `with` or `close`."""

    path: str
    _handle: int | None

    @classmethod
    def open(cls, path: str, *, make: bool = False) -> Self:
        """The folder at a path, which may itself not be a link; `make` makes it and its parents, for this user alone.

        Raises Unsafe where another user owns it or can write it, and OSError where there is none.
        """
        for missing in _missing(path) if make else ():
            with suppress(FileExistsError):
                os.mkdir(missing, 0o700)
        return cls._opened(path, path, None)

    def folder(self, name: str, *, make: bool = False) -> Folder:
        """The folder of this name inside; raises as `open` does."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(self._at(name), 0o700, dir_fd=self._handle)
        return self._opened(os.path.join(self.path, name), self._at(name), self._handle)

    @classmethod
    def _opened(cls, path: str, at: str, above: int | None) -> Self:
        if not HANDLES:
            if not os.path.isdir(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return cls(path, None)
        handle = os.open(at, _FOLDER, dir_fd=above)
        try:
            _check(os.fstat(handle))
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle)

    def close(self) -> None:
        """Give the handle back."""
        if self._handle is not None:
            os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self._handle is None else name

    def read(self, name: str, limit: int) -> tuple[bytes, float]:
        """The contents of a file and the time of its last change.

        Raises Unsafe for a file of another user, or that another can write, for anything but a regular file (a link, a
        FIFO, a device), and for more than `limit` bytes.
        """
        try:
            handle = os.open(self._at(name), _FILE, dir_fd=self._handle)
        except OSError as error:
            if error.errno in _LINK_OR_DEVICE:
                raise Unsafe("it is a link or a device") from None
            raise
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise Unsafe("it is not a regular file")
            _check(status)
            if status.st_size > limit:
                raise Unsafe(f"it has {status.st_size} bytes, where {limit} are the most")
            with open(handle, "rb", closefd=False) as file:
                return file.read(status.st_size), status.st_mtime
        finally:
            os.close(handle)

    def write(self, name: str, *parts: bytes) -> None:
        """Put a file in place as a whole: a reader sees the former one or this one."""
        part = f"{name[:8]}{os.urandom(8).hex()}.tmp"
        handle = os.open(self._at(part), _NEW, 0o600, dir_fd=self._handle)
        try:
            with open(handle, "wb") as file:
                file.writelines(parts)
            os.replace(self._at(part), self._at(name), src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except BaseException:
            self.remove(part)
            raise

    def remove(self, name: str) -> bool:
        """Remove a file or link; whether it is gone."""
        try:
            os.unlink(self._at(name), dir_fd=self._handle)
        except OSError as error:
            return isinstance(error, FileNotFoundError)
        return True

    def folders(self) -> Iterator[str]:
        """Names of the folders inside."""
        with os.scandir(self.path if self._handle is None else self._handle) as entries:
            yield from (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def files(self) -> Iterator[File]:
        """The entries inside that are not folders."""
        with os.scandir(self.path if self._handle is None else self._handle) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        yield File(entry.name, status.st_size, status.st_mtime)

    @property
    def stamp(self) -> float:
        """The time of the folder's last change."""
        return (os.stat(self.path) if self._handle is None else os.fstat(self._handle)).st_mtime

    def touch(self, name: str = ".", stamp: float | None = None) -> None:
        """Set the time of last change, of a file or of the folder: to now, or to `stamp`."""
        times = None if stamp is None else (stamp, stamp)
        os.utime(self._at(name), times, dir_fd=self._handle)


def _missing(path: str) -> list[str]:
    """The folders along a path, itself included, that do not exist; the outermost first."""
    found: list[str] = []
    while path and not os.path.isdir(path) and path not in found:
        found.append(path)
        path = os.path.dirname(path)
    return found[::-1]


def _check(status: os.stat_result) -> None:
    """Raises Unsafe unless this user alone can write a file or folder with this status."""
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise Unsafe("it belongs to, or can be written by, another user, who could run code through it")
