"""The fork-join pool that generated code calls: `hml_parallel_chunks(pool, fn, arg, total, granule, ranges)`.

Workers are Python daemon threads that spend their life inside one native call with the GIL released (`pool_ir` is that
code): no thread is created by native code, nothing idles on a core, and a job costs little ([Note: Runtime]). Threads
start with the first job (in a forked child too) and end before the interpreter does. The control block's address never
changes, so that code linked once follows `set_num_threads`.

Where there is no futex (anything but Linux) the pool is serial: the same symbols, one direct call.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import threading
import time
from contextlib import suppress

from .... import config
from ....config import MAX_THREADS
from ....errors import warn
from ....once import once
from ....runtime import stacks
from ..spec import cores
from . import jit, polling, scratch
from .linking import loader
from .pool_block import BLOCK_BYTES, CALLED, EXPORTS, LIBC, LINE, MIN_SPIN, PARALLEL, POOL, SPIN_NS

PATIENCE = 60.0  # seconds that set_num_threads waits for a running job

_POOL, _FN, _INT = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64


def get_num_threads() -> int:
    """Threads that share a parallel loop, the caller among them.

    The default is `HYBRIDML_NUM_THREADS`, or else the CPUs this process may run on (affinity mask and container quota).

    >>> import hybridml as hm
    >>> hm.get_num_threads() >= 1
    True
    """
    return _requested() if _instance is None else _instance.threads


def set_num_threads(count: int) -> None:
    """Share parallel loops among `count` threads from now on, in code that is linked already too.

    Waits for a parallel loop that is running. Raises TypeError for anything but an integer, and ValueError unless
    1 <= count <= 512.

        >>> set_num_threads(1)
        >>> get_num_threads()
        1
    """
    count = operator.index(count)
    if not 1 <= count <= MAX_THREADS:
        raise ValueError(f"set_num_threads takes a whole number from 1 to {MAX_THREADS}, got {count!r}")
    if count > 1 and not PARALLEL:
        warn("hybridml: parallel loops need Linux; they run on one thread here")
        count = 1
    config.change("num_threads", count)


def _resize(count: int | None) -> None:
    """Changes the threads of the pool, if there is one by now; None: to the default."""
    if _instance is not None:
        _instance.resize(_requested() if count is None or not PARALLEL else count)


config.on_change["num_threads"] = _resize


def control() -> int:
    """The address of the control block, the first argument of the pool's functions."""
    return _pool().block


def symbols() -> dict[str, int]:
    """Addresses of the functions that generated code imports.

    `hml_pool` is the control block, and `void hml_parallel_chunks(ptr pool, ptr fn, ptr arg, i64 total, i64 granule,
    i64 ranges)`, which steps call, runs `void fn(ptr arg, i64 lo, i64 hi)` over [0, total), so many ranges per thread
    with borders at multiples of `granule`; a thread that is done takes over ranges of another. It is one direct call
    with one thread, with total <= granule, nested, or while another thread's job runs. `hml_parallel`, which `run`
    calls, has one range per thread. `hml_parallel_stops` takes another word, whether the job is to end early where
    `hml_poll` says so.
    """
    pool = _pool()
    code = {name: pool.library.address(name) for name in CALLED}
    return code | {"hml_pool": pool.block}


def source() -> jit.Source:
    """The module of the pool, for those who compile others at the same time: once per machine."""

    def emit() -> str:
        from . import pool_ir

        return pool_ir.text()

    emitters = ("targets.cpu.runtime.pool_*", "targets.cpu.runtime.thread_block")
    return jit.emitted_source("pool", emit, *emitters, opt=jit.RARELY_CALLED)


def run(function: int, argument: int, total: int, granule: int) -> None:
    """`hml_parallel` from Python; the addresses are the caller's to keep alive.

    Raises MemoryError where there is none for the scratch memory of this thread.
    """
    pool = _pool()
    scratch.require()
    pool.parallel(pool.block, function, argument, total, granule)


def _requested() -> int:
    """The thread count before there is a pool."""
    return (config.changed("num_threads") if PARALLEL else None) or _default_count()


@once
def _default_count() -> int:
    if not PARALLEL:
        return 1
    asked = config.initial("num_threads")
    return cores() if asked is None else asked


