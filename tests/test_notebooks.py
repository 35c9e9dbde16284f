"""Every notebook runs from top to bottom, and is committed without outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# In a process of its own: warnings of nbclient and zmq are theirs, while warnings here are errors. The kernel "python3"
# is the interpreter that runs this, whatever kernels the user has installed.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
source, target, folder = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
nbformat.write(notebook, target)
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path) -> None:
    target = tmp_path / path.name
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    environment["HYBRIDML_PROGRESS"] = "0"  # a slow machine compiles for longer than a second
    environment.pop("MPLBACKEND", None)  # the kernel draws into the notebook
    command = [sys.executable, "-c", EXECUTE, str(path), str(target), str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-4000:]
    cells = nbformat.read(target, as_version=4).cells
    printed = [output.text for cell in cells for output in cell.get("outputs", ()) if output.get("name") == "stderr"]
    assert not printed, f"a cell wrote to standard error: {printed}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
