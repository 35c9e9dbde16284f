"""Share of networks' training steps that `hm.explain_speed` leaves unattributed, and how long its report takes.

    python -m benchmarks.explained                    the networks of the study, at its sizes
    python -m benchmarks.explained resnet50 gpt2      these alone

Each network is explained in a process of its own. Shares below zero: the parts are more than the whole call.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hybridml_examples.study.networks import NETWORKS, OPTIMIZERS, known
from hybridml_examples.study.timing import cpu_model

RESULTS = Path(__file__).parent / "results" / "explained.json"


def explained(name: str) -> dict[str, float]:
    """Milliseconds of a step and unattributed shares in both styles, and seconds of the report."""
    import hybridml as hm

    row = NETWORKS[name]
    size = row.full
    hm.manual_seed(0)
    model, loss_of = hm.models.get_model(name, **size.options), hm.models.loss_of(name)
    batch = [hm.asarray(array) for array in hm.models.example_batch(name, size.batch, **size.sizes)]
    rule = hm.optim.Adam if row.optimizer == "adam" else hm.optim.SGD
    optimizer = rule(model.parameters(), **OPTIMIZERS[row.optimizer])

    def step(*arrays: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, *arrays)
        loss.backward()
        optimizer.step()
        return loss

    start = time.perf_counter()
    found = hm.explain_speed(step, *batch)
    seconds = time.perf_counter() - start
    styles = {"eager": found.eager, "traced": found.traced}
    shares = {f"{style} unattributed": round(of.unattributed, 4) for style, of in styles.items()}
    return {**{f"{style} ms": round(of.ms, 2) for style, of in styles.items()}, **shares, "report s": round(seconds, 1)}


def main(names: list[str]) -> None:
    """Explains the networks, prints a line of each, and writes them where all were asked for."""
    rows: dict[str, Any] = {}
    for name in names or known():
        made = subprocess.run(
            [sys.executable, "-m", "benchmarks.explained", "--one", name], stdout=subprocess.PIPE, text=True, check=True
        )
        rows[name] = json.loads(made.stdout.splitlines()[-1])
        print(name, rows[name], flush=True)
    if not names:
        record = {"command": "python -m benchmarks.explained", "cpu": cpu_model(), "networks": rows}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(explained(sys.argv[2])))
    else:
        main(sys.argv[1:])
