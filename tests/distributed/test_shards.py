"""Shards that processes of MPI divide among themselves, and among their workers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Mpi = Callable[[int, str], subprocess.CompletedProcess[str]]

PROGRAM = """
import json, tempfile
import numpy as np
import hybridml as hm
from hybridml import distributed as dist

world = dist.init()
if world.rank == 0:
    for shard, size in enumerate((5, 3, 4, 6)):
        np.save(f"part-{shard}.npy", np.arange(size) + 100 * shard)
dist.barrier()
for workers, paths in ((0, "part-*.npy"), (2, "part-*.npy"), (2, "part-0.npy")):
    make = lambda: hm.data.DataLoader(hm.data.NumpyShards(paths).shuffle(3, seed=1), None, num_workers=workers)
    loader, samples, states = make(), [], []
    for sample in loader:
        samples.append(int(sample))
        states.append(loader.state_dict())
    resumed = make()
    resumed.load_state_dict(states[0])
    assert [int(sample) for sample in resumed] == samples[1:]
    everything = dist.all_gather(hm.asarray(np.resize(np.array(samples + [-1] * 20), 20))).reshape(-1).tolist()
    found = sorted(sample for sample in everything if sample >= 0)
    expected = [100 * shard + k for shard, size in enumerate((5, 3, 4, 6)) for k in range(size)]
    assert found == [k for k in expected if k < 100 or paths != "part-0.npy"], found
print("divided")
"""

RESUMED = """
import numpy as np
import hybridml as hm
from hybridml import distributed as dist

world = dist.init()
if world.rank == 0:
    np.save("part-0.npy", np.arange(7))
    np.save("part-1.npy", np.arange(100, 109))
dist.barrier()
manager = dist.CheckpointManager("steps")
stream = lambda: hm.data.NumpyShards("part-*.npy").shuffle(3, seed=1)
loader, other = hm.data.DataLoader(stream(), 2), stream()
batches, samples = iter(loader), iter(other)
next(batches), next(samples), next(samples)
manager.save(1, {"loader": loader, "stream": other})
rest = [batch.tolist() for batch in batches], [int(sample) for sample in samples]
loader, other = hm.data.DataLoader(stream(), 2), stream()
assert manager.restore({"loader": loader, "stream": other}) == 1
assert ([batch.tolist() for batch in loader], [int(sample) for sample in other]) == rest
print(f"resumed {len(rest[1])}\\n", end="")  # at once: processes share the output
"""


def test_processes_divide_shards(mpi: Mpi) -> None:
    done = mpi(2, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("divided") == 2


def test_a_checkpoint_has_the_place_of_each_process(mpi: Mpi) -> None:
    done = mpi(2, RESUMED)
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "resumed" in line) == ["resumed 5", "resumed 7"]
