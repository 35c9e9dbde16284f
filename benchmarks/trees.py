"""This tree of the repository against another one, in turns: `python -m benchmarks.trees OTHER [--json FILE]`.

For a change that is to change no time: each workload runs in four processes, eager and traced from either tree, on the
same inputs. A round times all four, and a ratio compares the medians of one round: above 1, this tree is slower.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from hybridml_examples.study.process import Failure

from .compare import circumstances
from .measure import add_round_options, inputs_of, measure_rounds
from .process import ROOT, Process
from .workloads import OURS, TABLE, WORKLOADS, Workload

Rounds = dict[tuple[Path, str], list[float]]  # (tree, style) -> median of each round, in seconds


def measure(workload: Workload, processes: dict[tuple[Path, str], Process], rounds: int, seconds: float) -> Rounds:
    with inputs_of(workload) as inputs:
        own = {key: process for key, process in processes.items() if key[1] in workload.candidates}
        entries = measure_rounds(inputs, own, rounds, seconds)
    for key, entry in entries.items():
        if entry.note:
            raise Failure(f"{key}: {entry.note}")
    return {key: entry.samples for key, entry in entries.items()}


def ratios(found: Rounds, style: str, other: Path) -> list[float]:
    """This tree's time over the other's, of each round."""
    return [mine / theirs for mine, theirs in zip(found[ROOT, style], found[other, style], strict=True)]


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=lambda text: Path(text).resolve(), help="root of the other tree")
    parser.add_argument("--workloads", nargs="*", default=[name for name in TABLE if WORKLOADS[name].kind == "steady"])
    add_round_options(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    rows = []
    with ExitStack() as stack:
        processes = {}
        for tree in (ROOT, options.other):
            cache = stack.enter_context(TemporaryDirectory())
            for style in OURS:
                processes[tree, style] = stack.enter_context(Process(style, options.threads, cache, tree))
        for name in options.workloads:
            found = measure(WORKLOADS[name], processes, options.rounds, options.seconds)
            for style in sorted({style for _, style in found}):
                pairs = ratios(found, style, options.other)
                low, middle, high = statistics.quantiles(pairs, n=4, method="inclusive")
                rows.append({"workload": name, "style": style, "ratio": middle, "quartiles": [low, high]})
                rows[-1] |= {"seconds": statistics.median(found[ROOT, style])}
                print(f"{name:<16}{style:<17}{middle:7.3f}  ({low:.3f} to {high:.3f})", flush=True)
    for style in OURS:
        chosen = [row["ratio"] for row in rows if row["style"] == style]
        if chosen:
            print(f"geometric mean  {style:<17}{geometric_mean(chosen):7.3f}  worst {max(chosen):.3f}")
    if options.json:
        facts = circumstances("benchmarks.trees", ["OTHER", *given[1:]], options.threads, peers=False)
        options.json.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
