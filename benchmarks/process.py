"""Workers: a process a candidate, told by its parent line by line what to do."""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

from .worker import CANDIDATES

ROOT = Path(__file__).parent.parent
TENSORFLOW = os.environ.get("BENCH_TENSORFLOW_PYTHON", sys.executable)  # it may need an environment of its own
PATIENCE = 86400.0  # seconds


class Failure(Exception):
    """A candidate could not run a workload; the others go on."""


def interpreter(name: str) -> str:
    return TENSORFLOW if name == "tensorflow" else sys.executable


def installed(name: str) -> bool:
    """Whether a candidate's library can be imported by its interpreter."""
    library = CANDIDATES[name].library
    if interpreter(name) == sys.executable:
        return importlib.util.find_spec(library) is not None
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    return subprocess.run([interpreter(name), "-c", look], check=False).returncode == 0


def environment(threads: int, cache: str) -> dict[str, str]:
    """Every pool is told the same number, every cache lies under `cache`, and everything is worth keeping there."""
    pools = ("OMP", "OPENBLAS", "MKL", "NUMBA", "HYBRIDML")
    return dict.fromkeys((f"{pool}_NUM_THREADS" for pool in pools), str(threads)) | {
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HYBRIDML_CACHE_DIR": cache,
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@cache
def compile_packages(root: Path) -> None:
    """Bytecode of our packages in a tree, which peers have since they were installed: a first call is not to compile
    what it imports, as it does where Python is told to write none."""
    for package in ("hybridml", "hybridml_compiler"):
        compileall.compile_dir(root / package, quiet=1)


class Process:
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
        self.name, self.patience = name, patience
        compile_packages(root)
        self.process = subprocess.Popen(
            [interpreter(name), "-m", f"{__package__}.{module}", name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=root,
            env=os.environ | environment(threads, cache) | {"PYTHONPATH": str(root)},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        start, timer = time.monotonic(), Timer(self.patience, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            status = self.process.wait()
            late = time.monotonic() - start >= self.patience
            raise Failure(f"no answer in {self.patience:g} s" if late else f"the process ended with status {status}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failure(reply["error"])
        return reply

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
