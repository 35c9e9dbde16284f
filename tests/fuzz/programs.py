"""Random programs, eagerly and traced: all that a user can see of them is compared.

    python -m tests.fuzz programs --programs 20000 [--seed 0] [--backend llvm]

A program that differs is printed whole and the run ends with 1; `--program SEED` runs one of them again.
"""

from __future__ import annotations

import argparse
import linecache
import random
import traceback
import warnings
from typing import Any

import numpy as np

import hybridml as hm

from .case import cases
from .random_programs import write

CALLS: tuple[tuple[int, float, int], ...] = ((0, 2.0, 2), (1, 1.0, 2), (0, 3.0, 1), (2, 2.0, 2), (0, 2.0, 2))
SCALES = (2.0, 2.0, 3.0, 3.0, 2.0)
Seen = list[Any]


def observe(text: str, name: str, backend: str | None) -> list[Seen]:
    """What each call of the program leaves: its result or error, its arguments, the state. `backend` None: eagerly."""
    names: dict[str, Any] = {"__name__": name}
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), names)
    program = names["program"] if backend is None else hm.trace(names["program"], backend=backend)
    hm.manual_seed(5)
    return [_call(program, names, *call, scale) for call, scale in zip(CALLS, SCALES, strict=True)]


def _call(program: Any, names: dict[str, Any], seed: int, a: float, n: int, scale: float) -> Seen:
    numbers = np.random.default_rng(seed)
    x = hm.tensor(numbers.integers(0, 6, 4).astype(np.float32))
    y = hm.tensor(numbers.integers(0, 6, (3, 4)).astype(np.float32))
    names["SCALE"], names["box"].bias, names["layer"].step = scale, scale - 1, scale
    names["RATE"], names["box"].size = int(scale) + seed, int(scale) + n
    try:
        result: Any = [_read(item) for item in program(x, y, a, n)]
    except Exception as error:
        result = [type(error).__name__, str(error)]
    layer = names["layer"]
    grad = layer.w.grad
    return [
        result, _read(x), _read(y), _read(names["state"]), _read(names["table"]), _read(layer.w), _read(layer.seen),
        None if grad is None else _read(grad),
    ]  # fmt: skip


def _read(value: Any) -> Any:
    if not isinstance(value, hm.Tensor):
        return value
    array = np.asarray(value.detach())
    return [str(array.dtype), array.shape, array.tolist()]


def difference(text: str, name: str, backend: str = "llvm") -> str | None:
    """What a program does otherwise when it is traced; None where both styles are one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = observe(text, name, None)
        try:
            traced = observe(text, name, backend)
        except Exception:
            return traceback.format_exc()
    for call, (a, b) in enumerate(zip(eager, traced, strict=True)):
        for what, p, q in zip(("result", "x", "y", "state", "table", "w", "seen", "grad"), a, b, strict=True):
            if repr(p) != repr(q):
                return f"call {call}: {what}\n  eager  {p}\n  traced {q}"
    return None


def program(seed: int) -> str:
    return write(random.Random(seed).choice)


def finding(seed: int, backend: str = "llvm") -> str | None:
    """The program of a seed and what it does otherwise when it is traced; None where both styles are one."""
    found = difference(program(seed), f"<program {seed}>", backend)
    return found and f"--program {seed} --backend {backend}\n{program(seed).split('def program')[1]}\n{found}"


def run(seconds: float, seed: int) -> tuple[int, list[str]]:
    """Number of random programs that were run, and those that differ."""
    found = [finding(number) for number in cases(seconds, seed)]
    return len(found), [text for text in found if text is not None]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--program", type=int, help="the seed of one program, printed and run")
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--most", type=int, default=1, help="differences after which to stop")


def main(options: argparse.Namespace) -> int:
    """Run a number of programs, and print those that differ."""
    first = options.seed or 0
    seeds = [options.program] if options.program is not None else range(first, first + options.programs)
    wrong = 0
    for done, seed in enumerate(seeds):
        found = finding(seed, options.backend)
        if found is not None:
            wrong += 1
            print(f"==== {found}", flush=True)
            if wrong >= options.most:
                break
        if done % 1000 == 999:
            print(f"{done + 1} programs, {wrong} differ", flush=True)
    print(f"{wrong} of {done + 1} programs differ")
    return 1 if wrong else 0
