"""Damaged compile caches: traced programs give the right answers, nothing raises, and the entries are made again.

Entries and folders are damaged (flipped bits, cut, moved, foreign), replaced (by links, FIFOs, folders, holes, files
that others can write), changed between two system calls of a reader or writer, and written by several threads.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import stat
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hybridml as hm
from hybridml_compiler.runtime import cache, folder
from hybridml_compiler.runtime.cache import ObjectCache

from .case import NOWHERE, cases

Damage = Callable[[random.Random, Path, Path], None]


def run(seconds: float, seed: int) -> tuple[int, list[str]]:
    """Number of damaged caches, and those that gave a wrong answer, raised, or were not mended."""
    done, found = 0, []
    with tempfile.TemporaryDirectory(prefix="hybridml-fuzz-") as base, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for number in cases(seconds, seed):
            done += 1
            r = random.Random(number)
            at = Path(base, str(number))
            attack = r.choice(ATTACKS)
            handles = len(os.listdir("/dev/fd"))
            try:
                wrong = attack(r, at)
            except Exception:
                wrong = traceback.format_exc()[-2000:]
            if wrong is None and len(os.listdir("/dev/fd")) > handles:
                wrong = f"{len(os.listdir('/dev/fd')) - handles} handles are left open"
            if wrong is not None:
                found.append(f"--seconds 0 --seed {number}: {attack.__name__}: {wrong}")
            shutil.rmtree(at, ignore_errors=True)
    return done, found


# ---- What happens to a file. `path` is an entry, `other` another one.


def flip(r: random.Random, path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(r.choice((1, 1, 2, 8))):
        data[r.randrange(min(len(data), r.choice((60, len(data)))))] ^= 1 << r.randrange(8)
    path.write_bytes(data)


def cut(r: random.Random, path: Path, other: Path) -> None:
    os.truncate(path, r.randrange(path.stat().st_size))


def lengthen(r: random.Random, path: Path, other: Path) -> None:
    with path.open("ab") as file:
        file.write(r.randbytes(r.choice((1, 64, 5000))))


def exchange(r: random.Random, path: Path, other: Path) -> None:
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def foreign(r: random.Random, path: Path, other: Path) -> None:
    junk = r.randbytes(r.choice((0, 1, 40, 5000)))
    path.write_bytes(r.choice((b"", cache.MAGIC, cache.MAGIC + bytes(cache.DIGEST), b"\x7fELF")) + junk)


def spliced(r: random.Random, path: Path, other: Path) -> None:
    head = len(cache.MAGIC) + r.choice((0, cache.DIGEST))
    path.write_bytes(path.read_bytes()[:head] + other.read_bytes()[head:])


def hole(r: random.Random, path: Path, other: Path) -> None:
    os.truncate(path, r.choice((1 << 20, 40 << 30)))


def zeros(r: random.Random, path: Path, other: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def gone(r: random.Random, path: Path, other: Path) -> None:
    path.unlink()


def loose(r: random.Random, path: Path, other: Path) -> None:
    path.chmod(r.choice((0o666, 0o620, 0o602, 0o777)))


def unreadable(r: random.Random, path: Path, other: Path) -> None:
    path.chmod(0)


def link(r: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(r.choice((path, other, path.parent, Path("/dev/zero"), Path("/dev/null"), Path("/nowhere"))))


def second_name(r: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    os.link(other, path)


def fifo(r: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def listener(r: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)  # the address of a socket is short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(before)
        os.close(before)


def directory(r: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()
    if r.random() < 0.5:
        (path / "inside").write_text("x")


REPLACED: tuple[Damage, ...] = (
    flip, flip, cut, lengthen, exchange, foreign, spliced, hole, zeros, gone, loose, unreadable, link, second_name,
    fifo, listener,
)  # fmt: skip
ENTRY: tuple[Damage, ...] = (*REPLACED, directory)


def fill(r: random.Random, at: Path) -> dict[str, bytes]:
    """Entries of a new cache."""
    store = ObjectCache(at)
    kept = {cache.key(str(k)): r.randbytes(r.choice((0, 1, 100, 9000))) for k in range(r.randrange(2, 6))}
    for name, data in kept.items():
        store.put(name, data)
    return kept


def path_of(at: Path, name: str) -> Path:
    return at / "objects" / name[:2] / name


def damaged_entries(r: random.Random, at: Path) -> str | None:
    """Damage an entry: it is not found, and replaced by the next writer."""
    kept = fill(r, at)
    name, other = r.sample(sorted(kept), 2)
    damage = r.choice(ENTRY)
    damage(r, path_of(at, name), path_of(at, other))
    said = f"{damage.__name__}: "
    reader = ObjectCache(at)
    for each in kept:
        if (data := reader.get(each)) not in (None, kept[each]):
            return f"{said}an entry gave {data!r}"[:500]
    store = ObjectCache(at)
    for each in kept:
        store.put(each, kept[each])
    again = ObjectCache(at)
    if damage is not directory:
        missing = [each for each in kept if again.get(each) != kept[each]]
        if missing:
            return f"{said}not replaced: {missing}"
    again.prune()
    again.info()
    again.clear()
    left = [path for path in at.rglob("*") if not path.is_dir()]
    return f"{said}left after clear: {left}" if left and damage is not directory else None


def ordinary(path: Path) -> bool:
    """Whether a damage can read the file in a moment."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size < 1 << 20
    return False


