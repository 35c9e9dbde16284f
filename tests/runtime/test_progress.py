"""The line that says what is compiled: on a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybridml_compiler.runtime import progress
from hybridml_compiler.runtime.progress import _ERASED

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
import hybridml as hm
from hybridml_compiler.runtime import progress
progress.AFTER, progress.EVERY = 0.0, 0.001
hm.trace(lambda x: hm.exp(x) + 1)(hm.ones(3))
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    __module__ = "ipykernel.iostream"


def said(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, after: float = 0.0) -> str:
    """The text on a stream that is the standard error of a compilation, which waits for a line where one is due."""
    monkeypatch.setattr(progress, "AFTER", after)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.progress("f", [1, 2]):
        while not after and not stream.getvalue() and (stream.isatty() or isinstance(stream, Notebook)):
            time.sleep(0.001)
        with progress.progress("within", []):
            pass
    return stream.getvalue()


def test_a_terminal_forgets_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(Terminal(), monkeypatch)
    assert text.startswith("\rcompiling f: 2 kernels, 0.") and text.endswith(_ERASED)
    assert "within" not in text and "\n" not in text


def test_a_notebook_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(Notebook(), monkeypatch)
    assert text.startswith("\rcompiling f: 2 kernels, 0.") and text.endswith(" s\n") and text.count("\n") == 1


def test_what_is_quick_or_read_by_nobody_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(Terminal(), monkeypatch, after=60.0) == ""
    assert said(io.StringIO(), monkeypatch) == ""
    monkeypatch.setenv("HYBRIDML_PROGRESS", "0")
    assert said(Terminal(), monkeypatch, after=1e-9) == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
def test_a_process_on_a_terminal(tmp_path: Path) -> None:
    import pty

    main, end = pty.openpty()
    environment = os.environ | {"HYBRIDML_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stderr=end) as process:
        os.close(end)
        found = b""
        while b"\x1b[K" not in found:
            found += os.read(main, 4096)
    assert process.returncode == 0
    os.close(main)
    assert b"\rcompiling <lambda>: " in found
    environment["HYBRIDML_CACHE_DIR"] = "off"
    piped = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
    assert piped.stderr == b""