class Pool:
    """The control block, the code on it and the worker threads. One per process; the busy word is its lock."""

    def __init__(self, threads: int) -> None:
        libc = ctypes.CDLL(None) if PARALLEL else None
        imports = {name: loader.address_of(getattr(libc, name)) for name in LIBC} if libc else {}
        imports |= {**scratch.symbols(), **polling.symbols()}  # which workers have no errors to raise for
        self.library = loader.load([jit.compile_source(source())], imports, EXPORTS)
        address = self.library.address
        self.parallel = ctypes.CFUNCTYPE(None, _POOL, _FN, _FN, _INT, _INT)(address("hml_parallel"))
        self._worker = ctypes.CFUNCTYPE(None, _POOL, _INT)(address("hml_worker"))
        self._stop = ctypes.CFUNCTYPE(None, _POOL)(address("hml_stop"))
        self._try_lock = ctypes.CFUNCTYPE(ctypes.c_int, _POOL)(address("hml_try_lock"))
        self._unlock = ctypes.CFUNCTYPE(None, _POOL)(address("hml_unlock"))
        self._spin = ctypes.CFUNCTYPE(None, _POOL, _INT)(address("hml_spin"))
        self._memory = ctypes.create_string_buffer(BLOCK_BYTES + LINE)
        self.block = -(-ctypes.addressof(self._memory) // LINE) * LINE
        self._started_by_native = ctypes.CFUNCTYPE(None)(self._start)
        self._workers: list[threading.Thread] = []
        self._set("start", loader.address_of(self._started_by_native))
        self._set("threads", threads)

    @property
    def threads(self) -> int:
        """The count that the next job will use."""
        return self._get("threads")

    def _get(self, field: str) -> int:
        return int(ctypes.c_int64.from_address(self.block + POOL.offset(field)).value)

    def _set(self, field: str, value: int) -> None:
        ctypes.c_int64.from_address(self.block + POOL.offset(field)).value = value

    def resize(self, threads: int) -> None:
        """End the present workers; the next job starts the new ones."""
        if threads == self.threads:
            return
        if not self._lock(PATIENCE):
            raise RuntimeError(
                f"set_num_threads({threads}) waited {PATIENCE:.0f} s for a running parallel loop; "
                "it cannot be called from inside one"
            )
        try:
            self._end_workers()
            self._set("threads", threads)
        finally:
            self._unlock(self.block)

    def close(self) -> None:
        """Closes the pool at exit: later jobs run on their caller alone. A job that still runs keeps its (daemon)
        workers."""
        self._set("threads", 1)
        if self._workers and self._lock(1.0):
            self._end_workers()
            self._unlock(self.block)

    def forget_workers(self) -> None:
        """Forgets the workers in a forked child: they, and whoever held the lock, stayed in the parent."""
        self._workers = []
        for field in ("started", "stop", "sleepers", "busy"):
            self._set(field, 0)

    def _start(self) -> None:
        """Called by native code, which holds the lock and cannot be raised through: a failure means fewer threads."""
        try:
            if not self._get("max_spin"):
                self._set("max_spin", max(MIN_SPIN, int(SPIN_NS / self._pause_ns())))
            for who in range(1, self.threads):
                worker = threading.Thread(target=self._work, args=(who,), daemon=True, name=f"hybridml-{who}")
                with stacks.roomy():
                    worker.start()
                self._workers.append(worker)
            self._set("started", self.threads)
        except BaseException as error:
            self._set("threads", len(self._workers) + 1)
            self._set("started", len(self._workers) + 1)
            with suppress(Warning):
                warn(
                    f"hybridml: could start only {len(self._workers)} worker threads ({error!r}); "
                    f"parallel loops use {len(self._workers) + 1} threads from now on"
                )

    def _work(self, who: int) -> None:
        """A worker's life; where there is no memory for it to work in, others take its ranges."""
        if scratch.prepare():
            self._worker(self.block, who)

    def _pause_ns(self) -> float:
        """Time of one poll: the least of three, since being preempted can only make it longer."""

        def once() -> float:
            start = time.perf_counter_ns()
            self._spin(self.block, 1000)
            return (time.perf_counter_ns() - start) / 1000

        return max(0.5, min(once() for _ in range(3)))

    def _end_workers(self) -> None:
        if self._workers:
            self._stop(self.block)
            for worker in self._workers:
                worker.join(PATIENCE)
        self._workers = []
        self._set("stop", 0)
        self._set("started", 0)

    def _lock(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while not self._try_lock(self.block):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0005)
        return True


_instance: Pool | None = None


@once
def _pool() -> Pool:
    global _instance
    _instance = Pool(_requested())
    return _instance


def _after_fork() -> None:
    if _instance is not None:
        _instance.forget_workers()


def _at_exit() -> None:
    if _instance is not None:
        _instance.close()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
