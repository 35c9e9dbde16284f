"""The object cache: damage, concurrent writers, directories that cannot be used. Real files, real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import TestCase

import pytest

from hybridml_compiler.runtime import cache
from hybridml_compiler.runtime.cache import ObjectCache

PROGRAM = """
import sys, warnings
from hybridml_compiler.runtime import cache
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    data = jit.compile_cached("define i64 @f() { ret i64 42 }")
import ctypes
library = loader.load([data], exports=["f"])
answer = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("f"))()
print(answer, cache.info().hits, cache.info().misses, len(caught), *(str(w.message) for w in caught))
"""


def run(program: str, directory: Path | str) -> str:
    environment = {**os.environ, cache.ENVIRONMENT: str(directory)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_round_trip_and_info(tmp_path: Path) -> None:
    first = ObjectCache(tmp_path)
    name = cache.key("text", b"options")
    assert first.get(name) is None
    first.put(name, b"code")
    assert first.get(name) == b"code"
    again = ObjectCache(tmp_path)
    assert again.get(name) == b"code"
    info = again.info()
    assert (info.entries, info.hits, info.misses) == (1, 1, 0)
    assert info.bytes > len(b"code")
    assert info.directory == str(tmp_path / "objects")
    again.clear()
    assert again.get(name) is None and not entries(tmp_path)


def test_key_separates_its_parts() -> None:
    assert cache.key("ab", "c") != cache.key("a", "bc") != cache.key("abc")
    assert cache.key("a") == cache.key(b"a")


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"junk" * 99, lambda raw: raw[:-1] + b"\0\0"],
    ids=["truncated", "empty", "foreign", "changed"],
)
def test_damaged_entry_is_reported_once_and_compiled_again(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    store = ObjectCache(tmp_path)
    name = cache.key("text")
    store.put(name, b"code" * 100)
    (path,) = entries(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    fresh = ObjectCache(tmp_path)
    with pytest.warns(RuntimeWarning, match="damaged") as caught:
        assert fresh.get(name) is None
    assert str(path) in str(caught[0].message) and len(caught) == 1
    assert not path.exists()
    assert fresh.get(name) is None
    fresh.put(name, b"code")
    assert ObjectCache(tmp_path).get(name) == b"code"


def test_whole_entry_under_a_wrong_name_is_refused(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path)
    right, wrong = cache.key("right"), cache.key("wrong")
    store.put(right, b"code")
    target = tmp_path / "objects" / wrong[:2] / wrong
    target.parent.mkdir(exist_ok=True)
    entries(tmp_path)[0].rename(target)
    with pytest.warns(RuntimeWarning, match="not ours"):
        assert ObjectCache(tmp_path).get(wrong) is None


def test_another_process_survives_damage(tmp_path: Path) -> None:
    """Two entries: what LLVM says of the machine (on Linux), and the code."""
    two = "2" if sys.platform == "linux" else "1"
    assert run(PROGRAM, tmp_path).split()[:4] == ["42", "0", two, "0"]
    assert run(PROGRAM, tmp_path).split()[:4] == ["42", two, "0", "0"]
    for path in entries(tmp_path):
        path.write_bytes(path.read_bytes()[:-40])
    answer = run(PROGRAM, tmp_path)
    assert answer.split()[:4] == ["42", "0", two, two] and str(path) in answer
    assert run(PROGRAM, tmp_path).split()[:4] == ["42", two, "0", "0"]


def test_concurrent_writers_leave_whole_entries(tmp_path: Path) -> None:
    program = """
import sys
from hybridml_compiler.runtime.cache import ObjectCache, key
from pathlib import Path
directory = Path(sys.argv[1])
for turn in range(20):
    for k in range(8):
        store = ObjectCache(directory)
        data = store.get(key(str(k)))
        assert data is None or data == bytes([k]) * 5000, k
        store.put(key(str(k)), bytes([k]) * 5000)
