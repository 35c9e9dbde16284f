"""Launcher of many processes on this machine: ``python -m hybridml.run -n 4 --max-restarts 3 train.py``.

MPI starts the processes and ends them all where one fails; this starts them again, as PyTorch's `torchrun` does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hybridml_compiler.targets.cpu.runtime.threads import get_num_threads

RESTARTS = "HYBRIDML_RESTARTS"  # environment variable: how often the processes have been started again
_THREADS = "HYBRIDML_NUM_THREADS"
_EPILOG = """\
The script calls `hybridml.distributed.init()`; without this launcher it is a group of one. Each process computes with
its part of the CPUs, unless HYBRIDML_NUM_THREADS says otherwise. Where a process fails, all are ended and, at most
--max-restarts times, started again: the script goes on from its last checkpoint. HYBRIDML_RESTARTS tells it how often
that has happened. Any other launcher of MPI does as well, on many machines, too:

  mpiexec -n 4 python train.py"""


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    found = argparse.ArgumentParser(
        "python -m hybridml.run", description="Runs a script in many processes of this machine.", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    found.add_argument(
        "-n", "--processes", type=partial(_whole, least=1), required=True, metavar="N", help="processes to start"
    )
    found.add_argument("--max-restarts", type=_whole, default=0, metavar="K", help="times to start again (default: 0)")
    found.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module")
    found.add_argument("script", metavar="SCRIPT", help="a Python file")
    found.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    return found


def _whole(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more, got {text!r}")
    return int(text)


def mpiexec() -> str | None:
    """The launcher of MPI: that of this environment, or else of the machine; None where there is none."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.is_file() else shutil.which("mpiexec")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit status of the last start."""
    given = parser().parse_args(arguments)
    launcher = mpiexec()
    if launcher is None:
        parser().error("no mpiexec was found: pip install 'hybridml[mpi]', or install MPI on the machine")
    if not given.module and not Path(given.script).is_file():
        parser().error(f"no file {given.script!r} here; -m runs a module")
    script = [*(["-m"] if given.module else []), given.script, *given.arguments]
    command = [launcher, "-n", str(given.processes), sys.executable, *script]
    threads = os.environ.get(_THREADS) or str(max(1, get_num_threads() // given.processes))
    for restarts in range(given.max_restarts + 1):
        status, signalled = _run(command, {**os.environ, _THREADS: threads, RESTARTS: str(restarts)})
        if signalled:
            return 128 + signalled
        if status == 0:
            return 0
        left = given.max_restarts - restarts
        sys.stderr.write(f"hybridml.run: a process has failed (status {status}); {left} restarts left\n")
    return status


def _run(command: Sequence[str], environment: dict[str, str]) -> tuple[int, int]:
    """The exit status of the processes, and the signal that has asked this one to end, which goes to them; 0 without.

    They have a session of their own: what a terminal sends comes once, and an interrupt is no failure to start again.
    """
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        started.send_signal(number)

    with subprocess.Popen(command, env=environment, start_new_session=True) as started:
        before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            status = started.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return status, received[0] if received else 0


if __name__ == "__main__":
    sys.exit(main())