# ---- The same around whole programs.

SCALES = (2.0, 3.0, 5.0)


def answers(at: Path, r: random.Random) -> Iterator[tuple[float, list[float]]]:
    """What traced programs give that look for their code in this cache."""
    cache._default = ObjectCache(at)
    x = hm.arange(float(r.randrange(3, 9)))
    for scale in SCALES:
        f = hm.trace(lambda x, scale=scale: hm.tanh(x * scale) + scale)
        got, want = f(x).tolist(), f.__wrapped__(x).tolist()
        assert got == want, f"got {got}, want {want}"
        yield scale, got


def absent(at: Path, names: list[str], patience: float = 2.0) -> list[str]:
    """Names that the cache has no entry for, though threads that have compiled may still write theirs."""
    end = time.monotonic() + patience
    while True:
        missing = [name for name in names if ObjectCache(at).get(name) is None]
        if not missing or time.monotonic() > end:
            return missing
        time.sleep(0.01)


def damaged_program(r: random.Random, at: Path) -> str | None:
    """Damage some entries of traced programs: they give the right answers, and the entries are made again."""
    try:
        state = r.getstate()
        list(answers(at, r))
        paths = sorted(path for path in at.rglob("*") if path.is_file())
        damages = []
        for path in r.sample(paths, r.randrange(1, len(paths) + 1)):
            others = [other for other in paths if other != path and ordinary(other)]
            if others and ordinary(path):
                damages.append(r.choice(REPLACED))
                damages[-1](r, path, r.choice(others))
        said = f"{[damage.__name__ for damage in damages]}: "
        r.setstate(state)
        list(answers(at, r))
        made = list(cache.default()._memory)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            missing = absent(at, made)
            r.setstate(state)
            list(answers(at, r))
            if caught or missing:
                return f"{said}not replaced: {missing}, {[str(each.message) for each in caught]}"
    finally:
        cache._default = NOWHERE
    return None


# ---- Changes while a reader or writer is at work.


