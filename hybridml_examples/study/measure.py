"""What is measured of a network: calls of both kinds in rounds, first steps and memory, growth, and time to a loss."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import models

from .candidates import CANDIDATES
from .networks import Network, Size, grown
from .process import Failure, Process, compile_packages, environment

ROOT = Path(hm.__file__).parent.parent
DIFFERENCE = 1e-3  # relative to the largest element: of the first loss, and of the output of inference
PAUSE = 0.25  # seconds; the OpenMP threads of a peer spin for up to 0.2 s after their last loop
KINDS = {"step": "training step", "infer": "inference"}
Entry = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How a study measures: what its options say."""

    candidates: Sequence[str]
    threads: int = 2
    rounds: int = 5
    seconds: float = 0.5  # of a candidate, a kind and a round
    patience: float = 900.0  # for one answer
    python: str = sys.executable  # of the peers

    def start(self, name: str, cache: str, threads: int | None = None) -> Process:
        """A worker for a candidate, whose caches are in a folder."""
        count = threads or self.threads
        python = sys.executable if CANDIDATES[name].library == "hybridml" else self.python
        command = [python, "-m", f"{__package__}.worker", name, str(count)]
        # Packages that are installed belong to one interpreter; those of a checkout serve both.
        root = ROOT if (ROOT / "pyproject.toml").exists() else Path.cwd()
        compile_packages(ROOT)
        return Process(command, environment(count, cache), root, self.patience)


class Inputs:
    """First weights and one batch in a file that every worker reads, and the results to compare with."""

    def __init__(self, name: str, network: Network, size: Size, folder: Path) -> None:
        row = models.architecture(name)
        self.network, self.folder, self.path = network, folder, folder / "inputs.npz"
        hm.manual_seed(0)
        model = models.get_model(name, tiny=size.tiny, **size.options)
        self.batch = models.example_batch(name, size.batch, tiny=size.tiny, **size.sizes)
        arrays: dict[str, Any] = {f"w:{key}": value.numpy() for key, value in model.state_dict().items()}
        arrays |= {f"b:{k}": array for k, array in enumerate(self.batch)}
        np.savez(self.path, **arrays)
        self.spec = {
            "name": name, "module": row.module, "loss": row.loss, "inputs": row.inputs, "arrays": len(self.batch),
            "options": {**row.tiny, **size.options} if size.tiny else size.options, "optimizer": network.optimizer,
            "parameters": [key for key, _ in model.named_parameters()],
            "buffers": [key for key, _ in model.named_buffers()],
        }  # fmt: skip
        self.expected: dict[str, np.ndarray] = {}

    def load(self, process: Process) -> Entry:
        """Make a worker ready and compare its results; the first candidate's are what the others are compared with."""
        entry: Entry = {"note": ""}
        with noting(entry):
            results = self.folder / "results.npz"
            entry |= process.ask(load=self.spec, inputs=str(self.path), results=str(results))
            with np.load(results) as file:
                found = dict(file.items())
            self.expected = self.expected or found
            entry |= compare(self.expected, found)
            for key, limit in (("difference", DIFFERENCE), ("drift", self.network.drift)):
                if not entry[key] <= limit:  # NaN too
                    what = "its losses after updates differ" if key == "drift" else "its results differ"
                    raise Failure(f"{what} by {entry[key]:.1e}, more than {limit:.0e}: not timed")
        return entry


@contextmanager
def inputs_of(name: str, network: Network, size: Size) -> Iterator[Inputs]:
    """The inputs of a network in a folder that goes with the block."""
    with tempfile.TemporaryDirectory() as folder:
        yield Inputs(name, network, size, Path(folder))


@contextmanager
def noting(entry: Entry) -> Iterator[None]:
    """A failure becomes the entry's note and ends its part."""
    try:
        yield
    except Failure as failure:
        entry["note"] = str(failure)


