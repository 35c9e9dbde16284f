"""The object cache: damage, concurrent writers, directories that cannot be used. Real files, real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hybridml_compiler.runtime import cache
from hybridml_compiler.runtime.cache import ObjectCache

PROGRAM = """
import sys, warnings
from hybridml_compiler.runtime import cache, jit
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    data = jit.compile_cached("define i64 @f() { ret i64 42 }")
import ctypes
library = jit.load([data], exports=["f"])
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
    if sys.platform == "linux":
        assert cache.default_directory() == tmp_path / "hybridml"
    monkeypatch.setenv(cache.ENVIRONMENT, "~/somewhere")
    assert cache.default_directory() == Path.home() / "somewhere"


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


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
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
