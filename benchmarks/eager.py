"""Eager code beside PyTorch's: `python -m benchmarks.eager [--only relu,mlp] [--sizes small,model] [--json FILE]`.

Every operation of `eager_operations.py` runs in both libraries, on small and on large arrays, forward and with the
gradients of a sum; every model of `eager_models.py` and network of `eager_networks.py` as a training step and as
inference. A process for each library, and for each case of the networks, of which the growth in memory is compared,
too; their rounds take turns, and a ratio compares the medians of one round: above 1, hybridml is slower. Results of
operations are compared, where they are not random.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hybridml_examples.study.process import environment
from hybridml_examples.study.timing import forget_peak, limit_cpus, memory, sample

from .compare import circumstances
from .eager_models import MODELS
from .eager_networks import NETWORKS
from .eager_operations import OPERATIONS, inputs
from .process import ROOT
from .trees import geometric_mean

LIBRARIES = ("hybridml", "torch")
RANDOM = ("randn", "rand", "randint", "dropout")
TOLERANCE = 1e-3  # relative to the sum of magnitudes


WAYS = {"small": ("forward", "backward"), "large": ("forward", "backward"), "model": ("training", "inference")}
WAYS["network"] = WAYS["model"]


class Case(NamedTuple):
    """An operation or a model, and how it is run."""

    name: str
    size: str
    way: str  # backward: forward as well


class Row(NamedTuple):
    case: Case
    seconds: dict[str, float]
    ratio: float
    note: str
    bytes: dict[str, int] | None = None  # that the process grew by, at its peak; of networks


# -- a worker


OF_OPERATIONS = {operation.name: operation for operation in OPERATIONS}
OF_MODELS = {
    "model": {build.__name__: build for build in MODELS},
    "network": {build.__name__: build for build in NETWORKS},
}


def ready(library: str, case: Case) -> Callable[[], Any]:
    """The case as a function without arguments."""
    xp = importlib.import_module(library)
    functional = xp.nn.functional
    if case.size in OF_MODELS:
        return OF_MODELS[case.size][case.name](xp, functional)[WAYS[case.size].index(case.way)]
    operation = OF_OPERATIONS[case.name]
    arrays, numbers = inputs(case.size == "large")
    tensors = {name: xp.asarray(array.copy()) for name, array in arrays.items()}
    text = operation.torch if library == "torch" else operation.ours
    forward: Callable[[], Any] = eval(f"lambda: {text}", {"xp": xp, "F": functional, **numbers, **tensors})
    if case.way == "forward":
        return forward
    wanted = [tensors[name].requires_grad_() for name in operation.wanted.split()]

    def call() -> Any:
        for tensor in wanted:
            tensor.grad = None
        forward().sum().backward()
        return wanted[0].grad

    return call


def sums(result: Any) -> list[float]:
    """The sum of a result, and that of its magnitudes."""
    values = np.asarray(result.detach() if hasattr(result, "detach") else result or 0.0)
    values = np.nan_to_num(abs(values) if values.dtype.kind == "c" else values.astype(np.float64))
    return [float(values.sum()), float(abs(values).sum())]


def work(library: str, threads: int) -> None:
    """Answers each line of standard input, a request as JSON, by a line of JSON."""
    limit_cpus(threads)
    importlib.import_module(library)
    last, call, found, grown = None, None, [0.0, 0.0], 0
    for line in sys.stdin:
        request = json.loads(line)
        case = Case(*request["case"])
        if case != last:
            before = memory()
            forget_peak()
            last, call = case, ready(library, case)
            first = call()
            found = [0.0, 0.0] if case.size in OF_MODELS else sums(first)
            for _ in range(8 if case.size == "network" else 30):  # by then every call is compiled that will be
                call()
            grown = memory(peak=True) - before
        assert call is not None
        seconds = statistics.median(sample(call, request["seconds"]))
        print(json.dumps({"seconds": seconds, "sums": found, "bytes": grown}), flush=True)


# -- their parent


class Worker:
    def __init__(self, library: str, threads: int, cache: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--worker", library, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(threads, cache),
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended at {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def end(workers: dict[str, Worker]) -> None:
    for worker in workers.values():
        worker.end()


def measure(workers: dict[str, Worker], case: Case, rounds: int, seconds: float) -> Row:
    answers = [{name: w.ask(case=case, seconds=seconds) for name, w in workers.items()} for _ in range(rounds)]
    times = {name: statistics.median(a[name]["seconds"] for a in answers) for name in workers}
    ratio = statistics.median(a["hybridml"]["seconds"] / a["torch"]["seconds"] for a in answers)
    (mine, size), (theirs, _) = (answers[0][name]["sums"] for name in LIBRARIES)
    alike = case.name in RANDOM or abs(mine - theirs) <= TOLERANCE * max(size, 1.0)
    grown = {name: answers[0][name]["bytes"] for name in workers} if case.size == "network" else None
    return Row(case, times, ratio, "" if alike else f"{mine:.6g}, PyTorch {theirs:.6g}", grown)


def table(rows: Sequence[Row]) -> str:
    """The ratios, one line for each operation and model, and what they come to."""
    at = {row.case: row for row in rows}
    lines: list[str] = []
    for sizes in (("small", "large"), ("model",), ("network",)):
        mine = [row for row in rows if row.case.size in sizes]
        columns = [(size, way) for size in sizes for way in WAYS[size] if any(r.case[1:] == (size, way) for r in mine)]
        if not columns:
            continue
        lines.append("{:24}".format("hybridml / PyTorch") + "".join(f"{size + ' ' + way:>32}" for size, way in columns))
        for name in dict.fromkeys(row.case.name for row in mine):
            found = [at.get(Case(name, *column)) for column in columns]
            cells = [f"{r.ratio:.2f} ({_time(r.seconds['hybridml'])}{_memory(r.bytes)})" if r else "" for r in found]
            notes = "; ".join(r.note for r in found if r and r.note)
            lines.append(
                f"{name:24}" + "".join(f"{cell:>32}" for cell in cells) + (f"  differs: {notes}" if notes else "")
            )
        for title, pick in (("geometric mean", geometric_mean), ("worst", max)):
            of = [pick([row.ratio for row in mine if row.case[1:] == column]) for column in columns]
            lines.append(f"{title:24}" + "".join(f"{value:>32.2f}" for value in of))
    return "\n".join(lines)


def _memory(grown: dict[str, int] | None) -> str:
    return (
        f", {grown['hybridml'] / grown['torch']:.2f} of {grown['torch'] >> 20} MiB" if grown and grown["torch"] else ""
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-4 else f"{seconds * 1e3:.2f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.eager", description=__doc__)
    parser.add_argument("--only", help="names of operations and models, with commas")
    parser.add_argument("--sizes", default="small,large,model,network")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.03, help="per round, case and library")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", default=str(ROOT / "build" / "eager_cache"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(options.worker, options.threads)
        return 0
    cases = [
        Case(name, size, way)
        for size in options.sizes.split(",")
        for name in OF_MODELS.get(size, OF_OPERATIONS)
        for way in WAYS[size]
        if way != "backward" or OF_OPERATIONS[name].wanted
        if options.only is None or name in options.only.split(",")
    ]
    rows, workers = [], dict[str, Worker]()
    for case in cases:
        if not workers or case.size == "network":
            end(workers)
            workers = {name: Worker(name, options.threads, options.cache) for name in LIBRARIES}
        rows.append(measure(workers, case, options.rounds, options.seconds))
    end(workers)
    print(table(rows))
    if options.json:
        about = circumstances("benchmarks.eager", sys.argv[1:], options.threads)
        found = {**about, "rows": [row._asdict() | {"case": row.case._asdict()} for row in rows]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
