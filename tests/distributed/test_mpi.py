"""Real processes: what threads are tested for runs over MPI, with the same bits, and nothing waits for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybridml import run as launcher

Mpi = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parent.parent.parent

# A collective of each kind, in both styles; rank 0 prints what all have found, and what threads find of the same.
COLLECTIVES = """
import json
import numpy as np
import hybridml as hm
from hybridml import distributed as dist

def found(traced):
    size, rank = dist.get_world_size(), dist.get_rank()
    half = dist.init().split(rank % 2)
    def step(x):
        whole, all_of = dist.all_reduce(x), dist.all_gather(x)
        part, turned, sent = dist.reduce_scatter(x), dist.all_to_all(x), dist.broadcast(x, 1)
        zero = dist.send(x * 3, (rank + 1) % size)
        got = dist.recv(x, (rank - 1) % size)
        dist.barrier()
        got = got + dist.all_reduce(x.sum(), "mean")
        most = dist.all_reduce(x > 2, "max").astype(x.dtype)
        return sum((y ** 2).sum() for y in (whole, all_of, part, turned, sent, got, most)) + (
            dist.all_reduce(x, "prod", half).sum() + zero)
    run = hm.value_and_grad(step)
    run = hm.trace(run) if traced else run
    x = hm.asarray(np.random.default_rng(rank).standard_normal((2 * size, 3)).astype(np.float32))
    for _ in range(3):
        value, gradient = run(x)
    return [float(value), gradient.tolist()]
"""
MAIN = """
dist.init()
for traced in (False, True):
    mine = found(traced)
    everyone = dist.all_gather(hm.asarray([mine[1]], dtype=hm.float64)).tolist()
    if dist.get_rank() == 0:
        print(json.dumps(everyone))
"""


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_are_those_of_threads(job: Mpi, size: int) -> None:
    done = job(size, COLLECTIVES + MAIN)
    assert done.returncode == 0, done.stderr
    space: dict[str, object] = {}
    exec(COLLECTIVES, space)  # the text that the processes run
    for traced, line in zip((False, True), done.stdout.splitlines(), strict=True):
        ranks = space["dist"].run_threads(size, lambda traced=traced: space["found"](traced))  # type: ignore[attr-defined,operator]
        np.testing.assert_allclose(json.loads(line), [gradient for _, gradient in ranks], rtol=1e-5)


TRAINING = """
import hashlib
import numpy as np
import hybridml as hm
from hybridml import distributed as dist

rank, size = dist.get_rank(), dist.get_world_size()

def trained(traced):
    hm.manual_seed(rank)
    net = hm.nn.Sequential(hm.nn.Linear(9, 400), hm.nn.ReLU(), hm.nn.Linear(400, 5))
    model = dist.DataParallel(net, bucket_mb=5e-3)
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((24, 9)).astype(np.float32), rng.integers(0, 5, 24)
    x, y = hm.asarray(x[rank::size]), hm.asarray(y[rank::size])
    def step(x, y):
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    run = hm.trace(step) if traced else step
    losses = [float(dist.all_reduce(run(x, y))) / size for _ in range(6)]
    return losses, hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()

for traced in (False, True):
    losses, weights = trained(traced)
    with open(f"{size}-{rank}.txt", "a") as file:
        print(traced, weights, *losses, file=file)
"""


def test_training_has_the_same_losses_with_any_number_of_processes(job: Mpi, tmp_path: Path) -> None:
    """To rounding; equal bits on all ranks."""
    losses = []
    for size in (1, 2, 3):
        done = job(size, TRAINING)
        assert done.returncode == 0, done.stderr
        texts = [(tmp_path / f"{size}-{rank}.txt").read_text() for rank in range(size)]
        lines = [line.split() for text in texts for line in text.splitlines()]
        for style in ("False", "True"):
            assert len({weights for traced, weights, *_ in lines if traced == style}) == 1
        losses += [[float(loss) for loss in found] for _, _, *found in lines]
    for found in losses[1:]:
        assert found == pytest.approx(losses[0], abs=1e-5)


def test_what_is_begun_goes_on_aside_where_other_machines_are_waited_for(job: Mpi) -> None:
    done = job(
        2,
        """
import socket, zlib
import hybridml as hm
from hybridml import distributed as dist
hm.set_num_threads(256)  # more than there are cores
host = hm.asarray(zlib.crc32(socket.gethostname().encode()))
differ = bool(dist.all_reduce(host, "max") != dist.all_reduce(host, "min"))
assert dist.init().transport.overlaps == differ
hm.set_num_threads(1)
""",
    )
    assert done.returncode == 0, done.stderr


def test_large_sums_go_in_pieces(job: Mpi) -> None:
    done = job(
        2,
        """
import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.mpi import PIECE
n = PIECE // 4 + 5
for size in (n, 2 * n, n - 5):
    x = hm.arange(size, dtype="float32")
    assert bool((dist.all_reduce(x * (1 + dist.get_rank())) == 3 * x).all()), size
