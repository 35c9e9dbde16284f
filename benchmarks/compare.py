"""Time the named workloads in both styles, beside PyTorch and JAX: `python -m benchmarks.compare --help`.

Each candidate runs in its own process, on the same inputs, with the same number of threads. Its results are checked
against the first candidate's before anything is timed. Rounds are interleaved between candidates, with an idle pause
after each so that a pool that still spins does not disturb the next; see docs/benchmarks.md for the method.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import hybridml

from .worker import CANDIDATES
from .workloads import WORKLOADS, Workload

RESULTS = Path(__file__).parent / "results"
PEERS = ("torch", "torch.compile", "jax")
PAUSE = 0.25  # seconds; the OpenMP threads of a peer spin for up to 0.2 s after their last loop
FRESH_SECONDS = 20.0  # a candidate whose fresh processes have taken that long is not started again


class Failure(Exception):
    """A candidate could not run a workload; the others go on."""


@dataclass
class Entry:
    """One candidate on one workload."""

    samples: list[float] = field(default_factory=list)  # seconds
    first: float = 0.0  # seconds of the first call in its process
    difference: float = 0.0  # largest difference from the first candidate, relative to the largest element
    loaded: list[str] = field(default_factory=list)  # libraries that an import must not load, but did
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.samples) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high


class Process:
    """A worker: a line of JSON out, a line of JSON back."""

    def __init__(self, name: str, threads: int, cache: str) -> None:
        counts = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], str(threads))
        caches = {"HYBRIDML_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parent.parent,
            env=os.environ | counts | caches | {"HYBRIDML_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu"},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failure(f"the process ended with status {self.process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failure(reply["error"])
        return reply

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def installed(peer: str) -> bool:
    return importlib.util.find_spec(CANDIDATES[peer].library) is not None


def measure_steady(workload: Workload, processes: dict[str, Process], options: argparse.Namespace) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    reference: list[np.ndarray] = []
    for name, process in processes.items():
        entries[name] = check(workload, process, reference)
        time.sleep(PAUSE)
    ready = [name for name, entry in entries.items() if not entry.note]
    for _ in range(options.repeats):
        for name in ready:
            with noting(entries[name]):
                entries[name].samples += processes[name].ask(seconds=options.seconds)["samples"]
            time.sleep(PAUSE)
    return entries


def measure_fresh(workload: Workload, names: Sequence[str], options: argparse.Namespace) -> dict[str, Entry]:
    """One fresh process and one empty cache a sample."""
    entries = {name: Entry() for name in names}
    reference: list[np.ndarray] = []
    spent = dict.fromkeys(names, 0.0)
    for _ in range(options.repeats):
        for name, entry in entries.items():
            if entry.note or spent[name] > FRESH_SECONDS:
                continue
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as cache, Process(name, options.threads, cache) as process:
                if workload.kind == "import":
                    with noting(entry):
                        reply = process.ask(**{"import": True})
                        entry.samples += reply["samples"]
                        entry.loaded = reply["loaded"]
                else:
                    found = check(workload, process, reference)
                    entry.note, entry.difference = found.note, found.difference
                    entry.samples += [found.first] if not found.note else []
            spent[name] += time.perf_counter() - start
            time.sleep(PAUSE)
    return entries


@contextmanager
def noting(entry: Entry) -> Iterator[None]:
    """A failure becomes the entry's note and ends its part."""
    try:
        yield
    except Failure as failure:
        entry.note = str(failure)


def check(workload: Workload, process: Process, reference: list[np.ndarray]) -> Entry:
    """Make a workload ready and compare its results with `reference`; the first candidate's become the reference."""
    entry = Entry()
    with tempfile.TemporaryDirectory() as folder, noting(entry):
        path = Path(folder) / "results.npz"
        entry.first = process.ask(load=workload.name, results=str(path))["samples"][0]
        with np.load(path) as file:
            results = list(file.values())
        if not reference:
            reference[:] = results
        entry.difference = difference(reference, results)
        if not entry.difference <= workload.tolerance:  # NaN too
            raise Failure(f"differs by {entry.difference:.1e}, more than {workload.tolerance:.0e}: not timed")
    return entry


