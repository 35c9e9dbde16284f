"""Training steps beside PyTorch's and JAX's."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
COMPILED = "compiled reduce-overhead"


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
    from .. import ours

    narrow = " bf16" * (kind == "bfloat16")
    yield "traced", lambda: ours.training(task, arrays, "traced" + narrow, check.device)
    if kind == "float32":
        yield "eager", lambda: ours.training(task, arrays, "eager", check.device)
    if torch_of(check) is not None:
        from .. import with_torch

        if kind == "float32":
            yield "torch eager", lambda: with_torch.training(task, arrays, "eager", "cuda")
        yield "torch.compile", lambda: with_torch.training(task, arrays, COMPILED + narrow, "cuda")
    if importlib.util.find_spec("jax") is not None and not check.small and not narrow:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take three quarters of the memory
        import jax

        from .. import with_jax

        jax.config.update("jax_default_matmul_precision", "highest" if kind == "float32" else "tensorfloat32")
        yield "JAX", lambda: with_jax.training(task, arrays, "traced")


# ---- before it


def compiled(check: Check) -> Record:
    """Compiles what torch.compile compiles in `training`, each in a process of its own: what they leave in its cache on
    disk makes the measured ones' compilation short. Run it first, and nothing that is timed beside it."""
    if torch_of(check) is None:
        return {"left out": "PyTorch is not installed"}
    jobs = [(name, kind, check.device) for kind in KINDS for name in TASKS]
    with multiprocessing.get_context("spawn").Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
        return dict(zip([f"{name}, {kind}" for name, kind, _ in jobs], pool.map(_compiled, jobs, 1), strict=True))


def _compiled(job: tuple[str, str, str]) -> str:
    from .. import with_torch

    name, kind, device = job
    task, check = TASKS[name], Check(device, small=False, ends=float("inf"))
    try:
        with _precision(kind, check):
            arrays = task.arrays(np.random.default_rng(0))
            with_torch.training(task, arrays, COMPILED + " bf16" * (kind == "bfloat16"), "cuda").call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return "compiled"