"""
    writers = [subprocess.Popen([sys.executable, "-W", "error", "-c", program, str(tmp_path)]) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert sorted(path.name for path in entries(tmp_path)) == sorted(cache.key(str(k)) for k in range(8))


@pytest.mark.parametrize("value", ["off", "0"])
def test_switched_off_keeps_memory_only(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT, value)
    assert cache.default_directory() is None
    store = ObjectCache(None)
    store.put("ab", b"code")
    assert store.get("ab") == b"code"
    assert store.info().directory is None and store.info().entries == 1


def test_default_directory_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(cache.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME" if os.name == "posix" else "USERPROFILE", str(tmp_path))
    if sys.platform == "linux":
        assert cache.default_directory() == str(tmp_path / "hybridml")
    monkeypatch.setenv(cache.ENVIRONMENT, "~/somewhere")
    assert ObjectCache(cache.default_directory()).info().directory == str(tmp_path / "somewhere" / "objects")


def test_directory_that_cannot_be_made_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match=cache.ENVIRONMENT) as caught:
        store = ObjectCache(tmp_path / "file")
        store.put("ab", b"code")
        store.put("cd", b"code")
    assert len(caught) == 1
    assert store.get("ab") == b"code"


def test_write_that_fails_is_reported_once(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path)
    (tmp_path / "objects" / "ab").write_text("a file where a folder should be")
    with pytest.warns(RuntimeWarning, match="cannot write") as caught:
        store.put("ab1", b"code")
        store.put("ab2", b"code")
    assert len(caught) == 1
    assert store.get("ab1") == b"code"


def test_without_a_home_directory_code_is_kept_in_memory() -> None:
    with pytest.warns(RuntimeWarning, match="home directory") as caught:
        store = ObjectCache(Path("~nobody-of-this-name/x"))
    store.put("ab", b"code")
    assert store.get("ab") == b"code" and store.info().directory is None and len(caught) == 1


def test_where_warnings_are_errors_they_are_logged(tmp_path: Path) -> None:
    """The disk costs time, never a call."""
    store = ObjectCache(tmp_path)
    store.put("ab", b"code")
    (tmp_path / "objects" / "ab" / "ab").write_bytes(b"junk")
    (tmp_path / "file").write_text("in the way")
    with warnings.catch_warnings(), TestCase().assertLogs() as found:
        warnings.simplefilter("error")
        assert ObjectCache(tmp_path).get("ab") is None
        assert ObjectCache(tmp_path / "file").info().directory is None
        store.put("file", b"code")  # "fi" is a folder of its own
        (tmp_path / "objects" / "cd").write_text("a file where a folder should be")
        store.put("cd", b"code")
    assert [word for record in found.records for word in ("damaged", "cannot be used", "cannot write")
            if word in record.getMessage()] == ["damaged", "cannot be used", "cannot write"]  # fmt: skip


POSIX = pytest.mark.skipif(os.name != "posix", reason="links, FIFOs and permission bits")


def hole(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(40 << 30)


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_a_whole_entry(path: Path) -> None:
    """Not followed, whoever has made it."""
    path.parent.chmod(0o700)
    real = path.parent.parent / "elsewhere"
    ObjectCache(real).put(path.name, b"code")
    path.symlink_to(real / "objects" / path.name[:2] / path.name)


def loose(path: Path) -> None:
    ObjectCache(path.parent.parent.parent).put(path.name, b"code")
    path.chmod(0o666)


@POSIX
@pytest.mark.parametrize("place", [os.mkfifo, link_to_zeros, link_to_a_whole_entry, hole, loose])
def test_what_is_not_a_private_file_is_replaced(tmp_path: Path, place: Callable[[Path], None]) -> None:
    store = ObjectCache(tmp_path)
    name = cache.key("text")
    path = tmp_path / "objects" / name[:2] / name
    path.parent.mkdir()
    place(path)
    with pytest.warns(RuntimeWarning, match="not ours.*it was removed") as caught:
        assert store.get(name) is None
    assert len(caught) == 1 and not os.path.lexists(path)
    store.put(name, b"code")
    assert ObjectCache(tmp_path).get(name) == b"code"


@POSIX
def test_a_folder_in_the_place_of_an_entry_is_left_there(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path)
    (tmp_path / "objects" / "ab" / "ab").mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be removed"):
        assert store.get("ab") is None


@POSIX
def test_what_the_cache_makes_is_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ObjectCache(tmp_path / "new" / "cache").put("ab", b"code")
    finally:
        os.umask(before)
    assert not [path for path in (tmp_path / "new").rglob("*") if path.stat().st_mode & 0o077]


def test_files_of_others_in_the_directory_are_not_deleted(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path, disk_limit=0)
    store.put("ab", b"code")
    mine = [tmp_path / "objects" / "ab" / "notes.txt", tmp_path / "objects" / "go" / "ab"]
    mine[1].parent.mkdir()
    for path in mine:
        path.write_text("mine")
    store.prune()
    store.clear()
    assert sorted(entries(tmp_path)) == sorted(mine)


def test_a_directory_that_vanishes_is_made_again(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path / "cache")
    store.put("ab", b"code")
    shutil.rmtree(tmp_path / "cache")
    assert store.get("cd") is None
    store.put("cd", b"code")
    assert ObjectCache(tmp_path / "cache").get("cd") == b"code"


def test_a_relative_directory_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = ObjectCache(Path("cache"))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    store.put("ab", b"code")
    assert [path.name for path in entries(tmp_path)] == ["ab"] and not entries(tmp_path / "below")


ROOT = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone can be two users")
AS_ANOTHER_USER = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
REPLACE = f"""
import os, sys
# Whoever can write the parent may do this. That of a folder of others fails on some systems: it is done as root.
os.rename(sys.argv[1], sys.argv[1] + "-before")
{AS_ANOTHER_USER}
path, name, data = sys.argv[2:]
os.makedirs(os.path.join(path, "objects", name[:2]), mode=0o755, exist_ok=True)
with open(os.path.join(path, "objects", name[:2], name), "wb") as file:
    file.write(bytes.fromhex(data))
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory of the cache below one that all users may write. pytest's own folders are this user's alone."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder, "cache")
        path.mkdir()
        for each in (path, path.parent):
            each.chmod(0o777)
        yield path


