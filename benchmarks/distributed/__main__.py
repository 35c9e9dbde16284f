"""Efficiency of data parallel beside PyTorch's DistributedDataParallel (gloo), and all-reduce beside bare mpi4py.

    python -m benchmarks.distributed --peers PYTHON         all; PYTHON has torch
    python -m benchmarks.distributed --networks mlp --rounds 5
    python -m benchmarks.distributed --json benchmarks/results/distributed.json

Each process has one thread and the same batch, alone or as one of two: the efficiency is the time of a step alone over
that with two. Candidates take turns, and a ratio is the median over the rounds. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hybridml.run import mpiexec
from hybridml_examples.study.process import environment
from hybridml_examples.study.timing import cpu_model

from ..markup import table
from .worker import NETWORKS

ROOT = Path(__file__).parent.parent.parent
CANDIDATES = ("hybridml eager", "hybridml traced", "torch")
PATIENCE = 600.0  # seconds
REDUCED = ("bytes", "hybridml us", "mpi4py us", "in place us", "ratio")
TIMED = ("ms alone", "ms of two", "efficiency")


def run(candidate: str, network: str, ranks: int, python: str, cache: str) -> dict[str, Any]:
    """Trains in so many processes; returns rank 0's milliseconds of a step and last loss."""
    library, _, style = candidate.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        arguments = ["-m", f"{__package__}.worker", library, style or "eager", network, str(results)]
        variables = {**os.environ, **environment(1, cache), "PYTHONPATH": str(ROOT)}
        if library == "torch":
            _side_by_side([python, *arguments], variables, ranks)
        else:
            launcher = mpiexec()
            assert launcher is not None, "needs mpiexec: pip install 'hybridml[mpi]'"
            command = [launcher, "-n", str(ranks), sys.executable, *arguments]
            subprocess.run(command, env=variables, check=True, timeout=PATIENCE)
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return found


def _side_by_side(command: list[str], variables: dict[str, str], ranks: int) -> None:
    """Runs processes that find each other by torch's variables."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    shared = {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    started = [subprocess.Popen(command, env={**shared, "RANK": str(rank)}) for rank in range(ranks)]
    for process in started:
        if process.wait(PATIENCE):
            raise RuntimeError(f"{shlex.join(command)}: status {process.returncode}")


def networks(names: list[str], rounds: int, python: str) -> dict[str, Any]:
    """Times and efficiencies of each network and candidate, in turns."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in names:
            times: dict[str, dict[int, list[float]]] = {who: {1: [], 2: []} for who in CANDIDATES}
            for k in range(rounds):
                for who in (*CANDIDATES[k % 3 :], *CANDIDATES[: k % 3]):
                    for ranks in (1, 2):
                        times[who][ranks].append(run(who, name, ranks, python, cache)["ms"])
            found[name] = {who: _summary(times[who]) for who in CANDIDATES}
            print(name, json.dumps(found[name]), flush=True)
    return found


def _summary(times: dict[int, list[float]]) -> dict[str, Any]:
    ratios = [alone / both for alone, both in zip(times[1], times[2], strict=True)]
    return {
        "ms alone": round(statistics.median(times[1]), 3),
        "ms of two": round(statistics.median(times[2]), 3),
        "efficiency": round(statistics.median(ratios), 3),
        "efficiencies": [round(one, 3) for one in ratios],
    }


def all_reduce() -> list[dict[str, float]]:
    """All-reduce of two processes beside mpi4py's, by size."""
    launcher = mpiexec()
    assert launcher is not None, "needs mpiexec: pip install 'hybridml[mpi]'"
    variables = {**os.environ, "HYBRIDML_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [launcher, "-n", "2", sys.executable, "-m", f"{__package__}.all_reduce"]
    done = subprocess.run(command, env=variables, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)
    rows: list[dict[str, float]] = json.loads(done.stdout)
    return rows


def main() -> None:
    """Measures, prints the tables, and writes them where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="an interpreter with torch")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = all_reduce()
    found = networks([name for name in given.networks.split(",") if name], given.rounds, given.peers)
    print(*table(REDUCED, [[f"{row[key]:g}" for key in REDUCED] for row in rows]), sep="\n")
    pairs = [(name, who, entry) for name, of in found.items() for who, entry in of.items()]
    lines = [[name, who, *(f"{entry[key]:g}" for key in TIMED)] for name, who, entry in pairs]
    print(*table(("network", "candidate", *TIMED), lines), sep="\n")
    if given.json:
        options = ["PYTHON" if option == given.peers else option for option in sys.argv[1:]]
        command = shlex.join(["python", "-m", "benchmarks.distributed", *options])
        record = {"command": command, "cpu": cpu_model(), "all_reduce": rows, "networks": found}
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
