"""Workers: a process a candidate, told by its parent line by line what to do."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

PATIENCE = 86400.0  # seconds


class Failure(Exception):
    """A candidate could not run what it was asked for; the others go on."""


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
        self, command: Sequence[str], variables: Mapping[str, str], root: Path, patience: float = PATIENCE
    ) -> None:
        self.patience = patience
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=root,
            env=os.environ | dict(variables) | {"PYTHONPATH": str(root)},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request. Raises Failure where there is none, or an error."""
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
        """Ends the worker, once it has answered."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
