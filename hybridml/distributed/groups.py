"""Groups of processes: `init`, the groups that this process is in, and their tokens.

A group has a name, which is the same in all its processes: programs call it by that, so that a program's text does not
hold objects. Its token is a tensor that every collective reads and writes, so that a traced function takes it from the
one before it and leaves it to the one behind.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from hybridml_compiler.errors import ArgumentError, CollectiveError
from hybridml_compiler.ops.effects import ALONE

from ..core.shared.calls import Calls
from ..core.tensor import Tensor
from .launched import by_mpi, world_size
from .order import Order
from .seeing.log import Log, Sums, Work, now
from .transport import TIMEOUT, Call, Transport, is_whole

T = TypeVar("T")
WORLD = "world"  # the name of the group of all processes
_text = cache(str)  # of a dtype: NumPy takes 4 us for it


class Begun(NamedTuple, Generic[T]):
    """Work that was begun: the promise of its result, and the sums of what has been like it."""

    promise: Future[T]
    sums: Sums


class Group:
    """Processes that call collectives together; `init` and `split` make them.

    rank: the number of this process among them, from 0. size: how many they are. timeout: seconds that a collective
    waits for the others. name: what programs call the group; "alone" where it is this process alone.

    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, dist.init)
    [Group('world', rank=0, size=2), Group('world', rank=1, size=2)]
    """

    digested = ()  # a trace does not look inside: what changes there is no affair of a program

    def __init__(
        self, name: str, transport: Transport | None, log: Log | None = None, calls: Calls | None = None
    ) -> None:
        self.name, self._transport = ALONE if transport is None else name, transport
        self.rank, self.size = (0, 1) if transport is None else (transport.rank, transport.size)
        self.calls = calls or Calls()
        # By token: what has been begun, and where whoever waits for it says that it may be made.
        self.promised: dict[int, tuple[Begun[np.ndarray], list[np.ndarray]]] = {}
        self.models = itertools.count()  # numbers of DataParallels
        self.placed_calls, self.program = 0, ""  # calls of programs that processes compute together, and the last one
        self.plans: set[str] = set()  # of placed programs, which all processes have compared
        self.log = log or Log()  # that of all groups of the process
        self._number, self._splits = itertools.count(), itertools.count()
        self._messages: Counter[str] = Counter()  # by route
        self._order = Order(lambda: self.transport.overlaps)

    @property
    def token(self) -> Tensor:
        """The tensor that every collective of the process reads and writes."""
        return self.calls.token

    @property
    def transport(self) -> Transport:
        """The way in which arrays move. A group of this process alone has none, and does not ask."""
        assert self._transport is not None
        return self._transport

    @property
    def timeout(self) -> float:
        """Seconds that a collective waits for the other processes."""
        return TIMEOUT if self._transport is None else self._transport.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        if self._transport is not None:
            self._transport.timeout = seconds

    def __deepcopy__(self, memo: object) -> Group:
        return self  # of a model's copy, too: it is the processes, not an object of one

    def __reduce__(self) -> tuple[Any, ...]:
        return known, (self.name, "pickle")

    def __repr__(self) -> str:
        return f"Group({self.name!r}, rank={self.rank}, size={self.size})"

    def split(self, color: int, key: int | None = None) -> Group:
        """The group of the processes that give the same color, in the order of their keys (of their ranks without).

        All processes of this group must call it.

        >>> from hybridml import distributed as dist
        >>> def step():
        ...     half = dist.init().split(dist.get_rank() % 2)
        ...     return half.rank, half.size
        >>> dist.run_threads(4, step)
        [(0, 2), (0, 2), (1, 2), (1, 2)]
        """
        if not is_whole(color) or not (key is None or is_whole(key)):
            raise ArgumentError(f"split: color and key must be integers, got {color!r} and {key!r}")
        if self._transport is None:
            return Group(ALONE, None)
        name = f"{self.name}.{next(self._splits)}.{color}"
        part = self.meet("split", None, "", lambda t: t.split(color, self.rank if key is None else key))
        is_alone = part.size == 1  # its tokens are none of the others'
        found = Group(name, None if is_alone else part, self.log, None if is_alone else self.calls)
        _groups.by_name[found.name] = found
        return found

    def meet(self, name: str, x: np.ndarray | None, detail: str, work: Callable[[Transport], T]) -> T:
        """The result of work that begins when all processes have come to it, with an array of this shape and dtype."""
        return self._now(self._meeting(name, x, detail, work))

    def pair(self, name: str, x: np.ndarray, route: tuple[int, int, int], work: Callable[[Transport], T]) -> T:
        """The result of work of this process and another one, to which the others do not come. The route of the array
        is the rank that sends it, the one that receives it, and the tag."""
        detail = "{} -> {}, tag {}".format(*route)
        call = Call(name, self._messages[detail], x.shape, _text(x.dtype), detail)
        self._messages[detail] += 1
        return self._now(self.log.timed(self.name, call, x.nbytes, self.transport, work, meets=False))

    def unseen(self, work: Callable[[Transport], T]) -> T:
        """The result of work that looks at the group, and is no part of what is looked at."""
        with self.transport.waiting():
            return self._order.now(partial(work, self.transport))

    def begin(self, name: str, x: np.ndarray, detail: str, work: Callable[[Transport], T]) -> Begun[T]:
        """The promise of what `meet` returns, of work that is done while the program goes on, or when it waits."""
        run, sums = self._meeting(name, x, detail, work)
        return Begun(self._order.begin(run), sums)

    def wait(self, begun: Begun[T]) -> T:
        """The result of work that was begun. Its error is raised for the line that waits."""
        start = now()
        try:
            with self.transport.waiting():
                return self._order.result(begun.promise)
        except CollectiveError as error:
            raise CollectiveError(error.text) from None
        finally:
            begun.sums.blocked += now() - start

    def forget(self, token: Tensor) -> None:
        """Drops what was begun, for a token that a program has, and not a trace."""
        if type(token._array) is np.ndarray:
            self.promised.pop(int(token._array), None)

    def _now(self, timed: Work[T]) -> T:
        run, sums = timed
        start = now()
        with self.transport.waiting():
            result = self._order.now(run)
        sums.blocked += now() - start
        return result

    def _meeting(self, name: str, x: np.ndarray | None, detail: str, work: Callable[[Transport], T]) -> Work[T]:
        shape, dtype, nbytes = ((), "", 0) if x is None else (x.shape, _text(x.dtype), x.nbytes)
        call = Call(name, next(self._number), shape, dtype, detail)
        return self.log.timed(self.name, call, nbytes, self.transport, work, meets=True)


class _Groups(threading.local):
    """The groups by name: one table for all threads, but its own in one that is a rank (threads.py)."""

    def __init__(self) -> None:
        self.by_name = _shared


_shared: dict[str, Group] = {}
_groups = _Groups()
_init_lock = threading.Lock()


def known(name: str, asked: str) -> Group:
    """The group of this name. Raises CollectiveError, which says what asked for it, where there is none."""
    found = init() if name == WORLD else Group(ALONE, None) if name == ALONE else _groups.by_name.get(name)
    if found is None:
        raise CollectiveError(
            f"{asked}: there is no group {name!r} in this process; call hybridml.distributed.init() first, and split "
            "groups in the order of the process that has made this program"
        )
    return found


@contextmanager
def as_default(group: Group) -> Iterator[None]:
    """Makes the group that of all processes, in this thread."""
    before, _groups.by_name = _groups.by_name, {WORLD: group}
    try:
        yield
    finally:
        _groups.by_name = before


def init(backend: str | None = None, *, timeout: float | None = None) -> Group:
    """Finds out how this process was started, and returns the group of all processes of the job.

    backend: "mpi" (processes that `python -m hybridml.run` or `mpiexec` has started; needs mpi4py) or "local": this
    process alone. Without it "mpi" where a launcher of MPI has started the process, and "local" otherwise, so that a
    script runs alone as well. timeout: seconds that a collective waits for the other processes, 300 by default.

    Later calls return the same group, and may set its timeout. With "mpi", an exception that nobody handles ends all
    processes of the job: the others would wait for this one. Raises ArgumentError for another backend, ImportError
    where mpi4py is not installed, RuntimeError where another launcher than MPI's has started several processes (RANK
    and WORLD_SIZE are set).

    >>> from hybridml import distributed as dist
    >>> dist.init().size
    1
    """
    if backend not in (None, "mpi", "local"):
        raise ArgumentError(f"distributed.init: backend is 'mpi' or 'local', got {backend!r}")
    with _init_lock:
        found = _groups.by_name.get(WORLD)
        if found is None:
            if backend is None:
                backend = "mpi" if by_mpi() else "local"
                if backend == "local" and world_size() > 1:
                    raise RuntimeError(
                        f"distributed.init: WORLD_SIZE is {world_size()}, which torchrun sets, and groups "
                        "are MPI's: start the script with python -m hybridml.run or mpiexec, or call init('local')"
                    )
            found = _groups.by_name[WORLD] = Group(WORLD, _world() if backend == "mpi" else None)
        if timeout is not None:
            found.timeout = timeout
    return found


def _world() -> Transport | None:
    """The transport of all processes that MPI has started; None where it is one."""
    from .mpi import MpiTransport, abort_on_errors

    try:
        transport = MpiTransport()
    except ImportError as error:
        raise ImportError(
            f"distributed.init: MPI has started this process, and {error.name} is not installed: "
            "pip install 'hybridml[mpi]', or mpi4py alone where the machine has an MPI of its own"
        ) from error
    if transport.size == 1:
        return None
    abort_on_errors()
    return transport


def default(group: Group | None = None) -> Group:
    """The group, or without one that of all processes. Raises ArgumentError for another object."""
    if group is None:
        return init()
    if not isinstance(group, Group):
        raise ArgumentError(f"group must be what distributed.init() or split() returns, got {group!r}")
    return group


def forget_calls() -> None:
    """Drops the notes of calls, of a program that has failed: the next call is another one."""
    for group in list(_groups.by_name.values()):  # which there are: an error is no reason to make one
        group.calls.forget()


def all_groups() -> list[Group]:
    """The groups that this process is in, that of all processes first."""
    init()
    return list(_groups.by_name.values())


def is_initialized() -> bool:
    """Whether `init` has been called.

    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, dist.is_initialized)
    [True, True]
    """
    return WORLD in _groups.by_name


def get_rank(group: Group | None = None) -> int:
    """The number of this process in a group, by default that of all processes, from 0.

    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, dist.get_rank)
    [0, 1]
    """
    return default(group).rank


def get_world_size(group: Group | None = None) -> int:
    """The number of processes in a group, by default that of all processes.

    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, dist.get_world_size)
    [2, 2]
    """
    return default(group).size
