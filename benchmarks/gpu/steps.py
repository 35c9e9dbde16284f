"""Training steps beside PyTorch's and JAX's."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import training as tasks
from .device import Check, Record, torch_of

# Sizes that fill a large GPU.
TASKS = {
    "mlp": tasks.mlp(4096, 2048), "gpt": tasks.gpt(32, 256, 512, 6, 8192), "lstm": tasks.lstm(256, 64, 512),
    "resnet18": tasks.resnet18(64, 128), "ncf": tasks.ncf(16384),
}  # fmt: skip
SMALL = {"mlp": tasks.mlp(4, 16)}
KINDS = ("float32", "tf32", "bfloat16")
WHO = ("traced", "eager", "torch eager", "torch.compile", "JAX")


def training(check: Check) -> Record:
    """Training steps of the CPU's list, in milliseconds, and the losses of the first ones."""
    found: Record = {}
    for kind in KINDS[: check.size(3, 1)]:
        for name, task in (SMALL if check.small else TASKS).items():
            found[f"{name}, {kind}"] = entry = {}
            arrays = task.arrays(np.random.default_rng(0))
            with _precision(kind, check):
                for who, case in _candidates(check, task, arrays, kind):
                    entry[who] = check.tried(partial(_trained, check, case))
    return found


def _trained(check: Check, case: Callable[[], Any]) -> Record:
    made, losses = case(), []
    for _ in range(3):
        made.call()
        losses.append(float(made.read()[0]))
    return {"ms": check.wall(made.call, check.size(10, 1)) / 1e3, "losses": losses}


@contextmanager
def _precision(kind: str, check: Check) -> Iterator[None]:
    """Inside, products of float32 numbers are in float32, or where `kind` is tf32 in that, whoever computes them."""
    short = kind == "tf32"
    os.environ["HYBRIDML_TF32"] = str(int(short))
    torch = torch_of(check)
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = short
    try:
        yield
    finally:
        del os.environ["HYBRIDML_TF32"]


def _candidates(check: Check, task: Any, arrays: Any, kind: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    for who in WHO[: check.size(len(WHO), 2)]:
        if (case := _case(check, who, task, arrays, kind)) is not None:
            yield who, case


def _case(check: Check, who: str, task: Any, arrays: Any, kind: str) -> Callable[[], Any] | None:
    """The function that makes a training step; None for who has none in this precision, or is not installed."""
    from .. import ours

    narrow, is_eager = " bf16" * (kind == "bfloat16"), "eager" in who
    if (is_eager and kind != "float32") or (who == "JAX" and narrow):
        return None
    if who in ("traced", "eager"):
        return lambda: ours.training(task, arrays, who + narrow, check.device)
    if "torch" in who:
        if torch_of(check) is None:
            return None
        from .. import with_torch

        style = "eager" if is_eager else "compiled reduce-overhead" + narrow
        return lambda: with_torch.training(task, arrays, style, "cuda")
    if check.small or importlib.util.find_spec("jax") is None:
        return None
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take three quarters of the memory
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "jax"))
    import jax

    from .. import with_jax

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_default_matmul_precision", "highest" if kind == "float32" else "tensorfloat32")
    return lambda: with_jax.training(task, arrays, "traced")


# ---- before it


def compiled(check: Check) -> Record:
    """Begins to compile the steps of `training`, in processes of their own beside the checks that are not timed: what
    they leave in caches on disk makes the compilations of the measured steps short."""
    if check.small:
        return {}
    command = [sys.executable, "-m", "benchmarks.gpu.steps", check.device]
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}  # as many processes as there are cores
    check.background = subprocess.Popen(
        command, env={**os.environ, **threads}, text=True, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return {}


def settled(check: Check) -> Record:
    """Waits for the end of that, for a third of the time that is left: on an H100's machine of 16 cores 144 s were not
    enough, and nothing was measured after them."""
    if check.background is None:
        return {}
    try:
        said, _ = check.background.communicate(timeout=max(5.0, check.left() / 3))
    except subprocess.TimeoutExpired:
        os.killpg(check.background.pid, signal.SIGKILL)
        check.background.wait()
        return {"said": "stopped: what is compiled by now is in the caches"}
    return dict(json.loads(said))


def _compile_all(device: str) -> Record:
    jobs = [(who, name, kind, device) for who in WHO if "eager" not in who for kind in KINDS for name in TASKS]
    jobs.sort(key=lambda job: (KINDS.index(job[2]), WHO.index(job[0])))  # as they are measured
    with multiprocessing.get_context("spawn").Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
        return {", ".join(job[:3]): why for job, why in zip(jobs, pool.map(_compiled, jobs, 1), strict=True) if why}


def _compiled(job: tuple[str, str, str, str]) -> str:
    """Runs a step once; why that failed."""
    who, name, kind, device = job
    task, check = TASKS[name], Check(device, small=False, ends=float("inf"))
    try:
        with _precision(kind, check):
            case = _case(check, who, task, task.arrays(np.random.default_rng(0)), kind)
            if case is not None:
                case().call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""


if __name__ == "__main__":
    print(json.dumps(_compile_all(sys.argv[1])))
