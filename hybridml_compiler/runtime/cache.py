"""Object code between processes: a content-addressed cache, memory first and then disk.

An entry is a file `<directory>/objects/<2 hex>/<64 hex>` holding magic, sha256(key + payload), payload. Writers use a
temporary file and `os.replace`, so concurrent writers of a key leave one whole entry and a reader never sees half of
one. Whatever is not a whole entry of that key (truncated, damaged, renamed, foreign, a link, a FIFO) is reported once,
removed and computed again: the cache can cost time, never a crash or a wrong answer. Entries are machine code, and
whoever can write one can run code as this user: `folder` sees to it that nobody else has.

`HYBRIDML_CACHE_DIR` names the directory; "0" or "off" keeps the cache in memory only.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field

from .. import config
from ..locks import rlock
from ..record import record
from .folder import File, Folder, Unsafe
from .uninterrupted import uninterrupted

ENVIRONMENT = "HYBRIDML_CACHE_DIR"
MAGIC = b"hybridml object 1\n"
DIGEST = hashlib.sha256().digest_size
DISK_LIMIT = 1 << 30
MEMORY_LIMIT = 256 << 20
LARGEST = 256 << 20  # bytes of an entry on disk: four times the constants that a program may keep
# Seconds between looks at the whole directory, which may have 90,000 entries ([Note: Compile time]).
PRUNE_EVERY = 24 * 3600.0
PRUNE_AGAIN = 600.0  # seconds after which a look is begun again that a process has not lived to end


@record
class CacheInfo:
    """Contents of the cache: `entries` and `bytes` are of the disk, or of the memory where there is no directory."""

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


def default_directory() -> str | None:
    """The directory that the environment asks for, or the platform's cache directory; None means memory only.

    A leading `~` is left for `ObjectCache` to expand: there may be no home directory.
    """
    asked = config.field("cache_dir")
    if asked is not None:
        return None if asked.lower() in config.OFF else asked
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return os.path.join(base, "hybridml")


def _absolute(path: str | os.PathLike[str]) -> str:
    """The path with a leading `~` expanded. Raises FileNotFoundError where there is no home directory."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        raise FileNotFoundError(f"could not determine the home directory of {os.fspath(path)!r}")
    return os.path.abspath(found)


