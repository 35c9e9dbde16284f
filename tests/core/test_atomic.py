"""Files that are replaced whole: what killed writers leave, modes and owners, links, devices and pipes, long names."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from hybridml.core import atomic

KILLED = """
import os, signal, sys
import hybridml as hm

os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
hm.save({"w": hm.zeros((1000,))}, sys.argv[1])
"""


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": hm.ones((1,))}, path)
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(KeyboardInterrupt):
                hm.save({"w": hm.zeros((1000,))}, path)
        assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]
    with pytest.raises(FileNotFoundError):
        hm.save({"w": hm.ones((1,))}, tmp_path / "no folder" / "t.safetensors")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    hm.save({"w": hm.ones((1,))}, real)
    link.symlink_to(real)
    hm.save({"w": hm.zeros((1,))}, link)
    assert link.is_symlink() and hm.load(real)["w"].tolist() == [0]


def test_a_killed_save_leaves_the_old_file_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": hm.ones((1,))}, path)
    assert subprocess.run([sys.executable, "-c", KILLED, path]).returncode == -9
    assert hm.load(path)["w"].tolist() == [1] and len(os.listdir(tmp_path)) == 2
    hm.save({"w": hm.ones((2,))}, tmp_path / "other.safetensors")  # checkpoints that are numbered have other names
    assert sorted(os.listdir(tmp_path)) == ["other.safetensors", path.name]


def test_the_part_of_a_living_writer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread saves, and its sweep ends, while this one is about to write: both files are there."""
    path, replace = tmp_path / "t.safetensors", os.replace

    def other_first(*names: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        thread = threading.Thread(target=hm.save, args=({"w": hm.zeros((1,))}, tmp_path / "other.safetensors"))
        thread.start()
        thread.join()
        replace(*names)

    monkeypatch.setattr(os, "replace", other_first)
    hm.save({"w": hm.ones((1,))}, path)
    assert hm.load(path)["w"].tolist() == [1] and hm.load(tmp_path / "other.safetensors")["w"].tolist() == [0]


def test_a_part_that_is_swept_before_it_is_locked_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, held = tmp_path / "t.safetensors", atomic._held

    def swept_first(file: Any) -> bool:
        monkeypatch.setattr(atomic, "_held", held)
        atomic._sweep(tmp_path)
        return held(file)

    monkeypatch.setattr(atomic, "_held", swept_first)
    hm.save({"w": hm.ones((1,))}, path)
    assert hm.load(path)["w"].tolist() == [1] and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o700])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": hm.ones((1,))}, path)
    path.chmod(mode)
    hm.save({"w": hm.zeros((1,))}, path)
    assert stat.S_IMODE(path.stat().st_mode) == mode and hm.load(path)["w"].tolist() == [0]


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        hm.save({"w": hm.ones((1,))}, tmp_path / "t.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "t.safetensors").stat().st_mode) == 0o640


def test_nobody_else_can_read_the_part_of_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, modes, replace = tmp_path / "t.safetensors", [], os.replace
    hm.save({"w": hm.ones((1,))}, path)
    path.chmod(0o600)
    for name, do in (("fsync", os.fsync), ("replace", replace)):

        def look(*given: Any, do: Any = do) -> Any:
            modes.extend(stat.S_IMODE(part.stat().st_mode) for part in tmp_path.glob("*.part"))
            return do(*given)

        monkeypatch.setattr(os, name, look)
    hm.save({"w": hm.zeros((1,))}, path)
    assert modes == [0o600, 0o600]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": hm.ones((1,))}, path)
    os.chown(path, 12345, 23456)
    hm.save({"w": hm.zeros((1,))}, path)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_extended_attributes_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": hm.ones((1,))}, path)
    try:
        os.setxattr(path, "user.from", b"a test")
    except (AttributeError, OSError):
        pytest.skip("this file system has no extended attributes")
    hm.save({"w": hm.zeros((1,))}, path)
    assert os.getxattr(path, "user.from") == b"a test"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    path, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: copy.write_bytes(path.read_bytes()))
    reader.start()
    hm.save({"w": hm.ones((10_000,))}, path)
    reader.join()
    assert stat.S_ISFIFO(path.stat().st_mode) and hm.load(copy)["w"].shape == (10_000,)
    writer = threading.Thread(target=lambda: path.write_bytes(copy.read_bytes()))
    writer.start()
    assert hm.load(path)["w"].shape == (10_000,)
    writer.join()


def test_an_open_file_is_written_by_its_number(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    hm.save({"w": hm.ones((3,))}, f"/dev/fd/{writing}")
    os.close(writing)
    with open(reading, "rb") as file:
        (tmp_path / "copy").write_bytes(file.read())
    assert hm.load(tmp_path / "copy")["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("length", [250, 255])
def test_names_as_long_as_they_may_be(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * length)
    for value in (1, 2):
        hm.save({"w": hm.full((1,), value)}, path)
        assert hm.load(path)["w"].tolist() == [value]


def test_what_cannot_be_written_is_said_as_open_says_it(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        hm.save({"w": hm.ones((1,))}, tmp_path)
    with pytest.raises(OSError, match="too long"):
        hm.save({"w": hm.ones((1,))}, tmp_path / ("x" * 256))
    with pytest.raises(FileNotFoundError) as caught:
        hm.save({"w": hm.ones((1,))}, tmp_path / "no" / "t.safetensors")
    assert caught.value.filename == str(tmp_path / "no" / "t.safetensors")
    with pytest.raises(NotADirectoryError):
        (tmp_path / "file").touch()
        hm.save({"w": hm.ones((1,))}, tmp_path / "file" / "t.safetensors")