class Racing:
    """`os` for the cache, with something that happens before one of its calls."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        self.left, self.happens = at, happens

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("open", "fstat", "mkdir", "replace", "unlink", "scandir", "utime", "close"):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.happens()
            return found(*args, **named)

        return call


def changing(r: random.Random, at: Path) -> str | None:
    """Damage an entry, or a folder on its way, between two system calls; then look again in peace."""
    kept = fill(r, at)
    name, other = r.sample(sorted(kept), 2)
    damage = r.choice((*ENTRY, *FOLDER))
    target = path_of(at, name)

    def happens() -> None:
        with contextlib.suppress(OSError, ValueError):
            if damage not in ENTRY or (ordinary(target) and ordinary(path_of(at, other))):
                chosen = target if damage in ENTRY else r.choice((target.parent, at / "objects"))
                damage(r, chosen, path_of(at, other))

    store = ObjectCache(at)
    work = r.choice(("get", "put", "prune", "clear", "info", "open"))
    said = f"{damage.__name__} in {work}: "
    racing: Any = Racing(r.randrange(1, 25), happens)
    folder.os = racing
    try:
        if work == "get":
            data = store.get(name)
            if data not in (None, kept[name]):
                return f"{said}an entry gave {data!r}"[:500]
        elif work == "put":
            store.put(name, kept[name])
        elif work == "open":
            ObjectCache(at)
        else:
            store.disk_limit = 0
            getattr(store, work)()
    finally:
        folder.os = os
    again = ObjectCache(at)
    for each in kept:
        if (data := again.get(each)) not in (None, kept[each]):
            return f"{said}an entry gave {data!r} later"[:500]
        again.put(each, kept[each])
        if again.get(each) != kept[each]:
            return f"{said}what was put is not there, in memory at least"
    return None


def crowded(r: random.Random, at: Path) -> str | None:
    """Threads read, write, damage, prune and clear one cache."""
    kept = fill(r, at)
    names, wrong, damaging = sorted(kept), [], threading.Lock()
    damages = [damage for damage in REPLACED if damage is not listener]  # which changes the folder of the process

    def work(seed: int) -> None:
        mine = random.Random(seed)
        try:
            for _ in range(30):
                name, other = mine.sample(names, 2)
                store = ObjectCache(at, disk_limit=mine.choice((0, 1 << 30)))
                action = mine.random()
                if action < 0.4:
                    if (data := store.get(name)) not in (None, kept[name]):
                        wrong.append(f"an entry gave {data!r}"[:500])
                elif action < 0.7:
                    store.put(name, kept[name])
                elif action < 0.9:
                    with contextlib.suppress(OSError, ValueError), damaging:
                        if ordinary(path_of(at, name)) and ordinary(path_of(at, other)):
                            mine.choice(damages)(mine, path_of(at, name), path_of(at, other))
                else:
                    mine.choice((store.prune, store.clear, store.info))()
        except Exception:
            wrong.append(traceback.format_exc()[-2000:])

    threads = [threading.Thread(target=work, args=(r.random(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        if thread.is_alive():
            return "a thread hangs"
    if wrong:
        return wrong[0]
    for each in kept:
        ObjectCache(at).get(each)  # what is damaged now is removed
        ObjectCache(at).put(each, kept[each])
    again = ObjectCache(at)
    missing = [each for each in kept if again.get(each) != kept[each]]
    return f"not replaced: {missing}" if missing else None


# ---- Folders: what is in the way is left there, code is kept in memory, answers are right.


def removed(r: random.Random, path: Path, other: Path) -> None:
    shutil.rmtree(path)


def moved(r: random.Random, path: Path, other: Path) -> None:
    path.rename(path.with_name(path.name + "-before"))


def linked(r: random.Random, path: Path, other: Path) -> None:
    moved(r, path, other)
    path.symlink_to(
        r.choice((path, path.with_name(path.name + "-before"), Path(tempfile.gettempdir()), Path("/nowhere")))
    )


def file(r: random.Random, path: Path, other: Path) -> None:
    shutil.rmtree(path)
    path.write_text("in the way")


def pipe(r: random.Random, path: Path, other: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


def shared(r: random.Random, path: Path, other: Path) -> None:
    path.chmod(0o777)


FOLDER: tuple[Damage, ...] = (removed, moved, linked, file, pipe, shared)


def damaged_folders(r: random.Random, at: Path) -> str | None:
    """Damage a folder before or after it was looked at: answers are right, and given again from memory."""
    try:
        before = cache._default = ObjectCache(at)
        state = r.getstate()
        list(answers(at, r))
        target = r.choice((at / "objects", r.choice(sorted((at / "objects").iterdir()))))
        r.choice(FOLDER)(r, target, target)
        r.setstate(state)
        list(answers(at, r))
        for store in (before, cache.default()):
            store.put("ab" * 32, b"code")
            if store.get("ab" * 32) != b"code":
                return f"{target.name}: what was put is not there, in memory at least"
            store.info()
            store.prune()
    finally:
        cache._default = NOWHERE
    return None


ATTACKS = (damaged_entries, damaged_entries, damaged_program, changing, crowded, damaged_folders)
