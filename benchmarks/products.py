"""Matrix products of the sizes of transformers beside PyTorch's (MKL's): forward, and the two of a backward.

    python -m benchmarks.products                     all sizes, on one thread
    python -m benchmarks.products --threads 2 --rounds 101
    python -m benchmarks.products --json benchmarks/results/products.json

Both libraries multiply the same arrays in turns, in one process, so that a slow phase of the machine meets both; a
ratio is the median over the rounds, above 1 where hybridml is faster. PyTorch's threads are told not to spin, as they
would take the cores from the product that comes next.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

# Rows, columns and depth of x @ w: layers of ViT-B/16 on two images, of BERT on 256 words, and narrow ones.
SIZES = (
    (394, 2304, 768), (394, 768, 768), (394, 3072, 768), (394, 768, 3072),
    (256, 768, 768), (256, 3072, 768), (256, 768, 3072),
    (256, 512, 512), (128, 2304, 512), (64, 768, 768), (16, 512, 512),
)  # fmt: skip


def layouts(m: int, n: int, k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Operands by layout: as they are ("nn"), the right one transposed ("nt", a linear layer), the left one ("tn", the
    gradient of its weight)."""
    rng = np.random.default_rng(0)

    def made(rows: int, columns: int) -> np.ndarray:
        return rng.standard_normal((rows, columns), dtype=np.float32)

    return {"nn": (made(m, k), made(k, n)), "nt": (made(m, k), made(n, k).T), "tn": (made(k, m).T, made(k, n))}


def timed(calls: list[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Seconds of each call in each round, the calls in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(3):
        for call in calls:
            call()
    for _ in range(rounds):
        for call, seconds in zip(calls, found, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return found


def measured(m: int, n: int, k: int, rounds: int) -> dict[str, Any]:
    """A row by layout: GFLOP/s of both, and quartiles of PyTorch's time over ours."""
    import torch

    import hybridml as hm

    row = {}
    for layout, (x, y) in layouts(m, n, k).items():
        a, b = hm.from_numpy(x), hm.from_numpy(y)
        p, q = torch.from_numpy(x), torch.from_numpy(y)
        np.testing.assert_allclose((a @ b).numpy(), (p @ q).numpy(), rtol=1e-3, atol=1e-3)
        theirs, ours = timed([lambda p=p, q=q: p @ q, lambda a=a, b=b: a @ b], rounds)  # type: ignore[misc]
        ratios = sorted(t / o for t, o in zip(theirs, ours, strict=True))
        low, middle, high = (round(q, 3) for q in statistics.quantiles(ratios, n=4, method="inclusive"))
        rates = {who: round(2e-9 * m * n * k / statistics.median(s)) for who, s in (("torch", theirs), ("ours", ours))}
        row[layout] = {**rates, "times as fast": middle, "quartiles": [low, high]}
    return row


def main() -> None:
    """Prints a line for each size, and the geometric mean of each layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0")  # before PyTorch's threads start
    import torch

    import hybridml as hm

    hm.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    rows = {}
    for m, n, k in SIZES:
        row = rows[f"{m}x{n}x{k}"] = measured(m, n, k, options.rounds)
        print(f"{m}x{n}x{k}".ljust(14), *(f"{name} {r['times as fast']:.2f}" for name, r in row.items()), flush=True)
    means = {
        name: round(exp(statistics.fmean(log(row[name]["times as fast"]) for row in rows.values())), 3)
        for name in ("nn", "nt", "tn")
    }
    print("geometric mean".ljust(14), *(f"{name} {mean:.2f}" for name, mean in means.items()))
    if options.json is not None:
        record = {
            "command": f"python -m benchmarks.products {shlex.join(sys.argv[1:])}",
            "torch": torch.__version__, "threads": options.threads, "sizes": rows, "geometric mean": means,
        }  # fmt: skip
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
