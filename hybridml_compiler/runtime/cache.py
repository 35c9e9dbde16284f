"""Object code between processes: a content-addressed cache, memory first and then disk.

An entry is a file `<directory>/objects/<2 hex>/<64 hex>` holding magic, sha256(key + payload), payload. Writers use a
temporary file and `os.replace`, so concurrent writers of a key leave one whole entry and a reader never sees half of
one. Whatever is not a whole entry of that key (truncated, damaged, renamed, foreign) is reported once, removed and
computed again: the cache can cost time, never a crash or a wrong answer.

`HYBRIDML_CACHE_DIR` names the directory; "0" or "off" keeps the cache in memory only.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .. import config
from ..locks import rlock

ENVIRONMENT = "HYBRIDML_CACHE_DIR"
MAGIC = b"hybridml object 1\n"
DIGEST = hashlib.sha256().digest_size
DISK_LIMIT = 1 << 30
MEMORY_LIMIT = 256 << 20
# Seconds between looks at the whole directory: of 90,000 entries, 0.6 s of a core, 3 s of a busy one.
PRUNE_EVERY = 24 * 3600.0
PRUNE_AGAIN = 600.0  # seconds after which a look is begun again that a process has not lived to end


@dataclass(frozen=True)
class CacheInfo:
    """What the cache holds: `entries` and `bytes` are of the disk, or of the memory where there is no directory."""

    directory: str | None
    entries: int
    bytes: int
    hits: int
    misses: int


def key(*parts: str | bytes) -> str:
    """The name of a computation: sha256 over its parts with their lengths, so that ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def fingerprint(*sources: Path) -> str:
    """Of the code that computes what is cached: an edit of it must not find what its former self has made."""
    return key(*(part for path in sorted(sources) for part in (path.name, path.read_bytes())))[:16]


def default_directory() -> Path | None:
    """The directory that the environment asks for, or the platform's cache directory; None means memory only."""
    asked = config.read().cache_dir
    if asked is not None:
        return None if asked.lower() in config.OFF else Path(asked).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "hybridml"


