"""Atomic replacement of a file: readers, and whoever comes after a crash, find the old content or the new one.

The new content is written to a part beside the file, which is then renamed. A writer holds a lock on its part, so that
the next one can tell, and removes, the parts of writers that were killed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: parts of killed writers are left there
    fcntl = None  # type: ignore[assignment]

PREFIX, SUFFIX = ".hybridml-", ".part"  # of parts: short, since a file's own name may have the 255 bytes that fit
_FLAGS = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)

Chunks = Sequence[bytes | memoryview]


def replace(path: str | os.PathLike[str], chunks: Chunks) -> None:
    """Puts `chunks`, one after the other, in the place of a file's content.

    Its mode, owner and extended attributes stay, and a link stays a link. Devices and pipes are written into. Raises
    OSError where `open(path, "wb")` would: a file that is read-only is not replaced.
    """
    try:
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        status = None
    else:
        with open(handle, "wb") as there:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                there.writelines(chunks)
                return
    target = Path(os.path.realpath(path))
    _sweep(target.parent)
    while not _replaced(target, status, chunks):
        pass
    if os.name == "posix":  # the new name must outlive a power cut too
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _replaced(target: Path, status: os.stat_result | None, chunks: Chunks) -> bool:
    """Whether the file was replaced; False where a sweep has removed the part before it was locked."""
    part = target.with_name(f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}")
    mode = 0o666 if status is None else 0o600  # nobody else may read it before it has the mode of the old file
    try:
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            if not _held(file):
                return False
            if status is not None:
                _take_over(target, status, part)
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows does not rename open files
            os.replace(part, target)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(part):
            error.filename = str(target)  # which the user knows: its folder does not exist, or may not be written
        raise
    return True


def _held(file: BinaryIO) -> bool:
    """Locks a part for as long as it is open; False where it was removed before that."""
    if fcntl is None:
        return True
    with suppress(OSError):  # a file system without locks: no sweep gets one there either
        fcntl.flock(file, fcntl.LOCK_EX)
    return os.fstat(file.fileno()).st_nlink > 0


def _sweep(folder: Path) -> None:
    """Removes the parts that no living writer holds a lock on."""
    if fcntl is None:
        return
    with suppress(OSError):
        for name in os.listdir(folder):
            if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
                continue
            with suppress(OSError):
                handle = os.open(folder / name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(folder / name)
                finally:
                    os.close(handle)


def _take_over(target: Path, status: os.stat_result, part: Path) -> None:
    """Gives a part the owner, mode and extended attributes (access lists) of the file that it replaces."""
    if hasattr(os, "chown"):
        for owner in ((-1, status.st_gid), (status.st_uid, -1)):  # only root may give both
            with suppress(OSError):
                os.chown(part, *owner)
    with suppress(OSError):
        shutil.copystat(target, part)
        if part.stat().st_gid != status.st_gid:  # what its group may do is not for the writer's group
            os.chmod(part, stat.S_IMODE(status.st_mode) & ~stat.S_IRWXG)
