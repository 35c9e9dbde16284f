"""One candidate in a process of its own, driven by its parent line by line: thread pools and BLAS copies stay apart.

`python -m hybridml_examples.study.worker NAME THREADS`. Each line of standard input is a JSON object and is answered by
one.

- `{"load": spec, "inputs": path, "results": path}` builds a network from the arrays of a file, takes some training
  steps and runs inference, writes losses and outputs, and answers seconds of the first step and what memory grew by;
- `{"time": "step" or "infer", "seconds": s}` times calls for about that long: `{"samples": [seconds a call, ...]}`;
- `{"train": path, "target": loss, "window": n}` trains on the batches of a file until the mean of the last n losses is
  down at the target, and answers the losses and the seconds of each step;
- `{"drop": true}` lets the network go.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from typing import Any

from .candidates import CANDIDATES
from .timing import forget_peak, limit_cpus, memory, sample, serve

STEPS = 3  # that are checked: a training step is right when the losses after it are


class Worker:
    """The candidate of this process, and the network that it has loaded."""

    def __init__(self, name: str, threads: int) -> None:
        self.candidate = CANDIDATES[name]
        self.threads = threads
        self.program: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "load" in request:
            return self.load(request["load"], request["inputs"], request["results"])
        if "drop" in request:
            self.program = None
            gc.collect()
            return {}
        self.program.reset()
        if "train" in request:
            return self.train(request["train"], request["target"], request["window"])
        return {"samples": sample(getattr(self.program, request["time"]), request["seconds"])}

    def load(self, spec: dict[str, Any], inputs: str, results: str) -> dict[str, Any]:
        import numpy as np

        library = importlib.import_module(f".{self.candidate.module}", __package__)
        self.program = None
        gc.collect()
        with np.load(inputs) as file:
            arrays = dict(file.items())
        library.prepare(self.candidate, self.threads)
        before = memory()
        self.program = program = library.Program(self.candidate, spec, arrays)
        losses, seconds = [], []
        for k in range(STEPS):
            if k == 1:  # what compiling took is not what training takes
                forget_peak()
            start = time.perf_counter()
            program.step()
            seconds.append(time.perf_counter() - start)
            losses.append(program.loss())
        grown = memory(peak=True) - before
        program.reset()
        program.infer()
        np.savez(results, losses=np.asarray(losses), output=program.output())
        return {"first": seconds[0], "memory": max(grown, 0), "device_memory": program.device_memory()}

    def train(self, batches: str, target: float, window: int) -> dict[str, Any]:
        """Losses and seconds of steps on batches, arrays `0.0`, `0.1`, ... of a file: batch, then its arrays."""
        import numpy as np

        with np.load(batches) as file:
            names = sorted(file.files, key=lambda name: [int(part) for part in name.split(".")])
            arrays = [(int(name.split(".")[0]), file[name]) for name in names]
        count = arrays[-1][0] + 1
        losses: list[float] = []
        seconds: list[float] = []
        for k in range(count):
            batch = [array for at, array in arrays if at == k]
            start = time.perf_counter()
            self.program.feed(batch)
            self.program.step()
            losses.append(self.program.loss())
            seconds.append(time.perf_counter() - start)
            if len(losses) >= window and sum(losses[-window:]) / window <= target:
                break
        return {"losses": losses, "seconds": seconds}


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    limit_cpus(threads)
    serve(Worker(name, threads).answer)


if __name__ == "__main__":
    main()
