"""The fork-join pool: every index exactly once, whatever the counts, the callers and the fate of the process."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from hybridml_compiler.targets.cpu.runtime import jit, polling, pool_block, pool_ir, scratch, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader

RANGE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

# mark: arg[i] += 1 over [lo, hi); nested: the same through an inner parallel loop; chunked: four ranges a thread.
NATIVE = """
declare void @hml_parallel(ptr, ptr, ptr, i64, i64)
declare void @hml_parallel_chunks(ptr, ptr, ptr, i64, i64, i64)
@hml_pool = external global i8
define void @mark(ptr %a, i64 %lo, i64 %hi) {
  %none = icmp uge i64 %lo, %hi
  br i1 %none, label %r, label %l
l: %i = phi i64 [%lo, %0], [%j, %l]
  %p = getelementptr i64, ptr %a, i64 %i
  %o = load i64, ptr %p
  %n = add i64 %o, 1
  store i64 %n, ptr %p
  %j = add i64 %i, 1
  %e = icmp uge i64 %j, %hi
  br i1 %e, label %r, label %l
r: ret void }
define void @nested(ptr %a, i64 %lo, i64 %hi) {
  %p = getelementptr i64, ptr %a, i64 %lo
  %n = sub i64 %hi, %lo
  call void @hml_parallel(ptr @hml_pool, ptr @mark, ptr %p, i64 %n, i64 1)
  ret void }
define void @linked(ptr %a, i64 %n, i64 %times) {
  br label %l
l: %i = phi i64 [0, %0], [%j, %l]
  call void @hml_parallel(ptr @hml_pool, ptr @mark, ptr %a, i64 %n, i64 16)
  %j = add i64 %i, 1
  %e = icmp uge i64 %j, %times
  br i1 %e, label %r, label %l
r: ret void }
define void @chunked(ptr %a, i64 %n, i64 %per) {
  call void @hml_parallel_chunks(ptr @hml_pool, ptr @mark, ptr %a, i64 %n, i64 16, i64 %per)
  ret void }
"""
PROGRAM = f"""
import ctypes, os, sys, threading
import numpy as np
from hybridml_compiler.targets.cpu.runtime import jit, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader
library = loader.load([jit.compile_cached('''{NATIVE}''')], threads.symbols(), ["mark"])
data = np.zeros(1000, np.int64)
def job():
    threads.run(library.address("mark"), data.ctypes.data, data.size, 16)
