"""The engine of Ray's processes: the bits of the engine of threads, and through kills. One script is all of it, as Ray
takes seconds to start; tests look at what it has found."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
SECONDS = 240  # on a machine whose cores others use; alone it takes about 15

SCRIPT = '''
import hashlib, json, os, signal, sys
from pathlib import Path
import numpy as np
import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed import servers

FOLDER = Path(sys.argv[1])
WORDS = np.random.default_rng(0).integers(0, 30, (12, 6, 3))

class Bag(hm.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = servers.ShardedEmbedding(30, 4), hm.nn.Linear(4, 2)

@hm.trace
def program(head, vectors, y):
    return hm.functional.cross_entropy(head(vectors.sum(1)), y)

def loss(model, step, rank):
    words = WORDS[(step + 5 * rank) % 12]
    return program(model.head, model.table(hm.asarray(words)), hm.asarray(words.sum(1) % 2))

def dying(model, step, rank):
    """The loss of a worker that is killed once, on a server whose shard is killed once."""
    for victim, at in ((1, 4), (0, 8)):
        mark = FOLDER / f"killed {at}"
        if step == at and rank == victim and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL) if at == 4 else SHARD_DIES.touch()
    return loss(model, step, rank)

SHARD_DIES = FOLDER / "shard dies"

class Dying(hm.optim.SGD):
    def update(self, *args):
        if SHARD_DIES.exists():
            SHARD_DIES.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update(*args)

def trained(engine, fn, optimizer, then=None, **options):
    hm.manual_seed(0)
    model = Bag()
    make = lambda params: optimizer(params, lr=0.3)
    with servers.ParameterServer(model, make, shards=2, engine=engine, timeout=100.0) as server:
        training = servers.train(server, fn, workers=2, steps=12, **options)
        rows = model.table(hm.arange(30))
        end = [p.detach().numpy().copy() for p in model.parameters()]
        if then:
            found["updates"] = servers.train(server, fn, workers=2, steps=6, mode=then, staleness=0).updates
    bits = [rows.detach().numpy(), *end]
    digest = hashlib.sha256(b"".join(array.tobytes() for array in bits)).hexdigest()
    return {"digest": digest, "losses": training.losses, "restarts": training.restarts, "count": len(training.updates)}

def failing(model, step, rank):
    raise LookupError("mine")

def federated(engine):
    hm.manual_seed(0)
    model, x = hm.nn.Linear(3, 1), hm.asarray(np.random.default_rng(1).standard_normal((4, 8, 3), np.float32))
    client = lambda m, step, k: ((m(x[k]) - x[k].sum(1, keepdims=True)) ** 2).mean()
    rounds = servers.federated(model, client, lambda p: hm.optim.SGD(p, lr=0.1), examples=[1, 2, 3, 4], rounds=3,
                               fraction=0.5, local_steps=2, workers=1, engine=engine)
    return [model.weight.tolist(), rounds]

found = {"threads": trained("threads", loss, hm.optim.SGD)}
manager = dist.CheckpointManager(FOLDER / "checkpoints", save_interval_steps=3)
found["ray"] = trained("ray", dying, Dying, "async", checkpoints=manager)
found["federated"] = [federated(engine) for engine in ("ray", "threads")]
try:
    servers.federated(hm.nn.Linear(3, 1), failing, hm.optim.SGD, examples=[1], rounds=1, workers=1)
except LookupError as error:
    found["error"] = str(error)
(FOLDER / "found.json").write_text(json.dumps(found))
'''


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'hybridml[ray]'")
    folder = tmp_path_factory.mktemp("ray")
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    set_here = {"HYBRIDML_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(script), str(folder)]
    ran = subprocess.run(
        command,
        env={**os.environ, **set_here},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))


def test_processes_and_threads_end_with_the_same_bits_though_some_are_killed(found: Any) -> None:
    assert found["ray"]["restarts"] == 2
    for name in ("digest", "losses", "count"):
        assert found["ray"][name] == found["threads"][name]


def test_an_asynchronous_training_of_processes_makes_all_of_its_updates(found: Any) -> None:
    updates = found["updates"]
    assert sorted(tuple(update[:2]) for update in updates) == [(step, rank) for step in range(6) for rank in range(2)]
    versions = [version for *_, version, _ in updates]
    assert versions == list(range(versions[0], versions[0] + 12))


def test_clients_in_processes_train_as_those_in_threads(found: Any) -> None:
    by_ray, by_threads = found["federated"]
    assert by_ray == by_threads


def test_an_error_of_the_user_is_raised_as_it_is(found: Any) -> None:
    assert found["error"] == "mine"
