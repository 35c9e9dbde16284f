"""What is measured of a workload: steady calls, first calls in fresh processes, memory, and growth with its sizes."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from hybridml_examples.study.process import Failure

from .process import Process
from .workloads import Workload

K = TypeVar("K")  # of a candidate

PAUSE = 0.25  # seconds; the OpenMP threads of a peer spin for up to 0.2 s after their last loop
FRESH_SECONDS = 20.0  # a candidate whose fresh processes have taken that long is not started again


@dataclass
class Entry:
    """One candidate on one workload; times in seconds, memory in bytes."""

    samples: list[float] = field(default_factory=list)
    first: float = 0.0  # of the first call in its process
    difference: float = 0.0  # largest difference from the first candidate, relative to the largest element
    loaded: list[str] = field(default_factory=list)  # libraries that an import must not load, but did
    note: str = ""
    cold: float = 0.0  # first call of a fresh process, empty cache
    warm: float = 0.0  # first call of a second process
    work: dict[str, float] = field(default_factory=dict)  # flops and bytes of a call, if the candidate knows
    memory: int = 0  # what that process grew by, at its peak, from the loaded library through some calls

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.samples) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high


class Inputs:
    """The inputs of a workload in a file that every worker reads, and the results to compare with."""

    def __init__(self, workload: Workload, folder: Path, sizes: Mapping[str, int] | None = None) -> None:
        self.workload, self.folder, self.sizes = workload, folder, dict(sizes or {})
        self.path = folder / "inputs.npz"
        self.expected: list[np.ndarray] = []
        np.savez(self.path, **workload.arrays(**self.sizes))

    def load(self, process: Process) -> Entry:
        """Make a worker ready and compare its results; the first candidate's are what the others are compared with."""
        entry = Entry()
        with noting(entry):
            results = self.folder / "results.npz"
            reply = process.ask(load=self.workload.name, inputs=str(self.path), results=str(results), sizes=self.sizes)
            entry.first, entry.memory, entry.work = reply["samples"][0], reply["memory"], reply["work"]
            with np.load(results) as file:
                found = list(file.values())
            if not self.expected:
                self.expected = found
            entry.difference = difference(self.expected, found)
            if not entry.difference <= self.workload.tolerance:  # NaN too
                raise Failure(f"differs by {entry.difference:.1e}, more than {self.workload.tolerance:.0e}: not timed")
        return entry


@contextmanager
def inputs_of(workload: Workload, sizes: Mapping[str, int] | None = None) -> Iterator[Inputs]:
    with tempfile.TemporaryDirectory() as folder:
        yield Inputs(workload, Path(folder), sizes)


@contextmanager
def noting(entry: Entry) -> Iterator[None]:
    """A failure becomes the entry's note and ends its part."""
    try:
        yield
    except Failure as failure:
        entry.note = str(failure)


def add_round_options(parser: argparse.ArgumentParser) -> None:
    """Adds what a program that measures in rounds is asked."""
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="per round, workload and process")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)


class Loader(Protocol):
    """Makes workers ready for what is measured."""

    def load(self, process: Process) -> Entry: ...


def measure_rounds(
    inputs: Loader, processes: Mapping[K, Process], rounds: int, seconds: float, every: bool = False
) -> dict[K, Entry]:
    """Rounds, in each of which every candidate is timed for about `seconds`: the medians of rounds, or `every` time."""
    entries: dict[K, Entry] = {}
    for name, process in processes.items():
        entries[name] = inputs.load(process)
        time.sleep(PAUSE)
    ready = [name for name, entry in entries.items() if not entry.note]
    for _ in range(rounds):
        for name in ready:
            with noting(entries[name]):
                found = processes[name].ask(seconds=seconds)["samples"]
                entries[name].samples += found if every else [statistics.median(found)]
            time.sleep(PAUSE)
    for name in ready:
        with noting(entries[name]):
            processes[name].ask(drop=True)
    return entries


def measure_fresh(inputs: Inputs, names: Sequence[str], threads: int, repeats: int) -> dict[str, Entry]:
    """One fresh process and one empty cache a sample, of a first call or of an import."""
    entries = {name: Entry() for name in names}
    spent = dict.fromkeys(names, 0.0)
    for _ in range(repeats):
        for name, entry in entries.items():
            if entry.note or spent[name] > FRESH_SECONDS:
                continue
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as cache, Process(name, threads, cache) as process:
                if inputs.workload.kind == "import":
                    with noting(entry):
                        reply = process.ask(**{"import": True})
                        entry.samples += reply["samples"]
                        entry.loaded = reply["loaded"]
                else:
                    found = inputs.load(process)
                    entry.note, entry.difference = found.note, found.difference
                    entry.samples += [found.first] if not found.note else []
            spent[name] += time.perf_counter() - start
            time.sleep(PAUSE)
    return entries


def measure_start(inputs: Inputs, entries: Mapping[str, Entry], threads: int) -> None:
    """Fill in `cold`, `warm` and `memory`: two fresh processes on one cache, empty and filled."""
    for name, entry in entries.items():
        if entry.note:
            continue
        with tempfile.TemporaryDirectory() as cache:
            found = []
            for _ in range(2):
                with Process(name, threads, cache) as process:
                    found.append(inputs.load(process))
        if not any(start.note for start in found):
            entry.cold, entry.warm, entry.memory = found[0].first, found[1].first, found[1].memory


def difference(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> float:
    """Largest difference relative to the largest element, over all results; NaN where shapes or counts differ."""
    if [a.shape for a in expected] != [b.shape for b in got]:
        return float("nan")
    parts = [
        float(np.max(np.abs(a.astype(np.result_type(a, np.float64)) - b)) / max(np.max(np.abs(a)), 1e-30))
        for a, b in zip(expected, got, strict=True)
        if a.size
    ]
    return max(parts, default=0.0)
