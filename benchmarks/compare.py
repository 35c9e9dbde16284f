"""Time the named workloads in both styles, beside PyTorch, JAX and TensorFlow: `python -m benchmarks.compare --help`.

Each candidate runs in its own process, on the same inputs, with the same number of threads. Its results are checked
against the first candidate's before anything is timed. Rounds are interleaved between candidates, with an idle pause
after each so that a pool that still spins does not disturb the next; see docs/benchmarks.md for the method.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import hybridml
from hybridml_examples.study.timing import cpu_model

from .limits import limits
from .markup import duration
from .measure import Entry, inputs_of, measure_fresh, measure_rounds, measure_start
from .process import Process, installed, interpreter
from .worker import CANDIDATES
from .workloads import OURS, SCALING, TABLE, WORKLOADS, Workload

PEERS = tuple(name for name in CANDIDATES if not name.startswith("hybridml"))
SECTIONS = ("steady", "start", "scaling", "limits")


# ---- what it says


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
        parts = [f"  {name:<27}"]
        if entry.samples:
            low, high = (duration(q) for q in entry.quartiles)
            factor = ratio(name, entries)
            parts += [f"{duration(entry.median):>9}  {low:>9} to {high:<9}"]
            parts += [f"best peer / this {factor:5.2f}"] if factor is not None else [" " * 22]
            parts += [f"first call {duration(entry.first)}"] * (workload.kind == "steady")
        if entry.cold:
            parts += [
                f"cold {duration(entry.cold)}, warm {duration(entry.warm)}, grows by {entry.memory / 2**20:.0f} MiB"
            ]
        parts += [f"loads {', '.join(entry.loaded)}"] * bool(entry.loaded) + [entry.note] * bool(entry.note)
        yield "  ".join(parts).rstrip()


def versions(peers: bool = True) -> dict[str, str]:
    found = {"python": platform.python_version(), "hybridml": hybridml.__version__}
    for name in ("numpy", "llvmlite", "numba", *(("torch", "jax") if peers else ())):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    if peers and installed("tensorflow"):
        ask = "from importlib.metadata import version; print(version('tensorflow-cpu'))"
        reply = subprocess.run([interpreter("tensorflow"), "-c", ask], capture_output=True, text=True, check=False)
        found["tensorflow"] = reply.stdout.strip()
    return found


def without_path(arguments: Sequence[str]) -> list[str]:
    """Where one machine writes the file means nothing to a reader elsewhere."""
    kept = [a for k, a in enumerate(arguments) if a != "--json" and (k == 0 or arguments[k - 1] != "--json")]
    return [a for a in kept if not a.startswith("--json=")]


def circumstances(program: str, given: Sequence[str], threads: int, peers: bool = True) -> dict[str, Any]:
    """What a file of results begins with."""
    return {
        "command": " ".join([f"python -m {program}", *without_path(given)]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": versions(peers),
        "cpu": cpu_model(),
        "threads": threads,
    }


def summary(entry: Entry, factor: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"note": entry.note}
    if entry.samples:
        low, high = entry.quartiles
        found |= {"median": entry.median, "lower_quartile": low, "upper_quartile": high, "samples": len(entry.samples)}
        found |= {"first_call": entry.first, "difference": entry.difference, "loaded": entry.loaded}
        found |= {} if factor is None else {"best_peer_over_this": factor}
    found |= {"work": entry.work} if entry.work else {}
    if entry.cold:
        found |= {"cold": entry.cold, "warm": entry.warm, "memory": entry.memory}
    return found


def described(workload: Workload, entries: Mapping[str, Entry]) -> dict[str, Any]:
    candidates = {who: summary(entry, ratio(who, entries)) for who, entry in entries.items()}
    return {"title": workload.title, "kind": workload.kind, "reach": workload.reach, "candidates": candidates}


# ---- what it does


class Run:
    """The worker processes of one thread count, started when first asked for."""

    def __init__(self, stack: ExitStack, threads: int) -> None:
        self.threads, self.stack = threads, stack
        self.cache = stack.enter_context(tempfile.TemporaryDirectory())
        self.processes: dict[str, Process] = {}

    def of(self, names: Sequence[str]) -> dict[str, Process]:
        for name in names:
            if name not in self.processes:
                self.processes[name] = self.stack.enter_context(Process(name, self.threads, self.cache))
        return {name: self.processes[name] for name in names}


def wanted(workload: Workload, options: argparse.Namespace) -> list[str]:
    return [who for who in workload.candidates if who in options.candidates]


def compare(workload: Workload, run: Run, options: argparse.Namespace) -> dict[str, Entry]:
    names = wanted(workload, options)
    with inputs_of(workload) as inputs:
        if workload.kind != "steady":
            return measure_fresh(inputs, names, options.threads, options.repeats)
        entries = {name: Entry() for name in names}
        if "steady" in options.sections:
            entries = measure_rounds(inputs, run.of(names), options.repeats, options.seconds, every=True)
        if "start" in options.sections and workload.reach:
            measure_start(inputs, entries, options.threads)
    return entries


def scaling(stack: ExitStack, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Times of a few workloads as one of their sizes, or the number of threads, grows."""
    runs = {threads: Run(stack, threads) for threads in sorted({1, options.threads})}
    rows = [(n, k, s, t) for n, k, sizes in SCALING for s in sizes for t in (options.threads,)]
    rows += [(name, "threads", threads, threads) for name in TABLE for threads in runs]
    for name, key, size, threads in rows:
        if name not in options.only:
            continue
        workload = WORKLOADS[name]
        with inputs_of(workload, {} if key == "threads" else {key: size}) as inputs:
            processes = runs[threads].of([who for who in wanted(workload, options) if who in options.scaling])
            entries = measure_rounds(inputs, processes, max(options.repeats // 2, 1), options.seconds, every=True)
        seconds = {who: entry.median for who, entry in entries.items() if entry.samples}
        print(f"{name}, {key} {size}: " + ", ".join(f"{w} {duration(s)}" for w, s in seconds.items()), flush=True)
        yield {"workload": name, "size": key, "value": size, "threads": threads, "median": seconds}


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
    add = parser.add_argument
    add("--only", type=names(WORKLOADS), default=list(WORKLOADS), help=f"workloads, of {', '.join(WORKLOADS)}")
    add("--peers", type=names(PEERS), default=None, help=f"of {', '.join(PEERS)}; default: those that are installed")
    add("--sections", type=names(SECTIONS), default=["steady"], help=f"of {', '.join(SECTIONS)}; default: steady")
    add(
        "--scaling",
        type=names(CANDIDATES),
        default=["hybridml traced", "torch", "jax"],
        help="whose growth is measured",
    )
    add("--repeats", type=int, default=7, help="rounds (default 7)")
    add("--seconds", type=float, default=0.3, help="timed in each round, a candidate (default 0.3)")
    add("--threads", type=int, default=2, help="for every candidate (default 2)")
    add("--json", type=Path, help="where the results are written; default: nowhere")
    options = parser.parse_args(arguments)
    missing = [peer for peer in options.peers or () if not installed(peer)]
    if missing:
        parser.error(f"{', '.join(missing)} not installed; `pip install '.[bench]'` or leave --peers away")
    if options.peers is None:
        options.peers = [peer for peer in PEERS if installed(peer)]
    options.candidates = [*OURS, *options.peers]
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = options_of(given)
    record: dict[str, Any] = {
        **circumstances("benchmarks.compare", given, options.threads),
        "limits": limits(options.threads) if "limits" in options.sections else {},
        "workloads": {},
        "scaling": [],
    }

    def write() -> None:
        if options.json is None:
            return
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    failed = False
    with ExitStack() as stack:
        run = Run(stack, options.threads)
        for name in options.only:
            entries = compare(WORKLOADS[name], run, options)
            record["workloads"][name] = described(WORKLOADS[name], entries)
            print("\n".join(lines(WORKLOADS[name], entries)), flush=True)
            failed |= any(entry.note for entry in entries.values())
            write()  # a long run that is stopped has left what it measured
    if "scaling" in options.sections:
        with ExitStack() as stack:
            for row in scaling(stack, options):
                record["scaling"].append(row)
                write()
    if options.json is not None:
        print(f"written: {options.json}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