@ROOT
@pytest.mark.parametrize("renamed", ["cache/objects", "cache"])
def test_entries_of_another_user_are_not_read(shared: Path, renamed: str) -> None:
    """Who can write a parent puts a directory of his own, with whole entries, in the place of the one in use."""
    store, name = ObjectCache(shared), cache.key("program")
    store.put(cache.key("other"), b"code")
    entry = cache.MAGIC + cache._digest(name, b"foreign") + b"foreign"
    replaced = [str(shared.parent / renamed), str(shared), name, entry.hex()]
    subprocess.run([sys.executable, "-S", "-c", REPLACE, *replaced], check=True, timeout=60)
    for each in (lambda: store, lambda: ObjectCache(shared)):
        with pytest.warns(RuntimeWarning, match="another user, who could run code"):
            assert each().get(name) is None
    assert store.info().directory is None


@ROOT
def test_an_entry_of_another_user_is_replaced(tmp_path: Path) -> None:
    store, name = ObjectCache(tmp_path), cache.key("program")
    store.put(name, b"code")
    (path,) = entries(tmp_path)
    os.chown(path, 65534, 65534)
    with pytest.warns(RuntimeWarning, match=r"another user.*it was removed"):
        assert ObjectCache(tmp_path).get(name) is None
    os.chown(tmp_path / "objects" / name[:2], 65534, 65534)
    with pytest.warns(RuntimeWarning, match="another user, who could run code"):
        assert ObjectCache(tmp_path).get(name) is None


