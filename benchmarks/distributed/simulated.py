"""The simulation beside real steps, and TensorFlow's null steps with more workers than this machine has.

    python -m benchmarks.distributed.simulated                   2 and 4 processes
    python -m benchmarks.distributed.simulated --networks mlp --json benchmarks/results/simulated.json

Null steps (Abadi et al., TensorFlow, OSDI 2016, section 6.2): synchronous workers read parameters of servers, do
nothing, and send as much back. The link of a server is that of the real null steps of one worker; those of more
workers are predicted, and beside those that ran. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hybridml import distributed as dist
from hybridml.run import mpiexec
from hybridml_examples.study.timing import cpu_model

from ..markup import table

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 900.0  # seconds
RANKS = (2, 4)
SERVERS, WORKERS = 16, (1, 2, 5, 10, 25, 50, 100)  # of the paper
NULL = {"scalar": 4, "sparse": 32 * 4096, "dense 100 MB": 10**8, "dense 1 GB": 10**9}
STEP = (
    "network", "style", "ranks", "real ms", "simulated ms", "error", "work ms", "communication ms", "blocked ms",
    "latency us", "GB/s",
)  # fmt: skip


def measured(ranks: int, networks: str) -> dict[str, Any]:
    """The results of so many processes."""
    launcher = mpiexec()
    assert launcher is not None, "needs mpiexec: pip install 'hybridml[mpi]'"
    variables = {**os.environ, "HYBRIDML_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [launcher, "-n", str(ranks), sys.executable, "-m", f"{__package__}.simulated_worker", networks]
    done = subprocess.run(command, env=variables, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for row in found["steps"]:
        row["error"] = row["simulated ms"] / row["real ms"] - 1
    return found


def null_link(rows: list[dict[str, Any]]) -> dist.Link:
    """The link between a server and one worker: two messages take the step."""
    alone = {row["what"]: row for row in rows if row["workers"] == 1}
    latency = alone["scalar"]["real ms"] / 2e3
    largest = alone["dense 100 MB"]
    return dist.Link(latency, largest["bytes"] / (largest["real ms"] / 2e3 - latency))


def beside(rows: list[dict[str, Any]], link: dist.Link) -> list[dict[str, Any]]:
    """The real null steps with what is predicted for them."""
    found = []
    for row in rows:
        ms = dist.simulate_parameter_server(0.0, row["bytes"], row["workers"], 1, link)
        found.append({**row, "simulated ms": ms, "error": ms / row["real ms"] - 1})
    return found


def redrawn(link: dist.Link) -> list[dict[str, Any]]:
    """The paper's figure with this link: milliseconds by what is read, and by the number of workers."""
    return [
        {"what": what, **{str(n): dist.simulate_parameter_server(0.0, nbytes, n, SERVERS, link) for n in WORKERS}}
        for what, nbytes in NULL.items()
    ]


def _printed(heads: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    def cell(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    print(*table(heads, [[cell(row[head]) for head in heads] for row in rows]), sep="\n", flush=True)


def main() -> None:
    """Measures, prints the tables, and writes them where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="mlp,resnet18")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {ranks: measured(ranks, given.networks) for ranks in RANKS}
    steps = [row for one in found.values() for row in one["steps"]]
    _printed(STEP, steps)
    link = null_link(found[RANKS[-1]]["null"])
    null, figure = beside(found[RANKS[-1]]["null"], link), redrawn(link)
    _printed(("what", "workers", "real ms", "simulated ms", "error"), null)
    _printed(("what", *map(str, WORKERS)), figure)
    if given.json:
        command = shlex.join(["python", "-m", "benchmarks.distributed.simulated", *sys.argv[1:]])
        server = {"latency": link.latency, "bandwidth": link.bandwidth}
        record = {"command": command, "cpu": cpu_model(), "server": server, "steps": steps, "null": null}
        record["figure"] = figure
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
