"""Transforms, kernels and narrow steps beside PyTorch and JAX: `python -m benchmarks.transforms [--json FILE]`.

Each candidate runs in a process of its own, on the same inputs, and its results are compared with the first one's. A
round times all of them, and a ratio is one of two medians of one round: of the best peer to hybridml (above 1, hybridml
is faster), and of what else is named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

from .compare import circumstances
from .measure import Entry, add_round_options, inputs_of, measure_rounds
from .process import Process, installed
from .transformed import CHAIN, NARROW, TRANSFORMS
from .workloads import Workload

OURS, KERNEL, BF16 = "hybridml traced", "hybridml kernel", "hybridml traced bf16"
Rounds = Mapping[str, Sequence[float]]  # candidate -> median of each round, in seconds


def ratios(workload: Workload, rounds: Rounds) -> dict[str, list[float]]:
    """Name of a ratio -> its value in each round."""
    asked = {"best peer / hybridml": ([w for w in rounds if "hybridml" not in w and "bf16" not in w], OURS)}
    if workload.candidates == CHAIN:
        asked["kernel / operations"] = ([KERNEL], OURS)
    if workload.candidates == NARROW:
        narrow = [w for w in rounds if "bf16" in w and w != BF16]
        asked |= {"float32 / bf16": ([OURS], BF16), "best peer's bf16 / bf16": (narrow, BF16)}
    return {
        name: [min(rounds[who][k] for who in above) / below for k, below in enumerate(rounds[under])]
        for name, (above, under) in asked.items()
        if under in rounds and above and all(who in rounds for who in above)
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": middle, "lower_quartile": low, "upper_quartile": high}


def described(workload: Workload, entries: Mapping[str, Entry], rounds: Rounds) -> dict[str, Any]:
    return {
        "title": workload.title,
        "candidates": {
            who: {"note": entry.note, "first_call": entry.first, "difference": entry.difference}
            | (spread(rounds[who]) if who in rounds else {})
            for who, entry in entries.items()
        },
        "ratios": {name: spread(values) for name, values in ratios(workload, rounds).items()},
    }


def lines(row: Mapping[str, Any]) -> list[str]:
    found = [row["title"]]
    for who, facts in row["candidates"].items():
        shown = f"{facts['median'] * 1e3:10.3f} ms" if "median" in facts else f"  {facts['note']}"
        found.append(f"  {who:<24}{shown}")
    for name, facts in row["ratios"].items():
        found.append(
            f"  {name:<24}{facts['median']:10.2f}  ({facts['lower_quartile']:.2f} to {facts['upper_quartile']:.2f})"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(TRANSFORMS)}; all")
    parser.add_argument("--candidates", nargs="*", help="default: those that are installed")
    add_round_options(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    known = {who for workload in TRANSFORMS.values() for who in workload.candidates}
    chosen = options.candidates or [who for who in known if installed(who)]
    rows = {}
    with ExitStack() as stack:
        cache = stack.enter_context(TemporaryDirectory())
        processes: dict[str, Process] = {}
        for name in options.workloads or TRANSFORMS:
            workload = TRANSFORMS[name]
            for who in workload.candidates:
                if who in chosen and who not in processes:
                    processes[who] = stack.enter_context(Process(who, options.threads, cache))
            own = {who: processes[who] for who in workload.candidates if who in processes}
            with inputs_of(workload) as inputs:
                entries = measure_rounds(inputs, own, options.rounds, options.seconds)
            rows[name] = described(workload, entries, {w: e.samples for w, e in entries.items() if e.samples})
            print("\n".join(lines(rows[name])), flush=True)
    if options.json:
        facts = circumstances("benchmarks.transforms", given, options.threads)
        options.json.write_text(json.dumps(facts | {"workloads": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
