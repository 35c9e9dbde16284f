"""Worker processes end with their program, by Ctrl-C and when it is killed, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hybridml.data import DataLoader
from tests.support.loaders import Rows, children, handles

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # programs in the background are started without it
import numpy as np
import hybridml as hm

class Rows(hm.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        if index == 500:
            time.sleep(100)
        return np.full(20_000, index, np.float32)

if __name__ == "__main__":
    other = iter(hm.data.DataLoader(Rows(), 10, num_workers=2))
    next(other)
    loader = hm.data.DataLoader(Rows(), 10, num_workers=2, persistent_workers=bool(int(sys.argv[1])))
    for k, batch in enumerate(loader):
        if k == 10:
            children = open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()
            print(*children, flush=True)
"""


def started(path: Path, *arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
    path.write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert program.stdout is not None
    workers = [int(number) for number in program.stdout.readline().split()]
    assert len(workers) == 4, program.communicate()
    return program, workers


def alive(workers: list[int]) -> list[int]:
    def runs(number: int) -> bool:
        status = Path(f"/proc/{number}/stat")
        try:
            return status.read_text().rpartition(")")[2].split()[0] != "Z"  # whoever is to wait for it is gone
        except OSError:
            return False

    return [number for number in workers if runs(number)]


@pytest.mark.parametrize("persistent", ["0", "1"])
def test_ctrl_c_ends_the_program_and_its_workers(tmp_path: Path, persistent: str) -> None:
    program, workers = started(tmp_path / "program.py", persistent)
    time.sleep(0.2)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = program.communicate(timeout=30)
    assert program.returncode == -signal.SIGINT and not alive(workers)
    assert errors.rstrip().endswith("KeyboardInterrupt") and errors.count("Traceback") == 1, errors


def test_workers_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    program, workers = started(tmp_path / "program.py", "0")
    program.kill()
    program.communicate()
    limit = time.monotonic() + 30
    while alive(workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not alive(workers)


CALLBACK = """
import sys, time, weakref
from pathlib import Path
import hybridml as hm

FOLDER = Path(sys.argv[1])

class Thing:
    if sys.argv[2] == "del":
        def __del__(self):
            callback()

def callback():
    (FOLDER / "begun").touch()
    time.sleep(20)

class Rows(hm.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        if index == 1:
            thing = Thing()
            if sys.argv[2] == "weak":
                weakref.finalize(thing, callback)
            del thing
            (FOLDER / "went on").touch()
        return index

if __name__ == "__main__":
    loader = hm.data.DataLoader(Rows(), 1, num_workers=1)
    batches = iter(loader)
    next(batches)
    while not (FOLDER / "begun").exists():
        time.sleep(0.01)
    del batches, loader
"""


@pytest.mark.parametrize("where", ["weak", "del"])
def test_an_end_that_a_callback_swallows_is_the_end(tmp_path: Path, where: str) -> None:
    """Python prints what is raised in callbacks of weak references and in `__del__`, and goes on."""
    (tmp_path / "program.py").write_text(CALLBACK, encoding="utf-8")
    program = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path), where],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert (program.returncode, program.stdout, program.stderr) == (0, "", "")
    assert not (tmp_path / "went on").exists()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def epochs(count: int) -> None:
    data = Rows(8, 10_000)
    for k in range(count):
        for number, _ in enumerate(DataLoader(data, 4, num_workers=2)):
            if k % 3 == 0 and number == 0:
                break


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.slow)])
def test_starts_and_stops_leave_nothing(count: int) -> None:
    epochs(20)
    before = set(children()), handles(), threading.active_count(), resident()
    epochs(count)
    assert (set(children()), handles(), threading.active_count()) == before[:3]
    assert resident() - before[3] < 20 << 20
