"""Fingerprints of the compiler's code: they change with it however it is installed."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridml_compiler.runtime import fingerprint

ROOT = Path(__file__).parent.parent.parent
NEEDED = (
    *("config.py", "in_force.py", "locks.py", "once.py", "record.py"),
    *(f"runtime/{name}.py" for name in ("cache", "folder", "fingerprint", "stacks", "uninterrupted")),
)
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
{}
from hybridml_compiler.runtime.fingerprint import fingerprint
print(fingerprint("*"), fingerprint("ops.*"))
"""
HOOK = """
from importlib.machinery import FileFinder, SourceFileLoader
def hook(path):
    if not path.startswith(sys.argv[1]):
        raise ImportError
    return {}
sys.path_hooks.insert(0, hook)
"""
# A loader that has code and no files, as in an executable.
FROZEN = """
from importlib.machinery import SourceFileLoader
class Loader(SourceFileLoader):
    def get_data(self, path):
        if sys._getframe(1).f_code.co_name == "_data":
            raise OSError("no such file")
        return super().get_data(path)
""" + HOOK.format('FileFinder(path, (Loader, [".py"]))')
# A finder whose modules cannot be listed.
HIDDEN = """
class Finder:
    def __init__(self, path):
        self.find_spec = FileFinder(path, (SourceFileLoader, [".py"])).find_spec
""" + HOOK.format("Finder(path)")


def package(folder: Path, row: str) -> Path:
    """A compiler of as many modules as a fingerprint needs, and one row."""
    at = folder / "hybridml_compiler"
    for name in ("__init__.py", "runtime/__init__.py", "ops/__init__.py"):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text("")
    for name in NEEDED:
        shutil.copy(ROOT / "hybridml_compiler" / name, at / name)
    (at / "ops" / "row.py").write_text(row)
    return folder


def sources(folder: Path, row: str) -> Path:
    return package(folder, row)


def bytecode(folder: Path, row: str) -> Path:
    package(folder, row)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH  # others hold the time at which the sources were written
    assert compileall.compile_dir(folder, legacy=True, quiet=1, stripdir=str(folder), invalidation_mode=unchecked)
    for path in folder.rglob("*.py"):
        path.unlink()
    return folder


def archive(folder: Path, row: str) -> Path:
    package(folder, row)
    with zipfile.ZipFile(folder / "all.zip", "w") as file:
        for path in sorted(folder.rglob("*.py")):
            file.write(path, path.relative_to(folder))
    return folder / "all.zip"


def seen(path: Path, before: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-B", "-S", "-c", PROGRAM.format(before), str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("installed", [sources, bytecode, archive])
def test_every_installation_has_the_fingerprint_of_its_code(
    tmp_path: Path, installed: Callable[[Path, str], Path]
) -> None:
    one = seen(installed(tmp_path / "one", "multiply = 4.0"))
    assert seen(installed(tmp_path / "same", "multiply = 4.0")) == one
    other = seen(installed(tmp_path / "other", "multiply = 5.0"))
    assert len({*one, *other}) == 4


def test_what_editors_leave_is_no_module_and_what_cannot_be_read_is_no_known_one(tmp_path: Path) -> None:
    path = package(tmp_path, "multiply = 4.0")
    one = seen(path)
    (path / "hybridml_compiler" / "ops" / ".#row.py").symlink_to("somebody@host.1234")
    assert seen(path) == one
    (path / "hybridml_compiler" / "ops" / "gone.py").symlink_to("nowhere")
    assert not {*seen(path)} & {*one, *seen(path)}


def test_code_without_files_has_the_fingerprint_of_the_code(tmp_path: Path) -> None:
    path = package(tmp_path, "multiply = 4.0")
    one, again = seen(path, FROZEN), seen(path, FROZEN)
    assert one == again != seen(path)
    package(tmp_path, "multiply = 5.0")
    assert seen(path, FROZEN)[1] != one[1]


def test_code_that_cannot_be_listed_is_not_taken_for_another(tmp_path: Path) -> None:
    path = package(tmp_path, "multiply = 4.0")
    assert not {*seen(path, HIDDEN)} & {*seen(path, HIDDEN)}


def test_all_modules_are_seen() -> None:
    package = ROOT / "hybridml_compiler"
    paths = {".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")}
    assert dict(fingerprint.modules()).keys() == paths


@pytest.mark.slow
def test_a_program_is_traced_from_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as file:
        for path in [*ROOT.glob("hybridml*/**/*.py")]:
            file.write(path, path.relative_to(ROOT))
    program = "import hybridml as hm; print(hm.__file__, hm.trace(lambda x: x * 3 + 1)(hm.ones(2)).tolist())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "all.zip")}, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "all.zip" in done.stdout and done.stdout.endswith("[4.0, 4.0]\n")
