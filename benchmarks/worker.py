"""One candidate in a process of its own, driven by its parent line by line: thread pools and BLAS copies stay apart.

Each line of standard input is a JSON object and is answered by one.

- `{"load": name, "inputs": path, "results": path, "sizes": {}}` makes a workload ready, calls it a few times, writes
  the results and answers the time of the first call, what memory grew by, and the work of a call;
- `{"seconds": s}` times calls for about that long and answers `{"samples": [seconds a call, ...]}`;
- `{"drop": true}` lets the workload go;
- `{"import": true}` imports the library and answers how long that took.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from typing import Any, NamedTuple

from hybridml_examples.study.timing import forget_peak, limit_cpus, memory, sample, serve

CHECKED_CALLS = 4  # a training step is right when the losses after it are


class Candidate(NamedTuple):
    """A library in one style: the module that holds its workloads, what it imports, and the style's name there."""

    module: str
    library: str
    style: str


# fmt: off
CANDIDATES: dict[str, Candidate] = {
    "hybridml eager":  Candidate("ours", "hybridml", "eager"),
    "hybridml traced": Candidate("ours", "hybridml", "traced"),
    "hybridml kernel": Candidate("ours", "hybridml", "kernel"),
    "hybridml traced bf16": Candidate("ours", "hybridml", "traced bf16"),
    "torch":           Candidate("with_torch", "torch", "eager"),
    "torch channels_last": Candidate("with_torch", "torch", "eager channels_last"),
    "torch.compile":   Candidate("with_torch", "torch", "compile"),
    "torch.compile channels_last": Candidate("with_torch", "torch", "compile channels_last"),
    "torch bf16":      Candidate("with_torch", "torch", "eager bf16"),
    "torch.compile bf16": Candidate("with_torch", "torch", "compile bf16"),
    "jax":             Candidate("with_jax", "jax", "jit"),
    "tensorflow":      Candidate("with_tensorflow", "tensorflow", "function"),
}
# fmt: on
LATE = ("llvmlite", "numba", "networkx")  # what `import hybridml` must not load


def timed_import(library: str) -> dict[str, Any]:
    start = time.perf_counter()
    importlib.import_module(library)
    return {"samples": [time.perf_counter() - start], "loaded": [name for name in LATE if name in sys.modules]}


class Worker:
    def __init__(self, name: str, threads: int) -> None:
        self.candidate = CANDIDATES[name]
        self.threads = threads
        self.case: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "import" in request:
            return timed_import(self.candidate.library)
        self.case = None if "load" in request or "drop" in request else self.case
        if "drop" in request:
            gc.collect()
            return {}
        if "load" in request:
            return self.load(request["load"], request["inputs"], request["results"], request["sizes"])
        self.case.reset()
        return {"samples": sample(self.case.call, request["seconds"])}

    def load(self, name: str, inputs: str, results: str, sizes: dict[str, int]) -> dict[str, Any]:
        """The results of all calls are arrays 0, 1, ... of an npz file, in order."""
        import numpy as np

        from .transformed import TRANSFORMS
        from .workloads import WORKLOADS

        library = importlib.import_module(f".{self.candidate.module}", __package__)
        library.set_threads(self.threads)
        with np.load(inputs) as file:
            arrays = dict(file.items())
        before = memory()
        case = (WORKLOADS | TRANSFORMS)[name].case(library, arrays, self.candidate.style, **sizes)
        found = []
        seconds = []
        for k in range(CHECKED_CALLS):
            if k == 1:  # what compiling took is not what training takes
                forget_peak()
            start = time.perf_counter()
            case.call()
            seconds.append(time.perf_counter() - start)
            found += [array.copy() for array in case.read()]
        grown = memory(peak=True) - before
        np.savez(results, *found)
        self.case = case
        return {"samples": seconds[:1], "memory": max(grown, 0), "work": case.work()}


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    limit_cpus(threads)
    serve(Worker(name, threads).answer)


if __name__ == "__main__":
    main()
