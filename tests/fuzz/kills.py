"""Processes killed (SIGKILL) while they save or compile: what is on disk afterwards is old or new, and whole.

Children are forks of this process, which never compiles: a thread of LLVM or of the pool would not be in them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import hybridml as hm
from hybridml_compiler.runtime import cache

from .case import cases

NAME = "c.safetensors"


def run(seconds: float, seed: int) -> tuple[int, list[str]]:
    """Number of processes that were killed, and what their files were wrong in."""
    done, found = 0, []
    with tempfile.TemporaryDirectory(prefix="hybridml-fuzz-") as base:
        for number in cases(seconds, seed):
            done += 1
            r = random.Random(number)
            folder = Path(base, str(number))
            folder.mkdir()
            wrong = r.choice((in_save, in_save, in_compile))(r, folder)
            if wrong is not None:
                found.append(f"--seconds 0 --seed {number} (times differ from run to run): {wrong}")
    return done, found


def in_save(r: random.Random, folder: Path) -> str | None:
    """Kill some savers of one file, which may have several writers; then load, save and look at the folder."""
    path, size = folder / NAME, r.choice((1, 1000, 300_000, 3_000_000))

    def saves() -> None:
        for step in range(1, 1_000_000):
            hm.save({"w": np.full(size, step, np.float32), "step": step}, path)

    hm.save({"w": np.full(size, 0, np.float32), "step": 0}, path)
    for _ in range(r.randrange(1, 4)):
        with contextlib.ExitStack() as stack:
            for _ in range(r.choice((1, 1, 2))):
                stack.enter_context(killed(saves))
            time.sleep(r.random() * 0.03)
        try:
            loaded = hm.load(path)
        except Exception:
            return f"load after a kill in save: {traceback.format_exc()[-1000:]}"
        step, values = loaded["step"], loaded["w"].numpy()
        if values.shape != (size,) or (values != step).any():
            return f"a mixture of two saves: step {step}, {values}"
    hm.save({"w": np.zeros(1)}, path)
    left = sorted(os.listdir(folder))
    return None if left == [NAME] else f"litter after the next save: {left}"


def in_compile(r: random.Random, folder: Path) -> str | None:
    """Kill processes that compile into one cache; then use it, and let it tidy up."""
    scales = [float(r.randrange(100)) for _ in range(4)]

    def compiles() -> None:
        cache._default = cache.ObjectCache(folder)
        x = hm.arange(40.0)
        for scale in scales:
            assert hm.trace(lambda x, scale=scale: (hm.tanh(x) * scale).sum())(x) is not None

    for _ in range(2):
        with killed(compiles):
            time.sleep(r.random() * 0.4)
    wrong = ends_well(lambda: values_are_right(folder, scales))
    if wrong is not None:
        return wrong
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))  # leftovers are removed once they are old
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.ObjectCache(folder).prune()
    left = [path.name for path in folder.rglob("*") if path.is_file() and len(path.name) != 64]
    return f"litter in the cache after it was pruned: {left}" if left else None


def values_are_right(folder: Path, scales: list[float]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache._default = cache.ObjectCache(folder)
        x = hm.arange(40.0)
        for scale in scales:
            got = hm.trace(lambda x, scale=scale: (hm.tanh(x) * scale).sum())(x).item()
            want = (hm.tanh(x) * scale).sum().item()
            assert abs(got - want) <= 1e-5 * abs(want), f"got {got}, want {want}"
    assert not caught, [str(each.message) for each in caught]  # the cache logs where warnings are errors


@contextlib.contextmanager
def killed(work: Callable[[], None]) -> Iterator[None]:
    """A child that does some work, killed at the end of the block."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def ends_well(work: Callable[[], None]) -> str | None:
    """The error of a child that does some work, None where it ends without one."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            os.write(writing, traceback.format_exc()[-2000:].encode())
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if status == 0 else f"ended with {status}: {said}"