def compare(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Differences of the first loss and of the output of inference, and of the losses after updates ("drift")."""
    parts = {key: (expected[key], found[key]) for key in ("losses", "output")}
    first, later = (difference(*(losses[part] for losses in parts["losses"])) for part in (slice(1), slice(1, None)))
    return {"difference": max(first, difference(*parts["output"]), key=_or_nan), "drift": later}


def _or_nan(value: float) -> float:
    return float("inf") if value != value else value


def difference(expected: np.ndarray, found: np.ndarray) -> float:
    """Largest difference relative to the largest element; NaN where shapes differ or numbers are not finite."""
    if expected.shape != found.shape:
        return float("nan")
    return float(np.max(np.abs(expected - found)) / max(np.max(np.abs(expected)), 1e-30))


def quartiles(samples: Sequence[float]) -> Entry:
    """Median and quartiles of seconds a call."""
    low, middle, high = (
        statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else (samples[0],) * 3
    )
    return {"median": middle, "lower": low, "upper": high, "samples": len(samples)}


def rounds(processes: Mapping[str, Process], entries: dict[str, Entry], kinds: Sequence[str], plan: Plan) -> None:
    """Times all candidates that are right in turns, so that all of them meet the same machine; fills in entries."""
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(plan.rounds):
        for kind in kinds:
            for name, process in processes.items():
                if entries[name]["note"]:
                    continue
                with noting(entries[name]):
                    found = process.ask(time=kind, seconds=plan.seconds)["samples"]
                    samples.setdefault((name, kind), []).extend(found)
                time.sleep(PAUSE)
    for (name, kind), found in samples.items():
        entries[name][kind] = quartiles(found)


def measure(name: str, network: Network, size: Size, plan: Plan, tell: Callable[[str], None]) -> Entry:
    """A network by all candidates: checked, then timed in rounds; then started again with the caches of the first.

    The first step of the first process is the cold one. Memory is that of the second process, which compiles nothing.
    """
    with inputs_of(name, network, size) as inputs, ExitStack() as stack:
        caches = {who: stack.enter_context(tempfile.TemporaryDirectory()) for who in plan.candidates}
        entries: dict[str, Entry] = {}
        with ExitStack() as running:
            processes = {}
            for who in plan.candidates:
                tell(f"{name}: {who}, cold")
                processes[who] = running.enter_context(plan.start(who, caches[who]))
                entries[who] = inputs.load(processes[who])
                entries[who]["cold"] = entries[who].pop("first", 0.0)
                time.sleep(PAUSE)
            tell(f"{name}: {plan.rounds} rounds")
            rounds(processes, entries, tuple(KINDS), plan)
        for who, entry in entries.items():
            if entry["note"]:
                continue
            tell(f"{name}: {who}, warm")
            late: Entry = {"note": ""}
            with noting(late), plan.start(who, caches[who]) as process:
                late |= inputs.load(process)
            entry |= {"warm": late.get("first", 0.0), "memory": late.get("memory", 0), "late_note": late["note"]}
        return {
            "kind": network.kind, "batch": size.batch, "options": size.options, "sizes": size.sizes, "tiny": size.tiny,
            "shapes": [list(array.shape) for array in inputs.batch], "candidates": entries,
        }  # fmt: skip


def measure_growth(
    name: str, network: Network, size: Size, axis: str, values: Sequence[int], plan: Plan, tell: Callable[[str], None]
) -> list[Entry]:
    """Medians of a training step along an axis: rows of {network, axis, value, batch, median by candidate}."""
    rows = []
    with ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        running: dict[tuple[str, int], Process] = {}
        for value in values:
            threads, at = (value if axis == "threads" else plan.threads), grown(network, size, axis, value)
            tell(f"{name}: {axis} {value}")
            with inputs_of(name, network, at) as inputs:
                entries = {}
                for who in plan.candidates:
                    if (who, threads) not in running:
                        running[who, threads] = stack.enter_context(plan.start(who, cache, threads))
                    entries[who] = inputs.load(running[who, threads])
                rounds({who: running[who, threads] for who in entries}, entries, ("step",), plan)
                for who in entries:
                    with suppress(Failure):
                        running[who, threads].ask(drop=True)
            medians = {who: entry["step"]["median"] for who, entry in entries.items() if "step" in entry}
            rows.append({"network": name, "axis": axis, "value": value, "batch": at.batch, "median": medians})
    return rows


def train(
    name: str, network: Network, size: Size, batches: Sequence[Sequence[np.ndarray]], target: float, window: int,
    plan: Plan, tell: Callable[[str], None],
) -> Entry:  # fmt: skip
    """Trains each candidate from one start on the same batches until the mean of `window` losses is at the target."""
    found: dict[str, Entry] = {}
    with inputs_of(name, network, size) as inputs, tempfile.TemporaryDirectory() as cache:
        path = inputs.folder / "batches.npz"
        arrays: dict[str, Any] = {f"{k}.{j}": part for k, batch in enumerate(batches) for j, part in enumerate(batch)}
        np.savez(path, **arrays)
        for who in plan.candidates:
            tell(f"{name} on real data: {who}")
            entry: Entry = {"note": ""}
            with noting(entry), plan.start(who, cache) as process:
                loaded = inputs.load(process)
                if loaded["note"]:
                    raise Failure(loaded["note"])
                reply = process.ask(train=str(path), target=target, window=window)
                losses = reply["losses"]
                reached = len(losses) >= window and sum(losses[-window:]) / window <= target
                entry |= {"losses": losses, "seconds": sum(reply["seconds"]), "first": loaded["first"]}
                entry |= {"steps": len(losses), "reached": bool(reached)}
            found[who] = entry
            time.sleep(PAUSE)
    return {"network": name, "target": target, "window": window, "batch": size.batch, "candidates": found}
