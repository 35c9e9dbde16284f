"""Memory and time of data parallel beside ZeRO's stages: `python -m benchmarks.distributed.sharded`.

    python -m benchmarks.distributed.sharded --ranks 2 --json benchmarks/results/sharded.json

Processes of one thread train GPT-2 small by Adam in traced steps, on 128 tokens each. What a process holds between
steps are its parameters, gradients and state; its peak is the most memory that it had, less what it had before the
model was made.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hybridml.run import mpiexec
from hybridml_examples.study.process import environment
from hybridml_examples.study.timing import cpu_model

from ..markup import table

ROOT = Path(__file__).parent.parent.parent
KINDS = ("data parallel", "stage 1", "stage 2", "stage 3")
COLUMNS = ("held MiB", "peak MiB", "ms", "loss")
PATIENCE = 600.0  # seconds
STEPS = 8


def train(kind: str, results: str) -> None:
    """Trains as one of the processes, and lets rank 0 write what it has measured."""
    import hybridml as hm
    from hybridml import distributed as dist
    from hybridml.models import architecture, example_batch, gpt2, losses

    from .worker import training_step

    hm.set_num_threads(1)
    hm.manual_seed(0)
    before = _peak()
    model, optimizer = _with_parts(kind, gpt2())
    loss_of = getattr(losses, architecture("gpt2").loss)
    batch = [hm.from_numpy(array) for array in example_batch("gpt2", 1, length=128)]

    step = hm.trace(training_step(model, loss_of, optimizer))
    times = []
    for _ in range(STEPS):
        dist.barrier()
        start = time.perf_counter()
        loss = float(step(*batch))
        times.append(time.perf_counter() - start)
    states = [entry for entries in optimizer.state_dict()["state"].values() for entry in entries.values()]
    parameters = dict.fromkeys([*model.parameters(), *(p for g in optimizer.param_groups for p in g["params"])])
    held = [*parameters, *(p.grad for p in parameters), *(s for s in states if hasattr(s, "nbytes"))]
    found = {
        "held MiB": sum(t.nbytes for t in held if t is not None) / 2**20,
        "peak MiB": _peak() - before,
        "ms": statistics.median(times[2:]) * 1e3,
        "loss": loss,
    }
    if dist.get_rank() == 0:
        Path(results).write_text(json.dumps(found), encoding="utf-8")


def _with_parts(kind: str, model: Any) -> tuple[Any, Any]:
    import hybridml as hm
    from hybridml import distributed as dist

    if kind in ("stage 2", "stage 3"):
        reshard = None if kind == "stage 3" else False
        for block in (*model.transformer.h, model):
            dist.fully_shard(block, reshard_after_forward=reshard)
        return model, hm.optim.Adam(model.parameters(), lr=1e-4)
    model = dist.DataParallel(model)
    if kind == "stage 1":
        return model, dist.ZeroRedundancyOptimizer(model.parameters(), hm.optim.Adam, lr=1e-4)
    return model, hm.optim.Adam(model.parameters(), lr=1e-4)


def _peak() -> float:
    """The most memory that this process had so far, in MiB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main(ranks: int) -> dict[str, Any]:
    """Runs each kind after the other."""
    launcher, found = mpiexec(), {}
    assert launcher is not None, "needs mpiexec: pip install 'hybridml[mpi]'"
    with tempfile.TemporaryDirectory() as room:
        variables = {**os.environ, **environment(1, room), "PYTHONPATH": str(ROOT)}
        for kind in KINDS:
            results = str(Path(room) / "results.json")
            command = [launcher, "-n", str(ranks), sys.executable, "-m", __spec__.name, "--train", kind, results]
            subprocess.run(command, env=variables, check=True, timeout=PATIENCE)
            found[kind] = {key: round(value, 3) for key, value in json.loads(Path(results).read_text()).items()}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(*given.train)
    else:
        measured = main(given.ranks)
        rows = [[kind, *(f"{entry[key]:g}" for key in COLUMNS)] for kind, entry in measured.items()]
        print(*table(("kind", *COLUMNS), rows), sep="\n")
        if given.json:
            command = shlex.join(["python", "-m", "benchmarks.distributed.sharded", *sys.argv[1:]])
            record = {"command": command, "cpu": cpu_model(), "ranks": given.ranks, "kinds": measured}
            given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