@dataclass
class ObjectCache:
    """Bytes under hexadecimal keys; every method may be called from any thread, and none raises for the disk's sake."""

    directory: Path | None
    disk_limit: int = DISK_LIMIT
    memory_limit: int = MEMORY_LIMIT
    hits: int = 0
    misses: int = 0
    _memory: dict[str, bytes] = field(default_factory=dict, repr=False)
    _memory_bytes: int = field(default=0, repr=False)
    _lock: threading.RLock = field(default_factory=rlock, repr=False)  # a signal handler may compile
    _writable: bool = field(default=True, repr=False)
    _next_prune: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        if self.directory is None:
            return
        self.directory = self.directory / "objects"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.directory.stat()
        except (OSError, RuntimeError) as error:
            self._memory_only(f"cannot be used ({error})")
            return
        # Entries are machine code: whoever can write here can run code as this user.
        if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            self._memory_only("belongs to, or can be written by, another user, who could run code through it")

    def get(self, name: str) -> bytes | None:
        """The bytes stored under `name`, or None."""
        with self._lock:
            data = self._memory.get(name)
        if data is None:
            data = self._read(name)
            if data is not None:
                self._remember(name, data)
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`, in memory and, where possible, on disk."""
        self._remember(name, data)
        if self.directory is None or not self._writable:
            return
        path = self._path(name)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_whole(path, MAGIC + _digest(name, data) + data)
        except OSError as error:
            self._writable = False
            _warn(
                f"the object cache cannot write {path} ({error}); code compiled from now on is kept in memory only. "
                f"Free some space or point {ENVIRONMENT} at a writable directory ({ENVIRONMENT}=off silences this)."
            )
            return
        self._prune_sometimes()

    def info(self) -> CacheInfo:
        """Count the entries; walks the directory."""
        if self.directory is None:
            return CacheInfo(None, len(self._memory), self._memory_bytes, self.hits, self.misses)
        sizes = [size for _, size, _ in self._entries()]
        return CacheInfo(str(self.directory), len(sizes), sum(sizes), self.hits, self.misses)

    def clear(self) -> None:
        """Forget everything, in memory and on disk."""
        with self._lock:
            self._memory.clear()
            self._memory_bytes = 0
        for _, _, path in self._entries():
            _remove(path)

    def _path(self, name: str) -> Path:
        assert self.directory is not None
        return self.directory / name[:2] / name

    def _memory_only(self, reason: str) -> None:
        _warn(
            f"the object cache directory {self.directory} {reason}; compiled code is kept in memory only, and every "
            f"process compiles again. Point {ENVIRONMENT} at a directory of your own ({ENVIRONMENT}=off silences this)."
        )
        self.directory = None

    def _remember(self, name: str, data: bytes) -> None:
        with self._lock:
            self._memory_bytes += len(data) - len(self._memory.pop(name, b""))
            self._memory[name] = data
            while self._memory_bytes > self.memory_limit and len(self._memory) > 1:
                self._memory_bytes -= len(self._memory.pop(next(iter(self._memory))))

    def _read(self, name: str) -> bytes | None:
        if self.directory is None:
            return None
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                raw = file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(f"the object cache cannot read {path} ({error}); compiling again. Delete it or fix its permissions.")
            return None
        data = raw[len(MAGIC) + DIGEST :]
        if not raw.startswith(MAGIC) or raw[len(MAGIC) : len(MAGIC) + DIGEST] != _digest(name, data):
            _remove(path)
            _warn(
                f"the object cache entry {path} is damaged or not ours ({len(raw)} bytes); it was removed, its code is "
                "compiled again. Nothing needs to be done; if this repeats, check the disk or delete the directory."
            )
            return None
        if age > PRUNE_EVERY:  # the time stamp is the time of last use, to within a day, at no cost for a hot entry
            with suppress(OSError):
                os.utime(path)
        return data

    def _entries(self, rest: Callable[[], None] = lambda: None) -> list[tuple[float, int, str]]:
        """(time of last use, size, path) of every file of the cache, leftovers of killed writers among them."""
        found: list[tuple[float, int, str]] = []
        if self.directory is None:
            return found
        with suppress(OSError):
            for folder in os.scandir(self.directory):
                if not folder.is_dir(follow_symlinks=False) or len(folder.name) != 2:
                    continue
                with suppress(OSError):
                    for entry in os.scandir(folder.path):
                        rest()
                        with suppress(OSError):
                            status = entry.stat(follow_symlinks=False)
                            found.append((status.st_mtime, status.st_size, entry.path))
        return found

    def _prune_sometimes(self) -> None:
        """Once a day and machine, have a thread prune the directory, which no call waits for.

        When that was done last is the time stamp of the directory, which changes otherwise with its 256 folders only.
        """
        assert self.directory is not None
        now = time.time()
        if now < self._next_prune:
            return
        self._next_prune = now + PRUNE_EVERY
        with suppress(OSError):
            if not 0 <= now - self.directory.stat().st_mtime <= PRUNE_EVERY:
                os.utime(self.directory, (now, now - PRUNE_EVERY + PRUNE_AGAIN))
                threading.Thread(target=self._prune_beside, name="hybridml-prune", daemon=True).start()

    def _prune_beside(self) -> None:
        assert self.directory is not None
        self.prune(_Rests())
        with suppress(OSError):
            os.utime(self.directory)

    def prune(self, rest: Callable[[], None] = lambda: None) -> None:
        """Delete leftovers of killed writers and, beyond the limit, the least recently used entries, to 3/4 of it.

        `rest` is called between looks at two files.
        """
        entries, kept, total = self._entries(rest), [], 0
        for entry in entries:
            stamp, size, path = entry
            if path.endswith(".tmp") and time.time() - stamp > 3600:
                _remove(path)
                continue
            kept.append(entry)
            total += size
        if total <= self.disk_limit:
            return
        for _, size, path in sorted(kept):
            if total <= self.disk_limit * 3 // 4:
                break
            rest()
            _remove(path)
            total -= size


class _Rests:
    """Called again and again by a thread: it lets others have four fifths of the time, in turns of a millisecond."""

    def __init__(self) -> None:
        self.since = time.perf_counter()

    def __call__(self) -> None:
        spent = time.perf_counter() - self.since
        if spent > 1e-3:
            time.sleep(min(4 * spent, 0.1))
            self.since = time.perf_counter()


def _digest(name: str, data: bytes) -> bytes:
    """The check of an entry; the name is in it, so that a whole entry under a wrong name is found out too."""
    digest = hashlib.sha256(name.encode())
    digest.update(data)
    return digest.digest()


def _write_whole(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=path.name[:8], suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: str | Path) -> None:
    with suppress(OSError):
        os.unlink(path)


def _warn(message: str) -> None:
    warnings.warn(f"hybridml: {message}", RuntimeWarning, stacklevel=3)


_default: ObjectCache | None = None
_making = rlock()


def default() -> ObjectCache:
    """The cache of this process, made on first use from the environment."""
    global _default
    if _default is None:
        with _making:
            if _default is None:
                _default = ObjectCache(default_directory())
    return _default


def get(name: str) -> bytes | None:
    """The bytes under `name` in the default cache, or None."""
    return default().get(name)


def put(name: str, data: bytes) -> None:
    """Keep `data` under `name` in the default cache."""
    default().put(name, data)


def info() -> CacheInfo:
    """Entries, bytes, hits and misses of the default cache."""
    return default().info()


def clear() -> None:
    """Empty the default cache, in memory and on disk."""
    default().clear()
