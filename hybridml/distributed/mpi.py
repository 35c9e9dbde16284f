"""Groups of processes that MPI has started, by mpi4py: `mpiexec -n 4 python train.py`."""

from __future__ import annotations

import atexit
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from types import TracebackType
from typing import Any

import numpy as np

from hybridml_compiler.errors import CollectiveError
from hybridml_compiler.targets.cpu.runtime.threads import get_num_threads
from hybridml_compiler.targets.cpu.spec import cores

from .transport import OWN_TAG, TIMEOUT, Call, differing, not_received, unlike

# Seconds that a wait spins, sleeps between its first looks, and at most; each sleep is so many times as long as the one
# before, so that a wait takes a quarter more than it must. With 50, 200 and 1000 us of spinning an all-reduce of 25 MB
# takes 1.2, 1.02 and 1.07 times MPI's.
SPIN, SHORTEST, LONGEST, LONGER = 200e-6, 20e-6, 250e-6, 1.25
PIECE = 2 << 20  # bytes of a reduction at once: 154 MB take 87 ms as a whole, in pieces of 1, 2, 25 MiB 44, 40, 41
GRACE = 2.0  # seconds in which processes that wait in vain tell each other where they are
FORWARDED = 0.5  # seconds for the launcher to pass on what a process has said before it ends them all
# Tags of the messages of those that have waited in vain, and of those that end; a tag of `send` is two of MPI's, below
# these. Everywhere MPI has 32,767.
_LATE, _GONE = 2 * OWN_TAG + 2, 2 * OWN_TAG + 3
_OPERATIONS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN"}


def _mpi() -> Any:
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "distributed.init: this MPI was not started for threads (MPI_THREAD_MULTIPLE), in which collectives go on "
            "beside the program; leave mpi4py.rc.thread_level as it is, or use another MPI"
        )
    return MPI


