"""Checks of whether results on a GPU are right."""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cuda.libraries.cupy_rows import ROWS as CUPY_ROWS

from .device import Check, Record, torch_of

ROOT = Path(__file__).parent.parent.parent
SANITIZERS = ("memcheck", "racecheck", "synccheck")
# Kinds of rows whose sums are added in another order than the CPU's or the simulator's.
_PROCESSES = 8
REORDERED = ("reduction", "contraction", "convolution")


def rows(check: Check) -> Record:
    """Every row of the operation table, on the device beside the CPU and the simulated device."""
    names = [name for name in OPS if name != "transfer"][: check.size(10**6, 12)]
    ends = time.time() + check.left()
    jobs = [(names[k::_PROCESSES], check.device, ends) for k in range(_PROCESSES)]
    if check.small:
        found = [*map(_rows, jobs)]
    else:  # compiling takes most of the time
        with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
            found = pool.map(_rows, jobs)
    tally = sum((Counter(t) for t, _ in found), Counter[str]())
    return {"rows": len(names), **tally, "wrong": {name: why for _, wrong in found for name, why in wrong.items()}}


def _rows(job: tuple[list[str], str, float]) -> tuple[dict[str, int], dict[str, str]]:
    """Some rows, until a time: how many results were alike, and what was wrong."""
    from tests.support.closeness import assert_close, same_bits
    from tests.support.on_devices import results

    names, device, ends = job
    tally: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    for op in map(OPS.__getitem__, names):
        sample = next(iter(op.samples(np.random.default_rng(0))), None)
        if sample is None or time.time() > ends:
            continue
        try:
            here, simulated, there = (results(op, sample, where, grad=False) for where in ("cpu", "cuda:sim", device))
            for a, b, c in zip(here, simulated, there, strict=True):
                library = op.name in CUPY_ROWS
                if library and op.results:  # vectors are defined up to a sign, or phase
                    a, b, c = abs(a), abs(b), abs(c)
                assert_close(c, a, rtol=1e-3 if library else None)
                tally["the bits of the simulator"] += same_bits(c, b)
                tally["the bits of the CPU"] += same_bits(c, a)
                tally["results"] += 1
                if op.kind not in REORDERED and not library and not same_bits(c, b):
                    wrong[op.name] = "other bits than the simulator"
        except Exception as error:
            wrong[op.name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return dict(tally), wrong


def suite(check: Check) -> Record:
    """The tests of devices on this one, where what runs tests is installed; the rows of the table have a check of their
    own."""
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        return {"left out": f"{' and '.join(missing)} not installed"}
    files = (
        "tests/targets/test_cuda_driver.py",
        "tests/targets/test_cuda_page_locked.py",
        "tests/targets/test_cuda_random.py",
        "tests/core/test_devices.py",
        "tests/control_flow/test_control_devices.py",
    )
    chosen = "gpu or (test_devices and not row) or test_control_devices"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen]
    if importlib.util.find_spec("xdist"):
        command += ["-n", "8", "-p", "no:benchmark"]  # which warns that it is of no use beside others
    run = _run(command, min(150.0, check.left()), HYBRIDML_TEST_DEVICE=check.device)
    return {"status": run.returncode, "said": run.stdout.splitlines()[-30:]}


def sanitizer(check: Check) -> Record:
    """compute-sanitizer over a few programs."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        return {"left out": "compute-sanitizer is not here"}
    found: Record = {}
    for name in SANITIZERS:
        command = [tool, "--tool", name, "--error-exitcode", "9", sys.executable, "-m", "benchmarks.gpu_check"]
        run = _run([*command, "--device", check.device, "--programs"], min(60.0, check.left()))
        found[name] = {"status": run.returncode, "said": run.stdout.splitlines()[-6:]}
    return found


def programs(device: str) -> None:
    """Programs with every kind of kernel, run twice: what the sanitizer looks at."""
    x = hm.tensor(np.random.default_rng(0).standard_normal((33, 130), np.float32)).to(device).requires_grad_()
    for _ in range(3):
        loss = (F.softmax(x @ x.mT, -1) + F.layer_norm(x, (130,))[:, :33]).cumsum(0).sum() + x[
            hm.arange(5).to(device)
        ].max()
        loss.backward()
    assert x.grad is not None and bool(hm.isfinite(x.grad).all())


def streams(check: Check) -> Record:
    """Checks what no simulator shows: two streams at the same time, and memory that PyTorch's stream shares."""
    n = check.size(2048, 8)
    x, y = check.array(n, n), check.array(n, n, seed=1)
    run = hm.trace(lambda x: F.softmax(x @ x * 0.01, -1) @ x)

    def product(x: Any) -> Any:
        for _ in range(check.size(4, 1)):
            x = run(x) @ y
        return x

    def beside() -> bool:
        """The bits of products on two streams are those of one stream."""
        alone = [product(x).cpu().numpy(), product(y).cpu().numpy()]
        with hm.cuda.device(check.device):
            ours, found = [hm.cuda.Stream(), hm.cuda.Stream()], []
            for _, (stream, start) in itertools.product(range(check.size(4, 2)), zip(ours, (x, y), strict=True)):
                with hm.cuda.stream(stream):
                    found.append(product(start))
        return all(np.array_equal(a.cpu().numpy(), alone[k % 2]) for k, a in enumerate(found))

    found: Record = {"two streams": check.tried(beside)}
    torch = torch_of(check)
    if torch is not None:

        def given() -> bool:
            """PyTorch reads what our stream has not computed yet; our memory is not used again before it has."""
            expected, seen = product(x).cpu().numpy(), []
            for _ in range(8):
                seen.append(torch.from_dlpack(product(x)).mul(1))  # ours is freed at once
                product(y)
            return all(np.array_equal(t.cpu().numpy(), expected) for t in seen)

        def taken() -> bool:
            """We read what PyTorch's stream has not computed yet; its memory is not used again before we have."""
            base, seen = torch.randn(n, n, device="cuda"), []
            chain = partial(torch.linalg.multi_dot, [base] * 6)
            expected = (chain() * 2).cpu().numpy()
            for _ in range(8):
                seen.append(hm.from_dlpack(chain()) * 2)  # theirs is freed at once
                torch.randn(n, n, device="cuda")
            return all(np.array_equal(t.cpu().numpy(), expected) for t in seen)

        found |= {"ours to PyTorch": check.tried(given), "PyTorch's to us": check.tried(taken)}
    return found


def _run(command: Sequence[str], seconds: float, **variables: str) -> subprocess.CompletedProcess[str]:
    wait, both = max(seconds, 5), {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        return subprocess.run(command, cwd=ROOT, timeout=wait, text=True, env={**os.environ, **variables}, **both)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return subprocess.CompletedProcess(command, 124, f"{text}\nstopped after {seconds:.0f} s")
