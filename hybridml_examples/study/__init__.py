"""The networks of the literature in both styles beside other libraries: ``python -m hybridml study`` writes the report.

networks.py      the table: sizes, optimizers, axes of growth
candidates.py    who runs them, and what an interpreter has
in_one_text.py   hybridml and PyTorch, whose programs are one text
in_jax.py        JAX: steps, inference
jax_networks/    networks and losses as JAX functions
timing.py        calls, memory and requests in a worker
worker.py        a worker: one candidate in its process
process.py       the parent's side of a worker
measure.py       rounds, first steps, memory, growth
tasks.py         real data, trained to a loss
figures.py       rates and ratios of a record
findings.py      sentences of them
papers.py        tables of papers beside ours
charts.py        bars, dots and lines as SVG
report.py        the page, JSON and CSV
run.py           from options to files
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """A function that reads a number above zero from the command line."""

    def number(text: str) -> float:
        if (value := kind(text)) <= 0:
            raise argparse.ArgumentTypeError(f"{text} is not above zero")
        return value

    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Gives a parser the arguments of the study."""
    add = parser.add_argument
    add("--quick", action="store_true", help="a few networks at sizes for tests, in about three minutes on two cores")
    add("--networks", type=_names, metavar="A,B", help="these alone (default: all of the table)")
    add("--peers", type=_names, metavar="A,B", help="of torch, torch.compile, jax (default: those that are installed)")
    add("--rounds", type=_positive(int), help="in which all candidates are timed in turns (default 5; quick 2)")
    add("--seconds", type=_positive(float), help="timed of each candidate in a round (default 0.5; quick 0.15)")
    add(
        "--patience", type=_positive(float), metavar="SECONDS",
        help="that an answer of a candidate may take, as its first steps; later it has none (default 900; quick 60)",
    )  # fmt: skip
    add("--threads", type=_positive(int), default=2, help="of every candidate (default 2)")
    add(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="the interpreter of the peers (default: this one)",
    )
    add(
        "--output", type=Path,
        help="folder of study.html, .json and .csv (default build/study; with --from that of its JSON)",
    )  # fmt: skip
    add("--resume", action="store_true", help="keep what study.json of that folder has, and measure the rest")
    add("--from", type=Path, metavar="JSON", help="measure nothing: draw a record again")