@record(frozen=False)
class ObjectCache:
    """Bytes under hexadecimal keys; every method may be called from any thread, and none raises for the disk's sake."""

    directory: str | os.PathLike[str] | None
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
        try:
            self.directory = os.path.join(_absolute(self.directory), "objects")
            with self._open(make=True):
                pass
        except OSError as error:
            self._memory_only(error)

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
        if self.directory is None or not self._writable or len(data) > LARGEST - len(MAGIC) - DIGEST:
            return
        try:
            with self._open(name[:2], make=True) as folder:
                folder.write(name, MAGIC, _digest(name, data), data)
            self._prune_sometimes()
        except OSError as error:
            self._writable = False
            _warn(
                f"the object cache cannot write {name} in {self.directory} ({error}); code compiled from now on is "
                f"kept in memory only. Free some space or point {ENVIRONMENT} at a writable directory "
                f"({ENVIRONMENT}=off silences this)."
            )

    def info(self) -> CacheInfo:
        """Count the entries; walks the directory."""
        if self.directory is None:
            return CacheInfo(None, len(self._memory), self._memory_bytes, self.hits, self.misses)
        sizes = [file.size for _, file in self._entries()]
        return CacheInfo(str(self.directory), len(sizes), sum(sizes), self.hits, self.misses)

    def clear(self) -> None:
        """Forget everything, in memory and on disk."""
        with self._lock:
            self._memory.clear()
            self._memory_bytes = 0
        for folder, file in self._entries():
            self._remove(folder, file.name)

    @contextmanager
    def _open(self, name: str = "", *, make: bool = False) -> Iterator[Folder]:
        """The directory, or the folder of this name in it; checked each time, since a path may come to name another."""
        path = self.directory
        if path is None:  # since another thread has found it unusable
            raise FileNotFoundError("the object cache has no directory")
        with Folder.open(str(path), make=make) as directory:
            if not name:
                yield directory
                return
            with directory.folder(name, make=make) as folder:
                yield folder

    def _memory_only(self, reason: Exception) -> None:
        _warn(
            f"the object cache directory {self.directory} cannot be used ({reason}); compiled code is kept in memory "
            f"only, and every process compiles again. Point {ENVIRONMENT} at a directory of your own "
            f"({ENVIRONMENT}=off silences this)."
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
        try:
            with self._open(name[:2]) as folder:
                return _entry(folder, name)
        except FileNotFoundError:
            pass
        except Unsafe as error:
            self._memory_only(error)
        except OSError as error:
            _warn(f"the object cache cannot read {name} in {self.directory} ({error}); its code is compiled again.")
        return None

    def _entries(self, rest: Callable[[], None] = lambda: None) -> list[tuple[str, File]]:
        """Each file of the cache with the name of its folder, leftovers of killed writers among them."""
        found: list[tuple[str, File]] = []
        if self.directory is None:
            return found
        with suppress(OSError), self._open() as directory:
            for name in directory.folders():
                if len(name) != 2 or not _is_hex(name):
                    continue
                with suppress(OSError), directory.folder(name) as folder:
                    for file in folder.files():
                        rest()
                        if _is_hex(file.name) or file.name.endswith(".tmp"):
                            found.append((name, file))
        return found

    def _remove(self, folder: str, name: str) -> None:
        with suppress(OSError), self._open(folder) as opened:
            opened.remove(name)

    def _prune_sometimes(self) -> None:
        """Once a day and machine, have a thread prune the directory, which no call waits for.

        When that was done last is the time stamp of the directory, which changes otherwise with its 256 folders only.
        """
        now = time.time()
        if now < self._next_prune:
            return
        self._next_prune = now + PRUNE_EVERY
        with self._open() as directory:
            if 0 <= now - directory.stamp <= PRUNE_EVERY:
                return
            directory.touch(stamp=now - PRUNE_EVERY + PRUNE_AGAIN)
        with suppress(RuntimeError):  # no thread can be started: another process will look
            uninterrupted(threading.Thread(target=self._prune_beside, name="hybridml-prune", daemon=True).start)

    def _prune_beside(self) -> None:
        self.prune(_Rests())
        with suppress(OSError), self._open() as directory:
            directory.touch()

    def prune(self, rest: Callable[[], None] = lambda: None) -> None:
        """Delete leftovers of killed writers and, beyond the limit, the least recently used entries, to 3/4 of it.

        `rest` is called between looks at two files.
        """
        entries, kept, total = self._entries(rest), [], 0
        for folder, file in entries:
            if file.name.endswith(".tmp") and time.time() - file.stamp > 3600:
                self._remove(folder, file.name)
                continue
            kept.append((folder, file))
            total += file.size
        if total <= self.disk_limit:
            return
        for folder, file in sorted(kept, key=lambda entry: entry[1].stamp):
            if total <= self.disk_limit * 3 // 4:
                break
            rest()
            self._remove(folder, file.name)
            total -= file.size


class _Rests:
    """Pauses for a thread, to be called again and again: others have four fifths of the time, in turns of a
    millisecond."""

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


def _is_hex(name: str) -> bool:
    """Whether a file or folder has a name of ours: other files in the directory are not deleted."""
    return not name.strip("0123456789abcdefABCDEF")


def _entry(folder: Folder, name: str) -> bytes | None:
    """The payload of an entry; anything else in its place is reported and removed, and gives None."""
    try:
        raw, stamp = folder.read(name, LARGEST)
        reason = f"{len(raw)} bytes"
    except Unsafe as error:
        raw, stamp, reason = b"", 0.0, str(error)
    data = raw[len(MAGIC) + DIGEST :]
    if not raw.startswith(MAGIC) or raw[len(MAGIC) : len(MAGIC) + DIGEST] != _digest(name, data):
        removed = "it was removed" if folder.remove(name) else "it cannot be removed"
        _warn(
            f"the object cache entry {os.path.join(folder.path, name)} is damaged or not ours ({reason}); {removed}, "
            "its code is compiled again. Nothing needs to be done; if this repeats, check the disk or delete the "
            "directory."
        )
        return None
    if time.time() - stamp > PRUNE_EVERY:  # the stamp is the time of last use, to within a day, at no cost if hot
        with suppress(OSError):
            folder.touch(name)
    return data


def _warn(message: str) -> None:
    """Warn, or, where warnings are errors, log: no call of the user's fails for the sake of the disk."""
    from ..errors import warn  # with NumPy, which the fingerprint of the code does without

    message = f"hybridml: {message}"
    try:
        warn(message)
    except RuntimeWarning:
        import logging  # slow to import

        logging.getLogger("hybridml").warning(message)


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


@contextmanager
def emptied(keep: bool = False) -> Iterator[None]:
    """While it lasts, the process has an empty cache, of which nothing is kept, or all."""
    global _default
    made = ObjectCache(None)
    before, _default = _default, made
    try:
        yield
    finally:
        _default = before
        if keep:
            for name, data in made._memory.items():
                default().put(name, data)


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