threads.set_num_threads(3)
job()
assert (data == 1).all() and threading.active_count() == 3
"""


@pytest.fixture(scope="module")
def native() -> loader.Library:
    exports = ["mark", "nested", "linked", "chunked"]
    return loader.load([jit.compile_cached(NATIVE)], threads.symbols(), exports)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def linked(native: loader.Library, name: str = "linked") -> ctypes._CFunctionType:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(native.address(name))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_index_once(native: loader.Library, count: int) -> None:
    threads.set_num_threads(count)
    assert threads.get_num_threads() == count
    for total, granule in itertools.product((0, 1, 15, 16, 17, 1000, 99_991), (1, 16, 1000, 10**6)):
        data = np.zeros(total + 1, np.int64)
        for _ in range(5):
            threads.run(native.address("mark"), data.ctypes.data, total, granule)
        assert (data[:-1] == 5).all() and data[-1] == 0, (total, granule)


@pytest.mark.parametrize(("count", "total", "granule"), [(2, 1000, 16), (3, 1001, 100), (4, 30, 16), (2, 17, 0)])
def test_borders_are_multiples_of_the_granule(count: int, total: int, granule: int) -> None:
    threads.set_num_threads(count)
    seen: list[tuple[int, int]] = []
    body = RANGE(lambda _, lo, hi: seen.append((lo, hi)))
    threads.run(loader.address_of(body), 0, total, granule)
    seen.sort()
    units = -(-total // max(granule, 1))
    assert len(seen) == (min(count, units) if total > granule else 1)
    assert seen[0][0] == 0 and seen[-1][1] == total
    for (_, hi), (lo, _) in itertools.pairwise(seen):
        assert hi == lo and (granule == 0 or lo % granule == 0)
    sizes = [-(-(hi - lo) // max(granule, 1)) for lo, hi in seen]
    assert max(sizes) - min(sizes) <= 1


def test_chunks_a_thread(native: loader.Library) -> None:
    threads.set_num_threads(3)
    for per in (1, 4, 1000):
        data = np.zeros(100_000, np.int64)
        linked(native, "chunked")(data.ctypes.data, data.size, per)
        assert (data == 1).all()


def test_small_jobs_are_one_direct_call() -> None:
    threads.set_num_threads(4)
    seen: list[tuple[int, int, int]] = []
    body = RANGE(lambda _, lo, hi: seen.append((lo, hi, threading.get_ident())))
    threads.run(loader.address_of(body), 0, 64, 64)
    assert seen == [(0, 64, threading.get_ident())]


def test_nested_loops_run_in_their_caller(native: loader.Library) -> None:
    threads.set_num_threads(3)
    data = np.zeros(10_000, np.int64)
    for _ in range(50):
        threads.run(native.address("nested"), data.ctypes.data, data.size, 16)
    assert (data == 50).all()


def test_callers_and_changes_of_the_count_at_once(native: loader.Library) -> None:
    run = linked(native)
    arrays = [np.zeros(5000, np.int64) for _ in range(4)]

    def call(data: np.ndarray) -> None:
        for _ in range(30):
            run(data.ctypes.data, data.size, 20)

    callers = [threading.Thread(target=call, args=(data,)) for data in arrays]
    for caller in callers:
        caller.start()
    for turn in range(20):
        threads.set_num_threads(1 + turn % 4)
    for caller in callers:
        caller.join()
    assert all((data == 600).all() for data in arrays)


def test_linked_code_follows_the_count(native: loader.Library) -> None:
    run, data = linked(native), np.zeros(5000, np.int64)
    address = threads.control()
    for turn, count in enumerate((1, 3, 2, 5, 1, 2), 1):
        threads.set_num_threads(count)
        run(data.ctypes.data, data.size, 10)
        assert (data == 10 * turn).all()
        workers = [t for t in threading.enumerate() if t.name.removeprefix("hybridml-").isdecimal()]
        assert len(workers) == (count - 1 if pool_block.PARALLEL else 0)
    assert threads.control() == address == threads.symbols()["hml_pool"]


@pytest.mark.parametrize("bad", [0, -1, 10**6])
def test_counts_out_of_range(bad: int) -> None:
    with pytest.raises(ValueError, match="whole number from 1 to"):
        threads.set_num_threads(bad)


def test_counts_that_are_not_whole() -> None:
    with pytest.raises(TypeError):
        threads.set_num_threads(2.5)
    threads.set_num_threads(np.int64(2))
    assert threads.get_num_threads() == (2 if pool_block.PARALLEL else 1)


def test_change_inside_a_loop_is_an_error_and_not_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE", 0.05)
    threads.set_num_threads(2)
    caught: list[BaseException] = []

    def change(_: int, lo: int, hi: int) -> None:
        try:
            threads.set_num_threads(3)
        except RuntimeError as error:
            caught.append(error)

    body = RANGE(change)
    threads.run(loader.address_of(body), 0, 100, 1)
    assert caught and "running parallel loop" in str(caught[0])
    assert threads.get_num_threads() == 2


def test_threads_that_cannot_start_leave_a_working_pool(
    native: loader.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.set_num_threads(1)
    threads.set_num_threads(4)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    data = np.zeros(1000, np.int64)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.warns(RuntimeWarning, match="could start only 0 worker threads"):
            threads.run(native.address("mark"), data.ctypes.data, data.size, 16)
    assert (data == 1).all() and threads.get_num_threads() == 1


def process(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


EXITS = {
    "normal": ("", 0),
    "raise SystemExit": ("raise SystemExit(3)", 3),
    "exception": ("raise ValueError", 1),
    "no atexit": ("import atexit\natexit.unregister(threads._at_exit)", 0),
    "job at exit": ("import atexit\natexit.register(job)", 0),
    "other thread running": (
        "t = threading.Thread(target=lambda: [job() for _ in range(10**9)], daemon=True)\nt.start()",
        0,
    ),
    "os._exit": ("os._exit(5)", 5),
}


@pytest.mark.parametrize("way", EXITS)
def test_the_process_ends(way: str) -> None:
    lines, status = EXITS[way]
    done = process(PROGRAM + lines)
    assert done.returncode == status, done.stderr
    assert status == 1 or not done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork")
def test_forked_children_have_their_own_workers() -> None:
    program = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        data[:] = 0
        assert threading.active_count() == 1
        for _ in range(100): job()
        os._exit(0 if (data == 100).all() and threading.active_count() == 3 else 1)
    assert os.waitpid(pid, 0)[1] == 0
job()
assert (data == 2).all()
import multiprocessing
def child(k):
    data[:] = 0
    job()
    return int(data.sum())
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(child, range(4)) == [1000] * 4
"""
    done = process(PROGRAM + program)
    assert done.returncode == 0, done.stderr


def test_the_environment_sets_the_default() -> None:
    show = "from hybridml_compiler.targets.cpu.runtime import threads; print(threads.get_num_threads())"
    assert process(show, HYBRIDML_NUM_THREADS="3").stdout == ("3\n" if pool_block.PARALLEL else "1\n")
    bad = process(show, HYBRIDML_NUM_THREADS="many")
    assert int(bad.stdout) >= 1
    assert not pool_block.PARALLEL or "HYBRIDML_NUM_THREADS='many' is ignored" in bad.stderr


def test_the_serial_variant_links_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_ir, "PARALLEL", False)
    imports = {**scratch.symbols(), **polling.symbols()}
    library = loader.load([jit.compile_cached(pool_ir.text())], imports, pool_block.EXPORTS)
    block = np.zeros(pool_block.BLOCK_BYTES // 8, np.int64)
    block[pool_block.POOL.offset("threads") // 8] = 1
    seen: list[tuple[int, int]] = []
    body = RANGE(lambda _, lo, hi: seen.append((lo, hi)))
    parallel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)
    parallel(library.address("hml_parallel"))(block.ctypes.data, loader.address_of(body), 0, 1000, 1)
    assert seen == [(0, 1000)]
