"""A step of one of n processes, run without the others: its work, and the collectives between.

The step is what that process would run, compiled program and all: its collectives come to a group that has n processes
by what it says, of which only this one is there. What the others would give is not there, so that values are wrong and
times are right.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ..groups import WORLD, Begun, Group, as_default
from ..seeing.log import Sums, now
from ..transport import TIMEOUT, Call, Transport

T = TypeVar("T")


class Entry(NamedTuple):
    """Work of so many seconds, and the collective behind it: one that is waited for ("meet"), begun ("begin"), or
    begun as number `number` and waited for now ("wait"); "end" at the end of the step."""

    seconds: float
    kind: str
    name: str = ""
    detail: str = ""
    nbytes: int = 0
    number: int = 0


class _Silent:
    """The transport of a process whose others are not there: rank 0 of them."""

    rank, timeout, overlaps = 0, TIMEOUT, False

    def __init__(self, size: int) -> None:
        self.size = size

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def meet(self, call: Call) -> None:
        pass

    def all_reduce(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        if out is not array:
            out[...] = array

    def broadcast(self, array: np.ndarray, root: int) -> None:
        pass

    def all_gather(self, out: np.ndarray, array: np.ndarray) -> None:
        out.reshape(self.size, -1)[:] = array.reshape(-1)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        out[...] = array[: len(out)]

    def all_to_all(self, out: np.ndarray, array: np.ndarray) -> None:
        out[...] = array

    def send(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        raise ArgumentError("simulate: processes that send messages differ, and one is run: use simulate_pipeline")

    def receive(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        self.send(array, peer, tag)

    def split(self, color: int, key: int) -> Transport:
        raise ArgumentError("simulate: what split returns depends on all processes, and one is run: use one group")


class _Taped(Group):
    """The group of a process whose others are not there, which writes down what it is asked for."""

    def __init__(self, size: int) -> None:
        super().__init__(WORLD, _Silent(size))
        self.tape: list[Entry] = []
        self._last = now()

    def begin_tape(self) -> None:
        self.tape, self._last = [], now()

    def end_tape(self) -> list[Entry]:
        self._note("end")
        return self.tape

    def meet(self, name: str, x: np.ndarray | None, detail: str, work: Callable[[Transport], T]) -> T:
        self._note("meet", name, detail, 0 if x is None else x.nbytes)
        return self._worked(work)

    def pair(self, name: str, x: np.ndarray, route: tuple[int, int, int], work: Callable[[Transport], T]) -> T:
        return self._worked(work)

    def begin(self, name: str, x: np.ndarray, detail: str, work: Callable[[Transport], T]) -> Begun[T]:
        self._note("begin", name, detail, x.nbytes)
        promise: Future[Any] = _Numbered(len(self.tape) - 1, work)
        return Begun(promise, Sums())

    def wait(self, begun: Begun[T]) -> T:
        assert isinstance(begun.promise, _Numbered)
        self._note("wait", number=begun.promise.number)
        return self._worked(begun.promise.work)

    def _note(self, kind: str, name: str = "", detail: str = "", nbytes: int = 0, number: int = 0) -> None:
        self.tape.append(Entry((now() - self._last) / 1e9, kind, name, detail, nbytes, number))
        self._last = now()

    def _worked(self, work: Callable[[Transport], T]) -> T:
        """The result of work that moves nothing, which takes no time of the tape."""
        result = work(self.transport)
        self._last = now()
        return result


class _Numbered(Future[Any]):
    """The promise of what the entry of a tape has begun, which is done when it is waited for."""

    def __init__(self, number: int, work: Callable[[Transport], Any]) -> None:
        super().__init__()
        self.number, self.work = number, work


def taped(make: Callable[[], Callable[[], Any]], size: int, repeats: int) -> list[Entry]:
    """The tape of a step of one of `size` processes: that with the median of the time, of so many. The function that
    `make` returns is a step; both run where this process is rank 0 of them."""
    group = _Taped(size)
    with as_default(group):
        step = make()
        for _ in range(3):  # compile, and come to rest
            step()
        tapes = []
        for _ in range(repeats):
            group.begin_tape()
            step()
            tapes.append(group.end_tape())
    tapes.sort(key=lambda tape: sum(entry.seconds for entry in tape))
    return tapes[len(tapes) // 2]