class MpiTransport:
    """The transport of a communicator. Processes meet in a reduction of a few bytes, which is looked at until it is
    done or time is up; then all are there, and the collective itself is MPI's blocking one."""

    def __init__(self, comm: Any = None, timeout: float = TIMEOUT, neighbours: int = 0) -> None:
        self.mpi = _mpi()
        self.comm = self.mpi.COMM_WORLD.Dup() if comm is None else comm
        self.rank, self.size, self.timeout = self.comm.Get_rank(), self.comm.Get_size(), timeout
        self._neighbours = neighbours or _of_this_machine(self.comm)  # processes that share the cores
        self._is_alone = _of_this_machine(self.comm) == self.size  # no machine but this one
        self._sent: list[tuple[Any, Any]] = []  # requests, and the memory that they read
        self._late = False
        self._last_words: list[Any] = []  # requests of messages that nobody may take
        atexit.register(self.close)  # MPI's own end comes after it
        self._said, self._greatest = np.zeros(2, np.int64), np.zeros(2, np.int64)

    @property
    def overlaps(self) -> bool:
        """With other machines always: what is waited for there is no core's work."""
        return not self._is_alone or self._neighbours * get_num_threads() < cores()

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def meet(self, call: Call) -> None:
        word = _word(str(call))
        self._said[:] = word, -word  # equal for all if the greatest is also the least
        request = self.comm.Iallreduce(self._said, self._greatest, self.mpi.MAX)
        gone: list[int] = []

        def done() -> bool:
            if not request.Test():
                gone.extend(self._gone())
                return bool(gone)
            return True

        in_time = _until(done, self.timeout)
        if gone and not _until(request.Test, FORWARDED):  # the last collective of one that has ended may be done
            raise CollectiveError(
                f"rank {self.rank} of {self.size} has called {call}, and rank {gone[0]} has ended: all ranks must call "
                "the same collectives"
            )
        if not gone and (not in_time or self._given_up()):
            self._late = True
            raise differing(self._others(call), self.rank, self.timeout)
        if self._greatest[0] != word or self._greatest[1] != -word:
            raise differing([Call(*said) for said in self.comm.allgather(tuple(call))], self.rank, self.timeout)

    def _others(self, call: Call) -> list[Call | None]:
        """The calls of the processes that wait, too."""
        found: list[Call | None] = [None] * self.size
        found[self.rank] = call
        self._last_words += [self.comm.isend(tuple(call), r, _LATE) for r in self._peers()]
        status = self.mpi.Status()

        def all_heard() -> bool:
            while self.comm.iprobe(self.mpi.ANY_SOURCE, _LATE, status):
                source = status.Get_source()
                found[source] = Call(*self.comm.recv(source=source, tag=_LATE))
            return None not in found

        _until(all_heard, GRACE)
        return found

    def _given_up(self) -> bool:
        """Whether another process waits no longer. The first look lets MPI take what has come, the next one sees it."""
        return any(self.comm.iprobe(self.mpi.ANY_SOURCE, _LATE) for _ in range(3))

    def _peers(self) -> list[int]:
        return [r for r in range(self.size) if r != self.rank]

    def _gone(self) -> list[int]:
        """A rank that has ended, where one has."""
        status = self.mpi.Status()
        return [status.Get_source()] if self.comm.iprobe(self.mpi.ANY_SOURCE, _GONE, status) else []

    def _operation(self, reduce: str) -> Any:
        return getattr(self.mpi, _OPERATIONS[reduce])

    def all_reduce(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        made, given, step, in_place = out.reshape(-1), array.reshape(-1), PIECE // array.itemsize, out is array
        for at in range(0, given.size, step):
            piece = self.mpi.IN_PLACE if in_place else given[at : at + step]
            self.comm.Allreduce(piece, made[at : at + step], self._operation(reduce))

    def broadcast(self, array: np.ndarray, root: int) -> None:
        self.comm.Bcast(_bytes(array), root)

    def all_gather(self, out: np.ndarray, array: np.ndarray) -> None:
        self.comm.Allgather(_bytes(array), _bytes(out))

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        self.comm.Reduce_scatter_block(array, out, self._operation(reduce))

    def all_to_all(self, out: np.ndarray, array: np.ndarray) -> None:
        self.comm.Alltoall(_bytes(array), _bytes(out))

    def send(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        """Puts a copy on its way: two processes that send to each other first do not wait for each other."""
        self._sent = [one for one in self._sent if not one[0].Test()]
        kept = array.copy()
        header = self.comm.isend((array.shape, array.dtype.name, of), peer, 2 * tag)
        self._sent += [(header, None), (self.comm.Isend(_bytes(kept), peer, 2 * tag + 1), kept)]

    def receive(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        if not _until(lambda: self.comm.iprobe(peer, 2 * tag), self.timeout):
            raise not_received(self.rank, self.size, array, peer, tag, of, self.timeout)
        shape, dtype, other = sent = self.comm.recv(source=peer, tag=2 * tag)
        fits = shape == array.shape and dtype == array.dtype.name and other == of
        self.comm.Recv(_bytes(array if fits else np.empty(shape, dtype)), peer, 2 * tag + 1)
        if not fits:
            raise unlike(self.rank, array, peer, tag, of, sent)

    def split(self, color: int, key: int) -> MpiTransport:
        return MpiTransport(self.comm.Split(color, key), self.timeout, self._neighbours)

    def close(self) -> None:
        """Waits until all that was sent has been taken, and tells the others that this process ends: a collective in
        which they wait for it would wait in vain. Then it waits for them, as MPI's own end does, which complains of
        messages that nobody has taken. Where processes have missed each other it ends them all, as MPI cannot complete
        what one of them has given up."""
        if self._late:
            _abort()
        _until(lambda: all(request.Test() for request, _ in self._sent), self.timeout)
        self._last_words += [self.comm.isend(None, r, _GONE) for r in self._peers()]
        left = set(self._peers())

        def alone() -> bool:
            while gone := self._gone():
                self.comm.recv(source=gone[0], tag=_GONE)
                left.discard(gone[0])
            return not left

        _until(alone, self.timeout)


def _until(done: Any, seconds: float) -> bool:
    """Looks until it is done; False where time is up."""
    start, pause = time.monotonic(), SHORTEST
    while not done():
        waited = time.monotonic() - start
        if waited > seconds:
            return False
        if waited > SPIN:
            time.sleep(pause)
            pause = min(LONGER * pause, LONGEST)
    return True


def _of_this_machine(comm: Any) -> int:
    """The number of processes of a communicator that run on this machine."""
    part = comm.Split_type(_mpi().COMM_TYPE_SHARED)
    found: int = part.Get_size()
    part.Free()
    return found


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array, for calls that only move it: MPI does not know all of our dtypes."""
    return array.reshape(-1).view(np.uint8)


def _word(text: str) -> int:
    """A number that differs for texts that differ, but for one pair in 2**62."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 2


def _abort() -> None:
    """Ends all processes of the job, once the launcher has passed on what this one has said."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(FORWARDED)
    _mpi().COMM_WORLD.Abort(1)


def abort_on_errors() -> None:
    """Lets an exception that nobody handles end all processes of the job, once it has been shown."""
    shown = sys.excepthook

    def show_and_abort(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        shown(kind, error, where)
        _abort()

    sys.excepthook = show_and_abort
