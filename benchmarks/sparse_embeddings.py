"""Training steps on an embedding of a million rows, whose batches look up few: time, and memory beside the table.

    python -m benchmarks.sparse_embeddings                      hybridml in this interpreter, torch if it is here
    python -m benchmarks.sparse_embeddings --torch PYTHON       torch in another one
    python -m benchmarks.sparse_embeddings --rows 100000 1000000

Every candidate runs in processes of its own, in turns, each of which makes the table and its optimizer, warms up, and
takes steps on batches of 1024 rows drawn before. Shown is the least time of a step in all rounds, and the most memory
that the steps took beside what was there when they began (the kernel's count of the process, from
`/proc/self/clear_refs` on).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, BATCH, STEPS = 64, 1024, 60
# name -> framework, style, optimizer, whether the embedding is made with sparse=True
CANDIDATES = {
    "SGD, torch sparse=True": ("torch", "eager", "SGD", True),
    "SGD, hybridml sparse=True, eager": ("hybridml", "eager", "SGD", True),
    "SGD, hybridml sparse=True, traced": ("hybridml", "traced", "SGD", True),
    "SGD, hybridml, traced": ("hybridml", "traced", "SGD", False),
    "SparseAdam, torch": ("torch", "eager", "SparseAdam", True),
    "SparseAdam, hybridml, eager": ("hybridml", "eager", "SparseAdam", True),
    "SparseAdam, hybridml, traced": ("hybridml", "traced", "SparseAdam", True),
    "lazy Adam, hybridml, eager": ("hybridml", "eager", "lazy", True),
    "lazy Adam, hybridml, traced": ("hybridml", "traced", "lazy", False),
    "Adam, hybridml, traced": ("hybridml", "traced", "Adam", False),
}


def measured(framework: str, style: str, optimizer: str, sparse: bool, rows: int) -> dict[str, float]:
    """Milliseconds of a step, and MiB that steps take, of one candidate in this process."""
    fm: Any = __import__("torch" if framework == "torch" else "hybridml")
    tensor = fm.from_numpy
    table = fm.nn.Embedding(rows, WIDTH, sparse=sparse)
    make, settings = ("Adam", {"lazy": True}) if optimizer == "lazy" else (optimizer, {})
    made = getattr(fm.optim, make)(list(table.parameters()), lr=0.1, **settings)
    drawn = np.random.default_rng(0).integers(0, rows, (20, BATCH))
    batches = [tensor(i) for i in drawn]

    def step(i: Any) -> Any:
        made.zero_grad()
        loss = (table(i) ** 2).sum()
        loss.backward()
        made.step()
        return loss

    f: Callable[[Any], Any] = fm.trace(step) if style == "traced" else step
    for i in batches:
        f(i)
    made.zero_grad()  # the gradient is of the step
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    times = []
    for k in range(STEPS):
        start = time.perf_counter()
        f(batches[k % len(batches)])
        times.append(time.perf_counter() - start)
    return {"ms": min(times) * 1e3, "mib": (_resident("VmHWM") - before) / 1024}


def _resident(name: str) -> int:
    """KiB of memory by the kernel's name of the count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(*CANDIDATES[options.one], options.rows[0])))
        return
    found: dict[str, list[str]] = {name: [] for name in CANDIDATES}
    for rows in options.rows:
        results: dict[str, list[dict[str, float]]] = {name: [] for name in CANDIDATES}
        for name in [*CANDIDATES] * options.rounds:
            python = options.torch if CANDIDATES[name][0] == "torch" else sys.executable
            command = [python, "-m", "benchmarks.sparse_embeddings", "--one", name, "--rows", str(rows)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode == 0:
                results[name].append(json.loads(run.stdout.splitlines()[-1]))
        for name, runs in results.items():
            cell = f"{min(r['ms'] for r in runs):.3f} ms {max(r['mib'] for r in runs):7.1f} MiB" if runs else "-"
            found[name].append(cell)
    print(f"{'':36}" + "".join(f"{rows:>26,} rows" for rows in options.rows))
    for name, cells in found.items():
        print(f"{name:36}" + "".join(f"{cell:>31}" for cell in cells))


if __name__ == "__main__":
    main()