VICTIM = """
import sys, warnings
import hybridml as hm
warnings.simplefilter("ignore", RuntimeWarning)
x = hm.ones(3)
hm.trace(lambda x: x - 1)(x)  # the directory is looked at
print("ready", flush=True)
sys.stdin.readline()
print(hm.trace(lambda x: x * 3 + 1)(x).tolist(), flush=True)
"""
# Has the same release, so knows the names of entries, and gives them the code of another program.
ATTACKER = f"""
import os, sys
import hybridml as hm
from hybridml_compiler.runtime import cache
kept = {{}}
cache.ObjectCache.put = lambda self, name, data: kept.setdefault(name, data)
cache.ObjectCache.get = lambda self, name: None
x = hm.ones(3)
hm.trace(lambda x: x * 3 + 1)(x)
wanted = {{name: data for name, data in kept.items() if data[8:9] == b"["}}
kept.clear()
hm.trace(lambda x: x * 100 + 1)(x)
(other,) = (data for data in kept.values() if data[8:9] == b"[")
{AS_ANOTHER_USER}
os.rename(sys.argv[1], sys.argv[1] + "-before")
for name in wanted:
    folder = os.path.join(sys.argv[1], "objects", name[:2])
    os.makedirs(folder, mode=0o755, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(cache.MAGIC + cache._digest(name, other) + other)
"""


@ROOT
@pytest.mark.slow
def test_code_of_another_user_is_not_run(shared: Path) -> None:
    """The same from end to end: without the check this gives 101."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM],
        env={**os.environ, cache.ENVIRONMENT: str(shared)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdin and victim.stdout and victim.stdout.readline() == "ready\n"
        subprocess.run([sys.executable, "-c", ATTACKER, str(shared)], check=True, timeout=60)
        print("go", file=victim.stdin, flush=True)
        assert victim.stdout.readline() == "[4.0, 4.0, 4.0]\n"


@POSIX
def test_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="run code"):
        assert ObjectCache(tmp_path).info().directory is None


def test_prune_deletes_the_least_recently_used(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path, disk_limit=10_000)
    store.put("aa", b"x")
    names = [f"{k:02d}" for k in range(10)]
    for age, name in enumerate(names):
        store.put(name, bytes(2000))
        stamp = time.time() - 1000 * (len(names) - age)
        os.utime(tmp_path / "objects" / name / name, (stamp, stamp))
    leftover = tmp_path / "objects" / "00" / "12345678xyz.tmp"
    leftover.write_bytes(b"half")
    os.utime(leftover, (0, 0))
    store.prune()
    kept = sorted(path.name for path in entries(tmp_path))
    assert kept == ["07", "08", "09", "aa"]


def prunes(store: ObjectCache) -> list[threading.Thread]:
    """Threads of a write that look at the whole directory."""
    before = set(threading.enumerate())
    store.put("ab", b"x")
    return [thread for thread in set(threading.enumerate()) - before if thread.name == "hybridml-prune"]


def test_no_write_waits_for_a_look_at_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not prunes(ObjectCache(tmp_path, disk_limit=10_000))  # of a new directory there is nothing to be known
    directory = tmp_path / "objects"
    assert not prunes(ObjectCache(tmp_path, disk_limit=10_000))  # and of this one not until tomorrow
    for k in range(10):
        ObjectCache(tmp_path).put(f"{k:02d}", bytes(2000))
    yesterday = time.time() - 25 * 3600
    os.utime(directory, (yesterday, yesterday))
    go, rested = threading.Event(), []

    def rest() -> None:
        rested.append(threading.current_thread().name)
        assert go.wait(30)

    monkeypatch.setattr(cache, "_Rests", lambda: rest)
    (thread,) = prunes(ObjectCache(tmp_path, disk_limit=10_000))
    assert not prunes(ObjectCache(tmp_path, disk_limit=10_000))  # while another process does it
    go.set()
    thread.join()
    assert set(rested) == {"hybridml-prune"}
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 7_500
    assert directory.stat().st_mtime > time.time() - 60
    assert not prunes(ObjectCache(tmp_path, disk_limit=10_000))


def test_memory_layer_is_bounded() -> None:
    store = ObjectCache(None, memory_limit=1000)
    for k in range(10):
        store.put(f"{k:02d}", bytes(300))
    assert store.info().bytes <= 1000
    assert store.get("09") is not None and store.get("00") is None
