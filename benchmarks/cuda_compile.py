"""Time to compile a training step of a small GPT for a GPU: by a process that finds nothing, and by those after it.

    python -m benchmarks.cuda_compile [--device cuda] [--processes 5]

The step has two layers of width 128. Its capture is not counted, nor is what the simulated device does at the first
launch of a kernel: it reads PTX, in place of which a GPU is given machine code.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

import hybridml as hm

from .models.gpt import GPT

VOCABULARY, CONTEXT, BATCH = 65, 64, 4


def compiled(device: str) -> dict[str, float]:
    """Milliseconds of capture and of compiling, and the number of launches, of this process."""
    with hm.device(device):
        hm.manual_seed(0)
        model = GPT(VOCABULARY, CONTEXT, width=128, heads=4, layers=2)
        optimizer = hm.optim.AdamW(model.parameters(), lr=3e-4)
        tokens = hm.randint(0, VOCABULARY, (BATCH, CONTEXT + 1))

        @hm.trace
        def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = hm.functional.cross_entropy(model(x).reshape(-1, VOCABULARY), y.reshape(-1))
            loss.backward()
            optimizer.step()
            return loss

        program = step.resolve((tokens[:, :-1], tokens[:, 1:]), {}).path.program
    whole = program.compile_ms
    return {"capture": step._trace_ms, "compile": whole, "launches": program.executable.stats.kernels}


def measured(device: str, cache: str) -> dict[str, float]:
    """The same of a new process with this cache."""
    environment = os.environ | {"HYBRIDML_CACHE_DIR": cache}
    command = [sys.executable, "-m", __spec__.name, "--device", device, "--here"]
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, float] = json.loads(out)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:sim")
    parser.add_argument("--processes", type=int, default=5, help="that find what the first has made")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.here:
        print(json.dumps(compiled(given.device)))
        return
    with tempfile.TemporaryDirectory() as cache:
        cold, *warm = [measured(given.device, cache) for _ in range(1 + given.processes)]
    times = [found["compile"] for found in warm]
    print(f"{cold['launches']:.0f} launches on {given.device}, captured in {median(f['capture'] for f in warm):.0f} ms")
    print(f"compiled from nothing in {cold['compile']:.0f} ms, from the cache in {median(times):.1f} ms ", end="")
    print(f"({min(times):.1f} to {max(times):.1f} ms, {len(times)} processes)")


if __name__ == "__main__":
    main()
