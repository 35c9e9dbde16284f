"""Groups: who is in them, and what is said of calls that do not match. No wait is without an end."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.inspect.snapshot import Snapshot

ROOT = Path(__file__).parent.parent.parent


def test_a_process_that_nobody_launched_is_a_group_of_one() -> None:
    group = dist.init()
    assert (group.rank, group.size, dist.get_rank(), dist.get_world_size()) == (0, 1, 0, 1)
    assert dist.init("local") is group and dist.is_initialized()
    assert group.split(3).size == 1


def test_a_backend_that_does_not_exist() -> None:
    with pytest.raises(hm.ArgumentError, match="backend is 'mpi' or 'local', got 'gloo'"):
        dist.init("gloo")


def test_parts_of_a_group() -> None:
    def rank() -> Any:
        world = dist.init()
        half = world.split(world.rank % 2, key=-world.rank)
        alone = half.split(half.rank)
        x = hm.tensor([1.0 + world.rank])
        return half.rank, half.size, dist.all_reduce(x, group=half).item(), alone.size, dist.all_reduce(x).item()

    assert dist.run_threads(5, rank) == [
        (2, 3, 9.0, 1, 15.0),
        (1, 2, 6.0, 1, 15.0),
        (1, 3, 9.0, 1, 15.0),
        (0, 2, 6.0, 1, 15.0),
        (0, 3, 9.0, 1, 15.0),
    ]


def test_collectives_of_two_groups_in_a_trace() -> None:
    def rank() -> float:
        half = dist.init().split(dist.get_rank() % 2)

        @hm.trace
        def step(x: Any) -> Any:
            return dist.all_reduce(x, group=half) * dist.all_reduce(x)

        return [step(hm.asarray(1.0 + dist.get_rank())).item() for _ in range(3)][-1]

    assert dist.run_threads(4, rank) == [40.0, 60.0, 40.0, 60.0]


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_calls_that_differ_are_named(traced: bool) -> None:
    def rank() -> str:
        step = dist.all_reduce if dist.get_rank() == 0 else dist.broadcast
        run = hm.trace(step) if traced else step
        with pytest.raises(dist.CollectiveError) as error:
            run(hm.ones(2))
        with pytest.raises(dist.CollectiveError, match="failed before, and its processes must start again: rank"):
            dist.barrier()
        return str(error.value)

    first, second = dist.run_threads(2, rank)
    assert "rank 0 of 2 has called all_reduce(float32[2], sum), collective 0; rank 1 has called" in first
    assert "rank 1 of 2 has called broadcast(float32[2], src=0), collective 0; rank 0 has called" in second
    assert "All ranks must call the same collectives in the same order" in first
    assert "test_groups.py" in first  # the line of the user


@pytest.mark.parametrize(
    "call",
    [
        lambda r: dist.all_reduce(hm.ones(2 + r)),
        lambda r: dist.all_reduce(hm.ones(2, dtype=(hm.float32, hm.float64)[r])),
        lambda r: dist.all_reduce(hm.ones(2), ("sum", "max")[r]),
        lambda r: dist.broadcast(hm.ones(2), src=r),
    ],
    ids=["shape", "dtype", "op", "src"],
)
def test_what_may_not_differ(call: Any) -> None:
    def rank() -> None:
        with pytest.raises(dist.CollectiveError, match=r"rank [01] has called"):
            call(dist.get_rank())

    dist.run_threads(2, rank)


def test_a_rank_that_does_not_come_is_named() -> None:
    def rank() -> str:
        if dist.get_rank() == 1:
            return ""
        with pytest.raises(dist.CollectiveError) as error:
            dist.all_reduce(hm.ones(2))
        return str(error.value)

    late = dist.run_threads(3, rank, timeout=0.2)[0]
    assert "rank 0 of 3 has called all_reduce(float32[2], sum), collective 0; rank 1 did not come within 0.2 s" in late
    assert "a longer timeout" in late


def test_an_error_of_one_rank_ends_the_waiting_of_the_others() -> None:
    def rank() -> None:
        if dist.get_rank() == 1:
            raise ValueError("of rank 1")
        dist.barrier()

    with pytest.raises(ValueError, match="of rank 1"):
        dist.run_threads(3, rank)


def test_a_tensor_that_was_not_sent_or_is_another() -> None:
    def rank() -> None:
        if dist.get_rank() == 1:
            dist.send(hm.ones(3), 0)
            return
        with pytest.raises(
            dist.CollectiveError, match=r"waits for float32\[2\] from rank 1 \(tag 0\), which has sent float32\[3\]"
        ):
            dist.recv(hm.ones(2), 1)

    dist.run_threads(2, rank)

    def alone() -> None:
        if dist.get_rank() == 0:
            with pytest.raises(
                dist.CollectiveError, match=r"rank 0 of 2 waits .* \(tag 7\), which did not come within 0.1 s"
            ):
                dist.recv(hm.ones(2), 1, tag=7)

    dist.run_threads(2, alone, timeout=0.1)


def test_tags_and_order_of_what_is_sent() -> None:
    def rank() -> list[float]:
        if dist.get_rank() == 0:
            for k, tag in enumerate((1, 2, 1)):
                dist.send(hm.asarray(float(k)), 1, tag=tag)
            return []
        return [dist.recv(hm.asarray(0.0), 0, tag=tag).item() for tag in (2, 1, 1)]

    assert dist.run_threads(2, rank)[1] == [1.0, 0.0, 2.0]


def test_a_traced_function_leaves_the_group_alone() -> None:
    """Traces roll back what they see change; calls of another thread of the rank came between, and were lost."""

    def rank() -> list[float]:
        model = dist.DataParallel(hm.nn.Linear(3, 3), bucket_mb=1e-5)

        @hm.trace
        def step(x: Any) -> Any:
            model.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            return loss

        return [dist.all_reduce(step(hm.ones((2, 3)))).item() for _ in range(6)]

    for found in dist.run_threads(2, rank, timeout=20.0):
        assert len(set(found)) == 1


def test_an_error_in_a_traced_step_of_one_rank_is_its_own() -> None:
    """The step is run again for its error, without calling the others again."""

    def rank() -> Any:
        step = hm.trace(lambda x, i: dist.all_reduce(x)[i] * 2)
        for _ in range(20):
            step(hm.ones(4), hm.tensor([0, 1]))
        if dist.get_rank() == 1:
            with pytest.raises(hm.OutOfBoundsError, match="index 9 is out of range"):
                step(hm.ones(4), hm.tensor([0, 9]))
        else:
            step(hm.ones(4), hm.tensor([0, 1]))
        return dist.all_reduce(hm.ones(1)).item()

    assert dist.run_threads(2, rank, timeout=20.0) == [2.0, 2.0]


def test_errors_of_what_was_begun_name_the_line_that_waits() -> None:
    def rank() -> str:
        model = dist.DataParallel(hm.nn.Linear(2, 1))
        if dist.get_rank() == 1:
            dist.all_reduce(hm.ones(3))
        else:
            model(hm.ones((1, 2))).sum().backward()
        return ""

    bucket = r"all_reduce\(float32\[3\], sum, bucket 0 of DataParallel 0: gradients of bias, weight\)"
    with pytest.raises(dist.CollectiveError, match=bucket + r"[^\n]*\n.*test_groups.py"):
        dist.run_threads(2, rank)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: dist.all_reduce(x, group=1), hm.ArgumentError, r"what distributed.init\(\) or .* got 1"),
        (lambda x: dist.broadcast(x, src=1.0), hm.ArgumentError, "src must be a rank"),
        (lambda x: dist.send(x, 1 - dist.get_rank(), tag=-1), hm.ArgumentError, "tag must be an integer from 0 to"),
        (lambda x: hm.vmap(lambda row: dist.recv(row, 0))(x), hm.ArgumentError, "recv: not inside of vmap"),
        (lambda x: dist.init().split(None), hm.ArgumentError, "color and key must be integers, got None"),
        (lambda x: dist.DataParallel(lambda y: y), hm.ArgumentError, "module must be a Module, got function"),
        (lambda x: dist.DataParallel(hm.nn.Linear(1, 1), bucket_mb=0), hm.ArgumentError, "bucket_mb must be above 0"),
    ],
)  # fmt: skip
def test_arguments_that_are_none(call: Any, error: type[Exception], text: str) -> None:
    def rank() -> None:
        with pytest.raises(error, match=text):
            call(hm.ones((2, 2)))
        dist.barrier()  # nobody was waited for

    dist.run_threads(2, rank)


def test_arrays_and_numbers_are_taken_as_tensors() -> None:
    found = dist.run_threads(2, lambda: (dist.all_reduce(1.5).item(), dist.all_gather(np.arange(2)).tolist()))
    assert found == [(3.0, [0, 1, 0, 1])] * 2


def test_a_group_is_no_part_of_copies_and_snapshots() -> None:
    def rank() -> list[str]:
        world = dist.init()
        model = dist.DataParallel(hm.nn.Linear(2, 1))
        pickled, copied = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
        assert pickled.group is copied.group is copy.deepcopy(world) is world
        for other in (pickled, copied):
            other(hm.full((1, 2), 1.0 + dist.get_rank())).sum().backward()
            assert other.module.weight.grad.tolist() == [[1.5, 1.5]]
            assert other.module.weight is not model.module.weight and model.module.weight.grad is None
        return [name for name in Snapshot(model=model).state() if name.startswith("model")]

    assert dist.run_threads(2, rank) == [["model.module.weight", "model.module.bias"]] * 2


def test_ctrl_c_ends_threads(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import os, signal
from hybridml import distributed as dist
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let jobs in the background ignore it
def endless():
    os.write(1, b"here\\n")
    while True:
        dist.barrier()
dist.run_threads(2, endless)
""")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as started:
        try:
            assert started.stdout is not None and started.stdout.readline() == b"here\n"
            started.send_signal(signal.SIGINT)
            assert started.wait(30) != 0
        finally:
            started.kill()


def test_processes_of_another_launcher_are_not_taken_for_one(tmp_path: Path) -> None:
    text = "from hybridml import distributed as dist; print(dist.init().size)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": "0", "WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "WORLD_SIZE is 2, which torchrun sets" in done.stderr


def test_the_timeout_may_be_set_later() -> None:
    def rank() -> float:
        dist.barrier()
        return dist.init(timeout=7.0).timeout

    assert dist.run_threads(2, rank) == [7.0, 7.0]


def test_an_error_of_a_traced_function_does_not_look_for_a_launcher() -> None:
    script = """
import hybridml as hm
from hybridml import distributed
run = hm.trace(lambda x, i: hm.take(x, i))
run(hm.ones(3), hm.asarray([0]))
try:
    run(hm.ones(3), hm.asarray([5]))
except hm.OutOfBoundsError:
    print("as it is")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "2"}  # of torchrun, which init refuses
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "as it is\n", done.stderr
