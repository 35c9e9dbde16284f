"""Processes for tests: `mpiexec` of this environment, with a limit on their time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridml.run import mpiexec

ROOT = Path(__file__).parent.parent.parent
SECONDS = 120  # until processes that hang are ended: ranks wait with their cores busy


@pytest.fixture
def mpi(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a text as a script in `n` processes; skips where MPI is missing."""
    launcher = mpiexec()
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py and mpiexec: pip install 'hybridml[mpi]'")

    def run(n: int, text: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(text, encoding="utf-8")
        environment = {**os.environ, "HYBRIDML_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command = [launcher, "-n", str(n), sys.executable, str(script)]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    return run