def difference(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> float:
    """Largest difference relative to the largest element, over all results; NaN where shapes or counts differ."""
    if [a.shape for a in expected] != [b.shape for b in got]:
        return float("nan")
    parts = [
        float(np.max(np.abs(a.astype(np.float64) - b)) / max(np.max(np.abs(a)), 1e-30))
        for a, b in zip(expected, got, strict=True)
        if a.size
    ]
    return max(parts, default=0.0)


# ---- what it says


def duration(seconds: float) -> str:
    """Three digits and the unit that fits: `3.91 ms`."""
    unit, scale = next((u for u in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if seconds * u[1] >= 1), ("ns", 1e9))
    value = seconds * scale
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def best_peer(entries: dict[str, Entry]) -> float | None:
    """The fastest peer's median, in seconds."""
    return min((e.median for name, e in entries.items() if name in PEERS and e.samples), default=None)


def ratio(name: str, entries: dict[str, Entry]) -> float | None:
    """Best peer's median over this candidate's, if it is one of ours: above 1, ours is faster."""
    peer = best_peer(entries)
    return None if peer is None or name in PEERS or not entries[name].samples else peer / entries[name].median


def lines(workload: Workload, entries: dict[str, Entry]) -> Iterator[str]:
    """The table of one workload."""
    yield f"{workload.name}: {workload.title}"
    for name, entry in entries.items():
        if not entry.samples:
            yield f"  {name:<16} {entry.note}"
            continue
        low, high = (duration(q) for q in entry.quartiles)
        factor = ratio(name, entries)
        parts = [f"  {name:<16} {duration(entry.median):>9}  {low:>9} to {high:<9}"]
        parts += [f"best peer / this {factor:5.2f}"] if factor is not None else [" " * 22]
        parts += [f"first call {duration(entry.first)}"] * (workload.kind == "steady")
        parts += [f"loads {', '.join(entry.loaded)}"] * bool(entry.loaded) + [entry.note] * bool(entry.note)
        yield "  ".join(parts).rstrip()


def cpu_model() -> str:
    """The processor's own name for itself; no name of the machine."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "hybridml": hybridml.__version__}
    for name in ("numpy", "llvmlite", "torch", "jax"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def without_path(arguments: Sequence[str]) -> list[str]:
    """Where one machine writes the file means nothing to a reader elsewhere."""
    kept = [a for k, a in enumerate(arguments) if a != "--json" and (k == 0 or arguments[k - 1] != "--json")]
    return [a for a in kept if not a.startswith("--json=")]


def record(
    results: dict[str, dict[str, Entry]], options: argparse.Namespace, arguments: Sequence[str]
) -> dict[str, Any]:
    """What is written as JSON; times are seconds."""
    return {
        "command": " ".join(["python -m benchmarks.compare", *without_path(arguments)]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": versions(),
        "cpu": cpu_model(),
        "threads": options.threads,
        "workloads": {
            name: {
                "title": WORKLOADS[name].title,
                "kind": WORKLOADS[name].kind,
                "candidates": {who: summary(entry, ratio(who, entries)) for who, entry in entries.items()},
            }
            for name, entries in results.items()
        },
    }


def summary(entry: Entry, factor: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {"note": entry.note}
    if entry.samples:
        low, high = entry.quartiles
        found |= {"median": entry.median, "lower_quartile": low, "upper_quartile": high, "samples": len(entry.samples)}
        found |= {"first_call": entry.first, "difference": entry.difference, "loaded": entry.loaded}
        found |= {} if factor is None else {"best_peer_over_this": factor}
    return found


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    def names(known: Iterable[str]) -> Any:
        def parse(text: str) -> list[str]:
            found = [name for name in text.split(",") if name]
            unknown = [name for name in found if name not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)} not known; there are {', '.join(known)}")
            return found

        return parse

    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument(
        "--workloads", type=names(WORKLOADS), default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--peers", type=names(PEERS), default=None, help="default: those that are installed")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="timed in each round, a candidate (default 0.3)")
    parser.add_argument("--threads", type=int, default=2, help="for every candidate (default 2)")
    parser.add_argument("--json", type=Path, default=RESULTS / "compare.json", help="where the results are written")
    options = parser.parse_args(arguments)
    missing = [peer for peer in options.peers or () if not installed(peer)]
    if missing:
        parser.error(f"{', '.join(missing)} not installed; `pip install '.[bench]'` or leave --peers away")
    if options.peers is None:
        options.peers = [peer for peer in PEERS if installed(peer)]
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = options_of(given)
    results: dict[str, dict[str, Entry]] = {}
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        processes: dict[str, Process] = {}
        for name in options.workloads:
            workload = WORKLOADS[name]
            wanted = [who for who in workload.candidates if who in options.peers or who not in PEERS]
            if workload.kind != "steady":
                entries = measure_fresh(workload, wanted, options)
            else:
                for who in wanted:
                    if who not in processes:
                        processes[who] = stack.enter_context(Process(who, options.threads, cache))
                entries = measure_steady(workload, {who: processes[who] for who in wanted}, options)
            results[name] = entries
            print("\n".join(lines(workload, entries)), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record(results, options, given), indent=1) + "\n", encoding="utf-8")
    print(f"written: {options.json}")
    return int(any(not entry.samples for entries in results.values() for entry in entries.values()))


if __name__ == "__main__":
    sys.exit(main())
