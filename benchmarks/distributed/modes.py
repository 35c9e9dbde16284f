"""Ways to train with many workers, on the same digits: losses by gradients, and how many of the test are right.

    python -m benchmarks.distributed.modes                                     synchronous, backup, asynchronous, ...
    python -m benchmarks.distributed.modes --engine ray --json benchmarks/results/modes.json

Each way has the same workers, of which the last is slow, and each of them the same batches: what differs is whose
gradients are taken, and when. Federated clients have two classes of digits each.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml.distributed import servers
from hybridml_examples.digits import load

BATCH = 32
SLOW = 0.01  # seconds that the last worker needs for a step beside what the others need
POINTS = 6  # of a curve that are printed


def mlp() -> hm.nn.Module:
    hm.manual_seed(0)
    return hm.nn.Sequential(hm.nn.Flatten(), hm.nn.Linear(64, 64), hm.nn.ReLU(), hm.nn.Linear(64, 10))


def cross_entropy(model: Any, x: Any, y: Any) -> Any:
    return hm.functional.cross_entropy(model(x), y)


def sgd(params: Any) -> Any:
    return hm.optim.SGD(params, lr=0.1)


def of_worker(x: np.ndarray, y: np.ndarray, workers: int) -> Callable[..., Any]:
    """The loss of a batch that the step and the worker draw."""
    run = hm.trace(cross_entropy)
    run = hm.trace(cross_entropy)

    def loss(model: Any, step: int, rank: int) -> Any:
        time.sleep(SLOW if rank == workers - 1 else 0)
        chosen = np.random.default_rng((step, rank)).integers(0, len(x), BATCH)
        return run(model, hm.asarray(x[chosen]), hm.asarray(y[chosen]))

    return loss


def of_client(parts: list[tuple[np.ndarray, np.ndarray]]) -> Callable[..., Any]:
    """The loss of a batch of a client's own."""
    run = hm.trace(cross_entropy)

    def loss(model: Any, step: int, client: int) -> Any:
        x, y = parts[client]
        chosen = np.random.default_rng((step, client)).integers(0, len(x), BATCH)
        return run(model, hm.asarray(x[chosen]), hm.asarray(y[chosen]))

    return loss


def by_class(x: np.ndarray, y: np.ndarray, clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Parts that have few classes each, as McMahan et al. made them: sorted by class, two pieces to each client."""
    pieces = np.array_split(np.argsort(y, kind="stable"), 2 * clients)
    order = np.random.default_rng(0).permutation(2 * clients)
    chosen = [np.concatenate([pieces[order[2 * k]], pieces[order[2 * k + 1]]]) for k in range(clients)]
    return [(x[rows], y[rows]) for rows in chosen]


WAYS: dict[str, dict[str, Any]] = {
    "sync": {"mode": "sync"},
    "backup, 3 of 4": {"mode": "backup", "need": 3},
    "async, staleness 0": {"mode": "async", "staleness": 0},
    "async, staleness 4": {"mode": "async", "staleness": 4},
    "sync, top 1 %": {"mode": "sync", "compression": servers.TopK(0.01)},
    "sync, one bit": {"mode": "sync", "compression": servers.OneBit()},
}


def main(engine: str, workers: int, steps: int, clients: int, rounds: int) -> list[dict[str, Any]]:
    """A record of each way to train."""
    training, test = (tuple(t.numpy() for t in part.tensors) for part in load())
    found = []

    def record(name: str, model: Any, losses: list[float], begin: float, **more: Any) -> None:
        seconds = time.perf_counter() - begin
        right = float((model(hm.asarray(test[0])).argmax(1) == hm.asarray(test[1])).mean())
        found.append(
            {
                "way": name,
                "losses": np.round(losses, 4).tolist(),
                "test accuracy": round(right, 4),
                "seconds": round(seconds, 2),
                **more,
            }
        )

    for name, options in WAYS.items():
        model, loss = mlp(), of_worker(*training, workers)
        with servers.ParameterServer(model, sgd, shards=2, engine=engine) as server:
            begin = time.perf_counter()
            ran = servers.train(server, loss, workers=workers, steps=steps, **options)
            record(
                name, model, ran.losses, begin, gradients=len(ran.updates), dropped=ran.dropped,
                staleness=dict(sorted(ran.staleness.items())), pushed=ran.bytes_pushed, pulled=ran.bytes_pulled,
            )  # fmt: skip
    for local_steps in (1, 10):
        model, parts = mlp(), by_class(*training, clients)
        begin = time.perf_counter()
        history = servers.federated(
            model, of_client(parts), sgd, examples=[len(y) for _, y in parts], rounds=rounds, fraction=0.5,
            local_steps=local_steps, workers=workers, engine=engine,
        )  # fmt: skip
        losses, moved = [each.loss for each in history], sum(each.bytes_moved for each in history)
        count = sum(len(each.clients) for each in history) * local_steps
        name = f"federated, {local_steps} local steps"
        record(name, model, losses, begin, gradients=count, pushed=moved // 2, pulled=moved // 2)
    return found


def table(found: list[dict[str, Any]]) -> str:
    """The records as a table, with some points of each curve."""
    lines = [
        "| way | losses | test | gradients | dropped | most stale | MB pushed | s |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in found:
        points = np.linspace(0, len(each["losses"]) - 1, POINTS).astype(int)
        curve = " ".join(f"{each['losses'][k]:.2f}" for k in points)
        stale = max(each.get("staleness", {0: 0}))
        lines.append(
            f"| {each['way']} | {curve} | {each['test accuracy']:.3f} | {each['gradients']} | {each.get('dropped', 0)} "
            f"| {stale} | {each['pushed'] / 1e6:.1f} | {each['seconds']:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("ray", "threads"), default="threads")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = main(given.engine, given.workers, given.steps, given.clients, given.rounds)
    print(table(found))
    if given.json:
        command = shlex.join(["python", "-m", "benchmarks.distributed.modes", *sys.argv[1:]])
        given.json.write_text(json.dumps({"command": command, "ways": found}, indent=1) + "\n", encoding="utf-8")
