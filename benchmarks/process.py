"""Workers: a process a candidate, told by its parent line by line what to do."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from hybridml_examples.study.process import PATIENCE, compile_packages, environment
from hybridml_examples.study.process import Process as Worker

from .worker import CANDIDATES

ROOT = Path(__file__).parent.parent
TENSORFLOW = os.environ.get("BENCH_TENSORFLOW_PYTHON", sys.executable)  # it may need an environment of its own


def interpreter(name: str) -> str:
    return TENSORFLOW if name == "tensorflow" else sys.executable


def installed(name: str) -> bool:
    """Whether a candidate's library can be imported by its interpreter."""
    library = CANDIDATES[name].library
    if interpreter(name) == sys.executable:
        return importlib.util.find_spec(library) is not None
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    return subprocess.run([interpreter(name), "-c", look], check=False).returncode == 0


class Process(Worker):
    """A worker: a line of JSON out, a line of JSON back, for which the parent waits `patience` seconds at most."""

    def __init__(
        self,
        name: str,
        threads: int,
        cache: str,
        root: Path = ROOT,
        module: str = "worker",
        patience: float = PATIENCE,
    ) -> None:
        self.name = name
        compile_packages(root)
        command = [interpreter(name), "-m", f"{__package__}.{module}", name, str(threads)]
        super().__init__(command, environment(threads, cache), root, patience)
