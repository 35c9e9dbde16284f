"""Predicted memory of calls beside what they take: `python -m benchmarks.memory [--json FILE] [NAME ...]`.

Models of other benchmarks, each in inference and in a training step, in processes of their own. Predicted: `peak_bytes`
of `fn.lower().compile().memory_analysis()`. Counted: tensors that there are before the first call and the function
reaches, arrays that are alive after some calls and were not before them, and the peak of one more call, by tracemalloc,
which NumPy's allocator tells: all large memory of the framework comes from there. Grown: the same tensors, all of their
pages touched, and by how much the resident memory of the process grows from there to its peak. Pages that no kernel
touches do not count there, and memory that was freed before is found again.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hybridml_examples.study.process import environment
from hybridml_examples.study.timing import forget_peak, limit_cpus, memory

from .eager_models import Calls, calls_of
from .process import ROOT

STYLES = ("inference", "step")
TRAINED = ("mlp", "gpt", "lstm", "resnet18", "alexnet", "ncf")  # of `training.py`
CALLS = 3
TIMES = 32
NUMPY = 389047  # the domain of NumPy's arrays in tracemalloc


class Enlarged:
    """The library for models with small batches, whose batches are `TIMES` as large."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.library, name)
        if name not in ("randn", "rand", "randint", "ones", "zeros"):
            return found

        def make(*args: Any, **options: Any) -> Any:
            *before, sizes = args if isinstance(args[-1], tuple) else (args,)
            return found(*before, (TIMES * sizes[0], *sizes[1:]), **options)

        return make


def examples() -> dict[str, Callable[[], Calls]]:
    """By name: makes a model, its training step, and its inference."""
    import hybridml as hm
    from hybridml.nn import functional as F

    from . import training
    from .eager_models import MODELS, regression
    from .eager_networks import NETWORKS

    def trained(name: str) -> Calls:
        task = getattr(training, name)()
        inputs, labels, _ = training.split(task.arrays(np.random.default_rng(0)))
        model, x, y = task.model(), [*map(hm.asarray, inputs)], hm.asarray(labels)
        loss = F.cross_entropy if task.loss == "cross_entropy" else F.binary_cross_entropy_with_logits

        def value() -> Any:
            found = model(*x)
            return loss(found.reshape((-1, *found.shape[y.ndim :])), y.reshape((-1,)))

        return calls_of(hm, model, value, lambda: model(*x))

    made = {build.__name__: partial(build, hm, F) for build in NETWORKS}
    made |= {f"{build.__name__}, small": partial(build, Enlarged(hm), F) for build in MODELS if build is not regression}
    return {f"{name}, of compare": partial(trained, name) for name in TRAINED} | made


def reached(fn: Any) -> dict[int, Any]:
    """The arrays of all tensors that a function holds, by address."""
    import hybridml as hm

    found: dict[int, Any] = {}
    seen: set[int] = set()
    pending = [fn]
    while pending:
        value = pending.pop()
        of = type(value).__module__
        if id(value) in seen or isinstance(value, type | ModuleType) or of.startswith("hybridml.tracing"):
            continue
        seen.add(id(value))
        if isinstance(value, hm.Tensor):
            found[value._array.ctypes.data] = value._array
        around = getattr(value, "__globals__", None)
        pending += [held for held in gc.get_referents(value) if held is not around]
    return found


def trim() -> None:
    """Gives what was freed back to the system, as far as it can be."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def in_this_process(name: str, style: str) -> dict[str, int]:
    """Predicted, counted and grown bytes of a program."""
    import hybridml as hm

    hm.manual_seed(0)
    made = examples()[name]()[STYLES[::-1].index(style)]
    step = hm.trace(made)
    found = step.lower().compile().memory_analysis()
    arrays = reached(made)
    for array in arrays.values():
        array[...] = array  # all of its pages
    there = sum(array.nbytes for array in arrays.values())
    trim()
    before = memory()
    forget_peak()
    tracemalloc.start()
    for _ in range(CALLS):
        step()
    grown = memory(peak=True) - before
    gc.collect()
    arrays_now = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY)])
    alive = sum(trace.size for trace in arrays_now.traces)
    tracemalloc.reset_peak()
    at = tracemalloc.get_traced_memory()[0]
    result = step()
    within = tracemalloc.get_traced_memory()[1] - at
    del result
    return {"predicted": found.peak_bytes, "there": there, "counted": there + alive + within, "grown": there + grown}


def measure(name: str, style: str, threads: int) -> dict[str, Any]:
    found: dict[str, Any] = {"model": name, "style": style}
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run(
            [sys.executable, "-m", f"{__package__}.memory", "--inside", name, "--styles", style], cwd=ROOT, text=True,
            check=False, env=os.environ | environment(threads, cache), capture_output=True,
        )  # fmt: skip
    if run.returncode:
        said = run.stderr.strip().splitlines()
        return found | {"note": next((line for line in reversed(said) if "Error: " in line), said[-1])}
    return found | json.loads(run.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--styles", nargs="*", default=STYLES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        limit_cpus(options.threads)
        print(json.dumps(in_this_process(options.models[0], options.styles[0])))
        return 0
    rows = []
    print(f"{'model':<22}{'':<9}{'predicted':>11}{'counted':>17}{'grown':>17}")
    for name in options.models or examples():
        for style in options.styles:
            row = measure(name, style, options.threads)
            rows.append(row)
            parts = [f"{row[k] / 1e6:9.2f} {row[k] / row['predicted']:7.3f}" for k in ("counted", "grown") if k in row]
            shown = "".join(parts) if parts else f"  {row['note']}"
            print(f"{name:<22}{style:<9}{row.get('predicted', 0) / 1e6:8.2f} MB{shown}", flush=True)
    for key in ("counted", "grown"):
        ratios = [row[key] / row["predicted"] for row in rows if key in row]
        if ratios:
            within = sum(abs(ratio - 1) <= 0.02 for ratio in ratios)
            print(f"{key}: {within} of {len(ratios)} within 2 %, {min(ratios):.3f} to {max(ratios):.3f}")
    if options.json:
        from .compare import circumstances

        facts = circumstances("benchmarks.memory", list(arguments or sys.argv[1:]), options.threads, peers=False)
        options.json.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
