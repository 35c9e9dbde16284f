"""The suite on machines that this one is not: ``make test-machines``.

OpenBLAS takes the kernels of another processor where `OPENBLAS_CORETYPE` names it, and the code that we compile is held
to narrower vectors by ``--vectors`` (see `conftest.py`; processes that tests start compile for this machine). The runs
come one after the other, each on all cores. Prints a line for each: its tests, its seconds and what failed.

    python -m tests.machines [CONFIGURATION ...] [-- ARGUMENTS OF PYTEST]

    make test-machines ARGS="zen avx2 -- tests/linalg -x"
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Configuration:
    """A processor: what OpenBLAS is told, the bits of vectors that we use, and what NumPy leaves out."""

    core: str
    needs: str  # the feature without which its kernels do not run here
    vectors: int | None = None
    without: str = "$"  # features of NumPy's own loops, a pattern

    def environment(self) -> dict[str, str]:
        found = dict(os.environ, OPENBLAS_CORETYPE=self.core)
        here = [name for name in _dispatched() if re.match(self.without, name)]
        if here:
            found["NPY_DISABLE_CPU_FEATURES"] = " ".join(here)
        return found

    def arguments(self) -> list[str]:
        return [] if self.vectors is None else [f"--vectors={self.vectors}"]


@dataclass(frozen=True)
class Outcome:
    """What a run of pytest left: its closing line in parts, and the tests that did not pass."""

    passed: bool
    counts: str
    failures: list[str] = field(default_factory=list)


CONFIGURATIONS = {
    "haswell": Configuration("Haswell", "avx2"),
    "skylakex": Configuration("SkylakeX", "avx512f"),
    "zen": Configuration("Zen", "avx2"),
    "prescott": Configuration("Prescott", "sse3"),
    "avx2": Configuration("Haswell", "avx2", vectors=256, without="AVX512|X86_V4"),  # all of a machine without AVX-512
}
_CLOSING = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_FAILURE = re.compile(r"^(?:FAILED|ERROR) .*$", re.MULTILINE)


def _dispatched() -> list[str]:
    """Features that NumPy has loops for and this processor has."""
    from numpy._core import _multiarray_umath as umath  # what `np.show_runtime` prints

    return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]


def features() -> frozenset[str]:
    """Features of this processor by Linux's names; those that NumPy knows where there is no /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset(name.lower() for name in _dispatched())
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    words = frozenset(found[1].split()) if found else frozenset()
    return words | {"sse3"} if "pni" in words else words  # Linux says pni, "Prescott new instructions"


def read(output: str, status: int) -> Outcome:
    """The outcome of a run from what pytest printed and its exit status."""
    closing = _CLOSING.findall(output)
    failures = [line[:200] for line in _FAILURE.findall(output)]
    counts = closing[-1] if closing else f"no result (exit {status})"
    return Outcome(status == 0 and bool(closing), counts, failures)


def run(configuration: Configuration, arguments: list[str]) -> Outcome:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "auto",
        "--dist",
        "worksteal",
        *configuration.arguments(),
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=configuration.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return read(done.stdout, done.returncode)


def main(given: list[str]) -> int:
    names, arguments = _split(given)
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help=f"of {', '.join(CONFIGURATIONS)}; all")
    wanted = parser.parse_args(names).names or list(CONFIGURATIONS)
    unknown = [name for name in wanted if name not in CONFIGURATIONS]
    if unknown:
        parser.error(f"no configuration {', '.join(unknown)}: there are {', '.join(CONFIGURATIONS)}")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        parser.error(f"all configurations are of x86-64, and this machine is {platform.machine()}")
    failed = 0
    for name in wanted:
        configuration = CONFIGURATIONS[name]
        if configuration.needs not in features():
            print(f"{name:<10}not run: this processor has no {configuration.needs}", flush=True)
            failed += name in names
            continue
        start = time.monotonic()
        outcome = run(configuration, arguments)
        failed += not outcome.passed
        print(
            f"{name:<10}{outcome.counts}  ({time.monotonic() - start:.0f} s)", *outcome.failures, sep="\n  ", flush=True
        )
    return int(failed > 0)


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """What stands before `--`, and after it."""
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