""",
    )
    assert done.returncode == 0, done.stderr


def test_calls_that_differ_end_the_job(job: Mpi) -> None:
    done = job(2, """
import hybridml as hm
from hybridml import distributed as dist
dist.init()
(dist.all_reduce if dist.get_rank() == 0 else dist.broadcast)(hm.ones(3))
""")  # fmt: skip
    assert done.returncode != 0
    assert (
        "rank 0 of 2 has called all_reduce(float32[3], sum), collective 0; rank 1 has called broadcast" in done.stderr
    )
    assert "script.py:5" in done.stderr


def test_a_rank_that_does_not_come_is_named(job: Mpi) -> None:
    done = job(3, """
import time
import hybridml as hm
from hybridml import distributed as dist
dist.init(timeout=1.0)
if dist.get_rank() == 2:
    time.sleep(100)
dist.all_reduce(hm.ones(3))
""")  # fmt: skip
    assert done.returncode != 0
    assert "rank 2 did not come within 1 s" in done.stderr


def test_an_error_of_one_process_ends_all(job: Mpi) -> None:
    done = job(2, """
import hybridml as hm
from hybridml import distributed as dist
dist.init()
if dist.get_rank() == 1:
    raise ValueError("of rank 1")
dist.all_reduce(hm.ones(3))
""")  # fmt: skip
    assert done.returncode != 0
    assert "ValueError: of rank 1" in done.stderr


# -- python -m hybridml.run


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hybridml.run", *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_processes_are_started_again(mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("""
import os, sys
import hybridml as hm
from hybridml import distributed as dist
restarts = os.environ["HYBRIDML_RESTARTS"]
total = dist.all_reduce(hm.ones(1)).item()
if dist.get_rank() == 0:
    print("start", restarts, total, os.environ["HYBRIDML_NUM_THREADS"], *sys.argv[1:], flush=True)
dist.barrier()
if restarts != "2" and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
""")
    done = run("-n", "2", "--max-restarts", "2", "train.py", "--lr", "0.1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("start")]
    assert [line[1:3] for line in lines] == [["0", "2.0"], ["1", "2.0"], ["2", "2.0"]]
    assert all(line[4:] == ["--lr", "0.1"] and int(line[3]) >= 1 for line in lines)
    assert "2 restarts left" in done.stderr and "1 restarts left" in done.stderr


def test_restarts_have_an_end(mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    done = run("-n", "1", "--max-restarts", "1", "train.py", folder=tmp_path)
    assert done.returncode == 3 and done.stderr.count("a process has failed") == 2


def test_a_script_that_is_not_there(mpi: Mpi, tmp_path: Path) -> None:
    done = run("-n", "2", "nowhere.py", folder=tmp_path)
    assert done.returncode == 2 and "no file 'nowhere.py' here; -m runs a module" in done.stderr


def test_without_mpi_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launcher, "mpiexec", lambda: None)
    with pytest.raises(SystemExit):
        launcher.main(["-n", "2", __file__])
    assert "pip install 'hybridml[mpi]'" in capsys.readouterr().err


def test_who_has_given_up_is_not_waited_for(job: Mpi) -> None:
    """A rank that was late finds that the other one has gone on."""
    done = job(2, """
import time
import hybridml as hm
from hybridml import distributed as dist
dist.init(timeout=0.5)
if dist.get_rank() == 1:
    time.sleep(2)
try:
    dist.all_reduce(hm.ones(3))
except dist.CollectiveError as error:
    open(f"{dist.get_rank()}.txt", "w").write(str(error))
    time.sleep(3)
""")  # fmt: skip
    folder = Path(done.args[-1]).parent
    assert all("within 0.5 s" in (folder / f"{rank}.txt").read_text() for rank in (0, 1))


@pytest.mark.parametrize("last", ["sys.exit(3)", "sys.exit('no data')", "pass"])
def test_a_process_that_ends_is_named(job: Mpi, last: str) -> None:
    done = job(2, f"""
import sys
import hybridml as hm
from hybridml import distributed as dist
dist.init()
dist.barrier()
if dist.get_rank() == 0:
    dist.all_reduce(hm.ones(3))
else:
    {last}
""")  # fmt: skip
    assert done.returncode != 0
    assert "rank 0 of 2 has called all_reduce(float32[3], sum), collective 1, and rank 1 has ended" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_all_and_starts_nothing_again(mpi: Mpi, tmp_path: Path, number: int) -> None:
    (tmp_path / "train.py").write_text("""
import os, time
from hybridml import distributed as dist
dist.barrier()
open(f"{os.getpid()}.pid", "w").close()
time.sleep(60)
""")
    command = [sys.executable, "-m", "hybridml.run", "-n", "2", "--max-restarts", "2", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as started:
        try:
            end = time.monotonic() + 60
            while len(list(tmp_path.glob("*.pid"))) < 2:
                assert time.monotonic() < end and started.poll() is None
                time.sleep(0.05)
            started.send_signal(number)
            assert started.wait(30) == 128 + number
        finally:
            started.kill()
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert len(pids) == 2
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)
